"""What a pair of a kind of change and a program shows, trace by trace."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core, source_info_util

from world.kinds import KINDS
from world.programs import PROGRAMS
from world.world import World

Maker = Callable[..., Callable[..., Any]]
X = np.linspace(0.25, 1, 3, dtype=np.float32)

# `J` is a trace, by jaxide where its history is looked at; `S` one by stock jax. `+` is the change,
# `-` its undoing, `w` a trace within which the change comes and goes. At the trace `(` nobody looks
# before `)`. `i` is the import of jaxide. `E` is an execution by a jit of jaxide's, or by jax's,
# where `I` has installed jaxide.
SCHEDULES = {
    "between": "JJJ+JJ-JJ",
    "mixed": "JJJ+SJ-SJ+J",
    "within": "wwwJ+J-w",
    "looked at later": "JJJ(+)-(J+)",
    "repeated": "JJJ+JJJ-JJJ+JJJ",
    "before the import": "+iJJJ-JJ",
    "executed": "EEE+EE-EE",
    "executed where installed": "IEEE+EE-EE",
}


def history(kind: str, program: str, schedule: str, with_jaxide: bool) -> list[Any]:
    """What the traces of a history show, by stock jax or by jaxide."""
    world = KINDS[kind].make()
    function = PROGRAMS[program].around(world.body)
    return list(_outcomes(world, function, SCHEDULES[schedule], with_jaxide))


def replays() -> int:
    """How many calls were replayed in this process."""
    import jaxide

    return sum(counts.hits for counts in jaxide.cache_info().callables.values())


def _outcomes(world: World, function: Any, steps: str, with_jaxide: bool) -> Iterator[Any]:
    def within(x):
        first = function(x)
        world.change(True)
        second = function(x)
        world.change(False)
        return first, second, function(x)

    makers = {} if "i" in steps else _makers(with_jaxide)
    kept: Any = None
    for step in steps:
        if step in "iI":
            makers = _makers(with_jaxide, installed=step == "I")
        elif step in "+-":
            world.change(step == "+")
        elif step == "(":
            kept = _caught(makers["J"], lambda x: function(x))
        else:
            traced = within if step == "w" else function
            maker = _kept_by(kept) if step == ")" else makers["J" if step == "w" else step]
            show = _values if step == "E" else program
            # Every trace starts here: the line is part of every equation's source.
            yield _shown(maker, lambda x: traced(x), show), repr(world.observe())


def _makers(with_jaxide: bool, installed: bool = False) -> dict[str, Maker]:
    stock = jax.make_jaxpr
    if not with_jaxide:
        return {"S": stock, "J": stock, "E": jax.jit}
    import jaxide

    if installed:
        jaxide.install()
    return {"S": stock, "J": jaxide.make_jaxpr, "E": jax.jit if installed else jaxide.jit}


def _caught(make: Maker, function: Callable[..., Any]) -> Any:
    try:
        return make(function)(X)
    except Exception as error:
        return error


def _kept_by(kept: Any) -> Maker:
    def make(function):
        if isinstance(kept, Exception):
            raise kept
        return lambda *args: kept

    return make


def _shown(
    make: Maker, function: Callable[..., Any], show: Callable[[Any], tuple[Any, ...]]
) -> Any:
    """All that one trace or execution shows: what is made or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = ("made", *show(make(function)(X)))
        except Exception as error:
            outcome = ("raised", type(error).__name__, scrub(str(error)))
    said = [w for w in caught if w.category.__name__ != "JaxideFallbackWarning"]
    return outcome, [(w.category.__name__, str(w.message), w.filename, w.lineno) for w in said]


def _values(results: Any) -> tuple[Any, ...]:
    """What was computed, but for rounding, and where it is."""
    jax.effects_barrier()
    leaves = jax.tree.leaves(results)
    numbers = [np.asarray(leaf) for leaf in leaves]
    return (
        [[f"{v:.4g} {np.signbit(v)}" for v in n.ravel().tolist()] for n in numbers],
        [(str(leaf.aval), str(leaf.sharding)) for leaf in leaves],
    )


def program(jaxpr: Any) -> tuple[Any, ...]:
    """A program as plain data."""
    return (
        scrub(jaxpr.pretty_print(source_info=True, name_stack=True)),
        [aval.str_short() for aval in (*jaxpr.in_avals, *jaxpr.out_avals)],
        [_value(const) for const in jaxpr.consts],
        list(_rest(jaxpr.jaxpr)),
    )


def _value(value: Any) -> Any:
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        return type(value).__name__, str(value.dtype), value.shape, np.asarray(value).tobytes()
    return scrub(repr(value))


def _bits(value: Any) -> Any:
    return type(value).__name__, np.asarray(value).tobytes()


def _lines(traceback: Any) -> list[str]:
    """The user's lines that lead to an equation; printed is only the innermost one."""
    frames = source_info_util.user_frames(traceback)
    return [f"{os.path.basename(frame.file_name)}:{frame.start_line}" for frame in frames]


def _rest(jaxpr: Any) -> Iterator[Any]:
    """What is not printed: names, contexts and effects, those of nested programs included."""

    def effects(of: Any, inputs: Sequence[Any]) -> list[Any]:
        places = {id(atom): place for place, atom in enumerate(inputs)}
        return sorted((type(e).__name__, places.get(id(getattr(e, "input", e)))) for e in of)

    info = jaxpr.debug_info
    yield info.traced_for, info.func_src_info, repr(info.arg_names), scrub(repr(info.result_paths))
    yield effects(jaxpr.effects, [*jaxpr.constvars, *jaxpr.invars])
    for eqn in jaxpr.eqns:
        yield effects(eqn.effects, eqn.invars)
        yield _lines(eqn.source_info.traceback)
        yield [_bits(atom.val) for atom in eqn.invars if isinstance(atom, core.Literal)]
        slots = [slot for slot in type(eqn.ctx).__slots__ if slot != "__weakref__"]
        yield [(slot, str(getattr(eqn.ctx, slot, None))) for slot in slots]
        for nested in core.jaxprs_in_params(eqn.params):
            yield from _rest(nested)


def scrub(text: str) -> str:
    """The text without object addresses."""
    return re.sub(r"\b0x[0-9a-f]+\b|\bid=\d+", "0x...", text)
