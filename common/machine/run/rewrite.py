"""Rewrites CUDA C++ for a host compiler: launches, dynamic shared memory, device variables and inline PTX. Every line keeps its number.

The text is read as tokens, so strings, comments and directives stay as they are; what changes is edited in place.
"""

import itertools
import pathlib
import re
import sys

import ptx

TOKEN = re.compile(
    r"""(?P<space>(?:[^\S\n]|\\\r?\n|\n)+)
    |(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?\)(?P=delimiter)")
    |(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    |(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<mark><<<|->|::|\+\+|--|<<=|[<>=!+\-*/%&|^]=|&&|\|\||<<|\#\#|.)""",
    re.X | re.S,
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}
ALIGNMENTS = ("__align__", "alignas", "__attribute__", "__builtin_align__")
# Headers of CUDA's whose content is there anyway.
NEEDLESS = re.compile(
    r"^([ \t]*#[ \t]*include[ \t]*[<\"](?:device_launch_parameters|driver_types|vector_functions|math_functions|sm_\d+_\w+|device_atomic_functions|cuda_profiler_api|cuda_fp[468]"
    r"|cuda_device_runtime_api|(?:crt/)?host_defines|builtin_types|library_types|surface_types|texture_types|cuda_surface_types|curand_mtgp32)\.h[>\"])",
    re.M,
)
# Those that are missing here, though the compiler may find a CUDA Toolkit's.
FOREIGN = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]((?:cuda_(?:awbarrier|\w+_interop)|cu(?:rand|fft|sparse|solver)\w*|(?:surface|texture)_\w+|cooperative_groups/\w+)\.h"
    r"|(?:cub|thrust)/[\w./]+|(?:cuda|nv)/[\w/]+)[>\"]",
    re.M,
)
INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include"
THEIRS = "flash$"  # what a file calls flash, which is the simulator's namespace
SYNCS = re.compile(r"sync|wait|fence|barrier|commit|arrive", re.I)


class Unsupported(Exception):
    """What a file uses and the simulator does not have: one line, with the place."""


class Token:
    __slots__ = ("kind", "text", "begin", "end", "directive")

    def __init__(self, kind, text, begin, directive):
        self.kind, self.text, self.begin, self.end, self.directive = kind, text, begin, begin + len(text), directive


def tokens_of(text):
    """What is neither space nor comment. `directive`: "" or the name of the preprocessor's line that it belongs to."""
    found, directive, fresh = [], "", True
    for match in TOKEN.finditer(text):
        kind, word = match.lastgroup if match.lastgroup != "delimiter" else "raw", match.group()
        if kind == "space":
            if re.search(r"(?<!\\)\n", word.replace("\r", "")):
                directive, fresh = "", True
            continue
        if kind == "comment" and (word.startswith("//") or re.search(r"(?s)^/\*.*\*/$", word)):
            continue
        if fresh and word == "#":
            directive = "#"
        elif directive == "#":
            directive = word
        fresh = False
        if word == "<" and len(found) > 1 and found[-1].text == "<<" and found[-2].text != "operator":  # formatted as '<< <'
            found[-1].text, found[-1].end = "<<<", match.end()
            continue
        found.append(Token(kind, word, match.start(), directive))
    return found


def excerpt(number, line, column):
    """A line of a source, with a caret below a column, counted from 0. None: no caret."""
    caret = "" if column is None else f"\n      | {'':{column}}^"
    return f"\n{number:5} | {line.expandtabs()}{caret}"


