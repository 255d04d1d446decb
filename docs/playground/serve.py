#!/usr/bin/env python3
"""The playground's page with an editor, for the kernels of one stage or a plain .cu file: common/try.sh STAGE --serve runs it.

The server listens on 127.0.0.1 alone, and answers those who know the token in its address. It writes to no file but those that it shows, and
runs nothing but the build and the stage's program, or common/run with the file, which get the limits of the course's grader.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kernels import ROOT, Page
from kit import sandbox
from make import HERE, filled, start_of, variants

TRY = ROOT / "common/try.sh"
BUILDING = {"seconds": 120, "memory": 4096, "file_size": 512}  # seconds of processor time of each compiler, megabytes
RUNNING = {"seconds": 8, "memory": 1536, "file_size": 32}
ABOUT = """Saving writes the file, compiles it with the compiler of this machine and runs it on the simulator.
    A stage's tests are those of common/try.sh without --serve."""
VERDICTS = ("Nothing found", "Something is wrong", "It does not run here", "It failed by itself")  # by exit codes of common/run


def ended(verdict, err, began, code=1, out=""):
    """A result as docs/playground/page.js takes it; `verdict`, if there is no report."""
    return {"verdict": verdict, "code": code, "out": out, "err": err, "ms": 1000 * (time.monotonic() - began)}


def readable(text):
    """With paths that begin in the project; ccache may have made them relative to the build folder."""
    return re.sub(r"(?<![\w./])(build/)?(\.\./)+", "", text.replace(f"{ROOT}/", ""))


def limited(command, settings, limits):
    with sandbox.workplace() as folder:
        return sandbox.run(command, folder, env=settings, cwd=ROOT, **limits)


class Stage:
    """Its kernels, and one save or run at a time."""

    lock = threading.Lock()

    def __init__(self, name):
        self.name, self.own = name, sorted(str(path.relative_to(ROOT)) for path in (ROOT / name).rglob("*.cuh"))
        if code := subprocess.run([TRY, name, "--build"]).returncode:
            sys.exit(code)

    def save(self, file, text, was):
        """(status, answer). `was`: the file as the page knows it."""
        if file not in self.own:
            return 403, {"error": f"{file} is none of this page's files"}
        if (ROOT / file).read_text(errors="replace") != was:
            return 409, {"error": f"{file} has changed on disk; nothing was written. Copy your text and load this page again"}
        (ROOT / file).write_text(text)
        return 200, {}

    def page(self):
        texts = {file: (ROOT / file).read_text(errors="replace") for file in self.own}
        first, data = self.variants(texts)
        data |= {"start": start_of(first, 0), "breaks": [], "files": texts, "served": True}
        css, script = ("".join((HERE / name).read_text() for name in names) for names in (("page.css", "edit.css"), ("edit.js", "page.js")))
        return filled(data, f"Edit and run {self.name}", ABOUT, css, script)

    def run(self, arguments, settings):
        began = time.monotonic()
        built = limited([TRY, self.name, "--build"], dict(os.environ), BUILDING)
        if built.code:
            return ended("It does not compile", built.out or built.err, began)
        done = limited([ROOT / "build/bin" / self.name, *arguments], settings, RUNNING)
        if done.code == 124:
            return ended(f"Ended after {RUNNING['seconds']} s of computing", "Does a loop never end? Or is the problem too large?", began)
        if done.code < 0:
            return ended(f"Ended by {signal.Signals(-done.code).name}", done.err, began)
        return ended("", readable(done.err), began, done.code, readable(done.out))

    def variants(self, texts):
        """(that with which the page begins, what the page knows of all)"""
        listed = json.loads(limited([ROOT / "build/bin" / self.name, "--list", "--device", "cpu", "--json"], {}, RUNNING).out)["variants"]
        first = next(variant for variant in listed if not variant["in_more"])
        near = [first["kernel"], *re.findall('#include "(.+)"', texts[first["kernel"]])]  # the editor opens where a barrier can be deleted
        first["kernel"] = next((file for file in near if "__syncthreads();" in texts.get(file, "")), near[0])
        return first, {"variants": listed}


class Plain(Stage):
    """A plain .cu file in their place."""

    def __init__(self, name):
        path = Path(name).resolve()
        self.name, self.own = path.name, [str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)]

    def run(self, _, settings):
        began = time.monotonic()
        done = limited([ROOT / "common/run", "--json", "--order", settings["FLASH_SIMT_ORDER"], *self.own], os.environ | settings, BUILDING)
        report = json.loads(done.out or "{}")
        parts = [*report.get("kernels", []), {"findings": report.get("host", []), "remarks": []}]
        words = "\n".join(f"[{each['rule']}] {each['text']}" for part in parts for each in part["findings"] + part["remarks"])
        return ended(VERDICTS[done.code] if 0 <= done.code < 4 else "It was ended", report.get("error", words), began, done.code, done.err)

    def variants(self, _):
        listed = variants(Page(f"lab_{self.name}", self.own), None)
        return listed[0], {"variants": listed, "lab": True}


class Handler(BaseHTTPRequestHandler):
    timeout = 30

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        with contextlib.suppress(ConnectionError):  # a page that was closed meanwhile
            self.end_headers()
            self.wfile.write(data)

    def asked(self):
        """What follows the token in the address, or None: this is not our page."""
        _, token, path = (self.path.split("/", 2) + ["", ""])[:3]
        return path if secrets.compare_digest(token.encode(), self.server.token.encode()) else None

    def do_GET(self):
        if self.asked() == "":
            self.answer(200, self.server.files.page(), "text/html")
        else:
            self.answer(403, {"error": "open the address that try.sh has printed"})

    def do_POST(self):
        path, files = self.asked(), self.server.files
        if path not in ("save", "run"):
            return self.answer(403, {"error": "this page is from another server; open the address that try.sh has printed"})
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with files.lock:
                if path == "save":
                    answer = files.save(request["file"], str(request["text"]), request["was"])
                else:
                    answer = 200, files.run(list(request["args"]), dict(request["env"]))
            self.answer(*answer)
        except (ValueError, KeyError, TypeError):
            self.answer(400, {"error": "the request is not one of the page's"})
        except OSError as error:
            self.answer(500, {"error": str(error)})


def main(name):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a script's background jobs ignore
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.token = True, secrets.token_urlsafe(24)
    server.files = (Plain if name.endswith(".cu") else Stage)(name)
    address = f"http://127.0.0.1:{server.server_port}/{server.token}/"
    print(f"try: open {address} in a browser of this machine. Ctrl-C ends it", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(address)
    server.serve_forever()


if __name__ == "__main__":
    asked = " ".join(sys.argv[1:])
    if asked == "--help":
        sys.exit(print(__doc__.strip()))
    if not (ROOT / asked / "main.cpp").is_file() and not (asked.endswith(".cu") and Path(asked).is_file()):
        print(f"serve: what to serve is '{asked}'; allowed: a stage, such as 04_fa1_forward, or FILE.cu", file=sys.stderr)
        sys.exit(2)
    main(asked)
