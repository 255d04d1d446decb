"""What a student's lines may say: rules about text and symbols, which give a friendly reason at once. They prove nothing. What a program can do
to the machine is limited by kit/sandbox.py, and what it can do to the counts by the simulator.

source(): the lines may use the language of the kernels and what the kernel hands them; no pointers, no state, no text, no name of the
simulator. compiled(): what the compiler made of them may call what the solution calls and arithmetic, and holds no memory that outlives a
launch. A kernel needs none of that; who does gets the reason and no points.
"""

import functools
import re

from kit import Fault, sandbox
from kit.exercise import ROOT

MOST = 16 << 10  # characters of a blank; the longest solution has fewer than 2,000

TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[\w.]|(?<=[eEpP])[+-])*)|(?P<op>&&|\|\||->|::|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|.)""",
    re.DOTALL,
)
TYPES = set("void bool char short int long unsigned signed float double auto const size_t half bfloat16".split())
TYPES |= {f"{t}{n}" for t in ("float", "int", "uint", "double") for n in (2, 3, 4)}
WORDS = {
    "the standard library (of numbers a kernel has fmaxf, expf, logf, min and max, without std::)": "std",
    "a file, a library or the machine": "asm system exit _exit abort fork exec printf puts putchar fopen fwrite open write read mmap syscall getenv",
    "memory that outlives the launch": "static thread_local extern register constinit inline_variable new delete malloc free",
    "a cast that hides what is read": "reinterpret_cast const_cast dynamic_cast bit_cast typeid decltype union volatile any",
    "copies of memory, which know no bounds": "memcpy memmove memset memcmp strcpy strlen bcopy alloca",
    "another way to write an operator": "bitand bitor compl and_eq or_eq xor_eq not_eq",
    "exceptions or jumps": "throw try catch goto noexcept setjmp longjmp",
    "declarations that the blank has no use for": "namespace using typedef template class struct enum operator friend virtual mutable concept requires import export module"
    " __shared__ __global__ __constant__ __managed__",
    "the insides of a view": "data origin row_stride batch_stride head_stride batches heads rows cols size address below stride",
    "a view of its own": "Matrix Vector Tensor SharedMatrix SharedVector Element Reference GlobalPointer TensorRef view dynamic_shared",
    "the simulator": "simt flash machine Site site Traffic Touch Watch launch variants Variant variant RegisterVariant run_kernel",
}
REASON = {word: reason for reason, words in WORDS.items() for word in words.split()}
CUDA = set(
    "__syncthreads __syncwarp __syncthreads_or __syncthreads_and __syncthreads_count __shfl_sync __shfl_xor_sync __shfl_up_sync __shfl_down_sync"
    " __any_sync __all_sync __ballot_sync __reduce_add_sync __reduce_max_sync __reduce_min_sync __device__ __forceinline__ __expf __logf __popc"
    " __fdividef __frcp_rn __fmaf_rn".split()
)


def without_comments(text):
    """The text with blanks in place of comments; of one that does not end /* is left."""

    def blanks(found):
        comment = found.group()
        open_ended = comment.startswith("/*") and not (len(comment) > 3 and comment.endswith("*/"))
        return ("/*" if open_ended else "") + re.sub(r"[^\n]", " ", comment[2 * open_ended :])

    return re.sub(r"//[^\n]*|/\*(?:.*?\*/|.*)", blanks, text, flags=re.DOTALL)


def uses(lines, word):
    return bool(re.search(rf"\b{word}\b", without_comments(lines)))


@functools.cache
def names_of_the_simulator():
    """Names of more than one word, as functions and variables have them, in the simulator's headers and in no kernel of the project."""

    def used(patterns):
        files = [file for pattern in patterns for file in ROOT.glob(pattern)]
        return {name for file in files for name in re.findall(r"[A-Za-z_]\w*", without_comments(file.read_text()))}

    names = used(("common/simt/*.hpp",)) - used(("[0-9][0-9]_*/**/*.cuh", "common/device/*.cuh"))
    return {name for name in names if "_" in name.strip("_")}


