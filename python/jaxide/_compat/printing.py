"""How jax prints jaxprs, and that it still prints them so."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.jaxprs import closed_jaxpr_type
from jaxide._compat.symbols import jax_module, optional_symbol, symbol
from jaxide._native.printing import Printing, Private


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
            is_known=lambda: _core.prints_as_ever() and capabilities.has("printing"),
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