class File:
    """One source, with the edits to be made in it."""

    def __init__(self, name, text):
        self.name, self.text, self.tokens = name, text, tokens_of(text)
        self.code = [t for t in self.tokens if t.directive in ("", "define")]
        self.edits = []
        if self.tokens and self.tokens[-1].kind == "comment":
            self.refuse(self.tokens[-1], "the comment that begins here is never closed by */")

    def line_of(self, token):
        return self.text.count("\n", 0, token.begin) + 1

    def refuse(self, token, what):
        number, begin = self.line_of(token), self.text.rfind("\n", 0, token.begin) + 1
        column = len(self.text[begin : token.begin].expandtabs())
        raise Unsupported(f"{self.name}:{number}: {what}" + excerpt(number, self.text[begin:].partition("\n")[0], column))

    def edit(self, begin, end, new):
        """Replaces a range; its line ends stay, behind what is new."""
        old = self.text[begin:end]
        self.edits.append((begin, end, new + "".join(re.findall(r"\\?\r?\n", old))))

    def result(self):
        text, last = [], 0
        for begin, end, new in sorted(self.edits, key=lambda e: e[:2]):
            if begin < last:
                continue  # inside of what an earlier edit has replaced
            text += [self.text[last:begin], new]
            last = end
        return "".join(text) + self.text[last:]

    def closing(self, i):
        """The index of the bracket that closes the one at i."""
        stack = []
        for k in range(i, len(self.code)):
            if self.code[k].text in OPEN:
                stack.append(self.code[k])
            elif self.code[k].text in CLOSE:
                if CLOSE[self.code[k].text] != stack[-1].text:
                    if CLOSE[self.code[k].text] not in (open.text for open in stack):
                        self.refuse(self.code[k], f"this '{self.code[k].text}' closes nothing")
                    break
                stack.pop()
                if not stack:
                    return k
        until = 0
        if stack[-1].text == "{":
            until = next((self.line_of(t) for t in self.code[i:] if t.text in ("__global__", "main")), 0)
        self.refuse(stack[-1], f"'{stack[-1].text}' is never closed{f': count the braces before line {until}' if until else ''}")

    def opening(self, i):
        """The index of the bracket that the one at i closes; '>' closes a template's arguments. Below 0: there is none."""
        depth, angles = 0, 0
        for k in range(i, -1, -1):
            text = self.code[k].text
            depth += (text in CLOSE) - (text in OPEN)
            if depth == 0:
                angles += (text == ">") - (text == "<")
                if angles == 0:
                    return k
            if depth < 0 or text == ";":
                break
        return -1

    def source(self, first, last):
        """The code of tokens first to last, on one line."""
        return "".join(
            (" " if k > first and self.code[k - 1].end != self.code[k].begin else "") + self.code[k].text for k in range(first, last + 1)
        )

    def split(self, first, last):
        """Ranges of tokens between commas."""
        parts, start, k = [], first, first
        while k <= last:
            if self.code[k].text in OPEN:
                k = self.closing(k)
            elif self.code[k].text == "<" and self.code[k - 1].kind == "word":
                close = next((i for i in range(k + 1, last + 1) if self.code[i].text == ">" and self.opening(i) == k), k)
                if all(t.kind in ("word", "number") or t.text in ("::", ",", "*", "&", "<", ">") for t in self.code[k:close]):
                    k = close  # a template's arguments
            elif self.code[k].text == ",":
                parts.append((start, k - 1))
                start = k + 1
            k += 1
        return parts + [(start, last)] if start <= last else parts


def kernel_before(file, i):
    """The index at which the expression before '<<<' begins: name, name<...>, a::name, table[i], (*name), object.name."""
    code, k = file.code, i - 1
    while k >= 0:
        if code[k].text == ">":
            k = file.opening(k) - 1
        while k >= 0 and code[k].text in (")", "]"):
            k = file.opening(k) - 1
            if k < 0 or code[k].kind != "word":
                return k + 1
        if k < 0 or code[k].kind != "word":
            file.refuse(code[i], "a launch of what? Before <<< stands no kernel's name")
        before = code[k - 1].text if k else ""
        if before == "template":
            k, before = k - 1, code[k - 2].text
        if before not in ("::", ".", "->"):
            return k
        k -= 2
        if before == "::" and (k < 0 or (code[k].kind != "word" and code[k].text != ">") or code[k].text in ("return", "else")):
            return k + 1
    return 0


