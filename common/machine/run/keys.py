"""Waits for a file to be saved, or on a terminal for a key."""

import os
import select
import termios
import time
import tty


def on_terminal():
    return os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()  # a job in the background may not change it


def wait_for(changed, keys):
    """Returns "" once changed() holds, or before that the key of `keys`, {key: what it does}, that was pressed."""
    if not on_terminal():
        while not changed():
            time.sleep(0.2)
        return ""
    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0)
        print("  ".join(f"\x1b[1m{key}\x1b[0m {does}" for key, does in keys.items()), flush=True)
        while not changed():
            if select.select([0], [], [], 0.2)[0] and (key := os.read(0, 1).decode("latin-1")) in keys:
                return key
        return ""
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
