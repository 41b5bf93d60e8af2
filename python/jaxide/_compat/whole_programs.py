"""What of jax whole traces need."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxide import _core
from jaxide._compat.hooks import hooked, is_hooked
from jaxide._compat.jaxprs import set_names
from jaxide._compat.namespace import requests
from jaxide._compat.symbols import known_symbols, optional_symbol, symbol
from jaxide._compat.tracing import is_top_level
from jaxide._compat.warm import entry_objects
from jaxide._native.jit_programs import JitPrograms
from jaxide._native.jit_programs import Symbols as JitSymbols
from jaxide._native.whole_traces import Symbols, WholeTraces


def use_whole_traces() -> None:
    """Has traces ask for the programs of functions that are traced as a whole, and of jits."""
    if (traces := whole_traces()) is not None:
        _core.use_whole_traces(traces.trace)
    if (programs := jit_programs()) is not None:
        _core.use_jit_programs(programs.traced, programs.forget, programs.tell_all)


@functools.cache
def whole_traces() -> WholeTraces | None:
    """The programs of functions that are traced as a whole; None where that is left to jax."""
    trace = hooked("trace") if is_hooked("trace") else None
    if trace is None:
        return None
    return WholeTraces(
        Symbols(
            objects=entry_objects(),
            requests=requests(),
            node_of=_node,
            trace=trace,
            is_top_level=is_top_level(),
            is_watched=_is_watched,
            arguments=_arguments(),
            is_plain=_is_plain,
            rename=set_names,
        )
    )


@functools.cache
def jit_programs() -> JitPrograms | None:
    """The programs of jits of jax's own that the store has; None where jax is to be asked: where
    their equations have the line of whoever asks first."""
    cached = symbol("interpreters.partial_eval:trace_to_jaxpr")
    scope = optional_symbol("interpreters.partial_eval:TracebackScope")
    if scope is None or not hasattr(cached, "cache_info") or not is_hooked("trace"):
        return None
    context = symbol("source_info_util:_source_info_context")
    programs = JitPrograms(
        JitSymbols(
            objects=entry_objects()[1],
            requests=requests(),
            node_of=_node,
            is_watched=_is_watched,
            has_line=lambda: context.context.traceback is not None,
            num_misses=lambda: cached.cache_info().misses,
        )
    )
    requests().stored = programs
    return programs


def _node(tree: Any) -> tuple[Any, list[Any]] | None:
    data = tree.node_data()
    if data is None:
        return None if tree.num_leaves else ((type(None), None), [])
    return data, tree.children()


_WATCHING = (
    "jax_check_tracer_leaks",
    "jax_debug_key_reuse",
    "jax_enable_checks",
    "jax_explain_cache_misses",
    "jax_log_compiles",
    "jax_no_tracing",
)


def _is_watched() -> bool:
    holders = jax.config._value_holders
    return any(holders[name].value for name in _WATCHING)


def _arguments() -> Callable[[Any], Any]:
    """A function that has positional and named arguments with types in the place of arrays; None
    where jax makes some by code of the user's, which is not to run once more."""
    # The numbers that jax has for leaves and for containers of Python's.
    some: Any = None, (), [], {}, _Named(0)
    tree: Any = jax.tree.structure(some)
    kinds = frozenset(node[0] for node in tree.__getstate__()[1])
    static = optional_symbol("tree_util:Static")
    own = known_symbols(("flattree:FTTuple", "flattree:FTDict", "flattree:FTStatic"))
    parts = {own.get("flattree:FTTuple"): "elts", own.get("flattree:FTDict"): "_vals"}
    without = own.get("flattree:FTStatic")

    def is_plain(flat: Any) -> bool:
        if (field := parts.get(type(flat))) is not None:
            return all(map(is_plain, getattr(flat, field)))
        if type(flat) is without:
            return True
        _, nodes = flat.tree.__getstate__()
        return all(node[0] in kinds or node[3] is static for node in nodes)

    return lambda in_avals: in_avals.unflatten() if is_plain(in_avals) else None


class _Named(NamedTuple):
    leaf: int


def _is_plain(program: Any) -> bool:
    return not (program.consts or program.effects or getattr(program.jaxpr, "is_high", False))
