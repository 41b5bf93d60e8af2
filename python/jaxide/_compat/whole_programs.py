"""What of jax whole traces need."""

from __future__ import annotations

import functools
from typing import Any

import jax

from jaxide._compat.namespace import requests
from jaxide._compat.symbols import symbol
from jaxide._compat.warm import entry_objects
from jaxide._native.whole_traces import Symbols, WholeTraces, whole_traces


@functools.cache
def use_whole_traces() -> None:
    """Has traces ask for the programs of functions that are traced as a whole."""
    whole_traces.append(_whole_traces())


def _whole_traces() -> WholeTraces:
    return WholeTraces(
        Symbols(
            objects=entry_objects(),
            requests=requests(),
            node_of=_node,
            trace_context=symbol("config:trace_context"),
            is_watched=_is_watched,
            is_plain=_is_plain,
            rename=_rename,
        )
    )


def _node(tree: Any) -> tuple[Any, list[Any]] | None:
    data = tree.node_data()
    if data is None:
        return None if tree.num_leaves else ((type(None), None), [])
    return data, tree.children()


_WATCHING = ("jax_enable_checks", "jax_log_compiles", "jax_explain_cache_misses", "jax_no_tracing")


def _is_watched() -> bool:
    holders = jax.config._value_holders
    return any(holders[name].value for name in _WATCHING)


def _is_plain(program: Any) -> bool:
    return not (program.consts or program.effects or getattr(program.jaxpr, "is_high", False))


def _rename(program: Any, debug_info: Any) -> None:
    getattr(program, "jaxpr", program)._debug_info = debug_info
