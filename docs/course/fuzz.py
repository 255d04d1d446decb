#!/usr/bin/env python3
"""A standing attacker of the grader: grades random blanks, and watches that it keeps what docs/SECURITY.md promises.

  fuzz.py BUILD [--seconds S]    random cases for S seconds (default 60), against a build folder of the project
  fuzz.py BUILD --seed N         the case N alone, with its lines

Leave the project's files alone while it runs: what changes there counts as an escape.
Exit codes: 0 all promises kept; 1 one was broken; 2 bad input; 77 there is no sandbox on this machine.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import Usage, build, exercise, grade, sandbox, scan

CASE, SCAN, OWN = 60, 1, 2  # seconds: a case on the clock, the scan, and all that runs in the grader's process instead of a sandbox
DEEP = 4  # expansions of a rule inside each other

# What a student computes: lines that are right, with marks for statements around them, and lines that are wrong on each problem.
WORK = {
    "01_softmax": (
        lambda solution: f"@before@\n{solution}@after@\n",
        "@before@\nfor (int j = 0; j < problem.Nk; ++j) P(i, j) = 0.0f;\nL_all.head_vector(b, h)(i) = 0.0f;\n@after@\n",
        "@before@\nfor (int j = 0; j < problem.Nk; ++j) P(i, j) = S(i, j);\n@after@\n",
        "@before@\nif (i % 2 == 0) return;\n@solution@\n@after@\n",
    ),
    "02_shuffles": (
        lambda solution: "@after@\n  return value;".join(solution.replace("value) {", "value) {\n@before@").rsplit("  return value;", 1)),
        *(
            "__device__ inline float warp_max(float value) {\n@before@\nreturn value; }\n"
            f"__device__ inline float warp_sum(float value) {{\n@after@\nreturn {sum_}; }}\n"
            for sum_ in ("0.0f", "-value", "value + value + 1.0f")
        ),
    ),
    "03_online_sum": (
        lambda solution: "@before@\n" + solution.replace("  return {", "@after@\n  return {"),
        "@before@\nreturn stats;\n@after@\n",
        "@before@\nreturn {score, -1.0f};\n@after@\n",
        "@before@\nreturn {0.0f, 0.0f * score};\n@after@\n",
    ),
}

# Rules, with an alternative to a line. ~ is a fresh number for each alternative that is taken; the first alternative of a rule ends soon.
GRAMMAR = r"""
harmless
  float n~ = @value@; n~ *= 2.0f;
  float n~[4] = {@value@, @value@}; n~[@small@] += @value@;
  for (int k~ = 0; k~ < @small@; ++k~) { @harmless@ }
  \n#pragma unroll\nfor (int k~ = 0; k~ < 4; ++k~) { @harmless@ @harmless@ }
  if (const float n~ = @value@; n~ > 0.5f) { @harmless@ }
  auto n~ = [](float x, int y) { return x * static_cast<float>(y); }; float m~ = n~(@value@, @small@); m~ += 1.0f;
  auto n~ = [](const float3 x) { @harmless@ return x.y; }; n~({1.0f, @value@, 3.0f});
  // @odd@\n
  /* @odd@ */ ;
value
  1.5f
  expf(@value@)
  fmaxf(@value@, -0.25f)
  (@value@ + @value@)
  static_cast<float>(@small@)
small
  0
  1
  3
hostile
  const ulong n~ = @integer@;
  float n~[2] = {}; n~[@integer@] = @value@;
  float n~[2] = {}; for (int k~ = -@small@; k~ < 1 << 14; ++k~) n~[k~] = 0.0f;
  ((comparison_fn_t)(@integer@))(@pointer@, @pointer@);
  @call@
  (float&)@name@ = @value@;
  *(@type@*)&@name@ = @small@;
  reinterpret_cast<@type@&>(@name@) += @integer@;
  auto n~ = [](float p[]) { p[@integer@] = @value@; }; float m~[1] = {}; n~(m~);
  auto n~ = [](int f(@type@)) { return f(@small@); }; n~(@name@);
  auto n~ = [&](float (&p)[2]) -> @type@ { @hostile@ return {}; };
  for (@type@ n~[2] = {}, m~ = @small@; m~ < 3; ++m~) { @hostile@ }
  if (@type@ n~[] = {@small@, @small@}; n~[@integer@] > 0) { @hostile@ }
  const char n~[] = "@odd@";
  const char n~[] = R"(@odd@)"; @hostile@
  const char n~[] = {@small@, 47, 116, 0}; @name@ = n~ + @integer@;
  static @type@ n~ = @integer@; ++n~;
  @odd@
  @odd@[@integer@] = @odd@;
  // <<<<< 01_softmax: your lines end here
  /* @odd@
  // \\n@odd@
  } @harmless@ {
  return;
  goto n~; n~: @harmless@
  #include @odd@
  __syncthreads();
  @harmless@
type
  float
  char
  ulong
  caddr_t
  u_char
  fpos_t
  double2
  auto
  decltype(@name@)
  volatile long
name
  i
  value
  stats
  S
  P
  problem
  free
  ::system
  flash::simt::machine
integer
  0
  -1
  1 << 20
  (ulong)&@name@
  (long)&::free + @integer@
  @integer@ * 8 + @small@
  '@odd@'
pointer
  nullptr
  &@name@
  (caddr_t)(@integer@)
"""
RULES = {
    name: [line[2:].replace("\\n", "\n") for line in lines.splitlines()]
    for name, lines in re.findall(r"^(\w+)\n((?:  .*\n)+)", GRAMMAR, re.M)
}
ODD = "\0 \x1b[2J \x7f \ufeff \u202e \u2028 \xe9 \U0001f600 \r \f \v &amp;<![CDATA[ ]]> ??/ $ ` @x ' \"".split(" ")
NEST = [*"( [ { [[ < [&]{ && 1+ - ! /* */ \\ \\\n \n a 9 :: a:: e+ ' #".split(" "), " ", "if (1) "]


