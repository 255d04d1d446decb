"""Keys of a terminal, read one by one and without an echo."""

import os
import select
import termios
import time
import tty


class Keys:
    """While this is open, keys are read as they are pressed. Without a terminal there are none."""

    def __init__(self):
        # a job in the background may not change the terminal
        self.on_terminal = os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()

    def __enter__(self):
        if self.on_terminal:
            self.before = termios.tcgetattr(0)
            tty.setcbreak(0)
        return self

    def __exit__(self, *_):
        if self.on_terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, self.before)

    def offer(self, keys):
        """Shows {key: what it does}."""
        if self.on_terminal:
            print("  ".join(f"\x1b[1m{key}\x1b[0m {does}" for key, does in keys.items()), flush=True)

    def pressed(self, seconds):
        """The key that is pressed within so many seconds, or ""."""
        if not self.on_terminal:
            time.sleep(seconds)
            return ""
        key = os.read(0, 1).decode("latin-1") if select.select([0], [], [], seconds)[0] else ""
        while key == "\x1b" and select.select([0], [], [], 0)[0]:
            os.read(0, 1)  # the rest of an arrow and its like
        return key


def wait_for(changed, offered):
    """Returns "" once changed() holds, or before that the key of `offered`, {key: what it does}, that was pressed."""
    with Keys() as keys:
        keys.offer(offered)
        while not changed():
            if (key := keys.pressed(0.2)) in offered:
                return key
            if key:
                keys.offer(offered)
        return ""
