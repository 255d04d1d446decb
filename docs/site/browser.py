"""Chromium without a window and without a network, as walk.py and pdf.py use it. By itself it says whether there is one."""

import contextlib
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--host-resolver-rules=MAP * ~NOTFOUND"]  # whatever a page asks for from outside, it does not get


def program():
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def opened():
    """A page of it"""
    from playwright.sync_api import sync_playwright  # of the site's own environment

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program(), args=ARGUMENTS)
        yield browser.new_page()
        browser.close()


if __name__ == "__main__":
    sys.exit(not program())
