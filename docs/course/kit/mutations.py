"""course.py mutate: changes one token of a solution at a time (a sign, a bound, a start, a stride, an operand) and expects `check` to refuse it.

A change that `check` accepts is a survivor. Each survivor has to stand in exercises/survivors.toml with the reason why no problem can show it, or
why none should. One that fails on problems drawn from a seed is no survivor but a hole in the fixed problems: there a seed would decide the mark.
"""

import concurrent.futures
import hashlib
import itertools
import os
import re
import time
from typing import NamedTuple

import tomllib

from . import build, check, exercise, grade, sandbox

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|#[^\n]*|[A-Za-z_]\w*|\.?\d(?:[\w.]|(?<=[eE])[+-])*|->|::|\+\+|--|<<|>>|&&|\|\||[<>=!+\-*/%&|^]=|\S", re.DOTALL
)
OPERATORS = {
    "<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="], "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"],
    "+=": ["-=", "="], "-=": ["+="], "*=": ["/=", "="], "/=": ["*="], "&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"], "^": ["|"], "++": ["--"],
    ">>": ["<<"], "<<": [">>"],
}  # fmt: skip
NAMES = {"fmaxf": ["fminf"], "fminf": ["fmaxf"], "max": ["min"], "min": ["max"], "INFINITY": ["0.0f"], "x": ["y"], "y": ["z"], "z": ["y"]}
KEPT = {*"for if else while return const int float bool unsigned auto template true false break continue inline __device__ float4".split()}
COUNT = 20  # of an exercise
SEEDS = ("1", "autumn", "w113")


class Mutant(NamedTuple):
    line: int  # of the solution, from 1
    old: str
    new: str
    place: int  # which token of that text in its line, from 1
    lines: str  # the solution with the change

    def words(self):
        return f"line {self.line}: {self.old} -> {self.new} ({self.place})"


def replacements(tokens, at, variables):
    """What could stand in place of a token by mistake."""
    word, before, after = tokens[at][0], tokens[at - 1][0] if at else ";", tokens[at + 1][0] if at + 1 < len(tokens) else ";"
    if word in OPERATORS:
        if word in "<>" and (before in ("as", "static_cast") or (after in ("const", "float4") and re.fullmatch(r"[a-z_]\w*", before))):
            return []  # brackets of a template
        if word in "+-*&" and not re.fullmatch(r"[\w.]+|\)|\]", before):
            return ["+"] if word == "-" else []  # a sign; no pointers or references
        return OPERATORS[word]
    if word in NAMES and (word not in "xyz" or before == "."):
        return NAMES[word]
    if re.fullmatch(r"\d+u?", word) and before != "<":
        value, suffix = int(word.rstrip("u")), "u" if word.endswith("u") else ""
        return [f"{value + 1}{suffix}"] + ([f"{value - 1}{suffix}"] if value > 0 else [])
    if re.fullmatch(r"\d+\.\d*f", word):
        return ["1.0f" if float(word[:-1]) == 0 else "0.0f"]
    if word in variables and after != "(" and before not in (".", "::", "float", "int", "unsigned", "const"):
        return [other for other in variables if other != word]
    return []


def mutants_of(e):
    """Of an exercise, in an order that mixes kinds and lines and is the same everywhere."""
    solution = e.parts()[1]
    tokens = [(m.group(), m.start()) for m in TOKEN.finditer(solution) if not re.match(r"//|/\*|#", m.group())]
    words = [word for word, _ in tokens]
    # Plain variables that are used and not called: those may be mistaken for each other.
    names = {
        w
        for n, w in enumerate(words)
        if re.fullmatch(r"[A-Za-z_]\w*", w) and w not in KEPT | set(NAMES) and words[n + 1 : n + 2] not in (["("], ["::"], ["<"])
    }
    variables = sorted(name for name in names if words.count(name) > 1)
    found = []
    for at, (word, start) in enumerate(tokens):
        line = solution.count("\n", 0, start) + 1
        place = 1 + sum(w == word and solution.count("\n", 0, s) + 1 == line for w, s in tokens[:at])
        for new in replacements(tokens, at, variables):
            found.append(Mutant(line, word, new, place, solution[:start] + new + solution[start + len(word) :]))

    # Round by round one of each kind: otherwise nearly all would be exchanged names.
    kinds = {}
    for mutant in sorted(found, key=lambda m: hashlib.sha256(f"{e.name}/{m.words()}".encode()).hexdigest()):
        kind = "name" if mutant.old in variables else "number" if mutant.old[0].isdigit() else mutant.old
        kinds.setdefault(kind, []).append(mutant)
    ordered = []
    while any(kinds.values()):
        ordered += [group.pop() for group in kinds.values() if group]
    return ordered


def verdict(e, mutant, build_folder):
    """ "" if it does not compile; refused, accepted, or the seed's problem that alone refuses it"""
    with sandbox.workplace() as folder:
        built = build.build(e, mutant.lines, build_folder, folder / "build")
        if built.program is None:
            return ""
        found = check.run_cases(e, built.program, build_folder, folder, mutant.lines)
        if not found.right or built.unset or check.lacks_what_is_asked(e, mutant.lines):
            return "refused"
        for seed in SEEDS:
            lost, why = grade.lost_by(e, built.program, build_folder, seed, folder / seed, mutant.lines)
            if why or lost:
                return f"only seed {seed}: {why or lost}" if why else "refused"
    return "accepted"


def judged_mutants(e, build_folder):
    """[(mutant, verdict)] of the first that compile."""
    judged = ((mutant, verdict(e, mutant, build_folder)) for mutant in mutants_of(e))
    return list(itertools.islice(((mutant, outcome) for mutant, outcome in judged if outcome), COUNT))


def command(arguments, build_folder):
    wanted = [e for what in arguments.exercises or ["all"] for e in exercise.chosen(what)]
    build.prepare(build_folder, {e.stage for e in wanted})
    explained = tomllib.loads((exercise.FOLDER / "survivors.toml").read_text())
    began, survivors, holes, tried = time.monotonic(), 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for e, found in zip(wanted, pool.map(lambda e: judged_mutants(e, build_folder), wanted)):
            tried += len(found)
            print(f"{e.name}: {sum(outcome == 'refused' for _, outcome in found)} of {len(found)} changes refused", flush=True)
            for mutant, outcome in found:
                reason = explained.get(e.name, {}).get(mutant.words())
                if outcome == "refused":
                    continue
                survivors += outcome == "accepted"
                holes += outcome != "accepted" or reason is None
                print(f"  {mutant.words()}: {outcome}; {reason or 'NOT EXPLAINED'}", flush=True)
    print(f"{tried} changes, {survivors} survivors, {holes} of them not explained, {time.monotonic() - began:.0f} s")
    return 1 if holes else 0
