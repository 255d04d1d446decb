#!/usr/bin/env python3
"""What counts as a synchronisation, and what is left when it is gone."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mutation import mutants


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
            "cp_async_wait<STAGES - 2>();",
            "flash::cp_async_wait_all();",
            "named_barrier_sync(1 + warp, 64);",
            "__syncwarp(\n    mask);",
            "wait_full(smem.full_K[stage], parity);",
            "fence_proxy_async();",
            "wgmma_wait<1>(S, dP);",
            "bulk_wait_read<0>();",
            "release(smem.empty_K[stage]);",
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


if __name__ == "__main__":
    unittest.main()
