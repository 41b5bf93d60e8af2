"""How jax prints jaxprs, and that it still prints them so."""

from __future__ import annotations

import functools
import hashlib
import inspect
from typing import Any

from jaxide import _core
from jaxide._compat.jaxprs import closed_jaxpr_type
from jaxide._compat.sources import source_text
from jaxide._compat.symbols import Mismatch, jax_module, optional_symbol, symbol
from jaxide._native.printing import Printing, Private

# Of each function that prints, digests of the texts that are known, the oldest jax first.
TEXTS: dict[str, tuple[str, ...]] = {
    "core:pp_toplevel_jaxpr": (
        "29f770571b5f",
        "7082244c478f",
    ),
    "core:pp_jaxpr": ("d8e620d97cf4",),
    "core:pp_jaxprs": (
        "726e8b50d3b4",
        "e26aa1d0fc7d",
    ),
    "core:pp_shared_jaxpr": ("c59cc39d4293",),
    "core:pp_jaxpr_skeleton": ("69c1f7895663",),
    "core:pp_eqns": ("9db9803b93f5",),
    "core:pp_eqn": ("a7d6e36101ae",),
    "core:_pp_eqn": (
        "77bcf74c4fd6",
        "47d6951b47e6",
    ),
    "core:pp_kv_pairs": ("40a32bb3ca43",),
    "core:pp_kv_pair": (
        "e9e59c30ae6b",
        "b5f830e9bdbd",
        "583d3ac40968",
    ),
    "core:pp_vars": ("e5420977fdfb",),
    "core:pp_var": ("6fb46de0d278",),
    "core:pp_aval": ("092267c32e77",),
    "core:pp_effect": ("43d3c8d7a84c",),
    "core:JaxprPpContext": ("11168b32d7c8",),
    "core:_encode_digits_alphabetic": ("f2034ce1125e",),
    "core:Jaxpr.pretty_print": ("6919d5f306e5",),
    "core:Var.pretty_print": ("c616ac4c6999",),
    "core:DropVar.pretty_print": ("fcef4f0a14cf",),
    "core:Literal.pretty_print": ("ab797aba1129",),
    "pjit:_pjit_pp_rule": (
        "a7df706d3fd4",
        "2f456623b1d2",
    ),
    "pretty_printer:Doc.format": ("01d58ded16d5",),
    "pretty_printer:join": ("033d0fc2f5a1",),
}


def digest(function: Any) -> str:
    """What stands for the text of a function."""
    return hashlib.sha256(source_text(function).encode()).hexdigest()[:12]


@functools.cache
def _is_known() -> bool:
    try:
        return all(digest(symbol(path)) in known for path, known in TEXTS.items())
    except (Mismatch, OSError, TypeError):
        return False


@functools.cache
def printing() -> Printing:
    """The texts of objects in programs."""
    printer = jax_module("jax._src.pretty_printer")
    color = symbol("pretty_printer:_PPRINT_USE_COLOR")
    return Printing(
        Private(
            core=jax_module("jax._src.core"),
            rules=symbol("core:pp_eqn_rules"),
            call_rules=(symbol("pjit:_pjit_pp_rule"),),
            jaxprs_in_params=symbol("core:jaxprs_in_params"),
            jaxpr_types=(symbol("core:Jaxpr"), closed_jaxpr_type()),
            document_type=printer.Doc,
            other_rules=optional_symbol("core:pp_subjaxprs_rules") or {},
            summarize=symbol("source_info_util:summarize"),
            use_color=lambda: bool(printer.CAN_USE_COLOR and color.value),
            text_format=optional_symbol("pretty_printer:OutputFormat.TEXT"),
            # What somebody has put there meanwhile says nothing of jax.
            is_known=lambda: _core.prints_as_ever() and _is_known(),
        )
    )


def print_in_rust(lazy_jaxpr: type) -> None:
    """Lets jaxprs that nobody has read be printed by Rust."""
    stock = symbol("core:Jaxpr")
    own = printing()

    # Limits are no settings of jax's.
    limits = {"max_depth", "max_eqns", "collapse"}
    known = inspect.signature(own.text).parameters.keys() - {"program"} - limits

    def pretty_print(self: Any, **settings: Any) -> str:
        text = own.text(self, **settings) if settings.keys() <= known else None
        return stock.pretty_print(self, **settings) if text is None else text

    def to_text(self: Any) -> str:
        return str(self.pretty_print()) if _core.prints_as_ever() else stock.__str__(self)

    def to_repr(self: Any) -> str:
        return str(self.pretty_print()) if _core.prints_as_ever() else stock.__repr__(self)

    for name, method in (
        ("pretty_print", pretty_print),
        ("__str__", to_text),
        ("__repr__", to_repr),
    ):
        setattr(lazy_jaxpr, name, method)
