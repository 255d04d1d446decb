"""Says in words for a student what is wrong: which element, which tile, which rule of the simulator, and what the rule means."""

import re
import signal
import textwrap

MEANS = {  # by the simulator's rule (common/machine/rules.hpp)
    "race": "Two threads use the same memory, one of them writes, and nothing orders the two. Between a write and another thread's read,"
    " and between a read and the next write, there has to be a __syncthreads(), or, within a warp, a __syncwarp().",
    "write_race": "Two threads write to the same place in memory. Which of them is meant to? Most often an index is wrong: each element"
    " should have one thread that writes it. Two writes that are both meant need a barrier between them.",
    "divergent_barrier": "A barrier waits for every thread of the block, and some thread did not arrive. Look for a __syncthreads() inside"
    " an if, after a return, or in a loop that some threads run more often than others.",
    "absent_lane": "A shuffle needs every lane that its mask names, at the same place in the code. Look for a shuffle inside an if, after"
    " a return, or in a loop that some lanes run more often than others.",
    "out_of_bounds": "The kernel touched an element that does not exist. A GPU would read or overwrite something else there, without a"
    " word. Is an index off by one, are row and column exchanged, or is there no test for a ragged last tile?",
    "misaligned": "A wide access (float4) begins at a multiple of its size: column 0, 4, 8, ... of floats, 0, 8, 16, ... of 16-bit numbers.",
    "endless_loop": "A thread goes on and on. Does the variable of each loop change, and towards the loop's end?",
    "unwritten_read": "Memory holds nothing until a thread writes to it: NaN here, anything on a GPU. Do your lines write it, all of it?",
    "never_written": "Do your lines write each element of what they make, S, P or O? Until then it is NaN here, anything on a GPU.",
    "thread_order": "The result depends on which thread comes first: a barrier is missing or misplaced, or a variable has no value.",
    "division": "An integer divided by zero, or a remainder by zero. A GPU gives some number, and says nothing.",
}
TENSORS = {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}
COUNTS = {  # what it counts, and what to do about it
    "bytes": ("bytes between HBM and the chip", "Is something read twice that could be kept?"),
    "sectors": ("sectors of 32 bytes", "Neighbouring lanes should read neighbouring elements: few sectors for the same bytes."),
    "bank_conflicts": ("bank conflicts", "Lanes that read different rows of one column conflict unless rows are padded or swizzled."),
    "barriers": ("barriers", "Each barrier should guard a hazard that you can name."),
}


