"""Headless Firefox, by Mozilla's marionette_driver."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from chromium import Browser

PROGRAM = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
DRIVER = importlib.util.find_spec("marionette_driver")
LOOKS = "layout.css.prefers-color-scheme.content-override"
ERRORS = """return Services.console.getMessageArray().filter((said) => said instanceof Ci.nsIScriptError
  && !(said.flags & Ci.nsIScriptError.warningFlag) && /^(file|blob|http):/.test(said.sourceName)).map(String)"""


class Firefox(Browser):
    """With one page. It watches no requests, so a `server` needs no permission."""

    def __init__(self, server=None):
        from marionette_driver.errors import JavascriptException
        from marionette_driver.marionette import Marionette

        self.raised, self.profile = JavascriptException, tempfile.TemporaryDirectory(prefix="flash_firefox_", ignore_cleanup_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (Path(self.profile.name) / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        command = [PROGRAM, "-headless", "-no-remote", "-profile", self.profile.name, "-marionette", "-remote-allow-system-access"]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self.process = subprocess.Popen(command, **quiet, start_new_session=True)
        self.driver = Marionette(host="127.0.0.1", port=port, startup_timeout=60)
        self.driver.start_session()
        self.of_firefox("document.documentElement.style.minWidth = 0")  # a window may be as narrow as a telephone

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()

    def of_firefox(self, script):
        with self.driver.using_context("chrome"):
            return self.driver.execute_script(script)

    @property
    def problems(self):
        """Errors of the page's scripts."""
        return self.of_firefox(ERRORS)

    def open(self, url):
        """A fresh page: an address that differs in its hash alone would not be loaded again."""
        self.driver.set_context("content")
        for address in ("about:blank", url):
            self.driver.navigate(address)

    def value(self, expression):
        try:
            return self.driver.execute_script("return window.eval(arguments[0])", [expression], sandbox=None)
        except self.raised as error:
            raise RuntimeError(f"{expression}: {error}") from None

    def look(self, width, height, theme):
        self.driver.set_window_rect(width=width, height=height)
        self.driver.set_pref(LOOKS, int(theme == "light"))
