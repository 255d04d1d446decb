#!/usr/bin/env python3
"""rows.py: what is no row, which rows are of the same run, verdicts, and a file that is read and written."""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "common" / "compare"))
import rows  # noqa: E402

PROBLEM = {"batch": 2, "heads": 4, "kv_heads": 4, "seq_q": 256, "seq_k": 256, "head_dim": 64, "scale": 0.125, "causal": True}
PROBLEM |= {"bias": "none", "dtype": "fp32", "layout": "bhnd", "input": "normal", "seed": 1}


def row(stage="06_fa2_forward", variant="tiled", ms=None, sizes=None, **more):
    """A JSON object. No figure in it is a measurement."""
    made = {"stage": stage, "variant": variant, "pass": "forward", "device": {"kind": "gpu", "name": "A GPU"}, "verdict": "ok"}
    made |= {"problem": PROBLEM | (sizes or {}), "date": "2026-01-02T03:04:05Z", "tiles": None}
    return made | ({"time": {"median_ms": ms}, "tflops": 8 / ms} if ms else {}) | more


class Rows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "rows.jsonl"

    def read(self, *objects):
        self.path.write_text("".join(json.dumps(one) + "\n" for one in objects))
        return rows.read(self.path)

    def test_what_is_no_row_is_refused_with_its_line(self):
        good = json.dumps(row())
        for line, said in (
            ("", "Expecting value"),
            ("[" * 100000, "recursion"),
            (good[:50], "Unterminated|Expecting"),
            ("[1]", "no JSON object"),
            ('{"stage": "06"}', "has no variant and no pass and no verdict and no device and no problem"),
            (json.dumps(row(stage=7)), "'stage' is 7"),
            (json.dumps(row(flops="many")), "'flops' is \"many\""),
            (json.dumps(row(colour="red")), "'colour' is \"red\", which no row has"),
            (json.dumps(row(verdict="fine")), "'verdict' is 'fine', none of ok, refused, "),
            (json.dumps(row(**{"pass": "both"})), "'pass' is 'both'"),
            (json.dumps(row(device={"kind": "gpu"})), "device.name is null, no str"),
            (json.dumps(row(sizes={"heads": True})), "problem.heads is true, no int"),
            (json.dumps(row(sizes={"seq_q": 0})), "problem.seq_q is 0, not above 0"),
            (json.dumps(row(time={"median_ms": float("nan")})), "time.median_ms is nan, not above 0"),
        ):
            self.path.write_text(f"{good}\n{line}\n{good}")
            with self.subTest(line[:50]), self.assertRaises(rows.Failure) as caught:
                rows.read(self.path)
            code, message = caught.exception.args
            self.assertEqual(code, 2)
            self.assertRegex(message, f"rows.jsonl:2: .*({said}).*; allowed: rows that compare --save")
        self.path.write_text("")
        with self.assertRaisesRegex(rows.Failure, ":1: Expecting value"):
            rows.read(self.path)

    def test_rows_that_differ_in_any_field_of_the_problem_are_both_there(self):
        others = {"batch": 3, "heads": 8, "kv_heads": 2, "seq_q": 1, "seq_k": 1, "head_dim": 32, "scale": 0.5, "causal": False}
        others |= {"bias": "alibi", "dtype": "bf16", "layout": "qkv", "input": "ones", "seed": 2, "window": 128}
        self.assertEqual(set(PROBLEM) - set(others), set())  # a new field has to be here
        for name, value in others.items():
            with self.subTest(name):
                one, other = self.read(row(), row(sizes={name: value}))
                self.assertNotEqual(rows.describe(one.problem), rows.describe(other.problem))

    def test_of_the_same_run_the_later_row_holds(self):
        def tflops(*objects):
            return [one.tflops for one in self.read(*objects)]

        old, new = row(tflops=1.0), row(tflops=2.0, date="2026-01-03T00:00:00Z", sizes={"scale": 0.125000001})
        self.assertEqual(tflops(old, row(tflops=3.0)), [3.0])
        self.assertEqual((tflops(old, new), tflops(new, old)), ([2.0], [2.0]))
        self.assertEqual(tflops(old, row(tflops=4.0, tune={})), [1.0, 4.0])
        cpus = ({"kind": "cpu", "name": "X", **more} for more in ({}, {"simulates_sm": 90}, {"simulates_sm": 75}, {"name": "Other"}))
        self.assertEqual(tflops(*(row(device=cpu, tflops=float(at)) for at, cpu in enumerate(cpus))), [3.0, 2.0])

    def test_a_card_is_named_without_its_memory(self):
        for name, shown in (("NVIDIA H100 80GB HBM3", "NVIDIA H100"), ("NVIDIA H100 80GB HBM2e", "NVIDIA H100 80GB HBM2e")):
            self.assertEqual(self.read(row(device={"kind": "gpu", "name": name}))[0].device_name, shown)

    def test_a_time_limit_is_a_failure_if_the_variant_finished_nothing(self):
        slow, other = row(verdict="TIMED OUT", sizes={"seq_q": 9}), row(verdict="CRASHED", sizes={"seq_q": 8})
        self.assertEqual([one.verdict for one in rows.failures(self.read(row(), slow, other))], ["CRASHED"])
        self.assertEqual([one.verdict for one in rows.failures(self.read(slow))], ["TIMED OUT"])

    def test_one_word_for_one_reason(self):
        for verdict, message, word in (
            ("TIMED OUT", "", "too long"),
            ("skipped", "would take about 11 s; the limit is 10 s", "too long"),
            ("skipped", "a problem no larger could not run: not enough memory", "no room"),
            ("cannot run", "not enough GPU memory", "no room"),
            ("refused", "fp32", "refused"),
            ("WRONG", "", "failed"),
        ):
            self.assertEqual(self.read(row(verdict=verdict, message=message))[0].absence, word, message)

    def test_a_row_survives_reading_and_writing(self):
        saved = row(ms=2.0, idea="line\u2028break é", tiles={"br": 64, "bc": 32}, tune={})
        rows.write(self.path, self.read(saved))
        self.assertEqual(json.loads(self.path.read_text(encoding="utf-8")), saved)
        self.assertEqual([file.name for file in self.path.parent.iterdir()], ["rows.jsonl"])

    def test_hashes_of_code_see_tokens_alone(self):
        file = self.path.with_name("kernel.cuh")
        for code, same in (
            ('int f(float x) {\n  return x < 2.0f ? 1 : g("a \\" b  // c", x);\n}\n', True),
            ('/* one\n// */int/**/f(float x){// it\'s "one\nreturn x<2.0f?1:g("a \\" b  // c",x);}', True),
            ('int f(float x){return x<2.0f?1:g("a \\" b // c",x);}', False),
        ):
            file.write_text(code)
            rows.code_hash.cache_clear()
            self.assertEqual(rows.code_hash(file) == "9d855cab8999c560", same, code)

    def test_what_a_stage_program_reports_becomes_a_row(self):
        kernel = "07_fa2_backward/2_one_kernel.cuh"
        with mock.patch.dict(os.environ, FLASH_COMMIT="0123"):
            made = rows.of_report({key: value for key, value in row(kernel=kernel).items() if key != "verdict"})
        self.assertEqual((made.verdict, made.commit), ("ok", "0123"))
        self.assertIn("07_fa2_backward/parts.cuh", made.sources)
        self.assertEqual(rows.changed(made.sources), [])

    def test_compare_writes_the_fields_that_are_read_here(self):
        names = {str: "string", float: "number", int: "integer", dict: "object", list: "array"}
        schema = re.search(r'Json::parse\(R"\((.*?)\)"\)', (ROOT / "common/compare/row.cpp").read_text(), re.DOTALL)[1]
        self.assertEqual(json.loads(schema), {name: names[field.type] for name, field in rows.FIELDS.items()})

    def test_words(self):
        odd = PROBLEM | {"kv_heads": 2, "seq_k": 9, "bias": "alibi", "layout": "kv", "scale": 2.0}
        self.assertEqual(rows.describe(odd), "B=2 H=4 Hkv=2 Nq=256 Nk=9 d=64 causal bias=alibi kv scale=2.0 fp32")
        windowed = PROBLEM | {"window": "1024,0", "softcap": 50.0}
        self.assertEqual(rows.describe(windowed), "B=2 H=4 N=256 d=64 causal softcap=50.0 window=1024,0 fp32")
        words = ["0 B", "999 B", "1023 B", "1 KiB", "1.5 KiB", "1023 KiB", "3 GiB", "5000 GiB"]
        self.assertEqual([rows.size(n) for n in (0, 999, 1023, 1024, 1536, 1023 * 1024, 3 << 30, 5000 << 30)], words)


if __name__ == "__main__":
    unittest.main()
