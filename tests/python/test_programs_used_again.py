"""A function that is differentiated several times in one trace.

Which of its programs jax makes once and which anew shows in the text, where a program that occurs
twice is printed once.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

import covering
import jaxide
import oracle
from corpus import Case

X = np.linspace(0.25, 1, 6, dtype=np.float32).reshape(2, 3)
Function = Callable[[Any], tuple[Any, Any]]

# ---- functions, made anew for each trace --------------------------------------------------------

BODIES: dict[str, Function] = {
    "the same twice": lambda v: (v, v),
    "doubled": lambda v: (v, v * 2),
    "sine": lambda v: (jnp.sin(v), v),
}


def of_checkpoint(body: Function) -> Function:
    return jax.checkpoint(lambda v: body(v))


def of_scan(body: Function) -> Function:
    def step(carry: Any, x: Any) -> Any:
        one, two = body(x)
        return carry + one, (two, one)

    def function(v: Any) -> Any:
        carry, (ys, _) = lax.scan(step, jnp.zeros(3, np.float32), v)
        return jnp.broadcast_to(carry, v.shape), ys

    return function


def of_plain_scan(body: Function) -> Function:
    step = lambda carry, x: (carry + x, carry + x)

    def function(v: Any) -> Any:
        carry, ys = lax.scan(step, v[0], v)
        return jnp.broadcast_to(carry, v.shape), ys

    return function


def of_branch(body: Function) -> Function:
    return lambda v: lax.cond(v[0, 0] > 0, body, BODIES["the same twice"], v)


def of_jit(body: Function) -> Function:
    return jax.jit(lambda v: body(v))


KINDS = dict(
    checkpoint=of_checkpoint, scan=of_scan, plain_scan=of_plain_scan, branch=of_branch, jit=of_jit
)

# ---- uses ---------------------------------------------------------------------------------------


def pulled_back(f: Function, v: Any) -> Any:
    _, pullback = jax.vjp(f, v)
    return pullback((v, v))[0]


def pulled_back_elsewhere(f: Function, v: Any) -> Any:
    _, pullback = jax.vjp(f, v)
    return pullback((v, v))[0]


def pulled_back_twice(f: Function, v: Any) -> Any:
    _, pullback = jax.vjp(f, v)
    first = pullback((v, v))[0]
    return first + pullback((v, v))[0]


def gradient(f: Function, v: Any) -> Any:
    return jax.grad(lambda v: sum(map(jnp.sum, f(v))))(v)


def gradient_of_one(f: Function, v: Any) -> Any:
    return jax.grad(lambda v: jnp.sum(f(v)[0]))(v)


def gradient_of_the_other(f: Function, v: Any) -> Any:
    return jax.grad(lambda v: jnp.sum(f(v)[1]))(v)


def linearized(f: Function, v: Any) -> Any:
    return jax.linearize(f, v)[1](v)[1]


def linearized_to_one(f: Function, v: Any) -> Any:
    return jax.linearize(lambda v: f(v)[0], v)[1](v)


def linearized_to_the_other(f: Function, v: Any) -> Any:
    return jax.linearize(lambda v: f(v)[1], v)[1](v)


def forward_over_reverse(f: Function, v: Any) -> Any:
    return jax.jvp(lambda v: gradient(f, v), (v,), (v,))[1]


def in_checkpoint(f: Function, v: Any) -> Any:
    return gradient(jax.checkpoint(lambda v: f(v)), v)


def in_jit(f: Function, v: Any) -> Any:
    return jax.jit(lambda v: gradient(f, v))(v)


def in_loop(f: Function, v: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, v: gradient(f, v), v)


USES = [
    pulled_back,
    pulled_back_elsewhere,
    pulled_back_twice,
    gradient,
    gradient_of_one,
    gradient_of_the_other,
    linearized,
    linearized_to_one,
    linearized_to_the_other,
    forward_over_reverse,
    in_checkpoint,
    in_jit,
    in_loop,
]
Use = Callable[[Function, Any], Any]


def case(kind: str, body: str, uses: Sequence[Use], *, shared: bool = True) -> Case:
    """The sum of uses of one function, or each of a function of its own."""

    def made() -> Callable[[Any], Any]:
        def function(v: Any) -> Any:
            one = KINDS[kind](BODIES[body])
            total = 0.0
            for use in uses:  # all at one line
                total = total + use(one if shared else KINDS[kind](BODIES[body]), v)
            return total

        return function

    return Case("used again", made, (X,))


def compare(cases: Sequence[Case], rounds: int) -> None:
    """Traces the cases in turn, all that were before still alive."""
    jaxide.clear_caches()
    kept = []
    for _ in range(rounds):
        for one in cases:
            stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], one, cold=False)
            oracle.assert_same(one, stock, ours, cold=False)
            kept.append(ours)


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_used_again(kind: str, body: str, use: Use) -> None:
    compare([case(kind, body, [use, use])], rounds=4)


def test_a_program_that_was_transposed_elsewhere() -> None:
    """jax keeps the transpose of a program: its equations have the line of the first one."""
    uses = [pulled_back, pulled_back_elsewhere, pulled_back]
    compare([case("checkpoint", "the same twice", uses)], rounds=5)


def test_used_again_after_each_was_used_once() -> None:
    """What was learnt of programs that are used once says nothing of others that are used twice."""
    once = case("plain_scan", "doubled", [pulled_back, forward_over_reverse], shared=False)
    compare([once, case("plain_scan", "doubled", [gradient, gradient])], rounds=3)


@pytest.mark.covering(times=1)
@pytest.mark.parametrize("other", [None, linearized, gradient_of_one])
@pytest.mark.parametrize("use", [gradient, pulled_back, linearized], ids=lambda use: use.__name__)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_used_twice_after_it_was_used_once(
    kind: str, body: str, use: Use, other: Use | None
) -> None:
    """How programs repeat was not seen yet: jax is asked."""
    once, twice = case(kind, body, [use]), case(kind, body, [use, other or use])
    compare([once, once, twice, twice, once, twice, twice], rounds=1)


@pytest.mark.parametrize("seed", range(covering.examples(30, 200)))
def test_programs_at_addresses_of_others(seed: int) -> None:
    """What jax closes anew may be where one was that is gone: it is another one all the same."""
    rng = random.Random(seed)
    empty = jax.make_jaxpr(lambda: None)().jaxpr
    closed = [core.ClosedJaxpr(empty, ()) for _ in range(rng.randint(0, 500))]
    rng.shuffle(closed)
    del closed[::2]  # leaves room here and there
    use = rng.choice([gradient, pulled_back])
    once, twice = case("scan", "sine", [use]), case("scan", "sine", [use, use])
    compare([once, once, twice, twice, once, twice], rounds=1)


OUTER: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "vmap": lambda function: lambda v: jax.vmap(function)(v[None])[0],
    "jvp": lambda function: lambda v: jax.jvp(function, (v,), (v,))[1],
}


@pytest.mark.covering(times=1)
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("use", [gradient, pulled_back], ids=lambda use: use.__name__)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "checkpoint" not in kind])
def test_used_twice_under_a_transformation(kind: str, body: str, use: Use, outer: str) -> None:
    def transformed(uses: Sequence[Use]) -> Case:
        plain = case(kind, body, uses)
        return dataclasses.replace(plain, function=lambda: OUTER[outer](plain.function()))

    once, twice = transformed([use]), transformed([use, use])
    compare([once, once, twice, twice, once, twice], rounds=1)


@pytest.mark.parametrize("kind", KINDS)
def test_effects_are_made_once(kind: str) -> None:
    """What has effects cannot be taken back."""

    def printing(v: Any) -> tuple[Any, Any]:
        jax.debug.print("{}", v)
        return jnp.sin(v), v

    def made(uses: Sequence[Use]) -> Case:
        def factory() -> Callable[[Any], Any]:
            def function(v: Any) -> Any:
                one = KINDS[kind](lambda v: printing(v))
                return sum(use(one, v) for use in uses)

            return function

        return Case("effects", factory, (X,))

    once, twice = made([gradient]), made([gradient, gradient])
    compare([once, once, twice, twice, once, twice], rounds=1)


@jax.custom_jvp
def warns(v: Any) -> Any:
    return v * 2


@warns.defjvp
def _warns_jvp(primals: Any, tangents: Any) -> Any:
    (v,), (t,) = primals, tangents
    warnings.warn("differentiated", stacklevel=1)
    return v * 2, t * 2


def batched(f: Function, v: Any) -> Any:
    return jax.vmap(lambda v: f(v)[0])(v[None])[0]


def pushed(f: Function, v: Any) -> Any:
    return jax.jvp(lambda v: f(v)[0], (v,), (v,))[1]


def warnings_of(make: Callable[..., Any], kind: str, histories: Sequence[Sequence[Use]]) -> Any:
    jax.clear_caches()
    jaxide.clear_caches()
    found = []
    for uses in histories:

        def function(v: Any, uses: Sequence[Use] = uses) -> Any:
            one = KINDS[kind](lambda v: (warns(v), v))
            return sum(jnp.sum(use(one, v)) for use in uses)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            text = str(make(function)(X))
        found.append(([str(one.message) for one in caught], text))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_warnings_are_those_of_jax(kind: str) -> None:
    """jax warns of a program once, whoever asks first: a call that was silent after another is not
    silent alone."""
    for one, other in [(batched, pushed), (pushed, gradient_of_one), (gradient, pushed)]:
        histories = [*[[one]] * 3, *[[one, other]] * 4, *[[other]] * 2, [other, one], [one]]
        expected = warnings_of(jax.make_jaxpr, kind, histories)
        assert warnings_of(jaxide.make_jaxpr, kind, histories) == expected
        # The body of the plain scan is another.
        assert any(caught for caught, _ in expected) == (kind != "plain_scan")


def test_used_in_turn_with_another() -> None:
    uses = [pulled_back, linearized, gradient_of_one, pulled_back]
    compare([case("scan", "the same twice", uses)], rounds=3)


@pytest.mark.parametrize("seed", range(covering.examples(3, 40)))
def test_random_histories(seed: int) -> None:
    rng = random.Random(seed)

    def drawn() -> Case:
        uses = rng.choices(USES[:10], k=rng.randint(1, 3))
        return case(rng.choice([*KINDS]), rng.choice([*BODIES]), uses, shared=rng.random() < 0.7)

    compare([drawn() for _ in range(4)], rounds=3)
