#!/usr/bin/env python3
"""What a step introduces stands in its own file, and once more, to the letter, where later steps take it from."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIES = [  # where it is introduced, and where it is taken from
    ("01_naive/kernel.cuh", "common/device/products.cuh"),
    ("06_fa2_forward/3_vector_operands.cuh", "06_fa2_forward/4_async_copies.cuh"),
    ("06_fa2_forward/3_vector_operands.cuh", "06_fa2_forward/parts.cuh"),
    ("06_fa2_forward/4_async_copies.cuh", "06_fa2_forward/parts.cuh"),
]


def definitions(path):
    """{name: text} of the functions and structs at the left margin, with their comments."""
    found, block, head = {}, [], ""
    for line in (ROOT / path).read_text().splitlines():
        if not head and re.match(r"__|struct |void |LaunchShape |std::", line):
            head = line
        if head or line.startswith(("///", "template")):
            block.append(line)
        elif not line:
            block = []
        if head and line.startswith("}") or line == head != "" and line.endswith("}"):
            name = re.search(r"struct (\w+)|(\w+)\(", head)
            found[name.group(1) or name.group(2)] = "\n".join(block)
            block, head = [], ""
    return found


class Copies(unittest.TestCase):
    def test_the_same_to_the_letter(self):
        own = {"forward", "start", "__launch_bounds__", "ForwardShape", "refuse"}  # each file's own
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


if __name__ == "__main__":
    unittest.main()
