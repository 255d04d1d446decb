#!/usr/bin/env python3
"""common/try.sh 04 --serve in a copy of the project: who is answered, what a save says and writes, and its page in Chromium where there is one."""

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from chromium import PROGRAM, Chromium

ROOT = Path(__file__).resolve().parents[2]
STAGE, FILE = "04_fa1_forward", "04_fa1_forward/2_tiled.cuh"
RUN = {
    "args": "--device cpu --variant tiled --seq-q 80 --seq-k 80 --head-dim 40 --heads 1 --json".split(),
    "env": {"FLASH_SIMT_ORDER": "forward", "FLASH_SIMT_TARGET": "90", "FLASH_SIMT_STEPS": "1"},
}


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="flash serve.")
        cls.addClassCleanup(scratch.cleanup)
        cls.root = Path(scratch.name).resolve() / "project"
        for path in ROOT.iterdir():
            if re.match(r"\d\d_|common$|docs$", path.name):
                shutil.copytree(path, cls.root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.name.startswith("CMake"):
                shutil.copy2(path, cls.root)
        command = ["cmake", "--preset", "demo", "-DFLASH_CUDA=OFF"]
        subprocess.run(command, cwd=cls.root, check=True, stdout=subprocess.DEVNULL)
        command = [cls.root / "common/try.sh", "04", "--serve"]
        cls.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.server.stdout.close)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.terminate)
        cls.url = re.search(r"http://127.0.0.1:\d+/\S+/", cls.server.stdout.readline())[0]
        _, _, cls.host, cls.token, _ = cls.url.split("/")
        cls.kernel = (cls.root / FILE).read_text()

    def setUp(self):
        (self.root / FILE).write_text(self.kernel)

    def ask(self, path, body=None, token=None, **headers):
        """(status, answer); the text of a page"""
        connection = http.client.HTTPConnection(self.host, timeout=300)
        self.addCleanup(connection.close)
        data = None if body is None else body if isinstance(body, str) else json.dumps(body)
        connection.request("GET" if body is None else "POST", f"/{token or self.token}/{path}", data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if answer.headers["Content-Type"].startswith("application/json") else text

    def save(self, text, was=None, file=FILE):
        path = self.root / file
        was = was or (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        return self.ask("save", {"file": file, "text": text, "was": was})

    def run_it(self, **env):
        status, result = self.ask("run", RUN | {"env": RUN["env"] | env})
        self.assertEqual(status, 200, result)
        return result

    def test_who_is_answered(self):
        self.assertEqual(self.ask("")[0], 200)
        for path, body in (("", None), ("stop", {}), ("run", RUN), ("save", {})):
            self.assertEqual(self.ask(path, body, token="0")[0], 403)
            self.assertEqual(self.ask(path, body, token="%c3%a4" + self.token)[0], 403)
            self.assertEqual(self.ask(path, body, Host="example.org")[0], 403)
            self.assertEqual(self.ask(path, body, Host=self.host.replace("127.0.0.1", "localhost"))[0], 403)
            self.assertEqual(self.ask(path, body, Origin="http://example.org")[0], 403)
        self.assertEqual(self.ask("stop", {}, Origin=f"http://{self.host}")[0], 200)
        for path in (FILE, "../" + FILE, "/etc/passwd"):
            self.assertEqual(self.ask(path)[0], 404)

    def test_nothing_but_the_stages_kernels_is_written(self):
        for file in ("common/device/device.cuh", "04_fa1_forward/main.cpp", f"{STAGE}/../01_naive/kernel.cuh", "/tmp/a.cuh", "a.cuh"):
            before = (self.root / file).read_bytes() if (self.root / file).is_file() else None
            self.assertEqual(self.save("x", file=file)[0], 403, file)
            self.assertEqual((self.root / file).read_bytes() if (self.root / file).is_file() else None, before)

    def test_bad_requests(self):
        for path, body in (("run", "{"), ("run", "[]"), ("run", {}), ("save", {"file": FILE}), ("run", RUN | {"args": 5})):
            self.assertEqual(self.ask(path, body)[0], 400, body)
        for words in (["--save", "x"], ["--input", "../x"], ["04"], ["--json", "--causal=1"]):
            self.assertEqual(self.ask("run", RUN | {"args": words})[0], 404, words)
        self.assertEqual(self.ask("run", RUN | {"env": RUN["env"] | {"FLASH_SIMT_ORDER": "x"}})[0], 404)
        self.assertEqual(self.ask("save", {"file": FILE, "text": "x" * (1 << 20), "was": ""})[0], 413)

    def test_a_file_that_has_changed_stays(self):
        was = hashlib.sha256(self.kernel.encode()).hexdigest()
        (self.root / FILE).write_text("// changed elsewhere\n")
        status, told = self.save(self.kernel, was)
        self.assertEqual((status, told["text"]), (409, "// changed elsewhere\n"))
        self.assertEqual((self.root / FILE).read_text(), "// changed elsewhere\n")
        self.assertEqual(self.save(self.kernel, told["was"])[0], 200)
        self.assertEqual((self.root / FILE).read_text(), self.kernel)

    def test_verdicts(self):
        self.assertEqual(self.save(self.kernel + "// more\n")[0], 200)
        result = self.run_it()
        self.assertEqual((result["said"], result["code"], json.loads(result["out"])["check"]["passed"]), ("", 0, True), result)

        line = self.kernel.count("\n") + 1
        self.save(self.kernel + "int x = nowhere;\n")
        result = self.run_it()
        self.assertEqual(result["said"], "It does not compile")
        self.assertRegex(result["err"], rf"^{FILE}:{line}:9: error: .*nowhere")

        self.save(self.kernel.replace("__syncthreads();", "", 1))
        mistakes = json.loads(self.run_it()["out"])["threads"]["mistakes"]
        self.assertRegex(mistakes[0], rf"{FILE}:\d+ (writes|reads) and .* the same\s+shared memory")

    def test_it_ends_with_who_started_it_and_by_each_signal(self):
        command = [self.root / "common/try.sh", "04", "--serve"]
        for end in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
            shell = ["sh", "-c", '"$@" & echo $!; wait', "sh", *command]
            with subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as started:
                server = int(started.stdout.readline())
                self.assertIn("http://127.0.0.1:", started.stdout.readline())
                os.kill(started.pid if end == signal.SIGKILL else server, end)
                self.assertEqual(started.stdout.read(), "")  # which waits until the server has closed it

    def endless(self):
        before, brace, after = self.kernel.partition("__syncthreads();")
        self.save(f"{before}for (volatile int x = 0; x < 1;) {{}} {brace}{after}")

    def test_what_does_not_end_is_ended(self):
        self.endless()
        began = time.monotonic()
        self.assertRegex(self.run_it()["said"], "Ended after 8 s of computing")
        self.assertLess(time.monotonic() - began, 100)

    def test_stop_and_a_second_save_end_a_run(self):
        for end in (lambda: self.ask("stop", {}), lambda: (self.save(self.kernel), self.run_it())):
            self.endless()
            first = []
            thread = threading.Thread(target=lambda first=first: first.append(self.run_it()))
            thread.start()
            time.sleep(1)  # it compiles, or runs
            end()
            thread.join()
            self.assertEqual(first[0]["said"], "Stopped")
        self.save(self.kernel)
        self.assertEqual(self.run_it()["code"], 0)

    def test_the_page(self):
        if not PROGRAM:
            self.skipTest("Chromium is missing")
        verdict = "document.querySelector('#verdict strong')?.textContent"
        edit = "{{ const area = document.querySelector('#editor textarea'); area.value = area.value.replace('{}', '{}'); area.dispatchEvent(new Event('input')); }}"
        save = "document.querySelector('#saving button').click()"
        with Chromium(self.url) as browser:
            for width, theme in ((1280, "light"), (400, "dark")):
                browser.look(width, 900, theme)
                browser.open(self.url + "#variant=tiled")
                self.assertTrue(browser.wait(f"{verdict} === 'Right, without a race'", 240))
                self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width)
            browser.value(edit.format("__syncthreads();", ""))
            self.assertEqual((self.root / FILE).read_text(), self.kernel)  # nothing is written before a save
            browser.value(save)
            self.assertTrue(browser.wait(f"{verdict}.includes('Race')", 240))
            self.assertGreater(browser.value("document.querySelectorAll('#lines .hit').length"), 0)
            browser.value(edit.format("#pragma once", "nowhere"))
            browser.value(save)
            self.assertTrue(browser.wait(f"{verdict} === 'It does not compile'", 240))
            self.assertTrue(browser.wait("document.querySelector('#lines .hit')?.textContent", 5))
            (self.root / FILE).write_text(self.kernel)
            browser.value(edit.format("nowhere", "elsewhere"))
            browser.value(save)
            self.assertTrue(browser.wait("document.querySelector('#saving').textContent.includes('has changed on disk')", 10))
            self.assertEqual((self.root / FILE).read_text(), self.kernel)
            browser.value("document.querySelector('#saving span button').click()")
            self.assertTrue(browser.wait(f"{verdict} === 'Right, without a race'", 240))
            self.assertEqual([p for p in browser.problems if "409" not in p], [])


if __name__ == "__main__":
    unittest.main()
