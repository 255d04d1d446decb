#!/usr/bin/env python3
"""What pages say of kernels and only the text of the kernels can show: later steps have the functions of earlier ones unchanged, and the
pictures of loops in docs/img have the calls in the order of the code."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from tools import quotes  # noqa: E402

COPIES = [  # where it is introduced, where later steps take it from, what
    ("01_naive/kernel.cuh", "common/device/products.cuh", ("load_tile", "tile_product", "scores_kernel", "output_kernel")),
    ("06_fa2_forward/3_tile_types.cuh", "06_fa2_forward/4_async_copies.cuh", ("Transposed", "add_product", "update_max")),
    ("06_fa2_forward/4_async_copies.cuh", "06_fa2_forward/5_vector_operands.cuh", ("load_async", "update_max")),
    ("06_fa2_forward/5_vector_operands.cuh", "06_fa2_forward/parts.cuh", ("load_transposed", "KMajor", "MnMajor", "add_product")),
    ("06_fa2_forward/6_short_softmax.cuh", "06_fa2_forward/parts.cuh", ("update_max",)),
    ("08_tensor_cores/forward/4_registers.cuh", "08_tensor_cores/parts/tile.cuh", ("Rounded",)),
    ("08_tensor_cores/forward/4_registers.cuh", "08_tensor_cores/parts/softmax.cuh", ("update_max", "exponentiate")),
    ("08_tensor_cores/forward/5_addresses.cuh", "08_tensor_cores/parts/tile.cuh", ("Copier",)),
]

ORDERS = {  # picture: (kernel, where its loop begins and ends, the calls that it shows)
    "pipeline_06": (
        "06_fa2_forward/4_async_copies.cuh",
        "for (int key0 = 0;",
        "write_output(O_all",
        "cp_async_wait __syncthreads load_async add_product update_max cp_async_wait __syncthreads load_async P_smem add_product",
    ),
    "pipeline_07": (
        "07_fa2_backward/2_one_kernel.cuh",
        "for (int query0 = first_query",
        "write_tile(",
        "cp_async_wait __syncthreads add_product store_P __syncthreads store_dS __syncthreads add_product __syncthreads "
        "load_queries add_product add_atomically",
    ),
    "pipeline_08": (
        "08_tensor_cores/forward/3_pipeline.cuh",
        "for (int j = 0;",
        "write_output(",
        "cp_async_wait_all __syncthreads load_tile add_product update_max lane_sum store add_product",
    ),
    "halves_08": (
        "08_tensor_cores/backward/4_staggered.cuh",
        "for (int iteration = 0; iteration < queries.iterations + 2;",
        "gradient.each(",
        "cp_async_wait_all __syncthreads load_tile add_oldest_to_dQ add_product exponentiate multiply_by_Pt add_product add_oldest_to_dQ __syncthreads",
    ),
}


class Copies(unittest.TestCase):
    def test_the_same_to_the_letter(self):
        for introduced, taken, names in COPIES:
            for name in names:
                with self.subTest(f"{introduced}, {taken}", name=name):
                    self.assertEqual(quotes.definition(introduced, name), quotes.definition(taken, name))


class Pictures(unittest.TestCase):
    def test_the_order_in_loops(self):
        for picture, (path, begin, end, told) in ORDERS.items():
            text = (ROOT / path).read_text()
            at = text.index(begin)
            last = text.index(end, at)
            for call in told.split():
                found = text.find(call, at, last)
                self.assertGreaterEqual(found, 0, f"{path}: no {call} after the calls before it in docs/img/{picture}.svg")
                at = found + len(call)


if __name__ == "__main__":
    unittest.main()
