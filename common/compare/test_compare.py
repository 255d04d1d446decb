"""What `compare` runs, saves, resumes, prints and refuses, with the stage programs of a build: STAGE_PROGRAMS names their folder. From the root:
python3 -m common.compare.test_compare"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from . import __main__, profile, rows, table

BIN = pathlib.Path(os.environ.get("STAGE_PROGRAMS", rows.ROOT / "build/bin"))
# A stage's program: BEFORE may end a run. Runs go to a log. `real` is the program itself, and `timed N` that as if it took N ms.
STAGE = """#!/bin/bash
real() {{ exec "{program}" "$@"; }}
timed() {{ ms=$1; shift; "{program}" "$@" | sed 's/"flops"/"time": {{"median_ms": '$ms', "min_ms": '$((ms - 1))', "max_ms": '$ms'}}, "flops"/'; exit; }}
n=$(expr "$*" : '.*--seq-q=\\([0-9]*\\)')
case "$*" in *--list*) real "$@" ;; *--seq-q*) echo $n >>"$0.log" ;; *) real "$@" ;; esac
{before}
real "$@"
"""
ON_CPU = ["--device", "cpu", "--pass", "forward", "--heads", "1"]


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stëps and more ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "rows.jsonl"

    def stage(self, name="02_safe_softmax", before=""):
        program = self.folder / name
        program.write_text(STAGE.format(program=BIN / name, before=before), encoding="utf-8")
        program.chmod(0o700)
        return program

    def compare(self, *words, code=0):
        """What it prints."""
        start = "import sys; from common.compare.__main__ import main; main(sys.argv.pop(1))"  # as build/bin/compare does
        command = [sys.executable, "-c", start, str(self.folder), *words]
        how = {"cwd": rows.ROOT, "env": {**os.environ, "FLASH_COMMIT": "0123"}, "capture_output": True, "encoding": "utf-8", "timeout": 60}
        done = subprocess.run(command, **how)
        self.errors = done.stderr
        self.assertEqual(done.returncode, code, self.errors)
        return done.stdout

    def refused(self, part, *words):
        """In this process, which takes a tenth of the time."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as end:
            rows.run_main("compare", lambda _: __main__.compare(words, self.folder))
        self.errors = errors.getvalue()
        self.assertEqual((end.exception.code, out.getvalue(), self.errors.count("\n")), (2, "", 1), self.errors)
        self.assertIn(part, self.errors)

    def ran(self, program):
        """The lengths of its runs since the last call."""
        log = program.with_name(program.name + ".log")
        text = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return [int(word) for word in text]

    def test_a_table_and_saved_rows(self):
        self.stage("04_fa1_forward")
        self.stage("02_safe_softmax")
        out = self.compare(*ON_CPU, "--seq", "8", "--save", str(self.file))
        self.assertRegex(out, r"(?s)forward, B=1 H=1 N=8 d=64 causal fp32\n.*02_safe_softmax/warp_per_row .*  ok\n04_fa1_forward/fused")
        row = rows.read(self.file)[2]
        self.assertEqual((row.label, row.verdict, row.commit, len(row.date)), ("04_fa1_forward/fused", "ok", "0123", 20))
        self.assertEqual(row.sources, {path: rows.code_hash(rows.ROOT / path) for path in row.sources})
        self.assertIn(row.kernel, row.sources)

    def test_the_last_step_of_each_ladder(self):
        self.stage("08_tensor_cores")
        words = [*ON_CPU, "--dtype", "fp16", "--seq", "8", "--save", str(self.file)]
        self.compare(*words, "--variant", "last,mma")
        kernels = [pathlib.Path(row.kernel) for row in rows.read(self.file)]
        self.assertEqual([path.parent.name for path in kernels], ["forward", "forward", "hopper_forward"])
        for path in kernels[1:]:
            self.assertEqual(
                path.name, sorted(map(str, (rows.ROOT / path).parent.glob("[0-9]*")), key=rows.ladder_order)[-1].split("/")[-1]
            )

    def test_how_a_run_ends_is_its_verdict(self):
        for before, verdict, part, code in (
            (f"'{BIN}/03_online_softmax' \"$@\"; exit 1", "WRONG", "", 1),
            ("echo a race >&2; exit 1", "STOPPED", "03_online_softmax/one_pass: a race", 1),
            ("kill -SEGV $$", "CRASHED", "ended by signal 11", 1),
            ("sleep 100", "TIMED OUT", "it took too long", 1),
            ('echo \'{"flops": "many"}\'; exit', "CRASHED", "its report is no row: ", 1),
            ("echo 2 >&2; exit 2", "refused", "03_online_softmax/one_pass: 2", 0),
            ("exit 3", "cannot run", "it ended with exit code 3", 0),
        ):
            with self.subTest(before):
                self.stage()
                self.stage("03_online_softmax", before)
                out = self.compare(*ON_CPU, "--seq", "8", "--variant", "last", "--time-limit", "3", code=code)
                self.assertRegex(out, f"02_safe_softmax/warp_per_row .*  ok\n03_online_softmax/one_pass .*  {verdict}\n")
                self.assertIn(part, out)
                self.assertEqual("FAILED" in out, code == 1)
        self.compare(*ON_CPU, "--only", "03", code=3)

    def test_resume_runs_what_has_no_row_of_the_same_code(self):
        program = self.stage()
        sweep = [*ON_CPU, "--variant", "last", "--sweep", "seq=8,16,32", "--save", str(self.file)]
        self.compare(*sweep)
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        found[0]["sources"][found[0]["kernel"]] = "0" * 16
        found[1]["problem"]["scale"] = 0.12500001  # the same as far as programs agree on it
        found[2]["verdict"] = "TIMED OUT"
        self.file.write_text("".join(map(rows.line, found)))
        self.ran(program)
        self.compare(*sweep, "--resume")
        self.assertEqual(self.ran(program), [8])

    def test_a_long_run_is_no_failure_if_the_variant_finished_another(self):
        self.stage(before="[ $n -le 32 ] || sleep 100")
        self.compare(*ON_CPU, "--time-limit", "3", "--variant", "last", "--sweep", "seq=32,64")

    def test_a_killed_sweep_leaves_its_rows(self):
        self.stage(before="[ $n != 32 ] || kill -KILL $PPID")
        self.compare(*ON_CPU, "--variant", "last", "--sweep", "seq=8,16,32", "--save", str(self.file), code=-9)
        self.assertEqual([row.problem["seq_q"] for row in rows.read(self.file)], [8, 16])

    def test_rounds_take_turns(self):
        before = f"echo >>'{self.folder}/count'; timed $(wc -l <'{self.folder}/count') \"$@\""
        self.stage("02_safe_softmax", before)
        self.stage("03_online_softmax", before)
        without = self.stage("04_fa1_forward", "exit 3")
        self.compare(*ON_CPU, "--seq", "8", "--variant", "last", "--rounds", "3", "--save", str(self.file))
        _, first, second = (row.time for row in rows.read(self.file))
        self.assertEqual(self.ran(without), [8])  # what has no time has one round
        self.assertEqual(first, {"median_ms": 4, "min_ms": 0, "max_ms": 5, "rounds_ms": [1, 4, 5]})
        self.assertEqual(second["rounds_ms"], [2, 3, 6])  # the second round begins with it

    def test_what_does_not_take_an_option_is_left_out(self):
        self.stage("04_fa1_forward")
        self.stage("06_fa2_forward")
        self.assertNotIn("/options", self.compare(*ON_CPU, "--seq", "8"))
        self.assertIn("06_fa2_forward/options", self.compare(*ON_CPU, "--seq", "8", "--window", "16,0", "--only", "06"))
        self.assertRegex(self.errors, r"left out: 06_fa2_forward/\w+ and \d+ more: .*--window\n")
        self.refused("nothing to run; left out: 04_fa1_forward/tiled: ", *ON_CPU, "--softcap", "3", "--variant", "tiled")
        self.compare(*ON_CPU, "--lengths", "5,0:3", "--softcap", "3", "--dropout", "0.5", "--save", str(self.file))
        (row,) = rows.read(self.file)
        asked = {"batch": 1, "seq_q": 5, "seq_k": 8, "lengths": "5,0:3", "softcap": 3, "dropout": 0.5}
        self.assertEqual({key: row.problem[key] for key in asked}, asked)

    def test_tune_runs_all_sizes_of_tiles(self):
        self.stage("06_fa2_forward", f"echo >>'{self.folder}/count'; timed $((9 - $(wc -l <'{self.folder}/count'))) \"$@\"")
        out = self.compare(*ON_CPU, "--seq", "8", "--variant", "loop_order", "--tune", "--save", str(self.file))
        choices = [f"{row.tune['br']},{row.tune['bc']}" for row in rows.read(self.file)]
        self.assertGreater(len(choices), 1)
        for ms, tiles in zip(range(8, 0, -1), choices):
            self.assertRegex(out, f"loop_order {tiles} .* {ms}.00 ")
        longer = f"{800 / ms - 100:.1f} % longer"
        self.assertRegex(out, f"the default is {choices[0]}: .*\nthe fastest is {choices[-1]}; the default takes {longer}")

    def test_bad_input_is_one_line(self):
        program = self.stage()
        for words in (
            "--only 07;--only ,;--variant no-such;--seq 0;--save /dev/null/x;--time-limit 0;--pass both;--dtype bf16;--frobnicate;"
            "--resume;--window 3;--save ;--sweep seq;--sweep seq=0,8;--sweep width=1;--sweep d=257;--sweep d=64,64;--sweep d=8,08;"
            "--sweep causal=maybe;--sweep seq=1,8 --seq-k 4;--sweep d=8 --head-dim 8;--tokens 64 --batch 2;--width 64 --sweep batch=1 --batch 1;"
            "--seq 8 --seq-q 8;--lengths 3 --seq 3;--tokens 9 --lengths 3;--only peer;--kv-heads 4;--scale nan"
        ).split(";"):
            with self.subTest(words):
                self.refused("compare: ", *ON_CPU, *words.split(" "))
                self.assertNotIn("is '--", self.errors)  # an option taken for the value of another
        self.refused("--frobnicate", "plot", "--frobnicate")  # with matplotlib or without
        self.refused("--head-dim is swept", *ON_CPU, "--sweep", "d=64", "--sweep", "d=128")
        self.assertEqual(self.ran(program), [])
        program.write_text("#!/bin/sh\necho hello\n")
        self.refused("does not answer --list --json as a stage program does")
        program.unlink()
        self.refused("no stage programs (NN_name) in '")

    def test_a_file_of_anything_else_than_rows_is_refused_and_stays(self):
        program = self.stage()
        self.compare(*ON_CPU, "--variant", "last", "--seq", "8", "--save", str(self.file))
        whole = self.file.read_text()
        for text, part in (("my notes\n", ":1: "), (whole + "[1]\n", ":2: no row"),
                           (whole.replace('"ok"', '"fine"'), "no row"), (whole.replace('"seq_q":8', '"seq_q":0'), "no row")):  # fmt: skip
            self.file.write_text(text)
            with self.assertRaisesRegex(rows.Failure, part):
                rows.read(self.file)
        self.ran(program)
        self.refused("no row", *ON_CPU, "--save", str(self.file))
        self.assertEqual((self.ran(program), self.file.read_text()), ([], text))


