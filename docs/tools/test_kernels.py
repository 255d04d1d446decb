#!/usr/bin/env python3
"""What pages rely on in kernels. What a step introduces stands in its own file, and once more, to the letter, where later steps take it
from; the pictures of loops in docs/img tell of the order in which the code has it; and numbers that no program says are those of the
code."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from tools import fa1_backward, fa1_forward, naive, quotes, shapes, tensor_cores_backward  # noqa: E402

COPIES = [  # where it is introduced, and where it is taken from
    ("01_naive/kernel.cuh", "common/device/products.cuh"),
    ("06_fa2_forward/3_vector_operands.cuh", "06_fa2_forward/4_async_copies.cuh"),
    ("06_fa2_forward/3_vector_operands.cuh", "06_fa2_forward/parts.cuh"),
    ("06_fa2_forward/4_async_copies.cuh", "06_fa2_forward/parts.cuh"),
]

ORDERS = {  # picture: (kernel, where its loop begins and ends, the calls that it shows)
    "pipeline_06": (
        "06_fa2_forward/4_async_copies.cuh",
        "for (int col0 = 0;",
        "write_output(O_all",
        "cp_async_wait __syncthreads load_async(V_smem add_product(S raise cp_async_wait __syncthreads load_async(K_smem store_transposed "
        "add_product(O",
    ),
    "pipeline_07": (
        "07_fa2_backward/2_one_kernel.cuh",
        "for (int row0 = first_row",
        "write_tile(",
        "cp_async_wait __syncthreads add_product(S_or_dP store_P __syncthreads store_dS __syncthreads add_product(gradient __syncthreads "
        "load_queries add_product(dQ add_atomically",
    ),
    "pipeline_08": (
        "08_tensor_cores/forward/3_pipeline.cuh",
        "for (int j = 0;",
        "write_output(",
        "cp_async_wait_all __syncthreads load_tile add_product(S raise lane_sum store(P_rows add_product(O",
    ),
    "halves_08": (
        "08_tensor_cores/backward/3_staggered.cuh",
        "for (int step = 0;",
        "gradient.each(",
        "cp_async_wait_all __syncthreads load_tile sum_dQ add_product(S exponentiate multiply_by_blocks add_product(gradient sum_dQ "
        "__syncthreads",
    ),
}


def definitions(path):
    """{name: lines} of the functions and structs at the left margin, with their comments."""
    heads = r"^(?:struct (\w+)|(?:__|void |LaunchShape |std::).*?(\w+)\()"
    names = {struct or function for struct, function in re.findall(heads, (ROOT / path).read_text(), re.MULTILINE)}
    return {name: quotes.definition(path, name) for name in names - {"__launch_bounds__"}}


class Copies(unittest.TestCase):
    def test_the_same_to_the_letter(self):
        own = {"forward", "start", "ForwardShape", "refuse"}  # each file's own
        for introduced, taken in COPIES:
            first, second = definitions(introduced), definitions(taken)
            shared = (first.keys() & second.keys()) - own
            with self.subTest(f"{introduced}, {taken}"):
                self.assertGreaterEqual(len(shared), 5)
                for name in shared:
                    self.assertEqual(first[name], second[name], name)

    def test_nothing_else_is_in_the_parts(self):
        steps_3_and_4 = definitions("06_fa2_forward/3_vector_operands.cuh") | definitions("06_fa2_forward/4_async_copies.cuh")
        self.assertEqual(definitions("06_fa2_forward/parts.cuh").keys() - steps_3_and_4.keys(), set())


class Numbers(unittest.TestCase):
    def test_as_in_the_code(self):
        for path, name, number in [
            ("01_naive/kernel.cuh", "TILE", naive.TILE),
            ("04_fa1_forward/kernel.cuh", "MAX_ROWS", fa1_forward.MAX_ROWS),
            ("04_fa1_forward/kernel.cuh", "WARP_ROWS", fa1_forward.WARP_ROWS),
            ("04_fa1_forward/thread_rows.cuh", "GROUP", fa1_forward.GROUP),
            ("04_fa1_forward/thread_rows.cuh", "PAD", fa1_forward.PAD),
            ("05_fa1_backward/kernel.cuh", "MAX_Bc", fa1_backward.MAX_BC),
            ("05_fa1_backward/kernel.cuh", "CHUNK", fa1_backward.CHUNK),
        ]:
            self.assertIn(f"constexpr int {name} = {number};", (ROOT / path).read_text())

    def test_keys_of_a_warp_as_the_tables_of_tiles_say(self):
        steps = tensor_cores_backward.BACKWARD
        compiled = [s for step in steps for s in shapes.shapes(tensor_cores_backward.STAGE, step, "backward") if " keys a warp" in s.why]
        self.assertGreater(len(compiled), 10)
        for s in compiled:
            self.assertTrue(s.why.startswith(f"{tensor_cores_backward.keys_of_a_warp(s)} keys a warp"), s)


class Pictures(unittest.TestCase):
    def test_the_order_in_loops(self):
        for picture, (path, begin, end, told) in ORDERS.items():
            text = (ROOT / path).read_text()
            start = text.index(begin)
            loop = re.sub(r"//.*|<[\w, :]*>(?=\()", "", text[start : text.index(end, start)])  # without comments and template arguments
            calls = told.split()
            found = re.findall("|".join(rf"\b{re.escape(call)}\b" for call in dict.fromkeys(calls)), loop)
            self.assertEqual(found, calls, f"{path}, as docs/img/{picture}.svg and its chapter have it")


if __name__ == "__main__":
    unittest.main()
