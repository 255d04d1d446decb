#!/usr/bin/env python3
"""common/try.sh 04 --serve in a copy of the project: who is answered, what a save says and writes, and its page in Chromium where Playwright is."""

import http.client
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = "04_fa1_forward/4_tiled.cuh"
RUN = {
    "args": "--device cpu --variant tiled --seq-q 80 --seq-k 80 --head-dim 40 --heads 1 --json".split(),
    "env": {"FLASH_SIMT_ORDER": "forward", "FLASH_SIMT_TARGET": "90"},
}


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="flash serve.")
        cls.addClassCleanup(scratch.cleanup)
        cls.root = Path(shutil.copytree(ROOT, f"{scratch.name}/project", ignore=shutil.ignore_patterns("build*", ".*")))
        subprocess.run(["cmake", "--preset", "demo", "-DFLASH_CUDA=OFF"], cwd=cls.root, check=True, stdout=subprocess.DEVNULL)
        cls.host, cls.token = cls.serve("04")
        cls.kernel = (cls.root / FILE).read_text()

    @classmethod
    def serve(cls, what):
        """(host, token) of the address that it prints"""
        server = subprocess.Popen(
            [cls.root / "common/try.sh", what, "--serve"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        cls.addClassCleanup(server.communicate)
        cls.addClassCleanup(server.terminate)
        return re.search(r"http://(127.0.0.1:\d+)/(\S+)/", server.stdout.readline()).groups()

    def setUp(self):
        (self.root / FILE).write_text(self.kernel)

    def ask(self, path, body=None, token=None):
        """(status, answer); the text of a page"""
        connection = http.client.HTTPConnection(self.host, timeout=300)
        self.addCleanup(connection.close)
        connection.request("GET" if body is None else "POST", f"/{token or self.token}/{path}", body and json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if answer.headers["Content-Type"].startswith("application/json") else text

    def save(self, text, file=FILE):
        path = self.root / file
        return self.ask("save", {"file": file, "text": text, "was": path.read_text() if path.is_file() else ""})

    def result_of(self, text, file=FILE):
        self.save(text, file)
        status, result = self.ask("run", RUN)
        self.assertEqual(status, 200, result)
        return result

    def test_what_is_refused(self):
        for path, body in (("", None), ("run", RUN), ("save", {"x": 1})):
            self.assertEqual(self.ask(path, body, token="0")[0], 403)
        self.assertEqual(self.ask("../" + FILE)[0], 403)
        for file in ("README.md", "04_fa1_forward/main.cpp", "04_fa1_forward/../01_naive/kernel.cuh", "/tmp/a.cuh"):
            self.assertEqual(self.save("x", file=file)[0], 403, file)
        for path, body in (("run", [1]), ("run", {"args": []}), ("save", {"file": FILE}), ("run", RUN | {"args": 5})):
            self.assertEqual(self.ask(path, body)[0], 400, body)
        (self.root / FILE).write_text("// changed elsewhere\n")
        self.assertEqual(self.ask("save", {"file": FILE, "text": "", "was": self.kernel})[0], 409)
        self.assertEqual((self.root / FILE).read_text(), "// changed elsewhere\n")
        for words in ([], ["--hepl"], ["no.cu"]):
            done = subprocess.run([self.root / "docs/playground/serve.py", *words], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), words)

    def test_verdicts(self):
        self.assertTrue(json.loads(self.result_of(self.kernel + "// more\n")["out"])["check"]["passed"])
        result = self.result_of(self.kernel + "int x = nowhere;\n")
        self.assertRegex(result["err"], rf"^{FILE}:{self.kernel.count(chr(10)) + 1}:9: error: .*nowhere")
        mistakes = json.loads(self.result_of(self.kernel.replace("__syncthreads();", "", 1))["out"])["threads"]["mistakes"]
        self.assertIn(f"{FILE}:", str(mistakes))

    def test_a_plain_file(self):
        file = "01_naive/standalone.cu"
        text = (self.root / file).read_text()
        self.host, self.token = self.serve(self.root / file)
        race = text.replace("__syncthreads();", "", 1)
        for saved, code, pattern in ((text, 0, "^$"), (race, 1, rf"^\[race\] {file}:"), ("{", 2, f"^{file}:1: ")):
            result = self.result_of(saved, file)
            self.assertEqual((result["code"], bool(re.search(pattern, result["err"]))), (code, True), result)

    def test_a_run_without_an_end_is_ended(self):
        before, brace, after = self.kernel.partition("__syncthreads();")
        endless = f"{before}for (volatile int x = 0; x < 1;) {{}} {brace}{after}"
        self.assertIn("Ended after", self.result_of(endless)["verdict"])

    def test_page(self):
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            self.skipTest("Playwright is missing")
        with sync_playwright() as play:
            page = play.chromium.launch(executable_path=shutil.which("chromium") or shutil.which("google-chrome")).new_page()
            verdict, editor = page.locator("#verdict strong"), page.locator("#editor textarea")
            page.goto(f"http://{self.host}/{self.token}/#variant=tiled")
            verdict.get_by_text("Right, without a race").wait_for(timeout=240_000)
            editor.fill(self.kernel.replace("__syncthreads();", "", 1))
            self.assertEqual((self.root / FILE).read_text(), self.kernel)  # nothing is written before a save
            page.keyboard.press("Control+s")
            verdict.get_by_text("Race").wait_for(timeout=240_000)
            page.locator("#lines .hit").first.wait_for()
            editor.fill(self.kernel)
            page.get_by_role("button", name="Save and run").click()
            verdict.get_by_text("Right, without a race").wait_for(timeout=240_000)
            self.assertEqual((self.root / FILE).read_text(), self.kernel)


if __name__ == "__main__":
    unittest.main()
