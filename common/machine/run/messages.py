"""What the compiler says of a user's file, in words for a beginner: one line, and the line of the source below it."""

import difflib
import pathlib
import re
import sys

PAGE = "docs/howto/any_cuda_file.md"
# Those that explain a beginner's mistake.
WARNINGS = "-Wempty-body -Wunused-value -Wparentheses -Wuninitialized -Wmaybe-uninitialized -Waddress -Wreturn-type -Wunused-result -Wformat".split()

# What we say, then templates of what compilers say: … is any text, {name} a word or a path. The first entry that fits replaces what its
# template covers, which {all} repeats.
EXPLAINED = (
    ("element of {array}, which points to const", "location '*({array} + …"),
    ("a kernel returns nothing: store what it computes, or put a ';' after 'return'", "return-statement with…"),
    ("{suffix} follows a number: is a '*' missing between the two?", "…numeric literal operator 'operator\"\"{suffix}'"),
    ("__shfl{kind}() takes a mask, a value, and a lane or distance", "no matching function for call to '__shfl{kind}(…"),
    ("an argument too many; __syncthreads() takes none", "…conver… to '…Site'…", "…call to '__syncthreads'…"),
    ("{all}: threadIdx and its like have parts: threadIdx.x", "…'uint3'…", "…'const uint3'…", "…'dim3'…", "…'const dim3'…"),
    ("{all}: it takes an address, &name", "…call to 'cudaMalloc…", "…call to 'atomic{kind}({type}&…"),
    ("{all}", "no matching function for call to 'cuda…", "no matching function for call to 'atomic…"),
    ("{all}: an element of an array is name[index]", "invalid operands…*…", "no matching function…*…", "… cannot be used as a f…", "request for member…*'…"),
    ("'*' before what is no pointer: is it one '*' too many?", "invalid type argument of unary '*'…"),
    ("{all}: the condition of if, for and while stands in parentheses", "expected '(' before…"),
    ("{all}: 'at least' is >= and 'at most' is <=", "expected primary-expression before '<…", "expected primary-expression before '>…"),
    ("{all}: what is above is not complete", "expected primary-expression before '}…"),
    ("{all}: is a '{{' or a ';' missing above?", "expected initializer before…"),
    ("how many elements has {array}? A size is missing, or 'extern' before __shared__", "storage size of '{array}' isn't known"),
    *(
        (f'the line #include "judge.hpp", which declares {name}, is missing', f"'{name}' was not declared…")
        for name in ("UNWRITTEN", "judge", "fill")
    ),
    ("did you mean 'printf'", "did you mean 'print'", "did you mean 'std::print'"),
    ("", "; did you mean 'std::__…"),
    # of warnings
    ("'=' assigns here; '==' compares", "suggest parentheses around assignment…"),
    ("this changes nothing; '=' assigns", "statement has no effect"),
    ("{function} is not called: {function}()", "statement is a reference, not call, to function '{function}'"),
    ("nobody takes the result of __shfl{kind}()", "ignoring return value of …__shfl{kind}(…"),
)  # fmt: skip
QUALIFIERS = ("global", "device", "shared", "constant")
REMOVED = [f"__{name}" for name in ("shfl", "shfl_up", "shfl_down", "shfl_xor", "any", "all", "ballot")]
WORDS = (
    "if else for while return int float bool void true false __syncthreads __shared__ threadIdx blockIdx blockDim __shfl_xor_sync".split()
)


def pattern(template):
    """The regular expression of a template."""
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>[\\w./]+)", re.escape(template)).replace("…", ".*")


def fits(text, *templates):
    """The match of the first template that fits the whole text, or None."""
    return next(filter(None, (re.fullmatch(pattern(template), text) for template in templates)), None)


def explained(text):
    """The text as EXPLAINED has it."""
    for words, *templates in EXPLAINED:
        if found := re.search("|".join(map(pattern, templates)), text):
            return text[: found.start()] + words.format(all=found[0], **found.groupdict()) + text[found.end() :]
    return text


def foreign_character(text):
    """Typographic quotes, dashes and the like, which compilers name in several ways."""
    found = re.search(r"(?:extended character |before ')([^\x00-\x7f]+)", text)
    return found and f"{found[1]} is no character of C++: was it copied from a text?"


def qualifier(text):
    """_global_ and the like."""
    found = fits(text, "'{word}'…")
    word = found and found["word"].strip("_")
    return word in QUALIFIERS and f"does not compile: CUDA's word is __{word}__, with two underscores on each side"


def misplaced(text, in_a_function):
    """What begins no declaration."""
    if not fits(text, "'…' does not name a type…", "expected unqualified-id before…", "expected declaration before…"):
        return ""
    return ": is its type missing?" if in_a_function else ": it stands outside of all functions; is there a '}' too many above?"


