"""What the tests of the expansion cache share: programs, and the comparison of whole histories.

jax caches too (the jaxpr of a nested jit, say), so what stock makes of a program depends on what
was traced before. A *history* is therefore a list of steps that is run as a whole, once with stock
jax and once with jaxide, each after `jax.clear_caches()`; step by step the same must come out.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core

import covering
import jaxide
import oracle

Maker = Callable[..., Callable[..., Any]]
Step = Callable[[Maker], Any]

# A call is replayed from its second or third time on.
ROUNDS = 3


def observe(make: Maker, function: Callable[..., Any], *args: Any, full: bool = True) -> Any:
    """All that one trace shows: the program or the error, and the warnings.

    Not `full` leaves the program out: enough for traces that are there to be remembered.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            jaxpr = make(function)(*args)
        except Exception as error:
            shown = ("raised", type(error).__name__, oracle.scrub(str(error)))
        else:
            shown = ("traced", *program(jaxpr)) if full else ("traced",)
    return shown, [(w.category.__name__, str(w.message), w.filename, w.lineno) for w in caught]


def program(jaxpr: Any) -> tuple[Any, ...]:
    """A program as plain data: less than `oracle.describe` tells, and sooner."""
    return (
        oracle.scrub(jaxpr.pretty_print(source_info=True, name_stack=True)),
        [aval.str_short() for aval in (*jaxpr.in_avals, *jaxpr.out_avals)],
        oracle.describe_value(list(jaxpr.consts)),
        [
            [(slot, str(getattr(context, slot, None))) for slot in slots if slot != "__weakref__"]
            for context in contexts(jaxpr.jaxpr)
            for slots in [type(context).__slots__]
        ],
        list(effects(jaxpr.jaxpr)),
    )


def effects(jaxpr: Any) -> Iterator[Any]:
    """The effects of a program and of every equation, nested ones included, by what they are on."""

    def shown(effects: Iterable[Any], inputs: Sequence[Any]) -> list[tuple[str, int | None]]:
        places = {id(atom): place for place, atom in enumerate(inputs)}
        return sorted((type(e).__name__, places.get(id(getattr(e, "input", e)))) for e in effects)

    yield shown(jaxpr.effects, [*jaxpr.constvars, *jaxpr.invars])
    for eqn in jaxpr.eqns:
        yield shown(eqn.effects, eqn.invars)
        for nested in core.jaxprs_in_params(eqn.params):
            yield from effects(nested)


def contexts(jaxpr: Any) -> Iterator[Any]:
    """The configuration context of every equation, nested ones included."""
    for eqn in jaxpr.eqns:
        yield eqn.ctx
        for nested in core.jaxprs_in_params(eqn.params):
            yield from contexts(nested)


def run(steps: Sequence[Step], make: Maker, rounds: int) -> list[Any]:
    """The outcomes of a history that begins with empty caches."""
    jax.clear_caches()
    return [step(make) for _ in range(rounds) for step in steps]


def assert_history(steps: Iterable[Step], rounds: int = 1) -> None:
    """Fails unless each step, in each round, shows with jaxide what it shows with stock jax."""
    steps = list(steps)
    # Stock makes the same in all rounds once one has filled its caches, as the long run shows.
    of_stock = min(rounds, 2) if covering.is_short else rounds
    # One line for both: it is part of every equation's source info.
    both = ((jax.make_jaxpr, of_stock), (jaxide.make_jaxpr, rounds))
    expected, actual = [run(steps, make, rounds) for make, rounds in both]
    expected += expected[-len(steps) :] * (rounds - of_stock)
    for number, (stock, ours) in enumerate(zip(expected, actual, strict=True)):
        if stock != ours:
            found = list(oracle.differences(by_line(stock), by_line(ours)))
            raise AssertionError(
                f"step {number} of {len(steps)}, {len(found)} differences, first:\n"
                + "\n".join(found[:5])
            )


def by_line(outcome: Any) -> Any:
    """The outcome with texts cut into their lines, so that one differing line is told by itself."""
    match outcome:
        case str() if "\n" in outcome:
            return tuple(outcome.splitlines())
        case dict():
            return {name: by_line(value) for name, value in outcome.items()}
        case tuple() | list():
            return type(outcome)(map(by_line, outcome))
    return outcome


def trace_of(function: Callable[..., Any], *args: Any) -> Step:
    """A step that traces a fresh function which does nothing but call `function`."""
    return lambda make: observe(make, lambda *operands: function(*operands), *args)


def assert_same_when_warm(*calls: tuple[Any, ...], rounds: int = ROUNDS) -> None:
    """Traces each call `(function, *args)` in turn, several times over.

    Calls that the cache might take for each other belong into one list: whichever comes first
    must not answer for the others.
    """
    steps = [trace_of(*call) for call in calls]
    assert_history(steps, rounds)
    if len(steps) > 1:
        assert_history(steps[::-1], rounds)


def total(tree: Any) -> Any:
    """The sum of all that is in a tree of arrays."""
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))


# ---- counts -----------------------------------------------------------------------------------


NEVER_CALLED = jaxide.CallableInfo(0, 0, {}, 0)


def counts_of(name: str) -> jaxide.CallableInfo:
    """What became of the calls of the callables with a name."""
    return jaxide.cache_info().callables.get(name, NEVER_CALLED)


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """With nothing remembered and all counts at zero; nothing is left for the next test."""
    jax.clear_caches()
    jaxide.clear_caches()
    try:
        yield
    finally:
        jaxide.clear_caches()


def assert_replayed(
    names: Iterable[str], function: Callable[..., Any], *args: Any, rounds: int = ROUNDS
) -> None:
    """Fails unless a further trace of a function replays all calls of the callables with these
    names, and there are some."""
    with empty_cache():
        warm_up(function, *args, rounds=rounds)
        before = {name: counts_of(name) for name in names}
        warm_up(function, *args, rounds=1)
        for name, old in before.items():
            new = counts_of(name)
            assert new.hits > old.hits, name
            assert (new.misses, new.bypasses) == (old.misses, old.bypasses), name


def warm_up(function: Callable[..., Any], *args: Any, rounds: int = ROUNDS) -> Any:
    """Traces a function often enough for its calls to be replayed; the last jaxpr."""
    for _ in range(rounds):
        jaxpr = jaxide.make_jaxpr(lambda *operands: function(*operands))(*args)
    return jaxpr
