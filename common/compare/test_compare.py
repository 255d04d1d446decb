"""`compare` among stage programs that are scripts here: what it runs, saves, resumes, prints and refuses. From the root:
python3 -m common.compare.test_compare"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from . import rows, runs, table

# A stage's program: answers --list, runs BEFORE with the options of its command line, then reports. Each run goes to a log.
STAGE = """#!{python}
import json, os, sys, time
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if "--list" in words:
    print(json.dumps({{"stage": name, "variants": {variants}}}))
    sys.exit()
of = dict(word.partition("=")[::2] for word in words) | dict(zip(words, words[1:]))
n, gpu, code, more = int(of.get("--seq-q") or of["--seq"]), of["--device"] == "gpu", 0, {{}}
with open(sys.argv[0] + ".log", "a") as log:
    log.write(f"{{n}}\\n" * ("--no-check" not in words or "--seq-q" in of))
{before}
problem = {{"batch": 1, "heads": 2, "kv_heads": 2, "seq_q": n, "seq_k": n, "head_dim": 64, "scale": 0.125, "causal": "--causal" in words,
            "bias": "none", "dtype": of.get("--dtype", "fp32"), "layout": "bhnd", "input": "normal", "seed": 1}}
print(json.dumps({{"device": {{"kind": of["--device"], "name": "Test"}}, "problem": problem, "flops": 8e9, "compulsory_bytes": 4096.0,
                  "counters": {{"read_bytes": 1024, "written_bytes": 1024, "barriers": 1234}}, **more}}))
