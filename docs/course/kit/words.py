"""Says in words for a student what is wrong: which element, which tile, which rule of the simulator and what the rule means."""

import re
import signal
import textwrap

from kit.exercise import ROOT

# What the simulator says, and what it means. The first that matches counts.
RULES = (
    (
        r"order of the threads",
        "The result depends on which thread comes first: a barrier is missing or in the wrong place, or a variable is read before it has a value.",
    ),
    (
        r"writes and .* writes the same",
        "Two threads write to the same place in memory. Which of them is meant to? Most often an index is wrong: each element should have"
        " one thread that writes it. Two writes that are both meant need a __syncthreads() between them, or, within a warp, a __syncwarp().",
    ),
    (
        r"writes and .* (reads|writes) the same|\bRACE\b",
        "Two threads use the same memory, at least one of them writes, and nothing orders the two. Between a write and another"
        " thread's read, and between a read and the next write, there has to be a __syncthreads(), or, within a warp, a __syncwarp().",
    ),
    (
        r"divergent barrier|waits? in __syncthreads|waits? at a barrier",
        "A barrier waits for every thread of the block, and some thread did not arrive. Look for a __syncthreads() inside an if, after a return,"
        " or in a loop that some threads run more often than others.",
    ),
    (
        r"lanes of one warp|__shfl|__syncwarp|warp operation",
        "A shuffle needs every lane that its mask names, at the same place in the code. Look for a shuffle inside an if, after a return, or in a"
        " loop that some lanes run more often than others.",
    ),
    (
        r"is outside|does not exist|bytes of dynamic shared memory",
        "The kernel touched an element that does not exist. A GPU would read or overwrite something else there, without a word.",
    ),
    (
        r"misaligned",
        "A wide access (float4) has to begin at a multiple of its own size: at columns 0, 4, 8, ... of floats, 0, 8, 16, ... of 16-bit numbers.",
    ),
    (
        r"endless|without a barrier in it|steps|never ends",
        "A thread goes on and on. Does the variable of each loop change, and towards the loop's end?",
    ),
    (r"shared memory that no thread", "Shared memory holds nothing until a thread writes to it: NaN here, anything on a GPU."),
    (r"no thread has written", "Do your lines write it, all of it? Until then it is NaN here, anything on a GPU."),
    (r"division of .* by zero", "An integer divided by zero, or a remainder by zero. A GPU gives some number, and says nothing."),
)
TENSORS = {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}


def meaning(said):
    found = next((means for pattern, means in RULES if re.search(pattern, said, re.IGNORECASE)), "")
    return f"{found} {which_index(said)}".strip()


def which_index(said):
    """Of an element that does not exist: which index is beyond which end, and what may have brought it there."""
    if not re.search("is outside|does not exist", said):
        return ""
    place = re.search(r"\((-?\d+), (-?\d+)(?:\.\.(-?\d+))?\) is outside: it has (\d+) rows and (\d+) columns", said)
    asked = "Is an index off by one, or is there no test for a ragged last tile?"
    if not place:
        return asked
    row, col, last, rows, cols = (int(x or place[2]) for x in place.groups())
    ends = [f"rows are 0 to {rows - 1}"] * (not 0 <= row < rows) + [f"columns are 0 to {cols - 1}"] * (col < 0 or last >= cols)
    if row == rows or col == cols:
        asked = "That is one too far: is there a <= in place of <, an index too many, or no test for a ragged last tile?"
    if col == last and 0 <= col < rows and 0 <= row < cols and rows != cols:
        asked += f" Or: ({col}, {row}) would be inside: are row and column exchanged?"
    return f"Its {' and its '.join(ends)}. {asked}"


