"""What the tests of the expansion cache share: programs, and the comparison of whole histories.

jax caches too (the jaxpr of a nested jit, say), so what stock makes of a program depends on what was
traced before. A *history* is therefore a list of steps that is run as a whole, once with stock jax
and once with jaxide, each after `jax.clear_caches()`; step by step the same must come out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax._src import core

import jaxide
import oracle
from jaxide import _core

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
    )


def contexts(jaxpr: Any) -> Iterator[Any]:
    """The configuration context of every equation, nested ones included."""
    for eqn in jaxpr.eqns:
        yield eqn.ctx
        for nested in core.jaxprs_in_params(eqn.params):
            yield from contexts(nested)


def run(steps: Sequence[Step], make: Maker) -> list[Any]:
    """The outcomes of a history that begins with empty caches."""
    jax.clear_caches()
    return [step(make) for step in steps]


def assert_history(steps: Iterable[Step]) -> None:
    """Fails unless each step shows with jaxide what it shows with stock jax."""
    steps = list(steps)
    # One line for both: it is part of every equation's source info.
    expected, actual = [run(steps, make) for make in (jax.make_jaxpr, jaxide.make_jaxpr)]
    for number, (stock, ours) in enumerate(zip(expected, actual, strict=True)):
        if stock != ours:
            found = list(oracle.differences(stock, ours))
            raise AssertionError(
                f"step {number} of {len(steps)}, {len(found)} differences, first:\n"
                + "\n".join(found[:3])
            )


def trace_of(function: Callable[..., Any], *args: Any) -> Step:
    """A step that traces a fresh function which does nothing but call `function`."""
    return lambda make: observe(make, lambda *operands: function(*operands), *args)


def assert_same_when_warm(*calls: tuple[Any, ...], rounds: int = ROUNDS) -> None:
    """Traces each call `(function, *args)` in turn, several times over.

    Calls that the cache might take for each other belong into one list: whichever comes first
    must not answer for the others.
    """
    steps = [trace_of(*call) for call in calls]
    assert_history(steps * rounds)
    assert_history(steps[::-1] * rounds)


# ---- counts -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Counts:
    """What became of the calls of one callable, or of all."""

    hits: int = 0
    misses: int = 0
    bypasses: Counter[str] = dataclasses.field(default_factory=Counter)
    entries: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.hits + other.hits,
            self.misses + other.misses,
            self.bypasses + other.bypasses,
            self.entries + other.entries,
        )


def counts_by_name() -> dict[str, Counts]:
    """The counts since the cache was last emptied; callables of one name are added up."""
    counts: dict[str, Counts] = {}
    for name, entries, hits, misses, bypasses in _core.fragment_info()["callables"]:
        one = Counts(hits, misses, Counter(bypasses), entries)
        counts[name] = counts.get(name, Counts()) + one
    return counts


def counts_of(name: str) -> Counts:
    """The counts of the callables with a name."""
    return counts_by_name().get(name, Counts())


def total() -> Counts:
    """The counts of all callables."""
    return sum(counts_by_name().values(), Counts())


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """With nothing remembered and all counts at zero; nothing is left for the next test."""
    jax.clear_caches()
    _core.clear_fragments()
    try:
        yield
    finally:
        _core.clear_fragments()


def warm_up(function: Callable[..., Any], *args: Any, rounds: int = ROUNDS) -> Any:
    """Traces a function often enough for its calls to be replayed; the last jaxpr."""
    for _ in range(rounds):
        jaxpr = jaxide.make_jaxpr(lambda *operands: function(*operands))(*args)
    return jaxpr