class TooLong(BaseException):
    """Not an error that the grader could take for one of its own."""


def alarm(*_):
    raise TooLong


class Case:
    """Everything about the case follows from its seed and from the folders that an attack aims at."""

    def __init__(self, seed, targets):
        self.random, self.fresh, self.targets = random.Random(seed), 0, targets
        r = self.random
        self.exercise = exercise.load(r.choice(sorted(WORK)))
        right, *wrong = WORK[self.exercise.name]
        self.right, self.clean = r.random() < 0.4, r.random() < 0.1
        text = right(self.exercise.parts()[1]) if self.right else r.choice(wrong).replace("@solution@", self.exercise.parts()[1])
        kinds = ["harmless"] * r.randint(2, 5)
        if not self.clean:
            kinds[: r.choice([1, 1, 2])] = [r.choice(["hostile", "hostile", "call"])]
        r.shuffle(kinds)
        cut = r.randrange(len(kinds))
        around = ["\n".join(map(self.one, part)) for part in (kinds[:cut], kinds[cut:])]
        self.lines = text.replace("@before@", around[0]).replace("@after@", around[1])
        self.file = self.exercise.file_with(self.lines).encode(errors="replace")
        torn = not self.clean and r.random() < 0.2
        self.whole = torn or r.random() < 0.1  # graded as a file, on all problems
        self.layers = (
            grade.LAYERS if self.whole else r.choice([grade.LAYERS] * 6 + [("object",), (), ()])
        )  # the scan refuses most, and at once
        if torn:  # the marks may be gone, the text may be none
            at = r.randrange(len(self.file))
            self.file = self.file[:at] + r.randbytes(r.randint(0, 9)) + self.file[at + r.choice([0, 1, 500]) :]

    def one(self, rule, depth=0):
        if rule in ("odd", "call"):
            return getattr(self, rule)()
        texts = RULES[rule]
        text = self.random.choice(texts if depth < DEEP else texts[:1])
        self.fresh += 1
        text = text.replace("~", str(self.fresh))
        return re.sub("@([a-z]+)@", lambda found: self.one(found[1], depth + 1), text)

    def odd(self):
        """A few bytes that are no text, or thousands of the same."""
        if self.clean or self.random.random() < 0.6:
            return "".join(c for c in self.random.choices(ODD, k=3) if not self.clean or c != "\r")
        return self.random.choice(NEST) * int(10 ** self.random.uniform(1, 4.2))

    def call(self):
        """A function of the C library, called by its distance from another: a file outside, or a death that looks like the machine's fault."""
        library, function = ctypes.CDLL(None), self.random.choice(["mkdir", "creat", "raise"])
        away = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (function, "free")]
        path = ", ".join(str(byte) for byte in os.fsencode(self.random.choice(self.targets) / "escaped"))
        self.fresh += 1
        n = f"n{self.fresh}"
        given = "(caddr_t)9" if function == "raise" else n
        return f"const char {n}[] = {{{path}, 0}}; ((comparison_fn_t)((ulong)&::free + {away[0] - away[1]}l))({given}, {n});"


