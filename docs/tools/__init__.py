"""What docs/generate.py makes parts of pages with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common" / "compare"))  # rows and plots, on which these build
