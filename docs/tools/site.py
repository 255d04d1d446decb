"""Of README.md: where to read and try the book in a browser. Only who has published a copy knows its address: docs/site/address.txt."""

import re

from common.compare.rows import ROOT

ADDRESS = ROOT / "docs" / "site" / "address.txt"
RACE = "playground/04_fa1_forward.html#break=barrier_after_the_loads_missing"


def address():
    """Of the published site, without a slash at its end; "" if there is none."""
    lines = [line.strip() for line in ADDRESS.read_text().splitlines()]
    given = [line for line in lines if line and not line.startswith("#")]
    if not given:
        return ""
    if len(given) > 1 or not re.fullmatch(r"https?://[^\s()<>]+", given[0]):
        raise SystemExit(f"docs/site/address.txt has '{given[-1]}'; allowed: one line https://..., or none")
    return given[0].rstrip("/")


def links():
    """A paragraph: the published site and a race in it, or else their like in a clone."""
    site = address()
    if site:
        return (
            f"In your browser, with nothing to install: [**break a kernel and read the race**]({site}/{RACE}), or [read the book]({site}/)."
        )
    return (
        "`common/try.sh 01 --serve` opens this editor in your browser; every save is compiled, run and judged "
        "([how](docs/howto/browser.md))."
    )
