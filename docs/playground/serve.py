#!/usr/bin/env python3
"""The playground's page with an editor, for the kernels of one stage: common/try.sh STAGE --serve, which has built the stage, runs it.

A save compiles with the compiler of this machine and runs the native program. The server listens on 127.0.0.1 alone, and answers those who know
the token in its address. It writes to no file but the stage's kernels, and runs nothing but the build and the stage's program, which gets the
limits of the course's grader.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import sys
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kernels import ROOT, included_by
from kit import build, sandbox
from make import ABOUT, HERE, START

BUILD = ROOT / "build"
LARGEST = 1 << 20  # bytes of a request
BUILDING = {"seconds": 120, "memory": 4096, "file_size": 512}  # seconds of processor time of each compiler, megabytes
RUNNING = {"seconds": 8, "memory": 1536, "file_size": 32}  # those of kit/sandbox.py
ARGUMENT = re.compile(  # of the program; the page sends no others
    r"--(variant|pass|dtype|seq-q|seq-k|head-dim|heads|kv-heads|bias|input|seed|tiles) [\w,]+|--device cpu|--causal|--json"
)
ORDER, TARGET = re.compile(r"forward|reverse|random:\d+"), re.compile("75|80|90")
POLICY = (
    "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"
)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def ended(said, err, seconds=0.0, code=1, out=""):
    """A result as docs/playground/page.js takes it; `said`: its verdict, if there is no report."""
    return {"said": said, "code": code, "out": out, "err": err, "ms": 1000 * seconds}


def readable(text):
    """With paths that begin in the project; ccache may have made them relative to the build folder."""
    return re.sub(r"(?<![\w./])(build/)?(\.\./)+", "", text.replace(f"{ROOT}/", ""))


def first_error(text):
    """The first message of a compiler, or else the last lines."""
    found = re.search(r"^\S+:\d+:\d+: (?:fatal )?error: .*(?:\n +.*){0,3}", text, re.MULTILINE)
    return found[0] if found else "\n".join(text.strip().splitlines()[-8:])


class Stage:
    """Its kernels, and one run at a time: a new one ends the one before."""

    def __init__(self, name):
        self.name, self.own = name, sorted(str(path.relative_to(ROOT)) for path in (ROOT / name).rglob("*.cuh"))
        files = set(self.own)
        for file in self.own:
            included_by(file, files)
        self.files = self.own + sorted(file for file in files if file.endswith(".cuh") and file not in self.own)
        self.lock, self.turn, self.newest, self.process = threading.Lock(), threading.Lock(), 0, None

    def save(self, file, text, was):
        """(status, answer). `was`: the digest of the file as the page knows it."""
        if file not in self.own:
            return 403, {"error": f"{file} is not one of the stage's kernels"}
        with self.lock:
            before = (ROOT / file).read_bytes()
            if digest(before) != was:
                return 409, {"error": f"{file} has changed on disk", "text": before.decode(errors="replace"), "was": digest(before)}
            (ROOT / file).write_bytes(text.encode())
        return 200, {"was": digest(text.encode())}

    def stop(self):
        """Ends the program that runs; the compiler ends by itself, since half an object file would stay. Returns the number of the next run."""
        with self.lock:
            self.newest += 1
            if self.process and self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            return self.newest

    def limited(self, command, settings, limits, begun=None):
        with sandbox.workplace() as folder:
            return sandbox.run(command, folder, env=settings, cwd=ROOT, begun=begun, **limits)

    def run(self, arguments, order, target):
        number, began = self.stop(), time.monotonic()
        with self.turn:
            if number != self.newest:
                return ended("Stopped", "")
            jobs = str(min(os.cpu_count() or 2, build.MOST_JOBS))
            built = self.limited(["cmake", "--build", BUILD, "-j", jobs, "--target", self.name], dict(os.environ), BUILDING)
            if built.code:
                return ended("It does not compile", first_error(readable(built.out + built.err)), time.monotonic() - began)

            def begun(process):
                with self.lock:
                    self.process = process
                    if number != self.newest:
                        os.killpg(process.pid, signal.SIGKILL)

            settings = {"FLASH_SIMT_ORDER": order, "FLASH_SIMT_TARGET": target, "FLASH_SIMT_STEPS": "16777216"}
            done = self.limited([BUILD / "bin" / self.name, *arguments], settings, RUNNING, begun)
        seconds = time.monotonic() - began
        if number != self.newest:
            return ended("Stopped", "")
        if done.code == 124:
            return ended(f"Ended after {RUNNING['seconds']} s of computing", "Does a loop never end? Or is the problem too large?", seconds)
        if done.code < 0:
            return ended(f"Ended by {signal.Signals(-done.code).name}", done.err, seconds)
        return ended("", readable(done.err), seconds, done.code, readable(done.out))

    def page(self, token):
        done = self.limited([BUILD / "bin" / self.name, "--list", "--device", "cpu", "--json"], {}, RUNNING)
        listed = json.loads(done.out)["variants"]
        first = next((variant for variant in listed if variant["name"] != "options"), listed[0])  # which is chapter 09's
        data = {
            "start": {**START, "variant": first["name"], "pass": first["passes"][0], "dtype": first["dtypes"][0]},
            "variants": listed,
            "elsewhere": [],
            "breaks": [],
            "files": {file: (ROOT / file).read_text() for file in self.files},
            "served": {file: digest((ROOT / file).read_bytes()) for file in self.own},
        }
        parts = {
            "TITLE": f"Edit and run {self.name}",
            "ABOUT": ABOUT,
            "CSS": (HERE / "page.css").read_text() + (HERE / "edit.css").read_text(),
            "DATA": json.dumps(data).replace("</", "<\\/"),
            "MODULE": "",
            "WASM": "",
            "PAGE": (HERE / "edit.js").read_text() + (HERE / "page.js").read_text(),
        }
        return re.sub(r"@(\w+)@", lambda found: parts[found[1]], (HERE / "page.html").read_text()).replace(
            " in your browser</title>", "</title>"
        )


class Handler(BaseHTTPRequestHandler):
    timeout = 30

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(data), "Cache-Control": "no-store", "Content-Security-Policy": POLICY,
            "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
        }.items():  # fmt: skip
            self.send_header(name, str(value))
        with contextlib.suppress(ConnectionError):  # a page that was closed meanwhile
            self.end_headers()
            self.wfile.write(data)

    def asked(self):
        """What follows the token in the address, or None: this is not our page."""
        here = f"127.0.0.1:{self.server.server_port}"
        _, token, path = (self.path.split("/", 2) + ["", ""])[:3]
        right = secrets.compare_digest(token.encode(), self.server.token.encode())
        right &= self.headers.get_all("Host") == [here] and self.headers.get("Origin", f"http://{here}") == f"http://{here}"
        return path if right else None

    def do_GET(self):
        path = self.asked()
        if path is None:
            self.answer(403, {"error": "open the address that try.sh has printed"})
        elif path:
            self.answer(404, {"error": "there is no such page"})
        else:
            self.answer(200, self.server.stage.page(self.server.token), "text/html")

    def do_POST(self):
        path, stage = self.asked(), self.server.stage
        if path is None:
            return self.answer(403, {"error": "this page is from another server; open the address that try.sh has printed"})
        try:
            size = int(self.headers.get("Content-Length", "-1"))
            if not 0 <= size <= LARGEST:
                self.rfile.read(max(0, min(size, 8 * LARGEST)))  # a connection closed with bytes unread is broken, and the answer lost
                return self.answer(413, {"error": f"a request has at most {LARGEST:,} bytes"})
            told = json.loads(self.rfile.read(size))
            if path == "save":
                return self.answer(*stage.save(str(told["file"]), str(told["text"]), told["was"]))
            if path == "stop":
                return self.answer(200, {"stopped": stage.stop()})
            if path == "run":
                words, order, target = (told["args"], told["env"]["FLASH_SIMT_ORDER"], told["env"]["FLASH_SIMT_TARGET"])
                pairs = re.findall(r"--\S+(?: (?!--)\S+)?", " ".join(words))
                good = " ".join(pairs) == " ".join(words) and all(map(ARGUMENT.fullmatch, pairs))
                if good and ORDER.fullmatch(order) and TARGET.fullmatch(target):
                    return self.answer(200, stage.run(words, order, target))
            self.answer(404, {"error": "there is no such request"})
        except (ValueError, KeyError, TypeError):
            self.answer(400, {"error": "the request is not one of the page's"})
        except OSError as error:
            self.answer(500, {"error": str(error)})


class Server(ThreadingHTTPServer):
    parent = os.getppid()

    def service_actions(self):
        if os.getppid() != self.parent:  # whoever started it was killed
            sys.exit(0)


def main(name):
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.stage, server.token = True, Stage(name), secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{server.server_port}/{server.token}/"
    print(f"try: open {address} in a browser of this machine; Ctrl-C ends it", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(address)
    for end in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # a script's background jobs ignore the last one
        signal.signal(end, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        server.stage.stop()


if __name__ == "__main__":
    main(sys.argv[1])
