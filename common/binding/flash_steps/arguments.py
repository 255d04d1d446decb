"""What arguments may be: each function refuses others in one line, under its own name, before a kernel runs."""

import functools
import inspect
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

import torch
from torch import Tensor


def require(holds, why):
    if not holds:
        raise ValueError(f"flash_steps: {why}")


def whole_numbers(x, name):
    try:
        if not isinstance(x, Tensor):
            empty = isinstance(x, (list, tuple)) and not x  # which torch takes for floats
            x = torch.tensor(x, dtype=torch.int64 if empty else None, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"flash_steps: {name} are {x!r}; allowed: whole numbers below 2**63, in a list or tensor") from None
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool or x.is_meta)
    require(whole, f"{name} have to be whole numbers; they are {x.dtype} on {x.device}")
    return x.to(torch.int64)


def kept_with(x, function):
    """function(x), kept with x until it changes: all layers share it, and only the first one waits for a GPU."""
    version = None if x.is_inference() else x._version
    known = getattr(x, "_flash_steps", (None, None))
    if version is None or known[0] != version:
        known = x._flash_steps = version, function(x)
    return known[1]


def require_tensors(dims, **given):
    """The first three have this many dimensions; others may be None."""
    for place, (name, x) in enumerate(given.items()):
        dense = isinstance(x, Tensor) and x.layout is torch.strided and not x.is_nested and type(x).__name__ != "DTensor"
        if not dense and (x is not None or place < 3):
            kind = "nested" if getattr(x, "is_nested", False) else x.layout if type(x) is Tensor else type(x).__name__
            instead = {"nested": "; instead attention_varlen()", "DTensor": "; instead through local_map()"}.get(kind, "")
            raise ValueError(f"flash_steps: {name} is {kind}; allowed: dense tensors{instead}")
        if place < 3 and x.dim() != dims:
            raise ValueError(f"flash_steps: {name} is {tuple(x.shape)}; allowed: {dims} dimensions")


def _is(x, *types):
    return isinstance(x, types) and not isinstance(x, bool)  # a bool is an int


def _is_flag(x):
    return isinstance(x, bool) or (type(x) is int and x in (0, 1)) or type(x).__name__ in ("bool", "bool_")  # NumPy's


def _is_number(x, least=-torch.inf, below=torch.inf):
    return x is None or (_is(x, float, Real) and least <= x < below)


def _is_window(x):
    return x is None or (isinstance(x, (tuple, list)) and len(x) == 2 and all([_is(n, int, Integral) and n >= -1 for n in x]))


_RULES = (  # for plain values: the arguments, what they may be, and how that is said
    ("causal return_lse return_attn_probs return_softmax_lse", _is_flag, "True, False"),  # "False" would be true
    ("deterministic", lambda x: x is None or _is_flag(x), "True, False, None"),
    ("scale softmax_scale", _is_number, "a finite number; for a tensor, multiply q by it"),
    ("softcap", lambda x: _is_number(x, 0), "a finite number from 0"),
    ("dropout_p", lambda x: _is_number(x, 0, 1), "a number from 0 to less than 1"),
    ("max_seqlen max_seqlen_q max_seqlen_k", lambda x: x is None or _is(x, int, Integral, torch.SymInt, Tensor), "a whole number, None"),
    ("window window_size", _is_window, "(left, right), whole numbers from 0, or -1 for no bound"),
    ("stage", lambda x: x is None or (_is(x, int, str) and str(x).isdigit()), 'the number of a stage, such as "08"'),
    ("variant backward_variant", lambda x: x is None or isinstance(x, str), "the name of a step"),
)
# The names of other libraries and functions.
_HERE = {"is_causal": "causal", "attn_mask": "bias", "page_table": "block_table", "learnable_sink": "sinks", "s_aux": "sinks"}
_HERE |= {"scale": "softmax_scale", "softmax_scale": "scale", "window": "window_size", "window_size": "window"}
_HERE["return_lse"] = "return_softmax_lse"
_INSTEAD = {"rotary_cos": "rotate q and k first", "cache_leftpad": "pad behind the keys", "seqused_k": "cu_seqlens"}
# What flash_attn's functions take and these do not, with the values that ask for nothing: wrappers pass them.
_NEUTRAL = dict.fromkeys("rotary_cos rotary_sin cache_leftpad leftpad_k seqused_q seqused_k qv q_descale k_descale v_descale".split())
_NEUTRAL |= {"learnable_sink": None, "s_aux": None, "attention_chunk": 0, "sm_margin": 0}
_RULE = {name: rule for names, *rule in _RULES for name in names.split()}


Result = Tensor | Any  # a tensor, unless a tuple is asked for
F = TypeVar("F")  # so that type checkers see through the decorator


def takes(*others) -> Callable[[F], F]:
    """Decorates a function that passes these other parameters on. help() shows them, too, and hides private ones. Any further argument is
    refused under the function's own name."""
    return lambda function: _checked(function, others)


def _checked(function, others):
    shown = {}
    for x in (*inspect.signature(function).parameters.values(), *others):
        if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD) and x.name[0] != "_":
            shown.setdefault(x.name, x)  # the function's own comes first
    places = [name for name, x in shown.items() if x.kind is x.POSITIONAL_OR_KEYWORD]

    neutral = {name: x for name, x in _NEUTRAL.items() if name not in shown and function.__name__.startswith("flash_attn")}

    @functools.wraps(function)
    def checked(*args, **options):
        options = {name: x for name, x in options.items() if name not in neutral or x is not neutral[name]}
        if neutral and options.get("rotary_cos") is None:
            options.pop("rotary_interleaved", None)  # says how rotary_cos would rotate
        unknown = [x for x in options if x not in shown and x[0] != "_"]
        wrong = [f"takes no {x}" + f" (here {_HERE.get(x)})" * (_HERE.get(x) in shown) for x in unknown]
        wrong = [why + f" (instead {_INSTEAD.get(x)})" * (x in _INSTEAD) for why, x in zip(wrong, unknown)]
        wrong += [f"is given {name} twice" for name in options if name in places[: len(args)]]
        if wrong or len(args) > len(places):
            wrong = ", ".join(wrong) or f"takes no {len(args)} arguments by their places"
            named = ", ".join(sorted(shown.keys() - places))
            allowed = f"each once, by position {', '.join(places)}; by keyword also {named}"
            raise TypeError(f"flash_steps: {function.__name__}() {wrong}; allowed: {allowed}")
        for name, x in (*zip(places, args), *options.items()):
            if name in _RULE and not _RULE[name][0](x):
                raise ValueError(f"flash_steps: {name} is {x!r}; allowed: {_RULE[name][1]}")
        return function(*args, **options)

    checked.__signature__ = inspect.Signature([*shown.values()])
    return checked
