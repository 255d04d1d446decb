"""Headless Chromium, by the protocol of its developer tools over two pipes: no packages, no network."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """What tests ask of any."""

    def seconds(self):
        """The processor time that all its processes have taken, which says more than the clock where others are at work."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[3]) == self.process.pid:  # its session
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def wait(self, expression, seconds):
        """The first value of the expression that counts as true, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := self.value(expression):
                    return found
            except RuntimeError:
                pass  # the page's script has not run yet
            time.sleep(1 / 50)
        return None


class Chromium(Browser):
    """With one page. `problems`: what its console has told as errors, and what it asked of the network, apart from a `server` on 127.0.0.1."""

    def __init__(self, server=None):
        self.allowed = ("file:", "data:", "blob:", "about:", *([server] if server else []))
        self.profile = tempfile.TemporaryDirectory(prefix="flash_chromium_", ignore_cleanup_errors=True)
        (read, self.write), (self.read, write) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        command = [PROGRAM, *flags, "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command]
        self.process = subprocess.Popen(
            shell, pass_fds=ends, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for end in (read, write, *ends):
            os.close(end)
        self.count, self.rest, self.session, self.problems = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.read, 1 << 20)
            if not more:
                raise EOFError("Chromium has ended")
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def ask(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer.get("method"), answer.get("params", {}))

    def note(self, event, said):
        if event == "Runtime.exceptionThrown":
            self.problems.append(
                f"script: {said['exceptionDetails'].get('exception', {}).get('description', said['exceptionDetails']['text'])}"
            )
        elif event == "Runtime.consoleAPICalled" and said["type"] == "error":
            self.problems.append(f"console: {said['args']}")
        elif event == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.problems.append(f"log: {said['entry']['text']}")
        elif event == "Network.requestWillBeSent" and not said["request"]["url"].startswith(self.allowed):
            self.problems.append(f"from outside: {said['request']['url']}")

    def open(self, url):
        """A fresh page: an address that differs in its hash alone would not be loaded again."""
        self.ask("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'", 10)  # a second address before the first one is there may get no answer
        self.ask("Page.navigate", url=url)

    def value(self, expression):
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['result'].get('description')}")
        return done["result"].get("value")

    def look(self, width, height, theme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