def macro_parameters(file, token):
    """Of the #define that a token belongs to."""
    k = file.tokens.index(token)
    while file.tokens[k].text != "#" or file.tokens[k + 1].text != "define":
        k -= 1
    opening = file.tokens[k + 3]
    if opening.text != "(" or opening.begin != file.tokens[k + 2].end:
        return []
    return file.text[opening.end : file.text.index(")", opening.end)].replace("\\\n", " ").replace(",", " ").split()


def macros_of(file):
    return {b.text for a, b in zip(file.tokens, file.tokens[1:]) if a.text == b.directive == "define"}


def launches(file):
    code = file.code
    for i, token in enumerate(code):
        if token.text != "<<<":
            continue
        first = kernel_before(file, i)
        end, depth = i + 1, 0
        while end < len(code):
            text = code[end].text
            depth += (text in OPEN) - (text in CLOSE)
            if text == ";":
                end = len(code)
            if (
                depth == 0
                and text == ">"
                and [t.text for t in code[end : end + 4]] == [">", ">", ">", "("]
                and code[end + 1].begin == code[end].begin + 1
            ):
                break
            end += 1
        else:
            file.refuse(token, "this <<< has no >>> with the kernel's arguments behind it, in parentheses")
        shape = file.split(i + 1, end - 1)
        if len(shape) == 1 and not token.directive and not macros_of(file) & {t.text for t in code[i + 1 : end]}:
            file.refuse(token, "a launch takes two numbers, <<<blocks, threads>>>")
        name = file.source(first, i - 1)
        quoted = '"' + name.replace(THEIRS, "flash").replace("\\", "\\\\").replace('"', '\\"') + '"'
        if token.directive == "define" and name in macro_parameters(file, token):
            quoted = "#" + name
        call = f"::flash::plain::flash_kernel({quoted}, [=](auto... flash_a) FLASH_UNWATCHED {{ return {name}(flash_a...); }}).flash_on("
        file.edit(code[first].begin, token.end, call)
        file.edit(code[end].begin, code[end + 2].end, ")")
        for a, b in file.split(end + 4, file.closing(end + 3) - 1):
            if a == b and code[a].text == "NULL":
                file.edit(code[a].begin, code[a].end, "nullptr")


def launch_calls(file):
    """Kernels as arguments of the runtime, which gets them with their types and names."""
    for i, token in enumerate(file.code[:-1]):
        number = {"cudaLaunchKernel": 0, "cudaLaunchCooperativeKernel": 0, "cudaLaunchKernelEx": 1}.get(token.text)
        if number is None or file.code[i + 1].text != "(":
            continue
        first, last = file.split(i + 2, file.closing(i + 1) - 1)[number]
        begin, end = file.code[first].begin, file.code[last].end
        if file.code[first].text == "(" and file.code[file.closing(first) - 1].text == "*":  # (void*)kernel
            first = file.closing(first) + 1
        elif file.code[first].text in ("reinterpret_cast", "static_cast"):
            first, last = next(k for k in range(first, last) if file.code[k].text == "(") + 1, last - 1
        if file.code[first].text == "&":
            first += 1
        name = file.source(first, last)
        file.edit(begin, end, f'::flash::plain::function("{name}", {name})')


def in_function(file):
    """For each token of the code: does it stand in braces other than a namespace's?"""
    inside, stack, start = [], [], 0
    for k, token in enumerate(file.code):
        inside.append(token.directive == "define" or any(stack))
        if token.directive:
            continue
        if token.text == "{":
            head = [t.text for t in file.code[start:k] if not t.directive]
            stack.append("namespace" not in head and not (head and head[0] == "extern" and head[-1].startswith('"')))
        if token.text == "}" and stack:
            stack.pop()
        if token.text in ("{", "}", ";"):
            start = k + 1
    return inside


def declaration(file, i):
    """First and last token of the declaration that token i belongs to."""
    first, last = i, i
    while first > 0 and file.code[first - 1].text not in (";", "{", "}", ":") and file.code[first - 1].directive == file.code[i].directive:
        first -= 1
    while last < len(file.code) - 1 and file.code[last].text != ";":
        last = file.closing(last) + 1 if file.code[last].text in OPEN else last + 1
    return first, last


