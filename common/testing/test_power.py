#!/usr/bin/env python3
"""power_gpu.py with stand-ins for nvidia-smi and for a stage program."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from test_profile import ROW

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "power_gpu.py"
NVIDIA_SMI = """#!/bin/sh
[ "$2" = --format=csv,noheader,nounits ] || exit 1
echo '1980, 120.5'
echo '[N/A], [N/A]'
echo '1980, 934.25'  # before it lowers its clock
for watts in 690 700 670; do echo "1500, $watts.25"; done
echo '1600, 650.25'
exec sleep 60
"""
STAGE = """#!/usr/bin/env python3
import json, sys, time
time.sleep(0.3)
print(json.dumps({"tflops": float(sys.argv[sys.argv.index("--iterations") + 1]), "bench": "--bench" in sys.argv}))
"""


def run(*options, smi=NVIDIA_SMI, stage=STAGE):
    """(exit code, what was printed, the rows)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, text in [("nvidia-smi", smi), ("09_test", stage)]:
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)
        rows = folder / "rows.jsonl"
        rows.write_text(
            "".join(json.dumps(row) + "\n" for row in (ROW | {"time": {"median_ms": 4.0}}, ROW | {"variant": "w", "verdict": "CRASHED"}))
        )
        command = [sys.executable, "-B", SCRIPT, folder, rows, *options]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{folder}:/usr/bin:/bin"}, timeout=30)
        return done.returncode, done.stdout + done.stderr, [json.loads(row) for row in rows.read_text().splitlines()]


class Power(unittest.TestCase):
    def test_medians_while_it_is_busy(self):
        code, said, rows = run()
        self.assertEqual(code, 0, said)
        self.assertEqual(rows[0]["sustained"], {"tflops": 500, "clock_mhz": 1500, "watts": 690.25})  # 2 s of 4 ms
        self.assertNotIn("sustained", rows[1])
        self.assertEqual(run("--seconds", "0.01")[2][0]["sustained"]["tflops"], 3)

    def test_failures_leave_the_file_as_it_is(self):
        for broken, text in (
            ({"smi": "#!/bin/sh\n"}, "neither clock nor power"),
            ({"stage": "#!/bin/sh\necho no >&2; exit 2\n"}, "no long run"),
        ):
            code, said, rows = run(**broken)
            self.assertEqual(code, 1, said)
            self.assertIn(text, said)
            self.assertNotIn("sustained", rows[0])


if __name__ == "__main__":
    unittest.main()
