"""What docs/generate.py makes parts of pages with. A file that is called like a page (fa2_forward.py: docs/06_fa2_forward.md) has what that
page shows, tables and pictures; the other ones are for several pages.

The functions of a module that a page names in its markers return text; those in its list PICTURES, a Picture each for docs/img. Pictures
there that show nothing of the code, of saved results or of a data sheet are nobody's output: they are edited as they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common" / "compare"))  # rows and plots, on which these build