def without_alignment(file, first, last):
    kept, k = [], first
    while k <= last:
        if file.code[k].text in ALIGNMENTS:
            k = file.closing(k + 1) + 1
            continue
        kept.append(k)
        k += 1
    return kept


def shared_memory(file, inside):
    for i, token in enumerate(file.code):
        if token.text != "__shared__" or token.directive not in ("", "define"):
            continue
        first, last = declaration(file, i)
        words = [t.text for t in file.code[first : last + 1]]
        if "extern" not in words[: i - first + 2]:
            for k in range(max(first, i - 2), min(last, i + 3)):
                if file.code[k].text == "static":  # __shared__ says so already
                    file.edit(file.code[k].begin, file.code[k].end, "")
                if k > i and file.code[k].text == "alignas":
                    file.edit(file.code[k].begin, file.code[k].end, "__align__")
            first = i if token.directive else first
            file.edit(file.code[first].begin, file.code[first].begin, "FLASH_MARGIN ")
            (begin, end), *others = file.split(first, last - 1)
            name = next((k for k in range(end, begin, -1) if file.code[k].text not in "[]" and file.code[k + 1].text in "[,;"), 0)
            kind = file.code[begin:name]
            if others and not token.directive and all(t.kind == "word" and t.text not in ("static", "alignas") for t in kind):
                for begin, _ in others:
                    file.edit(file.code[begin - 1].begin, file.code[begin - 1].end, f"; FLASH_MARGIN {' '.join(t.text for t in kind)}")
            continue
        first = first + words.index("extern")
        kept = [k for k in without_alignment(file, first, last - 1) if file.code[k].text not in ("extern", "__shared__")]
        texts = [file.code[k].text for k in kept]
        size = next((n for n in range(2, len(texts) - 1) if texts[n : n + 2] == ["[", "]"]), None)
        if size is None:
            file.refuse(token, "extern __shared__ is known as an array without a size: extern __shared__ float name[];")
        name, kind = texts[size - 1], " ".join(texts[: size - 1] + texts[size + 2 :])  # with the sizes of further dimensions
        array = f"::flash::plain::dynamic<{kind}>()"
        begin, end = file.code[first].begin, file.code[last].end
        if inside[i]:
            file.edit(begin, end, f"std::type_identity_t<{kind}>* const {name} = {array};")
        else:
            file.edit(begin, end, f'\n#define {name} ({array})\n#line {file.text.count(chr(10), 0, begin) + 1} "{file.name}"\n')


def device_variables(file, inside):
    """Makes them known when the program begins; returns the names of those that the host cannot access."""
    done, unreached = -1, set()
    for i, token in enumerate(file.code):
        if token.text not in ("__device__", "__constant__", "__managed__") or inside[i] or token.directive or i <= done:
            continue
        first, last = i, i
        while first > 0 and file.code[first - 1].text not in (";", "{", "}") and not file.code[first - 1].directive:
            first -= 1
        k, names, head, angles = i, [], [], 0
        while k < len(file.code) and file.code[k].text not in ("(", "=", ";", "{", "[") + (() if angles else (",",)):
            angles += (file.code[k].text == "<") - (file.code[k].text == ">")
            if file.code[k].text in ALIGNMENTS:
                k = file.closing(k + 1)
            else:
                head.append(file.code[k].text)
            k += 1
        words = [t.text for t in file.code[first:k]]
        pointer = [t.text for t in file.code[k : k + 2]] == ["(", "*"]  # to a function or an array: its name follows
        head.append(file.code[k + 2].text if pointer else head[-1])
        if (
            k >= len(file.code)
            or (file.code[k].text == "(" and not pointer)
            or head[-1] == "const"
            or {"operator", "extern", "const", "constexpr", "template", "struct", "class", "using", "typedef"} & set(words)
        ):
            continue
        names.append(head[-1])
        last = k
        while file.code[last].text != ";":
            if file.code[last].text in OPEN:
                last = file.closing(last)
            elif file.code[last].text == ",":
                names.append(next(t.text for t in file.code[last + 1 :] if t.kind == "word"))
            last += 1
        done = last
        end = file.code[last].end
        note = "".join(
            f' static const ::flash::plain::Variable flash_variable_{n}{{&{n}, sizeof({n}), "{n}", {str("__constant__" in words or "__constant__" in head).lower()}}};'
            for n in names
        )
        file.edit(end, end, note)
        unreached |= set() if "__managed__" in [*words, *head] else set(names)
    return unreached