sys.exit(code)
"""
ON_CPU = ["--device", "cpu", "--pass", "forward"]


def variant(name, kernel="01_naive/kernel.cuh", passes=("forward",), **more):
    return {"name": name, "idea": "an idea", "kernel": kernel, "passes": [*passes], "dtypes": ["fp32"], **more}


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stëps and more ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "rows.jsonl"

    def stage(self, name="01_first", before="", variants=None):
        program = self.folder / name
        program.write_text(STAGE.format(python=sys.executable, variants=variants or [variant("plain")], before=before), encoding="utf-8")
        program.chmod(0o700)
        return program

    def start(self, *words):
        command = [sys.executable, "-m", "common.compare", "--bin", str(self.folder), *words]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        return subprocess.Popen(command, cwd=rows.ROOT, env={**os.environ, "FLASH_COMMIT": "0123"}, **streams)

    def compare(self, *words, code=0):
        """What it prints."""
        program = self.start(*words)
        out, self.errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, code, self.errors)
        return out

    def refused(self, part, *words, code=2):
        self.assertEqual(self.compare(*words, code=code), "")
        self.assertEqual(self.errors.count("\n"), 1, self.errors)
        self.assertIn(part, self.errors)

    def ran(self, program):
        """The lengths of its runs since the last call."""
        log = program.with_name(program.name + ".log")
        text = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return [int(word) for word in text]

    def test_a_table_and_saved_rows(self):
        self.stage("02_second")
        self.stage("01_first", variants=[variant("late", "b/2.cuh"), variant("early", "b/1.cuh")])
        out = self.compare(*ON_CPU, "--save", str(self.file))
        self.assertRegex(out, r"(?s)forward, B=1 H=2 N=256 d=64 causal fp32\n.*2 KiB     1,234  ok\n.*02_second/plain")
        self.assertLess(out.index("01_first/early"), out.index("01_first/late"))  # in the order of their files
        row = rows.read(self.file)[2]
        self.assertEqual((row.label, row.verdict, row.commit, len(row.date)), ("02_second/plain", "ok", "0123", 20))
        self.assertEqual(row.sources, {"01_naive/kernel.cuh": rows.code_hash(rows.ROOT / "01_naive/kernel.cuh")})
        self.assertNotIn("01_first/late", self.compare(*ON_CPU, "--variant", "last"))  # as the stage lists them

    def test_how_a_run_ends_is_its_verdict(self):
        for before, verdict, said, code in (
            ("code = 1", "WRONG", "", 1),
            ("sys.exit('a race')", "STOPPED", "02_bad/plain: a race", 1),
            ("os.kill(os.getpid(), 11)", "CRASHED", "ended by signal 11", 1),
            ("time.sleep(100)", "TIMED OUT", "it took too long", 1),
            ("more = {'flops': 'many'}", "CRASHED", "its report is no row: 'flops' is \"many\"", 1),
            ("sys.exit(print('2', file=sys.stderr) or 2)", "refused", "02_bad/plain: 2", 0),
            ("sys.exit(3)", "cannot run", "it ended with exit code 3", 0),
        ):
            with self.subTest(before):
                self.stage("01_good")
                self.stage("02_bad", before)
                out = self.compare(*ON_CPU, "--time-limit", "1", code=code)
                self.assertRegex(out, f"01_good/plain .*  ok\n02_bad/plain .*  {verdict}\n")
                self.assertIn(said, out)
                self.assertEqual("FAILED" in out, code == 1)
        self.compare(*ON_CPU, "--only", "02", code=3)

    def test_a_long_run_is_a_failure_if_the_variant_finished_nothing(self):
        self.stage(before="time.sleep(100 * (n > 32))")
        self.compare(*ON_CPU, "--time-limit", "1", "--sweep", "seq=32,64")
        self.compare(*ON_CPU, "--time-limit", "1", "--sweep", "seq=64,65", code=1)

    def test_resume_runs_what_has_no_row_of_the_same_code_device_and_problem(self):
        program = self.stage()
        sweep = [*ON_CPU, "--sweep", "seq=8,16,32,64", "--save", str(self.file)]
        self.compare(*sweep)
        kernel = "01_naive/kernel.cuh"
        for change, again in (
            (lambda row, n: row["sources"].update({kernel: ["0" * 16, None][n == 16]} if n < 32 else {}), [8, 16]),
            (
                lambda row, n: row.update(device={"kind": "gpu" if n == 8 else "cpu", "name": "X", "simulates_sm": 75 if n == 16 else 90}),
                [8, 16],
            ),
            (lambda row, n: row["problem"].update({8: {"seed": 2}, 16: {"scale": 0.5}, 32: {"scale": 0.12500001}}.get(n, {})), [8, 16]),
            (lambda row, n: row.update(verdict="TIMED OUT"), []),
        ):
            found = [json.loads(line) for line in self.file.read_text().splitlines()][:4]
            for row in found:
                change(row, row["problem"]["seq_q"])
            self.file.write_text("".join(json.dumps(row) + "\n" for row in found))
            self.ran(program)
            self.compare(*sweep, "--resume", code=0 if again else 1)
            self.assertEqual(self.ran(program), again)
            self.file.unlink()
            self.compare(*sweep)

    def test_a_killed_sweep_leaves_its_rows_and_no_child(self):
        program = self.stage(before="if n == 32: open(sys.argv[0] + '.pid', 'w').write(str(os.getpid())) and time.sleep(100)")
        process = self.start(*ON_CPU, "--sweep", "seq=8,16,32", "--save", str(self.file))
        pid = program.with_name("01_first.pid")
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertEqual([row.problem["seq_q"] for row in rows.read(self.file)], [8, 16])
        child, deadline = pathlib.Path(f"/proc/{pid.read_text()}/cwd"), time.monotonic() + 10
        while child.is_dir() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(child.is_dir())

    def test_rounds_take_turns(self):
        count = self.folder / "count"
        count.write_text("")
        before = f"open({str(count)!r}, 'a').write('x'); ms = os.path.getsize({str(count)!r}); more = {{'tflops': 12.0, 'time': {{'median_ms': ms}}}}"
        self.stage("01_first", before)
        self.stage("02_second", before)
        self.compare("--pass", "forward", "--rounds", "3", "--save", str(self.file))
        first, second = (row.time for row in rows.read(self.file))
        self.assertEqual(first, {"median_ms": 4, "min_ms": 2, "max_ms": 6, "rounds_ms": [2, 4, 6]})  # after the probe for a GPU
        self.assertEqual(second["rounds_ms"], [3, 5, 7])

    def test_what_does_not_take_an_option_is_counted_and_what_does_is_named(self):
        takes = [variant("plain", takes=["--causal"]), variant("wide", takes=["--causal", "--window"], only_if_fastest=True)]
        self.stage(variants=[*takes, variant("other", takes=["--causal"])])
        self.assertNotIn("01_first/wide", self.compare(*ON_CPU))
        self.assertIn("01_first/wide", self.compare(*ON_CPU, "--window", "16,0"))
        self.assertIn("left out: 2 variants, not made for --window; made for it: 01_first/wide\n", self.errors)
        self.stage(variants=[*takes, variant("needy", takes=["--causal"], needs=["--window"], only_if_fastest=True)])
        self.refused("01_first/needy, made only for --window", *ON_CPU, "--variant", "needy")
        self.refused("01_first/plain, not made for --softcap; no variant here is", *ON_CPU, "--softcap", "3", "--variant", "plain")

    def test_tune_runs_all_sizes_of_tiles(self):
        tiles = [{"pass": "forward", "head_dims": [64], "choices": [{"br": 64, "bc": bc, "why": "a reason"} for bc in (16, 32)]}]
        more = "at = [int(x) for x in of.get('--tiles', '64,16').split(',')]; more = {'tiles': {'br': at[0], 'bc': at[1]}, "
        self.stage(before=more + "'time': {'median_ms': 96.0 / at[1]}}", variants=[variant("tiled", tiles=tiles), variant("plain")])
        out = self.compare("--pass", "forward", "--tune", "--save", str(self.file))
        self.assertRegex(out, "01_first/tiled 64,16 .* 6.00(.|\n)*01_first/tiled 64,32 .* 3.00(.|\n)*the default takes 100.0 % longer")
        (row,) = rows.read(self.file)
        self.assertEqual((row.tune["default"], row.tune["fastest"]), ({"br": 64, "bc": 16}, {"br": 64, "bc": 32}))

    def test_bad_input_is_one_line(self):
        program = self.stage()
        for words in (
            "--only 07;--only ,;--variant no-such;--seq 0;--heads 6 --kv-heads 4;--bin /no/such;--save /dev/null/x;--time-limit 0;--pass both;"
            "--dtype bf16;--frobnicate;--json;--device tpu;--resume;--causal --no-causal;--scale nan;--window 3;--lengths 5,x;--save ;"
            "--sweep seq;--sweep seq=0,8;--sweep width=1;--sweep seq=8..16;--sweep seq=4,5,4;--sweep d=257;--sweep causal=maybe;--tokens 0;"
            "--sweep seq=1,8 --seq-k 4;--sweep d=8 --head-dim 8;--tokens 64 --batch 2;--width 64 --sweep heads=1,2;--seq 8 --seq-q 8;"
            "--sweep causal=no --causal;--lengths 3 --seq 3;--only peer"
        ).split(";"):
            with self.subTest(words):
                self.refused("compare: ", *ON_CPU, *words.split(" "))
        self.assertEqual(self.ran(program), [])
        program.write_text("#!/bin/sh\necho hello\n")
        self.refused("does not answer --list --json as a stage program does")
        program.unlink()
        self.refused("no stage programs (NN_name) in '")

    def test_a_file_of_anything_else_than_rows_is_refused_and_stays(self):
        program = self.stage()
        self.compare(*ON_CPU, "--save", str(self.file))
        whole = self.file.read_text()
        for text, said in (("my notes\n", ":1: "), (whole[:-1], ":1: the line has no end"), (whole + "[1]\n", ":2: no JSON object"),
                           (whole.replace('"ok"', '"fine"'), "'verdict' is 'fine'"), (whole.replace('"head_dim":64', '"head_dim":0'), "not above 0")):  # fmt: skip
            self.file.write_text(text)
            self.ran(program)
            self.refused(said, *ON_CPU, "--save", str(self.file))
            self.assertEqual((self.ran(program), self.file.read_text()), ([], text))


class Rows(unittest.TestCase):
    PROBLEM = {**dict(zip(rows.SIZES, (1, 2, 2, 8, 8, 64))), "causal": True, "bias": "none", "dtype": "fp32", "layout": "bhnd"}

    def row(self, problem=(), **more):
        device = {"kind": "gpu", "name": "A GPU"}
        made = {"stage": "06_x", "variant": "v", "pass": "forward", "device": device, "verdict": "ok", "date": "2026-01-02", **more}
        return rows.make({**made, "problem": {**self.PROBLEM, **dict(problem)}})

    def test_of_the_same_run_the_latest_date_holds(self):
        old, new = self.row(tflops=1.0), self.row(tflops=2.0, date="2026-01-03", problem={"scale": 0.125000001, "seed": 1})
        for found in ([old, new], [new, old], [old, old, new]):
            self.assertEqual([row.tflops for row in rows.latest(found)], [2.0])
        others = {"seq_q": 9, "causal": False, "bias": "alibi", "dtype": "fp16", "scale": 0.5, "seed": 2, "window": "3,0", "softcap": 2.0}
        for name, value in others.items():
            self.assertEqual(len(rows.latest([old, self.row(problem={name: value})])), 2, name)
        self.assertEqual(len(rows.latest([old, self.row(tune={}), self.row(device={"kind": "cpu", "name": "A"})])), 3)

    def test_the_hash_sees_tokens_alone(self):
        with tempfile.TemporaryDirectory() as folder:

            def hash_of(name, code):
                (pathlib.Path(folder) / name).write_text(code)
                return rows.code_hash(pathlib.Path(folder) / name)

            one = hash_of("1", '#include "a.cuh"\nint f(float x) {\n  return x < 2.0f ? 1 : g("a \\" b  // c", x);\n}\n')
            same = '/* one\n// */int/**/f(float x){// it\'s "one\n  #include <b>\nreturn x<2.0f?1:g("a \\" b  // c",x);}'
            self.assertEqual(hash_of("2", same), one)
            for old, new in (("b  //", "b //"), ("2.0f", "2.1f"), ("f(float", "ff(float"), ("return", "#pragma return")):
                self.assertNotEqual(hash_of(f"with {old[0]}", same.replace(old, new)), one, new)

    def test_saved_results_are_rows_whose_tables_fit(self):
        for file in sorted((rows.ROOT / "docs/results").glob("*/*.jsonl")):
            found = rows.read(file)
            lines = [line for line in table.tables(found, False).split("\n") if " is " not in line and ": " not in line]  # no messages
            self.assertLessEqual(max(map(len, lines)), 80, file.name)
            self.assertEqual(runs.exit_code(found), 0, file.name)


if __name__ == "__main__":
    unittest.main()
