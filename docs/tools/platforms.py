"""Of docs/howto/platforms.md: the environment variables that the programs read, as their source lists them."""

import re

from common.compare.rows import ROOT

from .formatting import table

LIST = "common/harness/environment.cpp"
ENTRY = re.compile(r'\{"(FLASH_\w+)",\s*"([^"]*)",\s*((?:"[^"]*"\s*)+)\}')


def variables():
    """(name, values, text) of each."""
    code = (ROOT / LIST).read_text()
    found = ENTRY.findall(code[code.index("known[]") : code.index("};", code.index("known[]"))])
    entries = [(name, values, "".join(re.findall(r'"([^"]*)"', text))) for name, values, text in found]
    read = set(re.findall(r"\bFLASH_SIMT_\w+", (ROOT / "common/simt/options.cpp").read_text()))
    listed = {name for name, _, _ in entries if name.startswith("FLASH_SIMT_")}
    if read != listed:
        raise SystemExit(f"{LIST} and common/simt/options.cpp differ: {', '.join(sorted(read ^ listed))}")
    return entries


def environment():
    lines = [[f"`{name}`", values.replace("|", ", "), text] for name, values, text in variables()]
    return table("variable | values | what it says", lines)