def inline_ptx(file):
    for i, token in enumerate(file.code):
        if token.text not in ("asm", "__asm__", "__asm") or token.directive not in ("", "define"):
            continue
        k = i + 1
        while file.code[k].text in ("volatile", "__volatile__", "inline", "goto"):
            k += 1
        if file.code[k].text != "(":
            continue
        end = file.closing(k)
        parts, start, at = [], k + 1, k + 1
        while at < end:  # at colons; '::' is two of them
            if file.code[at].text in OPEN:
                at = file.closing(at)
            elif file.code[at].text in (":", "::"):
                parts.append((start, at - 1))
                if file.code[at].text == "::":
                    parts.append((at, at - 1))
                start = at + 1
            at += 1
        parts.append((start, end - 1))
        strings = [file.code[t] for t in range(parts[0][0], parts[0][1] + 1)]
        if any(t.kind not in ("string", "raw") for t in strings):
            file.refuse(token, "inline PTX whose text a macro puts together; write it as one string")
        text = "".join(ptx.unquoted(t.text) for t in strings)
        operands = []
        for number, (a, b) in enumerate(parts[1:3]):
            for c, d in file.split(a, b):
                if file.code[c].text == "[":
                    c = file.closing(c) + 1
                operands.append((file.code[c].text.strip('"'), number == 0, file.source(c + 1, d)))
        try:
            file.edit(token.begin, file.code[end].end, ptx.translate(text, operands))
        except ptx.Missing as missing:
            what = f"inline PTX {missing}".replace("\\", "\\\\").replace('"', "'")
            file.edit(
                token.begin, file.code[end].end, f'::flash::plain::unsupported("{what}", ::flash::Site::here())'
            )  # where a kernel comes to it


def qualifiers(file):
    for i, token in enumerate(file.code):
        if token.text == "__noinline__" and file.code[i - 1].text != "(":
            file.edit(token.begin, token.end, "")  # kernels inline every call that they can: include/cuda_runtime.h
        if token.text == "inline" and "__forceinline__" in [t.text for t in file.code[max(i - 3, 0) : i + 4]]:
            file.edit(token.begin, token.end, "")


def checked_formats(file):
    """printf() of a literal: the compiler knows the format of the function that it becomes."""
    calls = [k for k, token in enumerate(file.code[:-2]) if token.text == "printf" and file.code[k + 1].text == "("]
    if any(file.code[k - 1].kind == "word" and file.code[k - 1].text not in ("return", "else", "do") for k in calls):
        return  # another one, which the file declares
    for k in calls:
        if file.code[k + 2].kind == "string" and file.code[k - 1].text not in (".", "->", "::"):
            file.edit(file.code[k].begin, file.code[k].end, "::flash::plain::print")


def leave_out(file, line):
    """The barrier, guard or statement that begins on a line."""
    on_line = [k for k, t in enumerate(file.code) if file.line_of(t) == line and t.directive == ""]
    starts = [k for k in on_line if k == 0 or file.code[k - 1].text in (";", "{", "}", ")", "else", ":") or file.code[k - 1].directive]
    for k in starts:
        if file.code[k].text != "if":
            continue
        condition = k + 2 if file.code[k + 1].text == "constexpr" else k + 1
        close = file.closing(condition)
        behind = file.code[close + 1].text if file.code[close + 1].text != "{" else file.code[close + 2].text
        file.edit(file.code[condition].begin, file.code[close].end, "(false)" if behind in ("return", "continue", "break") else "(true)")
        return
    for wanted in (SYNCS, re.compile("")):
        for k in starts:
            last = k
            while last < len(file.code) and file.code[last].text not in (";", "{", "}"):
                last = file.closing(last) + 1 if file.code[last].text in ("(", "[") else last + 1
            if last < len(file.code) and file.code[last].text == ";" and last > k and wanted.search(file.source(k, last)):
                file.edits = [e for e in file.edits if e[1] <= file.code[k].begin or e[0] >= file.code[last].end]
                file.edit(file.code[k].begin, file.code[last].end, ";")
                return
    raise Unsupported(f"{file.name}:{line}: nothing to leave out: no statement and no if begins on this line")


