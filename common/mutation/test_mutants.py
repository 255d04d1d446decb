#!/usr/bin/env python3
"""What counts as a synchronisation, and what is left when it is gone."""

import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mutation import mutants
from mutation.campaign import Campaign


def deletions(code):
    """The code after each deletion, with the line of the deletion."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernel.cuh"
        path.write_text(code)
        found = mutants.mutants_of(str(path))
    return [(m.line, code[: m.start] + m.replacement + code[m.end :]) for m in found]


class Mutants(unittest.TestCase):
    def test_each_wait_goes_alone(self):
        code = "load();\n__syncthreads();  // why\nuse();\n__syncwarp();\n"
        self.assertEqual(
            deletions(code), [(2, "load();\n;  // why\nuse();\n__syncwarp();\n"), (4, "load();\n__syncthreads();  // why\nuse();\n;\n")]
        )

    def test_arguments_of_any_form(self):
        for wait in (
            "__syncwarp(0xffu << lane(4));",
            "__syncthreads( );",
            "cp_async_wait_group<1>();",
            "cp_async_wait<STAGES - 2>();",
            "flash::cp_async_wait_all();",
            "named_barrier_sync(1 + warp, 64);",
            "__syncwarp(\n    mask);",
            "mbarrier_wait(full_K(stage), parity);",
            "wait_full(bars.full_K[stage], parity);",
            "wait_empty(bars.empty_K[stage], parity);",
            "mbarrier_arrive(empty_K(stage));",
            "fence_proxy_async();",
            "wgmma_wait<1>(S, dP);",
            "bulk_wait_read<0>();",
            "named_barrier_arrive(2, 256);",
            "release(bars.empty_K[stage]);",
        ):
            self.assertEqual(deletions(f"if (x) {wait}"), [(1, "if (x) ;")], wait)

    def test_the_value_of_a_voting_barrier_stays(self):
        self.assertEqual(deletions("if (__syncthreads_or(done)) break;"), [(1, "if ((done)) break;")])

    def test_comments_strings_and_other_names_are_no_barriers(self):
        code = '// __syncthreads();\n/* __syncwarp();\n */ f("__syncthreads();"); my__syncthreads(); issue_cp_async_wait();\n'
        self.assertEqual(deletions(code), [])

    def test_definitions_are_no_waits(self):
        self.assertEqual(deletions("__device__ inline void cp_async_wait_all() { body; }"), [])

    @unittest.skipUnless((mutants.ROOT / ".git").exists(), "the list of files comes from git")
    def test_every_stage_has_kernels(self):
        stages = mutants.stages_and_kernels()
        self.assertIn("01_naive", stages)
        for stage, files in stages.items():
            self.assertTrue(any(name.startswith((f"{stage}/", f"common/{stage}/")) for name in files), stage)
        self.assertIn("common/device/products.cuh", stages["02_safe_softmax"])
        self.assertIn("08_tensor_cores/parts/accumulators.cuh", stages["08_tensor_cores"])  # in folders below the stage, too

    @unittest.skipUnless((mutants.ROOT / ".git").exists(), "the order comes from the last commit")
    def test_the_draw_keeps_files_together_and_loses_none(self):
        all_of_them = [mutants.Mutant(f"{path}.cuh", line, line, line, "", "") for path in "abcd" for line in range(9)]
        drawn = mutants.drawn(all_of_them)
        self.assertEqual(set(drawn), set(all_of_them))
        self.assertNotEqual(drawn, all_of_them)
        paths = [mutant.path for mutant in drawn]
        self.assertEqual(sum(a != b for a, b in zip(paths, paths[1:])), 3)


class Verdicts(unittest.TestCase):
    """What each kind of build says of the mutants a, b, c and d, and what is left of it. None: there was no time."""

    def verdicts(self, **says):
        class Canned(Campaign):
            def __init__(self):
                pass

            def prepare(self, kind, mutants_of_kind):
                pass

            def run(self, kind, group, deadline):
                return {mutant: says[kind][mutant.path] for mutant in group if says[kind][mutant.path] is not None}

        files = [mutants.Mutant(path, 1, 0, 0, "", "") for path in says["plain"]]
        return {mutant.path: verdict for mutant, verdict in Canned().run_all(["plain", "race"], files, 60).items()}

    def test_the_last_kind_has_the_last_word(self):
        plain = {"a": "test: x", "b": "", "c": "timeout after 9 s", "d": None}
        race = {"a": "not asked", "b": "race: y", "c": "", "d": "not asked"}
        self.assertEqual(self.verdicts(plain=plain, race=race), {"a": "test: x", "b": "race: y", "c": ""})

    def test_no_time_for_the_second_kind_is_no_verdict(self):
        self.assertEqual(self.verdicts(plain={"a": "", "b": "test: x"}, race={"a": None, "b": None}), {"b": "test: x"})


class Time(unittest.TestCase):
    """Files a, b and c of two mutants each; unchanged tests and mutants take their seconds by a clock of the test's own."""

    def ran(self, minutes, unchanged, mutant):
        clock, ran = [0.0], []

        class Clocked(Campaign):
            def __init__(self):
                self.known = set()

            def prepare(self, kind, group):
                if group[0].path not in self.known:
                    clock[0] += unchanged
                self.known.add(group[0].path)

            def run(self, kind, group, deadline):
                verdicts = {}
                for each in group:
                    if clock[0] <= deadline:
                        clock[0] += mutant
                        ran.append(f"{each.path}{each.line}")
                        verdicts[each] = "test: x"
                return verdicts

        with unittest.mock.patch("time.monotonic", lambda: clock[0]):
            Clocked().run_all(["plain"], [mutants.Mutant(path, line, 0, 0, "", "") for path in "abc" for line in (1, 2)], 60 * minutes)
        return " ".join(ran), clock[0]

    def test_the_time_is_shared_by_the_files(self):
        self.assertEqual(self.ran(4, unchanged=20, mutant=30), ("a1 a2 b1 b2 c1 c2", 240))
        self.assertEqual(self.ran(4, unchanged=20, mutant=70), ("a1 a2 b1", 250))

    def test_unchanged_tests_count_and_nothing_begins_after_the_end(self):
        self.assertEqual(self.ran(2, unchanged=100, mutant=30), ("a1", 130))
        self.assertEqual(self.ran(2.5, unchanged=100, mutant=30), ("a1", 230))
        self.assertEqual(self.ran(4, unchanged=100, mutant=30), ("a1 a2", 160 + 100))

    def test_the_first_always_runs(self):
        self.assertEqual(self.ran(1, unchanged=100, mutant=30), ("a1", 130))


if __name__ == "__main__":
    unittest.main()