def wrapped(text, indent="  "):
    return textwrap.fill(" ".join(text.split()), 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def number(x):
    return "NaN or infinity" if x is None else f"{x:.6g}"


def listed(tensors):
    names = [TENSORS.get(name, name) for name in tensors]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def of_elements(exercise, checks):
    """Which tensors are wrong, and the worst element of the first."""
    wrong = [name for name, check in checks.items() if not check["passed"]]
    right = [name for name in checks if name not in wrong]
    check, worst = checks[wrong[0]], checks[wrong[0]]["worst"]
    text = f"{listed(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong" + (f", {listed(right)} right. " if right else ". ")
    name = TENSORS.get(wrong[0], wrong[0])
    place = f"batch {worst['batch']}, head {worst['head']}, row {worst['row']}" + ("" if name == "L" else f", column {worst['column']}")
    text += f"The worst element of {name} is at {place}: it is {number(worst['got'])}, it should be {number(worst['expected'])}."
    if exercise.tile_rows:
        tile, within = divmod(worst["row"], exercise.tile_rows)
        text += f" That is row {within} of tile {tile} ({exercise.tile_rows} rows each)."
    if check["non_finite"]:
        text += f" {check['non_finite']} elements are NaN or infinite:"
        text += " look for a division by zero, -inf - -inf, an exponential that overflows, or a variable that has no first value."
    return text


def of_tiles(report):
    """How many tiles the kernel makes of the problem, if it says so: a mistake may show from the second one on."""
    tiles, problem = report.get("tiles"), report["problem"]
    if not tiles:
        return ""
    Tr, Tc = (-(-problem[length] // tiles[size]) for length, size in (("seq_q", "br"), ("seq_k", "bc")))
    return f"Tiles: {Tr} of {tiles['br']} queries, {Tc} of {tiles['bc']} keys."


def as_in_equations(said):
    """O, L, dQ for o, lse, dq; the o of P o (dP - D) stays."""
    return re.sub(r"\b(lse|dq|dk|dv|o(?= is\b| and\b| are\b)|(?<=and )o|(?<=element of )o)\b", lambda m: TENSORS[m.group()], said)


def of_problem(options, place=""):
    """[sentences] about a problem: its options, and what follows from them. `place`: which of how many it is."""
    given = dict(zip(options, options[1:]))
    rows, keys = (int(given.get(f"--seq-{of}", given.get("--seq", 0))) for of in "qk")
    heads, kv_heads = given.get("--heads"), given.get("--kv-heads")
    facts = []
    if given.get("--input") == "ramp":
        facts += [
            "Q and K are all ones and V(j, c) = j + c/1000: all scores are alike, and O is the mean of the j that its row sees, plus c/1000."
        ]
    if given.get("--input") == "large":
        facts += ["Scores are in the hundreds: exp overflows unless the maximum is subtracted."]
    if any(word.startswith("--scale=-") for word in options):
        facts += ["All scores are far below zero: exp of each is 0 unless the maximum is subtracted."]
    if "--load" in given:
        facts += [
            "2 batches, 2 heads, 20 queries, 41 keys. Each batch and head has a bias of its own, with -inf here and there; row 7 sees no key."
        ]
    if "--bias" in given:
        facts += [f"Scores have a bias ({given['--bias']})."]
    if kv_heads and kv_heads != heads:
        facts += [f"{heads} heads share {kv_heads} head of K and V."]
    if "--causal" in options and rows > keys:
        facts += [
            f"Rows 0 to {rows - keys - 1} see no key: there O = 0 and L = -inf. Row {rows - keys} sees one, each further row one more."
        ]
    return [f"On {place + ',' if place else 'the problem'} {' '.join(options)}:", " ".join(facts)]


def whose(exercise, said, lines):
    """[sentences] about the places in a message that are not the student's: what stands there, and where the student's lines are."""
    begin, file = exercise.first_line(), exercise.file_with(lines).split("\n")
    mine = range(begin, begin + lines.count("\n"))
    told = []
    for name, number in dict.fromkeys(re.findall(r"([\w./]+\.(?:cuh|hpp)):(\d+)", said)):
        text = file if name == exercise.student_name else source(name)
        at = int(number)
        if at <= len(text) and not (name == exercise.student_name and at in mine):
            told.append(f"{name}:{number} is the project's: {text[at - 1].strip()}")
    return [*told, f"Your lines are {mine[0]} to {mine[-1]}: what do they pass on, and when?"] if told and lines else []


def source(name):
    """The lines of a file of the project."""
    path = ROOT / name
    return path.read_text().split("\n") if path.is_file() else []


def of_failure(exercise, done, report, options, place="", lines=""):
    """[sentences] about a run that failed; empty if it passed. `report`: of the stage's program, or None. `lines`: the student's."""
    told = of_run(exercise, done, report, options, lines)
    return [text for text in of_problem(options, place) + told if text] if told else []


def of_run(exercise, done, report, options, lines=""):
    """The same without the problem."""
    told = []
    if done.code == 124:
        told = ["It did not come to an end.", meaning("endless")]
    elif done.code == -signal.SIGXFSZ:
        told = ["It prints more than 32 MiB."]
    elif report is None:
        said = without_paths(done.err.strip().split("\n")[-1] if done.err.strip() else f"the program ended with {done.code}", exercise)
        said = shorter(re.sub(rf"^{exercise.stage}: | FLASH_SIMT_STEPS raises the limit;", "", said))
        told = [f"The simulator stopped it: {said}", *whose(exercise, said, lines), meaning(said)]
    else:
        checks = report["check"]["tensors"]
        wrong = not all(check["passed"] for check in checks.values())
        told = [" ".join([of_elements(exercise, checks), of_tiles(report)]).strip()] if wrong else []
        threads = report.get("threads") or {"mistakes": [], "hints": []}
        for said in threads["mistakes"][:1]:
            said = without_paths(said, exercise)
            told += [f"The simulator found a race: {said}", *whose(exercise, said, lines), meaning(said) or meaning("RACE")]
        if wrong and not threads["mistakes"]:
            for said in threads["hints"][:5]:
                said = as_in_equations(said)
                if said.startswith("O is right") and "ramp" in options:
                    said += "; but with scores that are all alike, O is right whatever they are"
                if said.startswith("L is right") and "ramp" in options:
                    said += "; but with scores that are all alike, wrong rows of Q or K would not show in L"
                end = "" if said.endswith("?") else "."
                means = "" if said.startswith("no race") else meaning(said)
                told += [f"The simulator says: {without_paths(said, exercise)}{end}", "" if means in told else means]
            told += ["Whatever your lines do not compute is the project's, and right."] if any("look " in text for text in told[1:]) else []
    return told


def shorter(said):
    """Of long lists of threads the beginning; a place that ends the sentence twice, once."""

    def beginning(found):
        ranges = found.group().split(", ")
        return f"{', '.join(ranges[:4])} and {len(ranges) - 4} more such ranges"

    said = re.sub(r"\d+(\.\.\d+)?(, \d+(\.\.\d+)?){5,}", beginning, said)
    return re.sub(r"( at \S+:\d+)\1$", r"\1", said)


def without_paths(text, exercise):
    """The student's own file by its name."""
    return re.sub(rf"(/[^\s:]*/)?{re.escape(exercise.file)}", exercise.student_name, text)


COUNTS = {
    "bytes": "bytes between HBM and the chip",
    "sectors": "sectors of 32 bytes",
    "bank_conflicts": "bank conflicts",
    "barriers": "barriers",
    "extra_memory": "bytes of extra memory",
}
WHY_COUNT = {
    "bytes": "Is something read twice that could be kept?",
    "sectors": "The bytes may be the same: neighbouring lanes should read neighbouring elements, so that a warp's access is few sectors.",
    "bank_conflicts": "Lanes of a warp that read different rows of one column conflict in a bank unless rows are padded or swizzled.",
    "barriers": "Each barrier should guard a hazard that you can name.",
    "extra_memory": "",
}


def of_count(name, got, wanted):
    return f"Right, but it needs {got:,} {COUNTS[name]} where {wanted:,} are enough. {WHY_COUNT[name]}".strip()