TYPES = set("void bool char short int long unsigned signed float double size_t float2 float3 float4 int2 int3 int4 half __half".split())
HOST_CLASSES = set("string vector map set list deque mutex lock_guard thread function unique_ptr shared_ptr sort to_string".split())
HOST_FUNCTIONS = {  # what a kernel has instead
    **dict.fromkeys("rand srand getenv system fopen fclose fscanf scanf sleep usleep time".split(), ", which no kernel can call"),
    "sync": "; the barrier of a block is __syncthreads()",
    **dict.fromkeys(("puts", "putchar", "fprintf", "fputs"), '; a kernel prints by printf("%g\\n", x)'),
    **{"exit": "; a kernel ends a thread by return", "abort": "; a kernel stops by assert(false) or __trap()"},
}
PLAIN = TYPES | {"static", "inline", "const", "*", "&"}


def functions_of(file, inside):
    """Those outside of classes: the name's token, the words before it, the tokens of parameters and body, and whether an #if is near."""
    code, found, start, k = file.code, [], 0, 0
    changes = [
        (t.begin, -1 if t.text == "endif" else 1) for t in file.tokens if t.directive == t.text in ("if", "ifdef", "ifndef", "endif")
    ]
    while k < len(code):
        text = code[k].text
        if inside[k] or code[k].directive or text in ("{", "}", ";"):
            start = k + 1
        elif text in ("(", "["):
            end = file.closing(k) + 1
            function = k - 1 > start and code[k - 1].kind == "word" and code[k - 1].text not in ("__launch_bounds__", *ALIGNMENTS)
            if text == "(" and function and end < len(code) and code[end].text in ("{", ";"):
                last, words = file.closing(end) if code[end].text == "{" else end, [t.text for t in code[start : k - 1]]
                unsure = sum(c for at, c in changes if at < code[k].begin) or any(
                    code[k].begin < at < code[last].begin for at, _ in changes
                )
                if "__global__" in words or not {"=", "operator", "struct", "class", "using", "typedef"} & set(words):
                    found.append((code[k - 1], words, range(k, last), unsure))
                end, start = last + 1, last + 1
            k = end - 1
        k += 1
    return found


def refuse_variables(file, function, variables, known):
    """Of the device in a function of the host that declares none of these names itself, unless a call may take them as symbols."""
    code, calls = file.code, []
    lambdas = [k for k in function if code[k].text in ("__device__", "__host__")]  # what follows is perhaps the kernel's
    for k in range(function.start, lambdas[0] if lambdas else function.stop):
        name, before = code[k], code[k - 1]
        if name.text == "(":
            calls.append(before.text)
        elif name.text == ")" and calls:
            calls.pop()
        typed = before.text in ("*", "&") and code[k - 2].text in {*TYPES, "auto"}
        if name.text in variables and (typed or before.kind == "word" and before.text not in ("return", "else")):
            return
        if name.text in variables and before.text not in (".", "->", "::") and not any("Symbol" in c or c in known for c in calls):
            file.refuse(name, f"kernels have another {name.text} than the host: cudaMemcpyFromSymbol() reads theirs")


