"""Functions that trace derivative rules, as equations have them: what they say, and new ones.

jax traces the rule of a ``custom_jvp`` or ``custom_vjp`` function when it is needed, by a function
that it makes at each call and that remembers what it has traced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import inspect
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jaxide._native import trust
from jaxide._native.requests import Batching


@dataclasses.dataclass(frozen=True)
class Private:
    """The parts of jax that such functions consist of."""

    known_codes: dict[types.CodeType, str]
    """Of jax's functions that do nothing but what their closures say, with a name for each."""
    memoize: Callable[[Any], Any]
    """Makes a function remember what it has returned."""
    wrap: Callable[..., Any]
    wrapped_type: Any
    store_type: type
    store_error: type[Exception]
    debug_info_type: Any
    tag_type: type
    aval_type: type
    eqn_type: Any
    jaxpr_types: tuple[type, ...]
    unhashable_type: Any
    no_axis_name: object
    axis_type: Any
    """What is known of a batched axis."""
    batched_rule: Any
    """The transformation that batches a rule."""
    jit_type: Any
    custom_rule_types: tuple[Any, Any]
    """``custom_jvp`` and ``custom_vjp``."""
    trace_type: Any
    tracer_type: type
    never_followed: tuple[type, ...]
    """Classes of objects that belong to the process."""


class LowTrace:
    """What such a function asks its trace for, which is over."""

    requires_low = False


@dataclasses.dataclass
class _Writing:
    """What is being put in words."""

    stores: bool
    """Whether what functions have stored is part of it."""
    objects: list[Any] = dataclasses.field(default_factory=list)
    """Those that count as themselves."""
    tags: dict[Any, int] = dataclasses.field(default_factory=dict)
    """Traces that are told apart, in the order of their mention."""
    held: list[Any] = dataclasses.field(default_factory=list)
    """What functions refer to from which no tracer may be reached."""


class _Opaque(Exception):
    """Something of which is not known what it does."""


