#!/usr/bin/env python3
"""Writes every generated part of the Markdown pages, and the pictures, from saved results. Needs Python, and matplotlib where a plot changes.

  docs/generate.py           rewrites what changed
  docs/generate.py --check   changes nothing; exits with 1 and names each part that is stale, each broken link and equation

A generated part stands between `<!-- generated: NAME ... -->` and `<!-- end -->`; PARTS below says what each NAME is.
Saved results are docs/results/DEVICE/*.json (rows of `compare --save`) and *.txt (what a program printed): docs/save_results.sh.
"""

import re
import sys
from pathlib import Path

from tools import check_pages, comparison, counted, diagrams, environment, fa2_tables, fa2b_tables, fused_tables, headline, ladder, matmul_tables, plot_files, profile_tables, quotes, roofline, stage_tables, steps, tensor_chapter, tensor_ladder, tensor_results, tensor_tables, timed, tuned
from tools.saved import saved_text

from rows import files, usage  # where tools looks

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"(<!-- generated: ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


PARTS = {
    "roofline": roofline.introduction,
    "tiles_04": stage_tables.tiles_04,
    "tiles_05": stage_tables.tiles_05,
    "tiles_06": fa2_tables.tiles_06,
    "loads_06": fa2_tables.loads_06,
    "instructions_06": fa2_tables.instructions_06,
    "steps_06": fa2_tables.steps_06,
    "chunk_06": fa2_tables.chunk_06,
    "banks_06": fa2_tables.banks_06,
    "step3_history": fa2_tables.step3_history,
    "step3_observed": fa2_tables.step3_observed,
    "tiles_07": fa2b_tables.tiles_07,
    "loads_07": fa2b_tables.loads_07,
    "registers_07": fa2b_tables.registers_07,
    "instructions_07": fa2b_tables.instructions_07,
    "banks_07": fa2b_tables.banks_07,
    "walks_07": fa2b_tables.walks_07,
    "repeats_07": fa2b_tables.repeats_07,
    "backward_history": fa2b_tables.backward_history,
    "backward_samples": fa2b_tables.backward_samples,
    "against": stage_tables.against,
    "long_sequences": stage_tables.long_sequences,
    "few_heads": lambda stage, direction: stage_tables.against(stage, direction, "few_heads.json"),
    "bytes_01": lambda: counted.bytes_of("01_naive"),
    "bytes_02": lambda: counted.bytes_of("02_safe_softmax"),
    "bytes_03": lambda: counted.bytes_of("03_online_softmax"),
    "bytes_04": lambda: counted.bytes_of("04_fa1_forward"),
    "bytes_05": lambda: counted.bytes_of("05_fa1_backward", "backward"),
    "bytes_06": lambda: counted.bytes_of("06_fa2_forward"),
    "bytes_07": lambda: counted.bytes_of("07_fa2_backward", "backward"),
    "times_01": lambda: timed.times_of("01_naive"),
    "times_02": lambda: timed.times_of("01_naive", "02_safe_softmax"),
    "times_03": lambda: timed.times_of("02_safe_softmax", "03_online_softmax"),
    "times_04": lambda: timed.times_of("03_online_softmax", "04_fa1_forward"),
    "times_05": lambda: timed.times_of("01_naive", "05_fa1_backward", only="backward"),
    "times_06": lambda: timed.times_of("04_fa1_forward", "06_fa2_forward"),
    "times_07": lambda: timed.times_of("05_fa1_backward", "07_fa2_backward", only="backward"),
    "profile": timed.profile_of,
    "sectors_checked": counted.sectors_checked,
    "recompute": fused_tables.recompute,
    "order_of_sums": fused_tables.order_of_sums,
    "run": fused_tables.run,
    "io_theory": fused_tables.io_theory,
    "io_memory": fused_tables.io_memory,
    "io_counts": fused_tables.io_counts,
    "tile_levels": matmul_tables.tile_levels,
    "register_tiles": matmul_tables.register_tiles,
    "wavefronts": matmul_tables.wavefront_table,
    "roofline_stages": roofline.stages_table,
    "ladder": ladder.ladder,
    "steps": steps.steps,
    "peers": ladder.beside_peers,
    "headline": headline.headline,
    "claimed": headline.claimed,
    "starting_point": headline.starting_point,
    "stages": comparison.stages,
    "counts": comparison.counts,
    "saved_sweeps": comparison.saved_sweeps,
    "front_table": comparison.front,
    "demo": comparison.demo,  # what it printed first
    "profile_units": profile_tables.units,
    "profile_stalls": profile_tables.stalls,
    "profile_counts": profile_tables.counts,
    "swizzles": tensor_tables.swizzles,
    "quote": quotes.quote,  # functions of a source file
    "loop": quotes.loop,  # a forward kernel's loop over tiles
    "lab_part": quotes.lab_part,
    "tuned": tuned.tuned,
    "steps_08": tensor_ladder.steps_08,
    "rates_08": tensor_chapter.rates_08,
    "rate_08": tensor_chapter.rate_08,
    "power_08": tensor_chapter.power_08,
    "balance_08": tensor_chapter.balance_08,
    "backward_balance_08": tensor_chapter.backward_balance_08,
    "warp_rows_08": tensor_chapter.rows_of_a_warp,
    "tiles_08": tensor_chapter.tiles_08,
    "steps_tiles_08": tensor_chapter.steps_tiles_08,
    "resources_08": tensor_chapter.resources_08,
    "bytes_08": tensor_chapter.bytes_08,
    "banks_08": tensor_chapter.banks_08,
    "counts_08": tensor_chapter.counts_08,
    "precision_08": tensor_chapter.precision_08,
    "forward_history_08": tensor_chapter.forward_history_08,
    "backward_history_08": tensor_chapter.backward_history_08,
    "tensor_cells": tensor_results.cells,
    "front_peers": tensor_results.summary,
    "tensor_others": tensor_results.others,
    "tensor_steps": tensor_results.steps,
    "environment": environment.environment,
    "lab": lambda name: saved_text("cpu", f"lab_{name}", 110),  # what docs/lab's program printed
    "output": lambda stage: saved_text("cpu", stage),  # what a stage printed
}