def refuse_what_nvcc_does(file, inside, variables):
    """A beginner's calls between host and device, where it is sure what a name is."""
    code, functions, all_words = file.code, functions_of(file, inside), {}
    for name, words, *_ in functions:
        all_words.setdefault(name.text, []).append(set(words))
    macros = macros_of(file)
    for k, (name, shift, before) in enumerate(zip(code, code[1:], [None, *code])):
        declared = all_words.get(name.text, []) if name.text not in macros else []
        if shift.text == "<<<" and declared and all(w <= PLAIN | {"__device__", "__host__"} for w in declared):
            file.refuse(name, f"{name.text} is launched, but is no kernel: declare it as __global__ void {name.text}(...)")
        if (
            shift.text in ("<<", "<")
            and declared
            and all("__global__" in w and "template" not in w for w in declared)
            and before
            and before.text in (";", "{", "}", ")", "else")
            and ">(" in "".join(t.text for t in itertools.takewhile(lambda t: t.text not in (";", "{"), code[k:]))
        ):
            file.refuse(name, f"a kernel is started by {name.text}<<<blocks, threads>>>: three '<' and three '>', each in one piece")
    for token, words, body, unsure in functions:
        kernel, host = "__global__" in words, "__host__" in words or not {"__global__", "__device__"} & set(words)
        if kernel and ("void" not in words and not macros & set(words)):
            what = "returns " + words[-1] if words[-1] in TYPES else "has no type"
            file.refuse(token, f"kernel {token.text} {what}: nvcc requires __global__ void {token.text}(...)")
        if kernel and (reference := next((code[k] for k in range(body[0], file.closing(body[0])) if code[k].text == "&"), None)):
            file.refuse(reference, f"a parameter of kernel {token.text} is a reference, which nvcc refuses: a GPU gets copies")
        if not unsure and not {"__global__", "__device__"} & set(words):
            refuse_variables(file, body, variables, macros | {*all_words, "sizeof", "decltype"})
        other = {code[k].text for k in body if code[k + 1].text not in ("(", "<<<")} | macros  # names that may be something else
        for k in [] if unsure else body:
            name, before, behind = code[k].text, code[k - 1].text, code[k + 1].text
            if not host and name in ("cout", "cerr") and behind == "<<" and name not in macros:
                file.refuse(code[k], f'std::{name} is the host\'s; a kernel prints by printf("%g\\n", x)')
            if not host and behind == "<<<":
                file.refuse(code[k], f"{token.text} launches kernel {name}: dynamic parallelism is not simulated; launch it from the host")
            if not host and (name in ("new", "delete") and behind != "(" or name in ("malloc", "free") and behind == "("):
                file.refuse(code[k], f"{name} in {token.text} is valid CUDA, but kernels have no heap here; pass it memory from cudaMalloc")
            if not host and before == "::" and code[k - 2].text == "std" and name in HOST_CLASSES:
                file.refuse(code[k], f"std::{name} is the host's: nvcc refuses it in a kernel")
            if not host and name == "thread_local":
                file.refuse(code[k], "thread_local is the host's: each thread of a kernel has local variables of its own anyway")
            if not host and name in ("throw", "try"):
                file.refuse(code[k], f"{name}: kernels have no exceptions")
            if code[k].directive or behind != "(" or name in other or before in (".", "->"):
                continue
            if not host and name == "sync" and code[k + 2].text != ")":
                continue  # of a group
            if not host and name in HOST_FUNCTIONS and name not in all_words and (before != "::" or code[k - 2].text == "std"):
                file.refuse(code[k], f"{name}() is a function of the host{HOST_FUNCTIONS[name]}")
            if not host and re.match(r"cuda(?!Grid|Trigger)[A-Z]", name) and name not in all_words:
                why = f"{name}() is a function of the host, to be called outside of kernels"
                if "Synchronize" in name:
                    why += ", where it waits for the whole kernel; __syncthreads() waits for the threads of a block"
                file.refuse(code[k], why)
            called = (code[k - 1].kind != "word" or before in ("return", "else")) and before != "::" and all_words.get(name, [])
            if called and not host and all(w <= PLAIN for w in called):
                what = "kernel" if kernel else "device function"
                file.refuse(code[k], f"{what} {token.text} calls {name}(), which has no __device__: nvcc refuses that")
            if called and before in (";", "{", "}", ")", "else") and all("__global__" in w for w in called):
                file.refuse(code[k], f"a kernel is started by {name}<<<blocks, threads>>>(...)")


