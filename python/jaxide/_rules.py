"""Derivative rules among the params of ``custom_jvp_call``: what they say, how they are made anew.

jax traces the rule of a ``custom_jvp`` function when it is needed, by a function that it makes at
each call and that remembers what it has traced.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from jaxide._transparent import OF_JAX


@dataclasses.dataclass(frozen=True)
class Private:
    """The parts of jax that such functions consist of."""

    thunk_code: types.CodeType
    """Of the function that traces a rule."""
    lift_code: types.CodeType
    """Of a rule that is the one among the params of another equation."""
    pruned_code: types.CodeType
    """Of the function that traces what dead-code removal has left of a rule."""
    stored_code: types.CodeType
    """Of the function that reads what a transformation has stored."""
    memoize: Callable[[Any], Any]
    wrap: Callable[..., Any]
    store_type: type
    store_error: type[Exception]
    tag_type: type
    aval_type: type
    unhashable_type: Any
    no_axis_name: object
    jit_type: Any
    custom_jvp_type: Any
    tracer_types: tuple[type, ...]
    never_followed: tuple[type, ...]
    """Classes of objects that belong to the process."""


class _LowTrace:
    """What the function asks its trace for, which is over."""

    requires_low = False


class _Opaque(Exception):
    """Something of which is not known what it does."""


class Rules:
    """Reads the functions that trace derivative rules."""

    def __init__(self, private: Private):
        self._private = private
        self._memoized_code = private.memoize(lambda: None).__code__

    def words(self, wrapped: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """What a rule says: objects that count as themselves, and plain values.

        None where it may do more than its words say.

        A user's function is among the values: it is plain where its instructions show that it does
        nothing but compute.
        """
        objects: list[Any] = []
        try:
            values = self._words(wrapped, objects, {})
        except _Opaque:
            return None
        return tuple(objects), values

    def renewal(self, wrapped: Any) -> Callable[[], Any] | None:
        """How a rule is made anew; None where it may refer to traced values.

        The result makes equal ones, each of which remembers for itself.
        """
        if self._thunk(wrapped) is None or self._may_hold_tracers(self._rule(wrapped)):
            return None
        return self._maker(wrapped)

    def _thunk(self, wrapped: Any) -> Any:
        """The function that traces a rule; None where it is another of jax's."""
        memoized = getattr(wrapped, "f", None)
        if getattr(memoized, "__code__", None) is not self._memoized_code or wrapped.transforms:
            return None
        thunk = _closure(memoized)["fn"]
        code = getattr(thunk, "__code__", None)
        if code is self._private.thunk_code and not _closure(thunk)["self"].requires_low:
            return thunk
        return thunk if code is self._private.pruned_code else None

    def _lifted(self, rule: Any) -> Any:
        """What traces the rule that another equation has, where a rule is that one; else None."""
        if getattr(rule.f, "__code__", None) is not self._private.lift_code:
            return None
        return _closure(rule.f)["jvp_jaxpr_fun"]

    def _rule(self, wrapped: Any) -> Any:
        """The rule itself, however often it was lifted or pruned."""
        while (thunk := self._thunk(wrapped)) is not None:
            parts = _closure(thunk)
            if thunk.__code__ is self._private.pruned_code:
                wrapped = parts["jvp_jaxpr_fun"]
            else:
                wrapped = self._lifted(parts["jvp"]) or parts["jvp"]
        return wrapped

    def _maker(self, wrapped: Any) -> Callable[[], Any]:
        """Makes such a function anew."""
        thunk, private = self._thunk(wrapped), self._private
        if thunk is None:
            return lambda: wrapped
        parts, own = _closure(thunk), {}
        if thunk.__code__ is private.pruned_code:
            zeros = {"symbolic_zeros": parts["eqn"].params["symbolic_zeros"]}
            parts["eqn"] = types.SimpleNamespace(params=zeros)
            own["jvp_jaxpr_fun"] = self._maker(parts["jvp_jaxpr_fun"])
        else:
            parts["self"] = _LowTrace
            if (fresh := self._fresh(parts["jvp"])) is not None:
                own["jvp"] = fresh
        function = _copier(thunk, parts, own)
        return lambda: private.wrap(private.memoize(function()), debug_info=wrapped.debug_info)

    def _fresh(self, rule: Any) -> Callable[[], Any] | None:
        """Makes a rule that has not run; None where one that has is no other.

        What wraps a rule keeps what it learns, and knows traces by tags.
        """
        private, lifted = self._private, self._lifted(rule)
        function: Callable[[], Any] = lambda: rule.f
        if lifted is not None:
            parts = _closure(rule.f)
            function = _copier(rule.f, parts, {"jvp_jaxpr_fun": self._maker(lifted)})
        elif not any(type(store) is private.store_type for store in rule.stores):
            return None
        wrappers = list(zip(rule.transforms[::-1], rule.stores[::-1], strict=True))

        def fresh() -> Any:
            tags: dict[Any, Any] = {}
            new = private.wrap(function(), dict(rule.params), debug_info=rule.debug_info)
            for (transform, args), store in wrappers:
                own = (
                    tags.setdefault(arg, private.tag_type())
                    if isinstance(arg, private.tag_type)
                    else arg
                    for arg in args
                )
                new = new.wrap(transform, tuple(own), None if store is None else type(store)())
            return new

        return fresh

    def _words(self, wrapped: Any, objects: list[Any], tags: dict[Any, int]) -> tuple[Any, ...]:
        thunk = self._thunk(wrapped)
        if thunk is None:
            raise _Opaque
        if self._may_hold_tracers(self._rule(wrapped)):
            raise _Opaque
        parts = _closure(thunk)
        plain = functools.partial(self._plain, objects, tags)
        if thunk.__code__ is self._private.pruned_code:
            zeros = parts["eqn"].params["symbolic_zeros"]
            inner = self._words(parts["jvp_jaxpr_fun"], objects, tags)
            return "pruned", plain(parts["used_outs"]), zeros, inner
        rule = parts["jvp"]
        lifted = self._lifted(rule)
        function: Any
        if lifted is not None:
            function = _closure(rule.f)["num_consts"], self._words(lifted, objects, tags)
        elif self._is_of_jax(rule.f):
            objects.append(rule.f)
            function = "of jax"
        else:
            function = rule.f
        for transform, _ in rule.transforms:
            if not self._is_of_jax(transform):
                raise _Opaque
            objects.append(transform)
        return (
            function,
            tuple(plain(args) for _, args in rule.transforms),
            *(plain(parts[name]) for name in ("in_avals", "in_tangent_avals")),
            *(plain(rule.params), plain(rule.in_type)),
            *(tuple(map(str, info)) for info in (rule.debug_info[:3], wrapped.debug_info[:3])),
        )

    def _plain(self, objects: list[Any], tags: dict[Any, int], value: Any) -> Any:
        """An argument of a transformation by what it says."""
        private = self._private
        plain = functools.partial(self._plain, objects, tags)
        if isinstance(value, (tuple, list)):
            return type(value).__name__, *map(plain, value)
        if isinstance(value, private.aval_type):
            objects.append(value)
            return "aval"
        if isinstance(value, private.tag_type):
            return "tag", tags.setdefault(value, len(tags))
        if value is private.no_axis_name:
            return "no axis name"
        if isinstance(value, private.unhashable_type):
            return "unhashable", plain(value.val)
        if getattr(value, "__code__", None) is private.stored_code:
            try:
                return "stored", plain(value())
            except private.store_error:
                return "not stored"
        if dataclasses.is_dataclass(value) and type(value).__module__.startswith("jax."):
            fields = (getattr(value, field.name) for field in dataclasses.fields(value))
            return type(value).__name__, *map(plain, fields)
        return value

    def _is_of_jax(self, value: Any, *within: Any) -> bool:
        """Whether a function is jax's own, and so is all that it holds."""
        if any(value is outer for outer in within):
            return True
        follow = lambda parts: all(self._is_of_jax(part, *within, value) for part in parts)
        if isinstance(value, types.FunctionType):
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            return value.__code__.co_filename.startswith(OF_JAX) and follow(
                [*defaults, *_contents(value)]
            )
        if isinstance(value, (tuple, list)):
            return follow(value)
        if isinstance(value, self._private.custom_jvp_type):
            return follow([value.fun, value.jvp])
        if isinstance(value, self._private.jit_type):
            return follow([value.__wrapped__])
        return value is None or isinstance(value, (bool, int, float, str))

    def _may_hold_tracers(self, value: Any) -> bool:
        """Whether a tracer or a trace can be reached from an object, or too much can to be sure."""
        private = self._private
        skipped = (type, types.ModuleType, types.CodeType, *private.never_followed)
        seen: dict[int, Any] = {}
        pending = [value]
        while pending:
            item = pending.pop()
            if id(item) in seen or isinstance(item, skipped):
                continue
            if isinstance(item, private.tracer_types) or len(seen) > 2000:
                return True
            seen[id(item)] = item
            if isinstance(item, types.FunctionType):
                # Not the module that it lives in.
                pending += [item.__defaults__, item.__kwdefaults__, item.__dict__]
                pending += _contents(item)
            else:
                pending += gc.get_referents(item)
        return False


def _closure(function: Any) -> dict[str, Any]:
    return dict(zip(function.__code__.co_freevars, _contents(function), strict=True))


def _copier(
    function: Any, contents: dict[str, Any], own: dict[str, Callable[[], Any]]
) -> Callable[[], types.FunctionType]:
    """Makes functions that have such a closure; what ``own`` makes is new in each."""
    code, module, name = function.__code__, function.__globals__, function.__name__
    cells = {free: types.CellType(contents[free]) for free in code.co_freevars}
    shared = tuple(cells.values())

    def copy() -> types.FunctionType:
        if not own:
            return types.FunctionType(code, module, name, None, shared)
        made = {free: types.CellType(make()) for free, make in own.items()}
        return types.FunctionType(code, module, name, None, tuple({**cells, **made}.values()))

    return copy


def _contents(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing was assigned yet
            yield inspect.Parameter.empty