def wrapped(text, indent="  "):
    return textwrap.fill(" ".join(text.split()), 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def wrong_tensors(report):
    return [name for name, check in report["check"]["tensors"].items() if not check["passed"]]


def rule_of(done, report):
    """The id of what is wrong with a run: a rule of the simulator, non_finite, or the tensors that are wrong, as "o lse"; "" if nothing is."""
    if done.code == 124:
        return "endless_loop"
    if report is None:
        found = re.search(r"\[(\w+)\]$", done.err.strip())
        return found[1] if found else "crash"
    wrong, rules = wrong_tensors(report), (report.get("threads") or {}).get("rules", [])
    if rules:
        return rules[0]
    finite = not any(report["check"]["tensors"][name]["non_finite"] for name in wrong)
    return " ".join(wrong) if finite else "non_finite"


def students_race_first(exercise, report, lines):
    """Races that name a line of the student's come first, and the rule of the first race is the first rule."""
    threads = (report or {}).get("threads") or {"mistakes": []}
    threads["mistakes"].sort(key=lambda mistake: bool(students_place(exercise, without_paths(mistake["text"], exercise), lines)))
    threads["rules"] = [*(mistake["rule"] for mistake in threads["mistakes"][:1]), *threads.get("rules", [])]


def worst_element(report):
    """Which tensors are wrong, and the worst element of the first, or of the first that is not finite."""
    checks, wrong = report["check"]["tensors"], wrong_tensors(report)
    right = [name for name in checks if name not in wrong]
    shown = next((name for name in wrong if checks[name]["non_finite"]), wrong[0])
    check, tiles = checks[shown], report.get("tiles")
    lists = [", ".join(TENSORS.get(name, name) for name in names) for names in (wrong, right)]
    text = f"Wrong: {lists[0]}" + (f"; right: {lists[1]}. " if right else ". ")
    worst, name = check["worst"], TENSORS.get(shown, shown)
    place = f"batch {worst['batch']}, head {worst['head']}, row {worst['row']}" + ("" if name == "L" else f", column {worst['column']}")
    names = {"got": "NaN or infinite", "expected": "-inf"}  # of what is not finite
    got, expected = (name if worst[key] is None else f"{worst[key]:.6g}" for key, name in names.items())
    text += f"The worst element of {name} is at {place}: it is {got}, it should be {expected}."
    if tiles:
        rows = tiles["bc" if name in ("dK", "dV") else "br"]
        text += f" That is row {worst['row'] % rows} of tile {worst['row'] // rows} ({rows} rows each)."
    if check["non_finite"]:
        text += f" {check['non_finite']} elements are NaN or infinite: look for 0 / 0, -inf - -inf, an exponential that overflows,"
        text += " or a variable or an element that no line writes."
    return text


def problem_sentences(options, place=""):
    """[sentences] about a problem: its options, and what follows from them. `place`: which of how many it is."""
    given, facts = dict(zip(options, options[1:])), []
    rows, keys = (int(given.get(f"--seq-{of}", given.get("--seq", 0))) for of in "qk")
    if given.get("--input") == "ramp":
        facts += ["Q and K are ones, V(j, c) = j + c/1000: scores are alike, and O is the mean of the j that its row sees, plus c/1000."]
    if given.get("--input") == "large":
        facts += ["Scores are in the hundreds: exp overflows unless the maximum is subtracted."]
    if given.get("--input") == "identity":
        facts += ["Query i and key i have the score of --scale, all other pairs 0: their weights are small, but they add up."]
    if given.get("--load") == "low":
        facts += ["All scores are far below zero: exp of each is 0, or nearly so, unless the maximum is subtracted."]
    if given.get("--load") == "small":
        facts += ["All scores are about -80: exp of each is tiny, and so is their sum, but it is not 0."]
    if "--load" in given:
        facts += ["2 batches of 2 heads that share K and V, 20 queries, 41 keys."]
    if "--causal" in options and rows > keys:
        facts += [f"Rows 0 to {rows - keys - 1} see no key: O = 0 and L = -inf. Row {rows - keys} sees one, each further row one more."]
    return [f"On {place + ',' if place else 'the problem'} {' '.join(options)}:", " ".join(facts)]


def failure_sentences(exercise, done, report, options, place="", lines=""):
    """[sentences] about a run that failed; empty if it passed. `report`: of the stage's program, or None. `lines`: the student's."""
    sentences = run_sentences(exercise, done, report, lines)
    return [text for text in problem_sentences(options, place) + sentences if text] if sentences else []


def run_sentences(exercise, done, report, lines=""):
    """The same without the problem."""
    if done.code == 124:
        return ["It did not come to an end.", MEANS["endless_loop"]]
    if done.code == -signal.SIGXFSZ:
        return ["It prints more than 32 MiB."]
    if report is None:
        message = without_paths(done.err.strip().split("\n")[-1] or f"the program ended with {done.code}", exercise)
        message = message.removeprefix(f"{exercise.stage}: ").replace(" FLASH_SIMT_STEPS raises the limit;", "")
        message = re.sub(r" at address 0x\w+ \(its line is unknown[^)]*\)", "", message)
        sentences = [
            f"The simulator stopped it: {message}",
            *students_place(exercise, message, lines),
            MEANS.get(rule_of(done, report), ""),
        ]
        own = enumerate(lines.split("\n"), exercise.first_line()) if rule_of(done, report) == "endless_loop" else ()
        return sentences + [
            f"A loop of yours begins in {exercise.student_name}:{n}." for n, line in own if re.match(r" *(for|while|do)\b", line)
        ]
    sentences = [worst_element(report)] if wrong_tensors(report) else []
    threads = report.get("threads") or {"mistakes": [], "hints": [], "rules": []}
    for message in (without_paths(mistake["text"], exercise) for mistake in threads["mistakes"][:1]):
        sentences += [f"The simulator found a race: {message}", *students_place(exercise, message, lines)]
    if sentences and not threads["mistakes"]:
        sentences += [f"The simulator says: {without_paths(message, exercise)}" for message in threads["hints"][:5]]
        sentences += students_place(exercise, " ".join(sentences), lines, "they make this value, or what it is made of.")
    return sentences + [MEANS[rule] for rule in threads["rules"][:1] if rule in MEANS]


def students_place(exercise, message, lines, what="what do they pass on, and when?"):
    """[where the student's lines are], if a message names places outside of them alone."""
    begin = exercise.first_line()
    mine = range(begin, begin + lines.count("\n"))
    places = re.findall(rf"{re.escape(exercise.student_name)}:(\d+)", message)
    outside = lines and not any(int(line) in mine for line in places)
    return [f"Your lines are {mine[0]} to {mine[-1]}: {what}"] if outside else []


def without_paths(text, exercise):
    """The student's own file by its name."""
    return re.sub(rf"(/[^\s:]*/)?{re.escape(exercise.file)}", exercise.student_name, text)


def count_sentences(name, got, wanted, exercise, lines):
    """[sentences] about a count that is higher than the project's: too much of what, and which of the student's lines may do it."""
    what, why = COUNTS[name]
    sentence, named = (
        f"Right, but it needs {got[name]:,} {what} where {wanted[name]:,} are enough. {why}",
        r"\b\w+_(smem|tile)\b|\b[A-Z](?=\()|\belements\b",
    )
    if name in ("bytes", "sectors"):
        few, tensors = wanted["tensors"], got["tensors"].items()
        most, tensor, key = max(
            (n - few.get(of, {}).get(key, 0), of, key) for of, moved in tensors for key, n in moved.items() if name in key
        )
        sentence += f" {tensor} is {key.split('_')[0]}, with {most:,} {name} too many."
        named = rf"\b{tensor}\b" if re.search(rf"\b{tensor}\b", lines) else r"\b[A-Z]\b"  # a function's operands
    elif name != "bank_conflicts":
        return [sentence]
    found = [(n, re.search(named, line.partition("//")[0])) for n, line in enumerate(lines.split("\n"), exercise.first_line())]
    at = [f"{n} ({name[0]})" for n, name in found if name]
    return [sentence, *([f"Look at {exercise.student_name}, line {', '.join(at)}."] if at else [])]