PARTS_WITH_LINKS = {"plot": plot_files.picture}  # they get the page too, since links start from it


def page(text, where):
    """The text with all its generated parts made anew, and the names of those that changed."""
    stale = []

    def fill(match):
        name, *arguments = match.group(2).split()
        if name not in PARTS | PARTS_WITH_LINKS:
            raise SystemExit(f"{where}: no generated part is called '{name}'; there are: {', '.join(PARTS | PARTS_WITH_LINKS)}")
        body = (PARTS_WITH_LINKS[name](where, *arguments) if name in PARTS_WITH_LINKS else PARTS[name](*arguments)) + "\n"
        if body != match.group(3):
            stale.append(match.group(2))
        return match.group(1) + body + match.group(4)

    return MARKER.sub(fill, text), stale


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    wrong = []
    for path in check_pages.pages():
        relative = path.relative_to(ROOT)
        before = path.read_text()
        after, stale = page(before, relative)
        wrong += [f"{relative}: generated part '{name}' is stale; run docs/generate.py" for name in stale if check]
        if not check and after != before:
            files.write(path, after)
            print(f"{relative}: {', '.join(stale)}")
    for name, contents in diagrams.files().items():
        path = ROOT / name
        if path.exists() and path.read_text() == contents:
            continue
        if check:
            wrong.append(f"{name} is stale; run docs/generate.py")
        else:
            files.write(path, contents)
            print(name)
    if check:
        wrong += plot_files.check()
    else:
        drawn, failed = plot_files.draw()
        print("".join(f"{name}\n" for name in drawn), end="")
        wrong += failed
    wrong += check_pages.problems()
    print("\n".join(wrong) or "docs: all generated parts, links and equation numbers are right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    usage.run("generate", lambda arguments: main())