class Rules:
    """Reads functions that trace derivative rules, and what goes with them."""

    def __init__(self, private: Private):
        self.private = private
        self._memoized_code = private.memoize(lambda: None).__code__
        self._on_demand = _on_demand(private.wrapped_type)

    def words(self, value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], list[Any]] | None:
        """What such a function says: objects that count as themselves, and plain values; and what
        it refers to, about which ``may_hold_tracers`` is to be asked.

        None where it may do more than its words say. A user's function is among the values: it is
        plain where its instructions show that it does nothing but compute.
        """
        to = _Writing(stores=True)
        values = self._written(value, to)
        return None if values is None else (tuple(to.objects), values, to.held)

    def are_alike(self, one: Any, another: Any) -> bool:
        """Whether two such functions say the same, whatever they have stored so far."""
        own, other = _Writing(stores=False), _Writing(stores=False)
        values = self._written(one, own)
        try:
            if values is None or values != self._written(another, other):
                return False
        except ValueError:
            # Arrays among them say of each element whether it is another one.
            return False
        if len(own.objects) != len(other.objects):
            return False
        same = all(a is b for a, b in zip(own.objects, other.objects, strict=True))
        return same and not self.may_hold_tracers([*own.held, *other.held])

    def _written(self, value: Any, to: _Writing) -> tuple[Any, ...] | None:
        try:
            return self._words(value, to)
        except _Opaque:
            return None

    def renewal(self, value: Any) -> Callable[[dict[int, Any]], Any] | None:
        """How such a function is made anew; None where it may refer to traced values.

        The result makes equal ones, each of which remembers for itself. It is given a dict that
        says, by address, what stands for what; those that are given the same belong together.
        """
        if (make := _DEMANDED.get(id(value))) is not None:
            names = tuple(value.debug_info[:3])
            return _once(value, lambda made: self.on_demand(names, make))
        words = self.words(value)
        if words is None or self.may_hold_tracers(words[2]):
            return None
        return self._maker(value) or (lambda made: value)

    def batching(self, value: Any) -> Batching | None:
        """By which calls of ``vmap`` the rule of a ``custom_jvp`` function is batched: the size of
        the axis and the dimension of each argument, from the outermost on.

        None where jax traces something else, or the axis is more than a size.
        """
        private = self.private
        thunk = self.memoized(value) if isinstance(value, private.wrapped_type) else None
        if thunk is None or self.kind(thunk) != "rule":
            return None
        found = []
        for transform, args in closure(thunk)["jvp"].transforms:
            if transform is not private.batched_rule:
                continue
            _, axis, dims = args
            own = private.axis_type(private.no_axis_name, axis.size, None, None)
            if type(axis) is not private.axis_type or axis != own:
                return None
            if type(axis.size) is not int or any(
                type(dim) not in (int, type(None)) for dim in dims
            ):
                return None
            found.append((axis.size, tuple(dims)))
        return tuple(found)

    def call(self, value: Any) -> tuple[str, tuple[Any, ...]] | None:
        """What the ``custom_jvp`` function is called whose call came to a rule, and the types of
        the arguments; None where it is something else."""
        thunk = self.memoized(value) if isinstance(value, self.private.wrapped_type) else None
        if thunk is None or self.kind(thunk) != "rule":
            return None
        parts = closure(thunk)
        texts = (args[0] for _, args in parts["jvp"].transforms if args and type(args[0]) is str)
        name: str | None = next(texts, None)
        return None if name is None else (name, tuple(parts["in_avals"]))

    def on_demand(self, names: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """A function as ``make`` returns, which is called when somebody asks for more than the
        names."""
        made = object.__new__(self._on_demand)
        made.debug_info = self.private.debug_info_type(*names, None)
        _DEMANDED[id(made)] = make
        return made

    def pair(self, one: Any, another: Any, made: dict[int, Any]) -> None:
        """Notes what in a function stands for what in another that is structurally equal.

        What the one has stored the other has stored as well then.
        """
        if id(one) in made:
            return
        made[id(one)] = another
        if isinstance(one, self.private.wrapped_type):
            parts = [(one.f, another.f)]
            for (_, args), (_, others) in zip(one.transforms, another.transforms, strict=True):
                parts += zip(args, others, strict=True)
            for store, other in zip(one.stores, another.stores, strict=True):
                self._pair_stores(store, other, made)
        elif self.kind(one) == "stored":
            (store,), (other,) = contents(one), contents(another)
            self._pair_stores(store, other, made)
            return
        else:
            closures = closure(one), closure(another)
            parts = [(closures[0][name], closures[1][name]) for name in closures[0]]
        for own, other in parts:
            followed = isinstance(own, (types.FunctionType, self.private.wrapped_type))
            if followed and not self._is_users(own):
                self.pair(own, other, made)

    def _pair_stores(self, store: Any, other: Any, made: dict[int, Any]) -> None:
        if store is None or id(store) in made:
            return
        made[id(store)] = other
        with contextlib.suppress(self.private.store_error):
            value = store.val
            try:
                other.val  # noqa: B018
            except self.private.store_error:
                other.store(value)

    # ---- words ----

    def _words(self, value: Any, to: _Writing) -> tuple[Any, ...]:
        if not isinstance(value, self.private.wrapped_type):
            return self._closure_words(value, to)
        wrapped: Any = value
        names = tuple(map(str, wrapped.debug_info[:3]))
        thunk = self.memoized(wrapped)
        if thunk is not None:
            return "memoized", names, self._closure_words(thunk, to)
        for transform, _ in wrapped.transforms:
            if not self._is_of_jax(transform):
                raise _Opaque
            to.objects.append(transform)
        given = [args for _, args in wrapped.transforms], wrapped.params, wrapped.in_type
        function = wrapped.f
        if self.kind(function) is not None:
            function = self._closure_words(function, to)
        else:
            to.held.append((function, given))
            if self._is_of_jax(function):
                to.objects.append(function)
                function = "of jax"
        return function, names, *(self._plain(to, part) for part in given)

    def _closure_words(self, function: Any, to: _Writing) -> tuple[Any, ...]:
        kind = self.kind(function)
        if kind is None:
            raise _Opaque
        if kind == "stored":
            if not to.stores:
                return (kind,)
            try:
                return kind, self._plain(to, function())
            except self.private.store_error:
                return (kind,)
        parts = closure(function)
        if "call_jaxpr" in parts:
            # Nothing else is read of it.
            parts["call_jaxpr"] = tuple(parts["call_jaxpr"].out_avals)
        return kind, *(self._plain(to, part) for part in parts.values())

    def _plain(self, to: _Writing, value: Any) -> Any:
        """A part of such a function by what it says."""
        private = self.private
        plain = functools.partial(self._plain, to)
        if isinstance(value, private.debug_info_type):
            return tuple(map(str, value[:3]))
        if isinstance(value, (tuple, list)):
            return type(value).__name__, *map(plain, value)
        if isinstance(value, private.aval_type):
            to.objects.append(value)
            return "aval"
        if isinstance(value, private.tag_type):
            return "tag", to.tags.setdefault(value, len(to.tags))
        if isinstance(value, private.unhashable_type):
            return "unhashable", plain(value.val)
        if value is private.no_axis_name:
            return "no axis name"
        if isinstance(value, private.wrapped_type) or self.kind(value) is not None:
            return self._words(value, to)
        if isinstance(value, private.trace_type):
            if value.requires_low:
                raise _Opaque
            return "trace"
        if value is LowTrace:
            return "trace"
        if isinstance(value, private.eqn_type):
            return "eqn", value.params["symbolic_zeros"]
        if isinstance(value, private.jaxpr_types):
            # Its variables may be those of other programs.
            raise _Opaque
        if dataclasses.is_dataclass(value) and type(value).__module__.startswith("jax."):
            fields = (getattr(value, field.name) for field in dataclasses.fields(value))
            return type(value).__name__, *map(plain, fields)
        return value

    # ---- new ones ----

    def _maker(self, value: Any) -> Callable[[dict[int, Any]], Any] | None:
        """Makes such a function anew; None where one that has run is no other."""
        private, kind = self.private, self.kind(value)
        make: Callable[[dict[int, Any]], Any] | None
        if kind == "stored":
            make = self._stored(value)
        elif isinstance(value, private.tag_type):
            make = lambda made: private.tag_type()
        elif kind is not None:
            make = self._copier(value)
        elif isinstance(value, private.wrapped_type):
            thunk = self.memoized(value)
            make = self._wrapper(value) if thunk is None else self._memoizer(value, thunk)
        else:
            return None
        return None if make is None else _once(value, make)

    def _memoizer(self, wrapped: Any, thunk: Any) -> Callable[[dict[int, Any]], Any]:
        """Makes functions anew that remember what one of jax's returns."""
        wrap, memoize = self.private.wrap, self.private.memoize
        function = self._maker(thunk) or (lambda made: thunk)
        return lambda made: wrap(memoize(function(made)), debug_info=wrapped.debug_info)

    def _wrapper(self, wrapped: Any) -> Callable[[dict[int, Any]], Any] | None:
        private = self.private
        inner = self._maker(wrapped.f)
        given = [[self._maker(arg) for arg in args] for _, args in wrapped.transforms]
        if inner is None and not any(map(any, given)) and not self._stores_once(wrapped):
            return None
        wrappers = list(zip(wrapped.transforms, given, wrapped.stores, strict=True))[::-1]

        def make(made: dict[int, Any]) -> Any:
            # What wraps a rule keeps what it learns, and knows traces by tags.
            function = wrapped.f if inner is None else inner(made)
            new = private.wrap(function, dict(wrapped.params), debug_info=wrapped.debug_info)
            for (transform, args), makers, store in wrappers:
                both = zip(args, makers, strict=True)
                own = tuple(arg if maker is None else maker(made) for arg, maker in both)
                new = new.wrap(transform, own, None if store is None else _new_store(store, made))
            return new

        return make

    def _stored(self, read: Any) -> Callable[[dict[int, Any]], Any]:
        """Makes functions that read stores of their own."""
        (store,) = contents(read)

        def make(made: dict[int, Any]) -> Any:
            own = _new_store(store, made)
            with contextlib.suppress(self.private.store_error):
                own.store(store.val)
            return with_cells(read, (types.CellType(own),))

        return make

    def _copier(self, function: Any) -> Callable[[dict[int, Any]], Any] | None:
        """Makes functions as one of jax's, with what has to be new in their closures; None where
        nothing has."""
        shared, own, is_changed = {}, {}, False
        for free, part in closure(function).items():
            changed = part
            if isinstance(part, self.private.trace_type):
                changed = LowTrace
            elif isinstance(part, self.private.eqn_type):
                zeros = {"symbolic_zeros": part.params["symbolic_zeros"]}
                changed = part.replace(invars=[], outvars=[], params=zeros)
            shared[free] = types.CellType(changed)
            if free == "jvp" and self._is_shared(part):
                continue
            if (make := self._maker(changed)) is not None:
                own[free] = make
            is_changed |= changed is not part or free in own
        if not is_changed:
            return None
        cells = tuple(shared.values())

        def copy(made: dict[int, Any]) -> types.FunctionType:
            if not own:
                return with_cells(function, cells)
            new = {free: types.CellType(make(made)) for free, make in own.items()}
            return with_cells(function, tuple({**shared, **new}.values()))

        return copy

    # ---- what functions are ----

    def kind(self, function: Any) -> str | None:
        code = getattr(function, "__code__", None)
        return None if code is None else self.private.known_codes.get(code)

    def _is_users(self, function: Any) -> bool:
        is_wrapped = isinstance(function, self.private.wrapped_type)
        return not is_wrapped and self.kind(function) is None and not self._is_memo(function)

    def _is_shared(self, rule: Any) -> bool:
        """Whether a forward rule that has run is no other: it may store the same once more."""
        return self.kind(rule.f) is None and not self._stores_once(rule)

    def _stores_once(self, wrapped: Any) -> bool:
        """Whether something that a function stores cannot be stored again."""
        return any(type(store) is self.private.store_type for store in wrapped.stores)

    def _is_memo(self, function: Any) -> bool:
        return getattr(function, "__code__", None) is self._memoized_code

    def memoized(self, wrapped: Any) -> Any:
        """The function that a wrapped one remembers the results of; None where it does not."""
        if not self._is_memo(wrapped.f) or wrapped.transforms:
            return None
        return closure(wrapped.f)["fn"]

    def _is_of_jax(self, value: Any, *within: Any) -> bool:
        """Whether a function is jax's own, and so is all that it holds."""
        if any(value is outer for outer in within):
            return True

        def follow(parts: Iterable[Any]) -> bool:
            return all(self._is_of_jax(part, *within, value) for part in parts)

        if isinstance(value, types.FunctionType):
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            return trust.is_own_function(value) and follow([*defaults, *contents(value)])
        if isinstance(value, (tuple, list)):
            return follow(value)
        custom_jvp, custom_vjp = self.private.custom_rule_types
        if isinstance(value, custom_jvp):
            return follow([value.fun, value.jvp])
        if isinstance(value, custom_vjp):
            return follow([value.fun, value.fwd, value.bwd])
        if isinstance(value, self.private.jit_type):
            return follow([value.__wrapped__])
        return value is None or isinstance(value, (bool, int, float, str))

    def may_hold_tracers(self, value: Any) -> bool:
        """Whether a tracer or a trace can be reached from an object, or too much can to be sure."""
        private = self.private
        skipped = (type, types.ModuleType, types.CodeType, *private.never_followed)
        seen: dict[int, Any] = {}
        pending = [value]
        while pending:
            item = pending.pop()
            if id(item) in seen or isinstance(item, skipped):
                continue
            if isinstance(item, (private.tracer_type, private.trace_type)) or len(seen) > 2000:
                return True
            seen[id(item)] = item
            if isinstance(item, types.FunctionType):
                # Not the module that it lives in.
                pending += [item.__defaults__, item.__kwdefaults__, item.__dict__]
                pending += contents(item)
            else:
                pending += gc.get_referents(item)
        return False


def _on_demand(wrapped_type: Any) -> Any:
    """A class of functions that are made when they are asked for, and of jax's class from then
    on."""

    class OnDemand(wrapped_type):  # type: ignore[misc]
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            # The same thread may come here again: a signal handler may read it.
            with _DEMAND:
                if (make := _DEMANDED.get(id(self))) is not None:
                    made = make()
                    for slot in wrapped_type.__slots__:
                        setattr(self, slot, getattr(made, slot))
                    _DEMANDED.pop(id(self), None)
                    self.__class__ = wrapped_type
            return object.__getattribute__(self, name)

        def __reduce_ex__(self, protocol: Any) -> Any:
            _ = self.f
            return self.__reduce_ex__(protocol)

        # When the interpreter ends, the module may have no variables any more.
        def __del__(self, _forget: Callable[..., Any] = _DEMANDED.pop) -> None:
            _forget(id(self), None)

    return OnDemand


# What makes functions that nobody has asked for yet, by their addresses.
_DEMANDED: dict[int, Callable[[], Any]] = {}
_DEMAND = threading.RLock()


def _once(value: Any, make: Callable[[dict[int, Any]], Any]) -> Callable[[dict[int, Any]], Any]:
    """Makes what stands for a value, once for those that belong together."""

    def once(made: dict[int, Any]) -> Any:
        if id(value) not in made:
            made[id(value)] = make(made)
        return made[id(value)]

    return once


def _new_store(store: Any, made: dict[int, Any]) -> Any:
    if id(store) not in made:
        made[id(store)] = type(store)()
    return made[id(store)]


def closure(function: Any) -> dict[str, Any]:
    return dict(zip(function.__code__.co_freevars, contents(function), strict=True))


def with_cells(function: Any, cells: tuple[types.CellType, ...]) -> types.FunctionType:
    code, module, name = function.__code__, function.__globals__, function.__name__
    return types.FunctionType(code, module, name, function.__defaults__, cells)


def contents(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing was assigned yet
            yield inspect.Parameter.empty
