"""Checkpoints with a policy, which from jax 0.11 on is a function that closes over names."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from expansion import Maker, assert_history, assert_replayed, assert_same_when_warm, observe

X = np.linspace(0.25, 1, 3, dtype=np.float32)
SAVEABLE = jax.checkpoint_policies

# Each makes a policy.
POLICIES: dict[str, Callable[[], Any]] = {
    "everything": lambda: SAVEABLE.everything_saveable,
    "nothing": lambda: SAVEABLE.nothing_saveable,
    "products": lambda: SAVEABLE.dots_saveable,
    "products without a batch": lambda: SAVEABLE.dots_with_no_batch_dims_saveable,
    "names": lambda: SAVEABLE.save_only_these_names("one", "two"),
    "other names": lambda: SAVEABLE.save_any_names_but_these("one"),
    "no name": lambda: SAVEABLE.save_only_these_names(),
}


def layer(x: Any) -> Any:
    one = checkpoint_name(jnp.sin(x), "one")
    return checkpoint_name(jnp.cos(one) * x, "two") @ jnp.outer(x, one)


def gradient(policy: Any) -> Callable[[Any], Any]:
    return lambda x: jax.grad(lambda y: jax.checkpoint(layer, policy=policy)(y).sum())(x)


@pytest.mark.parametrize("name", POLICIES)
def test_rules_of_a_checkpoint_are_replayed(name: str) -> None:
    names = ["rule of remat2", "transpose of remat2"]
    assert_replayed(names, gradient(POLICIES[name]()), X)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap, jax.jit], ids=["alone", "vmap", "jit"])
def test_policies_are_told_apart(wrap: Callable[..., Any]) -> None:
    x = X[None] if wrap is jax.vmap else X
    calls = [(wrap(gradient(make())), x) for make in POLICIES.values()]
    assert_same_when_warm(*calls, (wrap(gradient(None)), x))


def test_a_policy_made_anew() -> None:
    def made_anew(x: Any) -> Any:
        return gradient(POLICIES["names"]())(x)

    assert_same_when_warm((made_anew, X))


def names_of(policy: Any) -> set[str] | None:
    """The names that a policy closes over, where they can change."""
    for cell in getattr(policy, "__closure__", None) or ():
        if isinstance(cell.cell_contents, set):
            return cell.cell_contents
    return None


def test_names_of_a_policy_that_change() -> None:
    policy = POLICIES["names"]()
    names = names_of(policy)
    if names is None:
        pytest.skip("a policy is a value")

    def trace(make: Maker) -> Any:
        return observe(make, lambda x: gradient(policy)(x), X)

    def change(_: Maker) -> None:
        names.symmetric_difference_update({"one"})

    assert_history([trace] * 3 + [change] + [trace] * 3 + [change] + [trace] * 2)


@pytest.mark.parametrize("made", ["closure", "other code", "users"])
def test_policies_of_the_user(made: str) -> None:
    kept = ["one"]

    def closure(primitive: Any, *_: Any, **params: Any) -> bool:
        return params.get("name") in kept

    policy: Any = closure
    if made == "other code":
        policy = types.FunctionType(closure.__code__, globals(), closure=closure.__closure__)
    elif made == "users":
        both = jax.checkpoint_policies.save_from_both_policies
        policy = both(closure, POLICIES["names"]())

    def trace(make: Maker) -> Any:
        return observe(make, lambda x: gradient(policy)(x), X)

    def change(_: Maker) -> None:
        kept[0] = "two" if kept[0] == "one" else "one"

    assert_history([trace] * 3 + [change] + [trace] * 3 + [change] + [trace] * 2)
