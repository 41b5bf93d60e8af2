"""What a kind of change is, and how kinds are declared."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Body = Callable[[Any], Any]


@dataclasses.dataclass
class World:
    """A function that rests on something which can be changed."""

    body: Body
    """Takes and returns an array of three float32."""
    change: Callable[[bool], Any]
    """Changes what the function rests on, or puts it back."""
    observe: Callable[[], Any] = lambda: None
    """What the function has left behind so far, as plain data."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of change."""

    name: str
    covered_by: str
    """The item of the key that covers it."""
    make: Callable[[], World]
    needs: frozenset[str] = frozenset()
    """What a program has to have so that stock jax shows the change."""
    tells: bool = True
    """Whether stock jax shows the change; where jax looks only once, jaxide must not look again."""
    witness: str = ""
    """The program that shows it where nothing else is said; the simplest one if empty."""


KINDS: dict[str, Kind] = {}


def kind(
    covered_by: str, *, needs: str = "", tells: bool = True
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Declares a kind: a function that returns what `World` is made of."""

    def declare(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__
        assert name not in KINDS, name
        world = lambda: _toggled(World(*make()))
        KINDS[name] = Kind(name, covered_by, world, frozenset(needs.split()), tells)
        return make

    return declare


def _toggled(world: World) -> World:
    """The world, whose change is made and undone in turn, however often one asks for it."""
    is_on, change = False, world.change

    def toggle(on: bool) -> None:
        nonlocal is_on
        if on != is_on:
            is_on = on
            change(on)

    return dataclasses.replace(world, change=toggle)


_MISSING = object()


def array(value: float, dtype: str = "float32") -> jax.Array:
    """An array of jax's, for which nothing is compiled: that takes long."""
    return jnp.asarray(np.full(3, value, dtype))


def attribute(of: Any, name: str, new: Any) -> Callable[[bool], None]:
    """Replaces an attribute."""
    is_slot = hasattr(inspect.getattr_static(type(of), name, None), "__set__")
    own = getattr(of, name) if is_slot else vars(of).get(name, _MISSING)

    def change(on: bool) -> None:
        if on:
            setattr(of, name, new)
        elif own is _MISSING:
            delattr(of, name)
        else:
            setattr(of, name, own)

    return change


def item(of: Any, key: Any, new: Any) -> Callable[[bool], None]:
    """Replaces an item of a container."""
    has_keys = isinstance(of, Mapping) or hasattr(of, "keys")
    old = of[key] if not has_keys or key in of else _MISSING

    def change(on: bool) -> None:
        if on:
            of[key] = new
        elif old is _MISSING:
            del of[key]
        else:
            of[key] = old

    return change


def context(enter: Callable[[], Any]) -> Callable[[bool], None]:
    """Enters a context manager and leaves it."""
    stack = contextlib.ExitStack()

    def change(on: bool) -> None:
        stack.close()
        if on:
            stack.enter_context(enter())

    return change


def module(source: str, name: str = "users_module", filename: str | None = None) -> Any:
    """A module with a source, as a user has one."""
    made = types.ModuleType(name)
    exec(compile(source, filename or f"/users/{name}.py", "exec"), vars(made))
    return made
