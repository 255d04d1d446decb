#!/usr/bin/env python3
"""commands.py: what it takes for a command, and that a command that ends in another way than its page says is a failure."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import commands  # both lie beside this file
import page_commands

PAGE = """
Text with `build/bin/01_naive`, `build/bin/`, `docs/generate.py`, `git`, $`Q`$, `X=1 build/bin/01_naive --seq 8`, and `git log -1`.

<!-- generated: output 01_naive -->
`build/bin/generated --nonsense`
<!-- end -->
Refused: `--pass sideways`<!-- exits with 2 -->; `--causal` exists.

```sh
# a comment
build/bin/01_naive --input large   # exits with 1: it overflows
git diff --no-index a b
build/bin/01_naive \\
  --seq 8
```

```text
build/bin/output
```

```python
import numpy
print(1)
```
"""
STAGE = """#!/bin/sh
case "$*" in
*gpu*) echo "no GPU"; exit ${GPU:-3} ;;
*--help*) echo '  --causal  Query i sees key j only if' ;;
*"--seq "*) echo report ;;
*large*) echo report; exit 1 ;;
*silent*) ;;
*) echo "unknown argument" >&2; exit 2 ;;
esac
"""


class Rules(unittest.TestCase):
    def found(self, page, text):
        return [tuple(command) for command in page_commands.commands(page, text)[0]]

    def test_what_is_a_command(self):
        naive = "build/bin/01_naive"
        self.assertEqual(
            self.found("01_naive/README.md", PAGE),
            [
                (naive, 0, "sh", ""),
                (f"X=1 {naive} --seq 8", 0, "sh", ""),
                ("git log -1", 0, "sh", ""),
                (f"{naive} --pass sideways", 2, "sh", ""),
                ("--causal", 0, "option", "01_naive"),
                (f"{naive} --input large", 1, "sh", ""),
                ("git diff --no-index a b", 1, "sh", ""),
                (f"{naive} --seq 8", 0, "sh", ""),
                ("import numpy\nprint(1)", 0, "python", ""),
            ],
        )

    def test_options_alone_belong_to_pages_of_a_stage(self):
        self.assertEqual(self.found("docs/notation.md", "`--causal` and `--seq 8`"), [])
        self.assertEqual(len(self.found("docs/01_naive.md", "`--causal` and `--seq 8`")), 2)

    def test_a_block_without_a_mark_is_an_error(self):
        self.assertEqual(len(page_commands.commands("README.md", "```\nls\n```\n")[1]), 1)

    def test_the_table_has_to_fit(self):
        with mock.patch.object(page_commands, "NOT_EVERYWHERE", {"no such command": "why"}):
            self.assertTrue(any("no such command" in problem for problem in page_commands.check([])))
        wrong = page_commands.check(["docs/none.md"])
        self.assertTrue(any(problem.startswith("docs/none.md: has a test") for problem in wrong))
        self.assertTrue(any(problem.startswith("README.md: shows commands and has no test") for problem in wrong))


class Running(unittest.TestCase):
    def run_text(self, text):
        """(exit code, what is printed) of a page of stage 01 with this text, where a shell script plays the stage."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            program = folder / "build" / "bin" / "01_naive"
            program.parent.mkdir(parents=True)
            program.write_text(STAGE)
            program.chmod(0o755)
            page = folder / "page.md"
            page.write_text(text)
            with (
                mock.patch.object(page_commands, "pages", lambda: {"01_naive/README.md": page}),
                contextlib.redirect_stdout(io.StringIO()) as out,
            ):
                return commands.run_page("01_naive/README.md", folder / "build"), out.getvalue()

    def test_good(self):
        code, text = self.run_text(
            "`--seq 8`, `--causal`, `--input large`<!-- exits with 1 -->, `--seq 8 --device gpu`\n```python\nprint(1)\n```\n"
        )
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("ok "), 5, text)

    def test_failures(self):
        for bad in (
            "`--sequence 8`",
            "`--seqq`",
            "`--input large`",
            "`--seq 8`<!-- exits with 1 -->",
            "`--silent 1`",
            "`git lof -1`",
            "```sh\ncat no-such-file | wc\n```",
            "```python\nraise SystemExit(1)\n```",
            "```\nls\n```",
        ):
            code, text = self.run_text(bad)
            self.assertEqual(code, 1, f"{bad}: {text}")

    def test_without_a_gpu_a_wrong_option_still_shows(self):
        with mock.patch.dict("os.environ", {"GPU": "2"}):
            self.assertEqual(self.run_text("`--seq 8 --device gpu`")[0], 1)

    def test_skipped_by_name(self):
        with mock.patch.object(page_commands, "NOT_EVERYWHERE", {"git log -1": ("gpu",), "git log -2": "by somebody else"}):
            code, text = self.run_text("`git log -1` `git log -2`")
        self.assertEqual(code, 77)
        self.assertIn("skipped          git log -1\n                 not here: gpu", text)

    def test_what_an_exercise_runs_is_left_to_it(self):
        code, text = self.run_text("`common/try.sh 01 --nonsense`\n<!-- exercise\nrun common/try.sh 01 --nonsense\n-->\n")
        self.assertEqual((code, "by exercises.py" in text), (77, True), text)

    def test_of_try_the_program_runs(self):
        code, text = self.run_text("`common/try.sh 01 --seq 8` `common/try.sh --all 01_naive --large`<!-- exits with 1 -->")
        self.assertEqual((code, text.count("ok ")), (0, 2), text)
        self.assertEqual(self.run_text("`common/try.sh 01 --nonsense`")[0], 1)

    def test_nothing_of_the_reader_is_touched(self):
        before = sorted(path.name for path in commands.ROOT.iterdir())
        self.assertEqual(self.run_text("```sh\necho x | tee README.md new.txt   # in a copy\n```\n")[0], 0)
        self.assertEqual(sorted(path.name for path in commands.ROOT.iterdir()), before)
        self.assertNotEqual((commands.ROOT / "README.md").read_text(), "x\n")


if __name__ == "__main__":
    unittest.main()