class Rows(unittest.TestCase):
    FIELDS = (*rows.SIZES, "scale", "causal", "bias", "dtype", "layout")
    PROBLEM = dict(zip(FIELDS, (1, 2, 2, 8, 8, 64, 0.125, True, "none", "fp32", "bhnd")))

    def row(self, problem=(), **more):
        device = {"kind": "gpu", "name": "A GPU"}
        made = {"stage": "06_x", "variant": "v", "pass": "forward", "device": device, "verdict": "ok", "date": "2026-01-02", **more}
        return rows.make({**made, "problem": {**self.PROBLEM, **dict(problem)}})

    def test_of_the_same_run_the_latest_date_holds(self):
        old, new = self.row(flops=1.0), self.row(flops=2.0, date="2026-01-03", problem={"scale": 0.125000001, "seed": 1})
        for found in ([old, new], [new, old], [old, old, new]):
            self.assertEqual([row.flops for row in rows.latest(found)], [2.0])
        others = {"seq_q": 9, "causal": False, "bias": "alibi", "dtype": "fp16", "scale": 0.5, "seed": 2, "window": "3,0", "softcap": 2.0}
        for name, value in others.items():
            self.assertEqual(len(rows.latest([old, self.row(problem={name: value})])), 2, name)
        self.assertEqual(len(rows.latest([old, self.row(tune={}), self.row(device={"kind": "cpu", "name": "A"})])), 3)

    def test_columns(self):
        counters, device = {"read_bytes": 3, "written_bytes": 5}, {"kind": "gpu", "name": "A", "peak_fp32_tflops": 6}
        row = self.row(flops=6e9, time={"median_ms": 2, "min_ms": 1, "max_ms": 4}, counters=counters, device=device)
        cells = {title.strip("|"): cell(row) for title, cell, _ in table.COLUMNS}
        shown = {"read": "3 B", "written": "5 B", "moved": "8 B", "median|ms": "2.00", "min|ms": "1.00", "max|ms": "4.00"}
        self.assertEqual({**cells, **shown, "TFLOP/s": "3.00", "% of|peak": "50.0"}, cells)

    def test_a_profile_of_a_backward_pass_is_without_the_forward_pass_of_its_problem(self):
        def launches(_, row, __):  # a padded head dimension takes copies
            forward = ["forward"] * (1 if row.problem["head_dim"] % 8 == 0 else 5)
            return [*forward, "backward"] if row["pass"] == "backward" else forward

        with tempfile.NamedTemporaryFile("w") as file, mock.patch.object(profile, "profile", launches):
            file.writelines(rows.line(self.row({"head_dim": d}, **{"pass": "backward"})) for d in (64, 60))
            file.flush()
            with contextlib.redirect_stdout(io.StringIO()):
                profile.main([file.name], "")
            self.assertEqual([row.profile for row in rows.read(file.name)], [["backward"], ["backward"]])
        self.assertRaisesRegex(rows.Failure, "no row of a kernel", profile.main, [os.devnull], "")

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


if __name__ == "__main__":
    unittest.main()
