#!/usr/bin/env python3
"""The playground's page with an editor, for the kernels of one stage: common/try.sh STAGE --serve runs it.

The server listens on 127.0.0.1 alone, and answers those who know the token in its address. It writes to no file but the stage's kernels, and
runs nothing but the build and the stage's program, which gets the limits of the course's grader.
"""

import contextlib
import hashlib
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

from kernels import ROOT
from kit import sandbox
from make import HERE, filled, start_of

TRY = ROOT / "common/try.sh"
BUILDING = {"seconds": 120, "memory": 4096, "file_size": 512}  # seconds of processor time of each compiler, megabytes
RUNNING = {"seconds": 8, "memory": 1536, "file_size": 32}
ABOUT = """Edit a kernel of the stage. Saving writes the file, compiles it with the compiler of this machine and runs it on the simulator.
    Once it is right here, common/try.sh without --serve runs the stage's tests."""


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def ended(said, err, began, code=1, out=""):
    """A result as docs/playground/page.js takes it; `said`: its verdict, if there is no report."""
    return {"said": said, "code": code, "out": out, "err": err, "ms": 1000 * (time.monotonic() - began)}


def readable(text):
    """With paths that begin in the project; ccache may have made them relative to the build folder."""
    return re.sub(r"(?<![\w./])(build/)?(\.\./)+", "", text.replace(f"{ROOT}/", ""))


def limited(command, settings, limits):
    with sandbox.workplace() as folder:
        return sandbox.run(command, folder, env=settings, cwd=ROOT, **limits)


class Stage:
    """Its kernels, and one save or run at a time."""

    def __init__(self, name):
        self.name, self.own = name, sorted(str(path.relative_to(ROOT)) for path in (ROOT / name).rglob("*.cuh"))
        self.lock = threading.Lock()

    def save(self, file, text, was):
        """(status, answer). `was`: the digest of the file as the page knows it."""
        if file not in self.own:
            return 403, {"error": f"{file} is not one of the stage's kernels"}
        if digest((ROOT / file).read_text(errors="replace")) != was:
            return 409, {"error": f"{file} has changed on disk; nothing was written. Copy your text and load this page again"}
        (ROOT / file).write_text(text)
        return 200, {"was": digest(text)}

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

    def page(self):
        listed = json.loads(limited([ROOT / "build/bin" / self.name, "--list", "--device", "cpu", "--json"], {}, RUNNING).out)["variants"]
        first = next((variant for variant in listed if variant["name"] != "options"), listed[0])  # which is chapter 09's
        texts = {file: (ROOT / file).read_text() for file in self.own}
        near = [first["kernel"], *re.findall('#include "(.+)"', texts[first["kernel"]])]  # the editor opens where a barrier can be deleted
        first["kernel"] = next((file for file in near if "__syncthreads();" in texts.get(file, "")), near[0])
        data = {"start": start_of(first, 0), "variants": listed, "breaks": [], "files": texts}
        data["served"] = {file: digest(text) for file, text in texts.items()}
        css, script = ("".join((HERE / name).read_text() for name in names) for names in (("page.css", "edit.css"), ("edit.js", "page.js")))
        return filled(data, f"Edit and run {self.name}", ABOUT, css, script)


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
        path = self.asked()
        if path == "":
            self.answer(200, self.server.stage.page(), "text/html")
        else:
            self.answer(403 if path is None else 404, {"error": "open the address that try.sh has printed"})

    def do_POST(self):
        path, stage = self.asked(), self.server.stage
        if path is None:
            return self.answer(403, {"error": "this page is from another server; open the address that try.sh has printed"})
        try:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with stage.lock:
                if path == "save":
                    answer = stage.save(str(told["file"]), str(told["text"]), told["was"])
                elif path == "run":
                    answer = 200, stage.run(list(told["args"]), dict(told["env"]))
                else:
                    answer = 404, {"error": "there is no such request"}
            self.answer(*answer)
        except (ValueError, KeyError, TypeError):
            self.answer(400, {"error": "the request is not one of the page's"})
        except OSError as error:
            self.answer(500, {"error": str(error)})


def main(name):
    parent = os.getppid()
    for end in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # a script's background jobs ignore the last one
        signal.signal(end, lambda *_: sys.exit(0))
    if code := subprocess.run([TRY, name, "--build"]).returncode:
        sys.exit(code)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.stage, server.token = True, Stage(name), secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{server.server_port}/{server.token}/"
    print(f"try: open {address} in a browser of this machine. Ctrl-C ends it", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:  # the shell's end is ours, too
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1])
