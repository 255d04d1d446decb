"""Functions that a page names in its markers, MODULE.FUNCTION; each gives the text of that part of the page.

docs/ builds on common/, never the other way around: this is the place that says where the Python of common/ is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