def rewrite(name, text, without=()):
    """The text for a host compiler. `without`: lines whose barrier, guard or statement is left out."""
    text = FOREIGN.sub(lambda m: m[0] if (INCLUDE / m[1]).is_file() else f"#error {m[1]} is not simulated", NEEDLESS.sub(r"// \1", text))
    file = File(name, text)
    for token in file.tokens:
        if token.text == "flash" and token.directive != "include":
            file.edit(token.begin, token.end, THEIRS)
    if file.edits:
        file = File(name, file.result())
    inside = in_function(file)
    refuse_what_nvcc_does(file, inside, device_variables(file, inside))
    inline_ptx(file)
    shared_memory(file, inside)
    launches(file)
    launch_calls(file)
    checked_formats(file)
    qualifiers(file)
    barriers_of_a_line(file, without)
    for line in without:
        leave_out(file, line)
    return f'#line 1 "{name}"\n' + file.result()


def barriers_of_a_line(file, without):
    """Threads that wait at two barriers of one line have not met: the second gets another string of the same name."""
    before = number = 0
    for name, left, right in zip(file.code, file.code[1:], file.code[2:]):
        if (name.text, left.text, right.text) != ("__syncthreads", "(", ")") or name.directive:
            continue
        line = file.line_of(name)
        number = number + 1 if line == before else 0
        before = line
        if number and line not in without:
            file.edit(right.begin, right.begin, f'{{__FILE__ "\\0" "{number}", __LINE__}}')


class Project:
    """Sources and the local headers that they include, rewritten below a folder under their own paths."""

    def __init__(self, root, folders=(), without=()):
        self.root, self.folders, self.done = pathlib.Path(root), [pathlib.Path(f).resolve() for f in folders], {}
        self.texts = {}  # as they were read
        self.without = without  # pairs of a path and a line
        self.used = set()

    def excerpt(self, path, number, column):
        """A line of a source as its author wrote it, below the column that it has where it was rewritten."""
        real = pathlib.Path(path).resolve()
        if real not in self.done:
            return ""
        texts = (self.texts[real], number - 1), (self.done[real].read_text(), number)
        line, became = ("".join(text.split("\n")[at : at + 1]).expandtabs() for text, at in texts)
        rest = became[column - 1 :]
        return excerpt(number, line, len(line) - len(rest) if column and line.endswith(rest) else None) if line else ""

    def add(self, path, shown=None):
        """Rewrites a file, once; returns where."""
        path = pathlib.Path(path)
        real = path.resolve()
        if real in self.done:
            return self.done[real]
        to = self.done[real] = self.root / real.relative_to(real.anchor)
        text = self.texts[real] = real.read_text(errors="replace")
        for include in re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', text, re.M):
            for folder in [real.parent, *self.folders]:
                found = folder / include
                if found.is_file():
                    self.add(
                        found, None if pathlib.Path(include).is_absolute() else path.parent / include if folder == real.parent else None
                    )
                    break
        lines = [line for file, line in self.without if pathlib.Path(file).resolve() == real]
        self.used |= {(file, line) for file, line in self.without if line in lines}
        to.parent.mkdir(parents=True, exist_ok=True)
        shown = str(shown or path)
        to.write_text(rewrite(shown.replace("\\", "\\\\").replace('"', '\\"'), text, lines))
        return to


if __name__ == "__main__":  # for add_cuda_on_cpu(): rewrite.py SOURCE ROOT DEPFILE [FOLDER...]
    try:
        project = Project(sys.argv[2], sys.argv[4:])
        written = project.add(pathlib.Path(sys.argv[1]))
        pathlib.Path(sys.argv[3]).write_text(f"{written}: " + " ".join(str(path).replace(" ", "\\ ") for path in project.done) + "\n")
    except (Unsupported, OSError) as error:
        sys.exit(f"{error}")
