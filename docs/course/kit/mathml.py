"""TeX, as the chapters write it, as MathML, which browsers show without any library. It knows what the slides use, and names what it does not."""

import re
from html import escape

from kit import Usage

TOKEN = re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\[A-Za-z]+|\\.|[{}^_&]|\d+(?:\.\d+)?|\S", re.DOTALL)
LETTERS = {"tau": "τ", "beta": "β", "alpha": "α", "ell": "ℓ", "delta": "δ", "mu": "μ", "nu": "ν", "infty": "∞"}
SIGNS = {
    "times": "×", "circ": "∘", "oplus": "⊕", "le": "≤", "ge": "≥", "approx": "≈", "leftarrow": "←", "in": "∈", "cdot": "·", "ast": "∗",
    "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩", "sum": "∑", "dots": "…", "partial": "∂",
}  # fmt: skip
NAMES = ("max", "min", "ln", "exp", "log")
SPACES = {"\\,": 0.17, "\\ ": 0.3, "\\!": 0, "\\;": 0.28, "\\quad": 1, "\\qquad": 2}


class Parser:
    def __init__(self, tex):
        self.tokens, self.at, self.tex = TOKEN.findall(re.sub(r"\\ ", r"\\: ", tex)), 0, tex

    def next(self):
        if self.at >= len(self.tokens):
            raise Usage(f"a formula ends too early: {self.tex}")
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def row(self, end=""):
        """Everything up to `end`."""
        parts = []
        while self.peek() != end:
            parts.append(self.scripted())
        if end:
            self.next()
        return f"<mrow>{''.join(parts)}</mrow>"

    def group(self):
        """What an argument or a script is: a group in braces or one atom."""
        if self.peek() == "{":
            self.next()
            return self.row("}")
        return self.atom()

    def scripted(self):
        base, scripts = self.atom(), {}
        while self.peek() in ("^", "_", "'"):
            sign = self.next()
            scripts["^" if sign == "'" else sign] = "<mo>′</mo>" if sign == "'" else self.group()
        under = base in ("<mo>∑</mo>", "<mi>max</mi>", "<mi>min</mi>")
        if len(scripts) == 2:
            return f"<m{'underover' if under else 'subsup'}>{base}{scripts['_']}{scripts['^']}</m{'underover' if under else 'subsup'}>"
        for sign, script in scripts.items():
            kind = ("munder" if under else "msub") if sign == "_" else "msup"
            return f"<{kind}>{base}{script}</{kind}>"
        return base

    def atom(self):
        token = self.next()
        if token == "{":
            return self.row("}")
        if token[0] == "\\":
            return self.command(token)
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "}^_&":
            raise Usage(f"'{token}' at a place where a formula of the slides has none: {self.tex}")
        return f"<mo>{escape(token)}</mo>"

    def command(self, token):
        name = token[1:]
        if name == ":" or token in SPACES:
            return f'<mspace width="{0.3 if name == ":" else SPACES[token]}em"/>'
        if name in ("frac", "tfrac"):
            return f"<mfrac>{self.group()}{self.group()}</mfrac>"
        if name.startswith(("text{", "mathrm{")):
            return f"<mtext>{escape(name[name.index('{') + 1 : -1])}</mtext>"
        if name == "tilde":
            return f"<mover>{self.group()}<mo>~</mo></mover>"
        if name == "left":
            opening = self.delimiter()
            inside = self.row("\\right")
            return f"<mrow>{opening}{inside}{self.delimiter()}</mrow>"
        if name in LETTERS:
            return f"<mi>{LETTERS[name]}</mi>"
        if name in SIGNS:
            return f"<mo>{SIGNS[name]}</mo>"
        if name in NAMES:
            return f"<mi>{name}</mi>"
        raise Usage(f"kit/mathml.py does not know {token}, in: {self.tex}")

    def delimiter(self):
        token = self.next()
        sign = SIGNS.get(token[1:], token) if token[0] == "\\" else token
        return "" if sign == "." else f'<mo stretchy="true">{escape(sign)}</mo>'


def mathml(tex, display=False):
    block = ' display="block"' if display else ""
    return f"<math{block}>{Parser(' '.join(tex.split())).row()}</math>"