def snapshot(folders):
    """{path: (mode, size, time)} of all files and folders; of the project without its build folders, which other tests use."""
    found = {}
    for folder in folders:
        for place, names, files in os.walk(folder):
            skipped = ("__pycache__", ".", "build") if Path(place) == exercise.ROOT else ("__pycache__",)
            names[:] = [name for name in names if not name.startswith(skipped)]
            for path in (os.path.join(place, name) for name in (*names, *files)):
                with contextlib.suppress(FileNotFoundError):
                    info = os.lstat(path)
                    found[path] = (info.st_mode, *((info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else ()))
    return found


def processes(place):
    """The command lines that name this folder, as all sandboxes do."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes()
            if os.fsencode(place) in line and path.parent.name != str(os.getpid()):
                found.append(line.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


def graded(case, mine, build_folder):
    if case.whole:
        (mine / case.exercise.student_name).write_bytes(case.file)
        return grade.grade_folder(mine, [case.exercise], build_folder, "1")[0]
    return grade.grade_lines(case.exercise, case.lines.encode(errors="replace").decode(), build_folder, layers=case.layers, count=1)


def broken(case, mine, out, watched, build_folder):
    """(the score, [promises that did not hold])"""
    before, began, wrong = snapshot(watched), time.process_time(), []
    signal.alarm(CASE)
    try:
        scan.source(case.lines)
        if time.process_time() - began > SCAN:
            wrong.append(f"the scan takes longer than {SCAN} second")
        score = graded(case, mine, build_folder)
        for form in grade.FORMATS:
            grade.write([score], out, form)
        for file in out.iterdir():
            xml.parse(file) if file.suffix == ".xml" else json.loads(file.read_text())
    except TooLong:
        return grade.nothing(case.exercise, "too long"), [f"it takes longer than {CASE} seconds"]
    except Exception:
        return grade.nothing(case.exercise, "an exception"), [traceback.format_exc()]
    finally:
        signal.alarm(0)
    if time.process_time() - began > OWN:
        wrong.append(f"the grader itself computes for {time.process_time() - began:.0f} seconds")
    points = {i["name"]: i["points"] for i in score["items"]}
    if score["fault"]:
        wrong.append("a blank keeps the exercise from being graded")
    if not case.right and (points.get("result") or score["score"]):
        wrong.append("wrong work gets points")
    refused_by_rule = score["refused"] and score["refused"] != "it does not compile"
    if case.right and case.clean and score["score"] != score["max"] and not refused_by_rule:
        wrong.append("right work with harmless lines loses points")
    (mine / case.exercise.student_name).unlink(missing_ok=True)
    shutil.rmtree(out)
    out.mkdir()
    after = snapshot(watched)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    wrong += [f"changed outside of the sandbox: {path}" for path in changed]
    patience = time.monotonic() + 3
    while (left := processes(mine.parent)) and time.monotonic() < patience:
        time.sleep(0.1)
    return score, wrong + [f"still running: {line}" for line in left]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a build folder of the project, built")
    parser.add_argument("--seconds", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, metavar="N", help="this case alone")
    arguments = parser.parse_args()
    build_folder = arguments.build.resolve()
    build.up_to_date = True
    with tempfile.TemporaryDirectory(prefix="fuzz.") as name:
        place = Path(name)
        home, temporary, mine, out = (place / folder for folder in ("home", "temporary", "mine", "out"))
        for folder in (home, temporary, mine, out):
            folder.mkdir()
        (home / "canary").write_text("untouched\n")
        os.environ |= {"HOME": str(home), "TMPDIR": str(temporary)}
        tempfile.tempdir = str(temporary)
        if sandbox.missing():
            print(f"skipped, since there is no sandbox here: {sandbox.missing()}")
            return 77
        sandbox.boxed = True
        build.prepare(build_folder, {exercise.load(name).stage for name in WORK})
        signal.signal(signal.SIGALRM, alarm)
        targets = [home, temporary, mine, exercise.ROOT, build_folder / "bin"]
        watched = [*targets, out]
        cases = compiled = refused = failures = 0
        until = time.monotonic() + arguments.seconds
        while time.monotonic() < until and not (cases and arguments.seed is not None):
            seed = secrets.randbits(40) if arguments.seed is None else arguments.seed
            case = Case(seed, targets)
            score, wrong = broken(case, mine, out, watched, build_folder)
            cases, compiled = cases + 1, compiled + bool(score["items"])
            refused, failures = refused + bool(score["refused"]), failures + bool(wrong)
            if wrong or arguments.seed is not None:
                print(f"--- seed {seed}, {case.exercise.name}, layers {case.layers}, right {case.right}, clean {case.clean}: {score}")
                print(f"{case.lines[:4000]!r}".replace("\\n", "\n"))
                print("\n".join(f"BROKEN: {promise}" for promise in wrong), flush=True)
        print(f"{cases} cases, {compiled} compiled, {refused} refused, {failures} failures")
        if arguments.seed is None and not (compiled and refused):
            print("too few to say anything; allowed: more --seconds")
            return 1
        return 1 if failures else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    try:
        sys.exit(main())
    except Usage as error:
        print(f"fuzz.py: {error}", file=sys.stderr)
        sys.exit(2)
