"""Inline PTX for the simulator: each instruction becomes a call of a function in include/flash_ptx.hpp, or of the machine's own."""

import re

INTEGERS = {"b8": "std::uint8_t", "b16": "std::uint16_t", "b32": "unsigned", "b64": "std::uint64_t"}
TYPES = {
    **INTEGERS,
    **{f"u{n}": INTEGERS[f"b{n}"] for n in (8, 16, 32, 64)},
    **{"s8": "signed char", "s16": "short", "s32": "int", "s64": "long long", "f32": "float", "f64": "double", "pred": "bool"},
    **{"f16": "::flash::__half", "bf16": "::flash::__nv_bfloat16", "f16x2": "::flash::__half2", "bf16x2": "::flash::__nv_bfloat162"},
    **{"b128": "unsigned __int128"},
}
SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid)\.([xyz])|%(laneid|warpid|nwarpid|smid|nsmid|clusterid|cluster_ctarank|lanemask_(?:eq|lt|le|gt|ge)|clock(?:64)?|globaltimer|dynamic_smem_size|total_smem_size)"
)
P = "::flash::plain::"


class Missing(Exception):
    """An instruction that the simulator does not have."""


def unquoted(string):
    """The text of a C string literal."""
    if string.startswith(("R", "u8R", "uR", "UR", "LR")):
        return re.sub(r'^\w*R"([^(]*)\((.*)\)\1"$', r"\2", string, flags=re.S)
    return string[string.index('"') + 1 : -1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def split(text):
    """At commas outside brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()] if part.strip() else parts


class Block:
    def __init__(self, operands):
        self.operands, self.registers, self.labels = operands, {}, []

    def value(self, text, kind=None):
        """An operand that is read, as a C++ type; None: as it is."""
        text = text.strip()
        if text.startswith("!"):
            return f"!{self.value(text[1:], kind)}"
        if match := SPECIAL.fullmatch(text):
            return (
                f"{match[1].replace('nctaid', 'gridDim').replace('ctaid', 'blockIdx').replace('ntid', 'blockDim').replace('tid', 'threadIdx')}.{match[2]}"
                if match[1]
                else f"{P}special_{match[3]}()"
            )
        elif match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return f"__builtin_bit_cast(float, 0x{match[1]}u)"
        elif match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return f"__builtin_bit_cast(double, 0x{match[1]}ull)"
        elif re.fullmatch(r"-?\d[\w.]*(?:[eE][+-]?\d+)?", text):
            return f"({kind or 'int'})({text.rstrip('U') if 'x' not in text else text})"
        return f"{P}as<{kind}>({self.name(text)})" if kind else self.name(text)

    def name(self, text):
        operand = re.fullmatch(r"%(\d+)", text)
        if text not in self.registers and not (operand and int(operand[1]) < len(self.operands)):
            raise Missing(f"{text}: no register or operand")
        return f"flash_{text.lstrip('%')}"

    def target(self, text):
        return f"{P}nowhere()" if text.strip() == "_" else self.name(text.strip())

    def set(self, to, value):
        return f"{P}set({self.target(to)}, {value});"

    def many(self, text):
        return split(text.strip()[1:-1]) if text.strip().startswith("{") else [text]

    def array(self, name, kind, text):
        return f"const {kind} {name}[] = {{{', '.join(self.value(t, kind) for t in self.many(text))}}};"

    def address(self, text):
        """[a], [a + 16], of memory that a pointer or a 32-bit address of shared memory names."""
        inner = text.strip()[1:-1].strip()
        match = re.fullmatch(r"(.*?)\s*(?:([+-])\s*(%?\w+))?", inner)
        base = f"{P}address({self.value(match[1])})"
        return f"({base} {match[2]} {self.value(match[3], 'int')})" if match[2] else base


ONE = {
    "abs": "__builtin_abs",
    "neg": "-",
    "not": "~",
    "popc": "__builtin_popcountll",
    "clz": P + "clz",
    "brev": "::flash::__brev",
    "sqrt": P + "sqrt_",
    "rsqrt": "1 / " + P + "sqrt_",
    "rcp": "1 / ",
    "ex2": P + "ex2",
    "lg2": P + "lg2",
    "sin": P + "sin_",
    "cos": P + "cos_",
    "tanh": P + "tanh_",
}
TWO = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%", "shl": "<<", "shr": ">>"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
NOTHING = re.compile(
    r"griddepcontrol|prefetch|discard|applypriority|nanosleep|mbarrier\.inval|fence\.proxy\.(tensormap|alias)|isspacep|cp\.async\.bulk\.prefetch|barrier\.cluster|pragma|tensormap\.cp_fenceproxy"
)


def arithmetic(b, op, o):
    name, parts = op.split(".")[0], op.split(".")
    kind = TYPES.get(parts[-1])
    if (
        kind is None
        or len(o) < 2
        or name not in {*ONE, *TWO, "mov", "min", "max", "mul", "mad", "fma", "setp", "selp", "cvt", "lop3", "prmt", "bfe", "bfi", "shf"}
    ):
        return None
    v = [b.value(t, kind) for t in o[1:]] if name not in ("setp", "selp", "cvt", "shl", "shr", "mov") else []
    if name == "mov":
        if o[0].startswith("{"):
            return f"{P}unpack({b.value(o[1])}, {', '.join(b.target(t) for t in b.many(o[0]))});"
        if o[1].startswith("{"):
            return b.set(o[0], f"{P}pack<{kind}>({', '.join(b.value(t) for t in b.many(o[1]))})")
        return b.set(o[0], b.value(o[1], kind))
    if name == "abs":
        return b.set(o[0], f"{P}abs_({v[0]})")
    if name in ONE:
        return b.set(o[0], f"({kind})({ONE[name]}({v[0]}))")
    if name in ("shl", "shr"):
        return b.set(o[0], f"{P}{name}({b.value(o[1], kind)}, {b.value(o[2], 'unsigned')})")
    if name in TWO:
        return b.set(o[0], f"({kind})({v[0]} {TWO[name]} {v[1]})")
    if name in ("min", "max"):
        return b.set(o[0], f"{P}{name}_({v[0]}, {v[1]})")
    if name in ("mul", "mad", "fma"):
        if "wide" in parts:
            wide = {"int": "long long", "unsigned": "std::uint64_t", "short": "int", "std::uint16_t": "unsigned"}[kind]
            product = f"(({wide}){v[0]} * {v[1]}"
            return b.set(o[0], f"{product} + {b.value(o[3], wide)})" if name == "mad" else product + ")")
        if "hi" in parts:
            return b.set(o[0], f"({kind})(((__int128){v[0]} * {v[1]} >> (8 * sizeof({kind})))" + (f" + {v[2]})" if name == "mad" else ")"))
        if name == "fma" or (name == "mad" and kind in ("float", "double")):
            return b.set(o[0], f"{P}fma_({v[0]}, {v[1]}, {v[2]})")
        return b.set(o[0], f"({kind})({v[0]} * {v[1]}" + (f" + {v[2]})" if name == "mad" else ")"))
    if name == "setp":
        if parts[1] not in COMPARE:
            return None
        test = f"{b.value(o[1], kind)} {COMPARE[parts[1]]} {b.value(o[2], kind)}"
        yes, _, no = o[0].partition("|")
        return b.set(yes, f"({test})") + (b.set(no, f"!({test})") if no else "")
    if name == "selp":
        return b.set(o[0], f"({b.value(o[3], 'bool')} ? {b.value(o[1], kind)} : {b.value(o[2], kind)})")
    if name == "cvt":
        to = [TYPES[p] for p in parts[1:] if p in TYPES]
        if len(to) != 2:
            return None
        if to[0].endswith("2"):  # the first number goes to the upper half
            return b.set(o[0], f"{to[0]}{{{b.value(o[2], 'float')}, {b.value(o[1], 'float')}}}")
        rounding = next((r for r in ("rni", "rzi", "rmi", "rpi") if r in parts), "")
        return b.set(o[0], f'{P}convert<{to[0]}>({b.value(o[1], to[1])}, "{rounding}")')
    if name == "lop3":
        return b.set(o[0], f"{P}lop3({', '.join(b.value(t, 'unsigned') for t in o[1:5])})")
    if name in ("prmt", "bfe", "bfi", "shf"):
        return b.set(o[0], f"{P}{name}{'_' + parts[1] if name == 'shf' else ''}({', '.join(v)})")
    return None


def copies(b, op, o):
    if re.match(r"cp\.async\.c[ag]\.shared", op):
        size = o[2]
        to, source = f"{P}address({b.value(o[0][1:-1])})", f"(const void*){b.address(o[1])}"
        policy = 1 if "cache_hint" in op else 0
        if len(o) - policy == 4:
            return f"{P}cp_async({to}, {source}, {b.value(size, 'int')}, {b.value(o[3], 'int')});"
        return f"{P}cp_async({to}, {source}, {b.value(size, 'int')}, {b.value(size, 'int')});"
    if op == "cp.async.commit_group":
        return "::flash::cp_async_commit();"
    if op == "cp.async.wait_all":
        return "::flash::cp_async_wait_all();"
    if op == "cp.async.wait_group":
        return f"{P}cp_async_wait({b.value(o[0], 'int')});"
    if op.startswith("cp.async.mbarrier.arrive"):
        return f"{P}cp_async_arrive({b.address(o[0])});"
    return None


def matrices(b, op, o):
    if match := re.match(r"(ld|st)matrix\b.*\.x([124])\b", op):
        trans, n = ".trans" in op, match[2]
        registers, row = (o[0], o[1]) if match[1] == "ld" else (o[1], o[0])
        if match[1] == "st":
            return f"{{ {b.array('r_', 'unsigned', registers)} {P}stmatrix<{n}, {str(trans).lower()}>({b.address(row)}, r_); }}"
        store = "".join(b.set(t, f"r_[{i}]") for i, t in enumerate(b.many(registers)))
        return f"{{ unsigned r_[{n}]; ::flash::ldmatrix_x{n}{'_trans' if trans else ''}(r_, {b.address(row)}); {store} }}"
    if match := re.match(r"mma\.sync\.aligned\.m16n8k(8|16)\.row\.col\.(f32|f16)\.(f16|bf16)\.\3\.\2$", op):
        kind = "float" if match[2] == "f32" else "unsigned"
        store = "".join(b.set(t, f"d_[{i}]") for i, t in enumerate(b.many(o[0])))
        call = f"::flash::mma_m16n8k{match[1]}_{match[3]}(d_, a_, b_, c_);" if kind == "float" else f"{P}mma_f16(d_, a_, b_, c_);"
        return f"{{ {kind} d_[{4 if kind == 'float' else 2}]; {b.array('a_', 'unsigned', o[1])} {b.array('b_', 'unsigned', o[2])} {b.array('c_', kind, o[3])} {call} {store} }}"
    return None


def fence_of(op):
    return f"::flash::__threadfence{'_block' if '.cta' in op else ''}(); "


def memory(b, op, o):
    parts = op.split(".")
    name, kind, n = parts[0], TYPES.get(parts[-1]), 4 if ".v4" in op else 2 if ".v2" in op else 1
    if kind is None or (name in ("ld", "st") and ("local" in parts or "param" in parts)):
        return None
    if name == "ld":
        at = b.address(o[1])
        store = "".join(b.set(t, f"v_.at[{i}]") for i, t in enumerate(b.many(o[0])))
        order = "acquire" if "acquire" in parts else "relaxed" if {"relaxed", "volatile"} & set(parts) else "weak"
        return f"{{ const auto v_ = {P}load<{kind}, {n}, {P}Order::{order}>({at}); {store} }}"
    if name == "st":
        fence = fence_of(op) if "release" in parts else ""
        return f"{{ {fence}{P}store<{kind}, {n}, {str(bool({'release', 'relaxed', 'volatile'} & set(parts))).lower()}>({b.address(o[0])}, {', '.join(b.value(t, kind) for t in b.many(o[1]))}); }}"
    if name in ("atom", "red"):
        call = next((p for p in parts if p in ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")), None)
        at, values = (o[1], o[2:]) if name == "atom" else (o[0], o[1:])
        if call is None:
            return None
        function = {"exch": "Exch", "cas": "CAS"}.get(call, call.capitalize())
        kind = kind.replace("std::uint64_t", "unsigned long long")
        if n > 1:
            return (
                f"{{ {b.array('v_', kind, values[0])} for (int i_ = 0; i_ < {n}; ++i_) atomic{function}(({kind}*){b.address(at)} + i_, v_[i_]); }}"
                if name == "red"
                else None
            )
        call = f"atomic{function}(({kind}*){b.address(at)}, {', '.join(b.value(t, kind) for t in values)})"
        before = fence_of(op) if {"release", "acq_rel"} & set(parts) else ""
        after = fence_of(op) if {"acquire", "acq_rel"} & set(parts) else ""
        return f"{{ {before}{b.set(o[0], call) if name == 'atom' else call + ';'} {after}}}"
    return None


def warps(b, op, o):
    parts, kind = op.split("."), TYPES.get(op.split(".")[-1], "unsigned")
    if parts[0] == "shfl":
        to, _, valid = o[0].partition("|")
        return b.set(to, f"{P}shfl_{parts[2]}({b.value(o[1], kind)}, {', '.join(b.value(t, 'unsigned') for t in o[2:5])})") + (
            b.set(valid, "true") if valid else ""
        )
    if parts[0] == "vote":
        function = {"ballot": "ballot", "any": "any", "all": "all"}.get(parts[2])
        return function and b.set(o[0], f"::flash::__{function}_sync({b.value(o[2], 'unsigned')}, {b.value(o[1], 'bool')})")
    if parts[0] == "redux":
        return b.set(
            o[0], f"::flash::__reduce_{parts[2]}_sync({b.value(o[2], 'unsigned')}, {b.value(o[1], 'int' if kind == 'int' else 'unsigned')})"
        )
    if parts[0] == "match":
        return b.set(o[0], f"::flash::__match_any_sync({b.value(o[2], 'unsigned')}, {b.value(o[1], kind)})") if parts[1] == "any" else None
    if parts[0] == "activemask":
        return b.set(o[0], "__activemask()")
    if parts[0] == "elect":
        to, _, chosen = o[0].partition("|")
        return f"{{ const bool e_ = ::flash::elect_one(); {b.set(chosen, 'e_')} }}"
    if op.startswith("bar.warp.sync"):
        return f"::flash::__syncwarp({b.value(o[0], 'unsigned')});"
    if re.match(r"(bar|barrier)(\.cta)?\.(sync|arrive)", op):
        if len(o) == 1:
            return f"{P}block_barrier({b.value(o[0], 'int')});"
        return f"::flash::named_barrier_{'arrive' if 'arrive' in parts else 'sync'}({b.value(o[0], 'int')}, {b.value(o[1], 'int')});"
    if op.startswith("membar") or re.match(r"fence\.(acq_rel|sc|release|acquire)(\.(cta|gpu|sys|cluster))*$", op):
        return fence_of(op)
    if parts[0] in ("trap", "exit") and op == "trap":
        return "::flash::__trap();"
    if parts[0] == "createpolicy":
        return b.set(o[0], "0ull")
    if parts[0] == "mapa":
        return b.set(o[0], b.value(o[1]))
    return None


def hopper(b, op, o):
    def barrier(text):
        return f"{P}mbarrier({b.address(text)})"

    if op.startswith("mbarrier.init"):
        return f"::flash::mbarrier_init({barrier(o[0])}, {b.value(o[1], 'int')});"
    if op.startswith("mbarrier.arrive.expect_tx"):
        return f"::flash::mbarrier_arrive_expect_tx({barrier(o[-2])}, {b.value(o[-1], 'int')});"
    if op.startswith("mbarrier.arrive") and "noComplete" not in op:
        at = next(i for i, t in enumerate(o) if t.startswith("["))
        return f"{P}mbarrier_arrive({barrier(o[at])}, {b.value(o[at + 1], 'int') if len(o) > at + 1 else 1});"
    if re.match(r"mbarrier\.(try|test)_wait\.parity", op):
        return f"::flash::mbarrier_wait({barrier(o[1])}, {b.value(o[2], 'int')}); {b.set(o[0], 'true')}"
    if op.startswith("fence.mbarrier_init"):
        return "::flash::fence_mbarrier_init();"
    if op.startswith("fence.proxy.async"):
        return "::flash::fence_proxy_async_global();" if "global" in op else "::flash::fence_proxy_async();"
    if op.startswith("setmaxnreg"):
        return f"::flash::set_registers({b.value(o[0], 'int')}, {str('inc' in op).lower()}, ::flash::Site::here());"
    if match := re.match(r"cp\.async\.bulk\.tensor\.([1-5])d\.(shared::\w+\.global|global\.shared::cta)\b", op):
        if any(word in op for word in ("im2col", "multicast", "reduce", "gather", "scatter")):
            return None
        where = re.fullmatch(r"\[\s*([^,{]+),\s*(\{.*\})\s*\]", o[1] if match[2].startswith("shared") else o[0])
        place = f"{P}map({b.value(where[1])}), {{{', '.join(b.value(t, 'int') for t in b.many(where[2]))}}}"
        if match[2].startswith("shared"):
            return f"{P}tma_load({b.address(o[0])}, {place}, {barrier(o[2])});"
        return f"{P}tma_store({place}, {b.address(o[1])});"
    if re.match(r"cp\.async\.bulk\.shared::\w+\.global", op) and "multicast" not in op:
        return f"::flash::bulk_load({b.address(o[0])}, (std::byte*){b.address(o[1])}, {b.value(o[2], 'int')}, {barrier(o[3])});"
    if op.startswith("cp.async.bulk.global.shared::cta"):
        return f"::flash::bulk_store((std::byte*){b.address(o[0])}, {b.address(o[1])}, {b.value(o[2], 'int')});"
    if re.match(r"cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.f32", op):
        return f"::flash::bulk_reduce_add((float*){b.address(o[0])}, (const float*){b.address(o[1])}, {b.value(o[2], 'int')});"
    if op == "cp.async.bulk.commit_group":
        return "::flash::bulk_commit();"
    if op.startswith("cp.async.bulk.wait_group"):
        return f"::flash::wait_for_stores({b.value(o[0], 'int')}, {str('.read' not in op).lower()}, ::flash::Site::here());"
    if op.startswith("wgmma.fence"):
        return "::flash::wgmma_fence();"
    if op.startswith("wgmma.commit_group"):
        return "::flash::wgmma_commit();"
    if op.startswith("wgmma.wait_group"):
        return f"{P}wgmma_wait({b.value(o[0], 'int')});"
    if match := re.match(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(f16|bf16)\.\2$", op):
        registers = ", ".join(f"&{b.target(t)}" for t in b.many(o[0]))
        flags = [b.value(t, "int") for t in o[3:]] + ["0", "0"]
        if o[1].startswith("{"):
            a, trans = f"{P}adjacent(a_), 0, {b.value(o[2], 'std::uint64_t')}", f"0, {flags[3]}"
        else:
            a, trans = f"nullptr, {b.value(o[1], 'std::uint64_t')}, {b.value(o[2], 'std::uint64_t')}", f"{flags[3]}, {flags[4]}"
        array = f"const unsigned* const a_[] = {{{', '.join('&' + b.value(t) for t in b.many(o[1]))}}};" if o[1].startswith("{") else ""
        return f"{{ {array} float* const d_[] = {{{registers}}}; {P}wgmma<{match[1]}>(::flash::MmaType::{match[2]}, d_, {a}, {b.value(o[3], 'bool')}, {flags[1]}, {flags[2]}, {trans}); }}"
    return None


def statement(b, text):
    if match := re.match(r"(%?[\w$]+)\s*:(?!:)\s*", text):
        b.labels.append(match[1])
        return (
            f"flash_label_{match[1]}: ; {statement(b, text[match.end() :])}"
            if text[match.end() :].strip()
            else f"flash_label_{match[1]}: ;"
        )
    guard = ""
    if match := re.match(r"@(!?%?[\w$]+)\s+", text):
        guard, text = f"if ({b.value(match[1], 'bool')}) ", text[match.end() :]
    op, _, rest = text.partition(" ")
    o = split(rest)
    if op.startswith(".reg"):
        kind = TYPES.get(rest.split()[0].lstrip(".")) if op == ".reg" else TYPES.get(op[5:])
        names = split(rest.split(None, 1)[1] if op == ".reg" else rest)
        code = ""
        for name in names:
            many = re.fullmatch(r"(%?[\w$]+)<(\d+)>", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                b.registers[each] = kind
                code += f"{kind} flash_{each.lstrip('%')} = {{}}; "
        if kind is None:
            raise Missing(text)
        return code
    if op.split(".")[0] == "bra":
        return f"{guard}goto flash_label_{o[0]};"
    if op.startswith("cvta"):
        shared = ".shared" in op
        value = (
            (f"{P}shared_address_of({b.value(o[1])})" if ".to." in op else f"{P}address({b.value(o[1], 'unsigned')})")
            if shared
            else b.value(o[1])
        )
        return guard + b.set(o[0], value)
    if NOTHING.match(op):
        return guard + ";"
    for translate_as in (copies, matrices, hopper, warps, memory, arithmetic):
        if code := translate_as(b, op, o):
            return f"{guard}{{ {code} }}" if guard else code
    raise Missing(op)


def translate(text, operands):
    """C++ for the text of an asm statement. Operands: their constraint, whether they are written, their expression."""
    b, code = Block(operands), ""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).replace("%%", "%")
    kept = "wgmma" in text  # reads its registers later: those of the program, not copies
    for number, (_, written, expression) in enumerate(operands):
        code += f"{'auto&&' if written or kept else 'const auto'} flash_{number} = {expression}; "
    body = re.sub(r"^\s*\{(?=[^}]*;)(.*)\}\s*;?\s*$", r"\1", text, flags=re.S)
    for each in body.split(";"):
        each = " ".join(each.split())
        while each.startswith(("{", "}")) and not each.startswith("{%"):
            each = each[1:].strip()
        if each:
            code += statement(b, each) + " "
    labels = f"__label__ {', '.join('flash_label_' + label for label in b.labels)}; " if b.labels else ""
    return f"do {{ {labels}{code}}} while (0)"