def similar(text, names):
    """One of the names, or of C++'s, that may be meant."""
    unknown = fits(text, "'{name}' was not declared in this scope", "'{name}' does not name…")
    if not unknown:
        return ""
    word = unknown["name"]
    known = {name.lower().strip("_"): name for name in sorted({*names, *WORDS}) if name != word}
    alike = difflib.get_close_matches(word.lower().strip("_"), known, 1, 0.8 if len(word) > 3 else 1)
    return f"; did you mean '{known[alike[0]]}'?" if alike else ""


def missing_header(text):
    """g++'s words and clang's."""
    found = fits(text, "{path}: No such file or directory…", "'{path}' file not found…")
    return found and f"there is no header {found['path']}: copy it into the file's folder, or name its own folder by -I"


def refused(text):
    """A header that rewrite.py replaces by #error, or what is declared as unavailable, with the reason."""
    found = fits(text, "#error {name} is not simulated…", "{name} is not simulated…", "'{name}' is unavailable: …")  # g++, clang, both
    if not found:
        return None
    reason = text.partition("' is unavailable: ")[2]
    by_hand = "write reductions and scans by hand, as common/machine/examples/reduction.cu and scan.cu do"
    advice = by_hand if found["name"].startswith("cub/") else "leave out what needs it"
    return f"{found['name']} is not simulated{f' ({reason})' if reason else ''}: {advice}; {PAGE} lists what is"


def removed(text):
    """Shuffles and votes without a mask."""
    for name in re.findall(r"'(\w+)'", text):
        if name in REMOVED:
            bits = "where the mask has a bit per thread: 0xff for 8, 0xffffffff for 32"
            return f"{name} was removed from CUDA for GPUs since Volta: {name}_sync(mask, ...), {bits}"
    return None


def not_simulated(text):
    """A name that looks like CUDA's and that the compiler does not know, unless it is one that it knows, misspelled."""
    cuda = r"'(?:\w+::)*((?:cu[a-z]*[A-Z]|__|cg|nv|wmma|curand|thrust|tex|this_|cluster)\w*)\W"
    unknown = "not declared|undeclared|no member|not a member|has not been|does not name"
    found = re.search(f"(?:identifier|type name) {cuda}|{cuda}.*(?:{unknown})", text)
    meant = re.search(r"did you mean ['\u2018](\w+)", text)
    name = found and (found[1] or found[2])
    is_misspelled = found and meant and difflib.SequenceMatcher(None, name, meant[1]).ratio() > 0.8
    return found and not is_misspelled and f"{name} is not simulated; {PAGE} lists what is"


def for_beginners(text, rest="", in_a_function=False, names=()):
    """What an error says. `rest`: how many others there are; `names` that the file knows."""
    text = foreign_character(text) or explained(text)
    text += misplaced(text, in_a_function)
    text += similar(text, names)
    alone = missing_header(text) or refused(text) or removed(text)
    if alone:
        return alone
    return (qualifier(text) or not_simulated(text) or f"does not compile: {text}") + rest


def show_warnings(log, project, without):
    """Those about the user's own lines, with the lines."""
    flags = "|".join(WARNINGS)
    said = re.findall(rf"^(.+?):(\d+):(\d+): (warning: .*?) \[(?:{flags})(?:=|-extra-args|-insufficient-args)?\]$", log, re.M)
    firsts = {(file, int(line)): rest for file, line, *rest in reversed(said)}
    for (file, line), (column, text) in sorted(firsts.items()):
        text = explained(text)
        types = [(aka or kind).replace("long long", "long") for kind, aka in re.findall(r" type '([^']+)'(?: .aka '([^']+)')?", text)]
        harmless = re.search("ignoring return|within|explicit braces", text) or (len(types) == 2 and types[0] == types[1])
        if pathlib.Path(file).resolve() in project.done and f"{file}:{line}" not in without and not harmless:
            print(f"{file}:{line}: {text}{project.excerpt(file, line, int(column))}", file=sys.stderr, flush=True)


def why_not(log, project):
    """The first of the compiler's messages that leads to a line of the user's own, with that line below it."""
    places = re.findall(r"^(.+?):(\d+):(?:(\d+):)? +(required|(?:fatal )?error: .*)", log, re.M)
    errors = [place for place in places if place[3] != "required"]
    if not errors:
        missing = re.findall(r"undefined reference to [`']([^'\n]*)'", log)
        if "main" in missing:
            return "there is no main(), which starts the kernels"
        if missing:
            return f"does not link: '{missing[0]}' is defined in no file; name its file too"
        return "the compiler fails: " + (log.strip().splitlines() or ["no message"])[-1]
    own = [place for place in (errors[0], *places) if pathlib.Path(place[0]).resolve() in project.done]
    file, line, column, said = (own or errors)[0]
    text = (errors[0][3] if said == "required" else said).partition("error: ")[2]
    rest = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    in_a_function = ": In " in log[: log.index(":".join(errors[0][:2]) + ":")].rpartition(": At global scope")[2]
    names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r'//.*|".*?"', "", "\n".join(project.texts.values()))))
    return f"{file}:{line}: {for_beginners(text, rest, in_a_function, names)}{project.excerpt(file, int(line), int(column or 0))}"