def source(lines, allow=()):
    """ "" or why these lines are refused: "line 3: ...", counted from the first of them."""
    if len(lines) > MOST:
        return f"the blank has more than {MOST >> 10} KiB"
    if re.search(r"\\\s*$", lines, re.MULTILINE) or "\\" in without_comments(lines):
        return "a backslash: a kernel needs none"
    text = without_comments(lines)
    if "/*" in text or "*/" in text:
        return "a comment that does not end inside the marks"
    digraph = re.search(r"<:|:>|<%|%>|%:", text)
    if digraph:
        return f"'{digraph.group()}': another way to write a bracket"
    if not text.isascii():
        return "a character that is not ASCII, outside a comment"
    tokens = []
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*(#|%:)", line):
            if not re.fullmatch(r"\s*#\s*pragma\s+unroll(\s+\w+)?\s*", line):
                return f"line {number}: a preprocessor line; allowed: #pragma unroll"
            continue
        tokens += [(m.group(), m.lastgroup, number) for m in TOKEN.finditer(line) if not m.group().isspace()]
    depth, opened, closed = 0, [], 0  # the brackets that are open; the last ( that was closed
    for at, (word, kind, number) in enumerate(tokens):
        before, after = (tokens[at - 1][0] if at else ";"), (tokens[at + 1][0] if at + 1 < len(tokens) else ";")
        depth += {"{": 1, "}": -1}.get(word, 0)
        if depth < 0:
            return f"line {number}: a closing brace without its opening one"
        why = refused_name(word, allow) if kind == "name" else refused_operator(word, before, after, tokens, at)
        why = why or refused_declaration(tokens, at, opened, closed)
        if word in ("(", "{"):
            opened.append(at)
        elif word in (")", "}") and opened:
            closed = opened.pop()
        if word == "this" and before != "*":
            why = "'this': a pointer"
        if word == "<" and before == "as" and not is_plain(tokens, at):
            why = "as<...>: allowed are numbers and vectors of them"
        if word == "auto" and "auto" not in allow and [t[0] for t in tokens[at + 2 : at + 4]] != ["=", "["]:
            why = "auto: write the type, so that no array becomes a pointer; allowed: auto f = [ for a lambda"
        if why:
            return f"line {number}: {why}"
    return "" if depth == 0 else "an opening brace without its closing one"


def refused_name(word, allow):
    if word in allow or word in CUDA:
        return ""
    if word in REASON:
        return f"'{word}': {REASON[word]}; the solution does without"
    if word not in TYPES and (word.endswith("_t") or word in ("ulong", "ushort")):
        return f"'{word}': a type of the C library; int, float and the like are enough"
    if word.startswith("_") or "__" in word or word.startswith("FLASH"):
        return f"'{word}': a name that belongs to the compiler or the simulator"
    if word in names_of_the_simulator():
        return f"'{word}' is a name of the simulator; call yours something else"
    return ""


def refused_operator(word, before, after, tokens, at):
    value_before = re.fullmatch(r"[\w.]+|\)|\]", before) and before not in ("return", "case", "else", "do")
    if word in "\"'#$@`?" and word != "?" and word:
        return f"{word}: text and macros; a kernel needs none"
    if word in ("->", "[[") or (word == "[" and after == "["):
        return f"'{word}': pointers and attributes; views and arrays are enough"
    if word == "*" and after != "this" and (not value_before or before in TYPES or after in (")", ">", "*", "&") or declares(tokens, at)):
        return "a pointer; views and arrays are enough"
    if word in ("&", "&&") and (after in (")", ">") or (word == "&&" and before in TYPES)):
        return "a cast to a reference; static_cast to a number is enough"
    if word == "&" and not value_before and not (before == "[" and after == "]") and before not in (">",):
        return "an address; views and arrays are enough"
    if word == "[" and before not in ("(", ",", "=", "return", "{", ";") and not re.fullmatch(r"[A-Za-z_]\w*|\]", before):
        return f"'{before}[': an index after something that is no array's name"
    return ""


def refused_declaration(tokens, at, opened, closed):
    """Pointers by the name of a type, and parameters that become pointers."""

    def token(n):
        return tokens[n][0] if 0 <= n < len(tokens) else ";"

    def named(n):
        return bool(re.match(r"[A-Za-z_]", token(n))) and token(n) not in ("return", "else", "do", "case")

    word, before = token(at), token(at - 1)
    if word in ("*", "&") and before == ")" and not named(closed - 1) and token(closed - 1) not in (")", "]", ">"):
        cast = [token(n) for n in range(closed + 1, min(at - 1, closed + 8))]
        if cast and all(re.fullmatch(r"[A-Za-z_]\w*|::|[*&]", each) for each in cast):
            return "a cast to a pointer, or a name in parentheses before an operator: write the name alone"
    if word == "*" and (token(at + 1) == "const" or (named(at + 1) and token(at + 2) == "=")):
        return "a pointer; views and arrays are enough"
    if not opened or token(opened[-1]) != "(" or token(opened[-1] - 1) in ("for", "if", "while", "switch"):
        return "a pointer; views and arrays are enough" if word == "*" and opened and [token(at - 2), token(at - 3)] == ["(", "for"] else ""
    if word == "*" and token(opened[-1] - 1) == "]":
        return "a pointer as a parameter; views and arrays are enough"
    if named(at - 1) and named(at - 2) and (word in "[(" or (token(opened[-1] - 1) == "]" and token(at - 2) not in TYPES)):
        return "a parameter that may become a pointer; a lambda that begins with [&] needs none"
    return ""


def is_plain(tokens, at):
    """Does tokens[at] open a list of numbers' types alone?"""
    words = [word for word, _, _ in tokens[at + 1 : at + 4]]
    return ">" in words and set(words[: words.index(">")]) <= TYPES | {"Wide"}


def declares(tokens, at):
    """Is tokens[at] the * of a statement, or of a list of parameters, that begins with NAME * NAME?"""
    beginning = [word for word, _, _ in tokens[max(0, at - 4) : at - 1]]
    while beginning and beginning[-1] == "const":
        beginning.pop()
    return not beginning or beginning[-1] in (";", "{", "}") or beginning[-2:] == ["]", "("]


# What any kernel may call besides what the solution calls.
HARMLESS = re.compile(
    r"(__tsan_\w+|__ubsan_\w+|mem(cpy|move|set)|_?_?(f(max|min|abs|ma)|exp2?|log2?|sqrt|rsqrt|pow|floor|ceil|tanh|round|trunc)f?)$"
    r"|std::__throw_\w+\("  # of host code, where the compiler has inlined more than in the solution
    r"|flash::simt::(__sync\w+|__shfl\w*|__any_sync|__all_sync|__ballot_sync|__reduce\w+|fail_\w+|threadIdx|blockIdx|blockDim|gridDim)\b"
)


def symbols(file, trusted=False):
    """(what an object calls, the names of its memory that can be written)"""
    with sandbox.workplace() as folder:
        done = sandbox.run(["nm", "-C", file], folder, read=[file], file_size=128, trusted=trusted)
    if done.code != 0:
        raise Fault(f"nm does not read {file.name}: {done.err.strip() or done.code}")
    called, written = set(), set()
    for line in done.out.splitlines():
        kind, name = line[17:18], line[19:].replace("(anonymous namespace)::", "")
        if kind == "U":
            called.add(name)
        elif kind in "bBdDsSgGC":
            written.add(re.sub(r"[.]\d+$", "", name))
    return called, written


@functools.cache
def symbols_of_project(file):
    return symbols(file, trusted=True)


def compiled(file, solution):
    """ "" or why an object is refused, by comparison with that of the solution."""
    called, written = symbols(file)
    may_call, may_write = symbols_of_project(solution)
    foreign = sorted(name for name in called - may_call if not HARMLESS.match(name))
    if foreign:
        return f"it calls {foreign[0].split('(')[0]}, which the kernel of the project does not"
    kept = sorted(written - may_write)
    return f"it keeps memory that outlives a launch: {kept[0]}" if kept else ""
