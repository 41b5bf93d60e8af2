"""Derivative rules in a stored program: what jax has wrapped around a rule, and the rule by name.

jax makes a function for each call of a ``custom_jvp`` or ``custom_vjp`` function. What it consists
of is jax's own, and stored as such; the rule in the middle is somebody's. It is stored by name, as
the rule of a function that a module has. Example: ``jvp`` of ``jax._src.nn.functions.relu``. Where
the module was not imported, or the rule is another one, a function stands for it that says so.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxide._native import trust
from jaxide._native.content import name_of
from jaxide._native.derivative_rules import LowTrace, Rules, closure
from jaxide._native.global_names import variables
from jaxide._native.rule_contents import BYTECODE, library_name, words
from jaxide._native.storage import Kind, StorageError, Unstorable

# The functions of one with a derivative rule.
_ROLES = ("jvp", "fwd", "bwd", "vmap_rule", "fun")
# Of jits around a function, and of what jax has made around another function.
_MAX_DEPTH = 4
_MISSING = "__jaxide_missing__"
# The record of a rule that is not here.
_RECORD = "__jaxide_record__"
_FIND = "__jaxide_find__"
_WRAPPED = "__jaxide_wrapped__"


class Private(NamedTuple):
    """Private things of jax that rules are stored and loaded with."""

    # Reads functions that trace rules.
    reader: Rules
    # The variables of the modules that codes of jax are of.
    variables: dict[types.CodeType, dict[str, Any]]
    # ``custom_jvp``, ``custom_vjp`` and ``custom_vmap``.
    classes: tuple[Any, ...]
    # What jax makes of a batching rule, and what that consists of.
    batching_rule: Any
    # How classes are registered as nodes of trees.
    registry: Mapping[type, Any]
    # An equation with these params, and nothing else.
    make_eqn: Callable[[dict[str, Any]], Any]


class _Given:
    """Stands for a part of a function that counts by what is said here."""

    def __init__(self, *said: Any):
        self.said = said


def stand_in(why: str, module: str, name: str, find: Callable[[], Any] | None = None) -> Any:
    """A function that raises why it cannot be called, unless it is found by then."""

    def missing(*args: Any, **kwargs: Any) -> Any:
        found = None if find is None else find()
        if isinstance(found, (types.FunctionType, types.MethodType)):
            return found(*args, **kwargs)
        raise StorageError(why)

    missing.__module__, missing.__qualname__ = module, name
    missing.__name__ = name.rpartition(".")[2]
    return mark_missing(missing, why)


def mark_missing(value: Any, why: str) -> Any:
    """The value, which is not what it stands for; that may be executed without it."""
    setattr(value, _MISSING, why)
    return value


def why_missing(value: Any) -> str | None:
    """Why a value cannot do what it stands for; None where it can."""
    # Not by an attribute that somebody computes.
    for known in (value, type(value)):
        try:
            own = vars(known)
        except TypeError:
            continue
        if type(why := own.get(_MISSING)) is str:
            return why
    return None


def is_left_out(value: Any) -> bool:
    """Whether a value stands for a function that no file has, whatever is imported here."""
    return why_missing(value) is not None and _finding(value) is None


class StoredRules:
    """Records of the functions that trace derivative rules, and functions of records."""

    def __init__(self, private: Private):
        self._private = private
        self._jax = private.reader.private
        codes: dict[tuple[Any, ...], list[types.CodeType]] = {}
        for code, kind in self._jax.known_codes.items():
            codes.setdefault((kind, code.co_name, code.co_freevars), []).append(code)
        self._codes = {name: found[0] for name, found in codes.items() if len(found) == 1}
        self._names = _Names(private.classes, self._jax.jit_type)
        self.kinds = (
            Kind("wrapped", (), _said, self._wrapped),
            Kind("remembering", (), _said, self._remembering),
            Kind("closure", (), _said, self._closure),
            Kind("reader", (), _said, self._reader),
            Kind("rule", (), _said, self._rule),
            Kind(
                "batching rule",
                (private.batching_rule,),
                lambda v: (v.rule, self._part(v.debug)),
                lambda parts: private.batching_rule(*parts),
            ),
            Kind("debug info", (_Given,), _said, lambda parts: self._jax.debug_info_type(*parts)),
            Kind(
                "unhashable",
                (self._jax.unhashable_type,),
                lambda v: v.val,
                self._jax.unhashable_type,
            ),
            Kind(
                "no axis name",
                (type(self._jax.no_axis_name),),
                self._no_axis_name,
                lambda parts: self._jax.no_axis_name,
            ),
        )

    # ---- records ----

    def record(self, value: Any) -> tuple[str, Any] | None:
        """The record of a function; None where it has none."""
        try:
            return self._record(value)
        except Unstorable:
            return None

    def _record(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, self._jax.wrapped_type):
            return self._wrapped_record(value)
        kind = self._private.reader.kind(value)
        if kind == "stored":
            (store,) = closure(value).values()
            try:
                return "reader", (store, (self._part(store.val),))
            except self._jax.store_error:
                return "reader", (store, ())
        if kind is not None:
            return self._closure_record(value, kind)
        if isinstance(value, types.FunctionType):
            if (known := vars(value).get(_RECORD)) is not None:
                return "rule", known
            place = self._names.of(value)
            if place is None:
                return None
            return "rule", (*place, _own(value), *self._digests(value, place[0]))
        return None

    def _wrapped_record(self, wrapped: Any) -> tuple[str, Any] | None:
        if wrapped.in_type is not None:
            return None
        if isinstance(wrapped.f, types.FunctionType) and _WRAPPED in vars(wrapped.f):
            return "wrapped", vars(wrapped.f)[_WRAPPED]
        traced_for, source, arg_names = wrapped.debug_info[:3]
        info = str(traced_for), str(source), arg_names if isinstance(arg_names, tuple) else None
        thunk = self._private.reader.memoized(wrapped)
        if thunk is not None:
            return "remembering", (thunk, info)
        transforms = []
        for transform, args in wrapped.transforms:
            own = _own(transform)
            if _transform(*own) is not transform:
                return None
            transforms.append((*own, self._part(args)))
        return "wrapped", (wrapped.f, transforms, list(wrapped.stores), dict(wrapped.params), info)

    def _closure_record(self, function: Any, kind: str) -> tuple[str, Any] | None:
        code = function.__code__
        name = kind, code.co_name, code.co_freevars
        if self._codes.get(name) is not code:
            return None
        parts = []
        for part in closure(function).values():
            if part is LowTrace or self._is_low_trace(part):
                parts.append(("trace", None))
            elif isinstance(part, self._jax.eqn_type):
                parts.append(("eqn", part.params["symbolic_zeros"]))
            else:
                parts.append(("is", self._part(part)))
        return "closure", (*name, _own(function), parts)

    def _is_low_trace(self, value: Any) -> bool:
        return isinstance(value, self._jax.trace_type) and not value.requires_low

    def _part(self, value: Any) -> Any:
        """A part of a function, debug info in words."""
        if isinstance(value, self._jax.debug_info_type):
            names = [part if isinstance(part, tuple) else None for part in value[2:]]
            return _Given(str(value[0]), str(value[1]), *names)
        if type(value) in (tuple, list):
            return type(value)(map(self._part, value))
        if type(value) is dict:
            return {key: self._part(item) for key, item in value.items()}
        if isinstance(value, self._jax.unhashable_type):
            self._part(value.val)
        elif callable(value) and not self._is_known(value):
            # It may be compared, not called: another one does not stand for it.
            raise Unstorable(f"{name_of(type(value))} is among the values of a rule")
        return value

    def _is_known(self, function: Any) -> bool:
        """Whether a function among values is one of jax's around rules, or one of a rule."""
        if self._private.reader.kind(function) is not None:
            return True
        return isinstance(function, types.FunctionType) and self._record(function) is not None

    def _digests(self, function: types.FunctionType, module: str) -> tuple[str, str]:
        """The version of bytecode, and a digest of what a function does. It is the rule of
        something that a module has.

        Raises:
          Unstorable: it has something of which that cannot be said.
        """
        if module.startswith("jax.") and _is_of_jax(function):
            # jax's own are those of the installed jax, like primitives.
            return "", ""
        said = words(function, self._private.registry)
        return BYTECODE, hashlib.sha256(said).hexdigest()

    # ---- functions of records ----

    def _wrapped(self, parts: Any) -> Any:
        function, transforms, stores, params, info = parts
        _check_called(function)
        debug_info = self._jax.debug_info_type(*info, None)
        lost = [arg for *_, args in transforms for arg in args if _finding(arg) is not None]
        if lost:
            # It may be compared: nothing but the function itself is it.
            def find() -> Any:
                found = {id(arg): _finding(arg)() for arg in lost}
                if not all(isinstance(made, types.FunctionType) for made in found.values()):
                    return None
                now = [
                    (module, name, tuple(found.get(id(arg), arg) for arg in args))
                    for module, name, args in transforms
                ]
                return self._wrapped((function, now, stores, params, info)).call_wrapped

            missing = stand_in(str(why_missing(lost[0])), *_own(lost[0]), find)
            setattr(missing, _WRAPPED, parts)
            return self._jax.wrap(missing, debug_info=debug_info)
        made = self._jax.wrap(function, params, debug_info=debug_info)
        for (module, name, args), store in [*zip(transforms, stores, strict=True)][::-1]:
            transform = _transform(module, name)
            if transform is None:
                missing = stand_in(f"this jax has no {module}.{name}", module, name)
                return self._jax.wrap(missing, debug_info=debug_info)
            made = made.wrap(transform, args, store)
        return made

    def _remembering(self, parts: Any) -> Any:
        thunk, info = parts
        _check_called(thunk)
        memo = thunk if why_missing(thunk) is not None else self._jax.memoize(thunk)
        return self._jax.wrap(memo, debug_info=self._jax.debug_info_type(*info, None))

    def _closure(self, parts: Any) -> Any:
        kind, name, freevars, (module, own), cells = parts
        code = self._codes.get((kind, name, tuple(freevars)))
        if code is None or len(cells) != len(code.co_freevars):
            return stand_in(f"this jax has no {own} as it was", module, own)
        made = []
        for tag, part in cells:
            if tag == "trace":
                part = LowTrace
            elif tag == "eqn":
                part = self._private.make_eqn({"symbolic_zeros": part})
            made.append(types.CellType(part))
        return types.FunctionType(code, self._private.variables[code], name, None, tuple(made))

    def _reader(self, parts: Any) -> Any:
        store, filled = parts
        for value in filled:
            try:
                store.val  # noqa: B018
            except self._jax.store_error:
                store.store(value)
        (code,) = (code for code, kind in self._jax.known_codes.items() if kind == "stored")
        variables = self._private.variables[code]
        return types.FunctionType(code, variables, code.co_name, None, (types.CellType(store),))

    def _no_axis_name(self, value: Any) -> None:
        if value is not self._jax.no_axis_name:
            raise Unstorable("nothing is known of an object")

    def _rule(self, parts: Any) -> Any:
        module, path, unwraps, role, (own_module, own_name), bytecode, digest = parts
        of = f"the {role} of {module}.{path}"

        def find() -> Any:
            found = self._names.find(module, path, unwraps, role)
            if found is None:
                return f"{of} is not there: {module} was not imported, or has none"
            if bytecode not in ("", BYTECODE):
                return f"{of} cannot be compared: the program was stored by another Python"
            try:
                is_same = self._digests(found, module) == (bytecode, digest)
            except Unstorable:
                is_same = False
            return found if is_same else f"{of} has changed since the program was stored"

        found = find()
        if isinstance(found, types.FunctionType):
            return found
        made = stand_in(found, own_module, own_name, find)
        setattr(made, _RECORD, parts)
        setattr(made, _FIND, find)
        return made


def _finding(value: Any) -> Any:
    """How a function of a rule is found that is not here; None for anything else."""
    return vars(value).get(_FIND) if isinstance(value, types.FunctionType) else None


def _check_called(function: Any) -> None:
    if not callable(function):
        raise StorageError(f"{type(function).__name__} is no function")


def _said(value: Any) -> Any:
    return value.said


def _own(function: Any) -> tuple[str, str]:
    return str(function.__module__), str(function.__qualname__)


def _transform(module: str, name: str) -> Any:
    """A transformation of functions that a module of jax has; None where it has none."""
    found = variables(module).get(name) if module.startswith("jax.") else None
    # What the decorators of jax's make of one, and nothing else that jax has.
    if not isinstance(found, functools.partial) or not found.args:
        return None
    if getattr(found.func, "__module__", None) != "jax._src.linear_util":
        return None
    (transform, *_) = found.args
    is_own = isinstance(transform, types.FunctionType) and _own(transform) == (module, name)
    return transform if is_own else None


class _Names:
    """The names of functions that have derivative rules, in the modules that were imported."""

    def __init__(self, classes: tuple[Any, ...], jit_type: Any):
        self._classes, self._jit_type = classes, jit_type
        self._known: dict[int, tuple[str, str, int, str]] = {}
        self._num_modules = 0

    def of(self, function: types.FunctionType) -> tuple[str, str, int, str] | None:
        """Whose rule a function is: the module, the name there, how often to unwrap that, and what
        of it; None where it is none that has a name."""
        if (place := self._place(function)) is not None:
            return place
        if self._num_modules != len(sys.modules):
            self._num_modules = len(sys.modules)
            self._look(list(sys.modules))
        elif function.__module__ in sys.modules:
            self._look([function.__module__])
        return self._place(function)

    def _place(self, function: Any) -> tuple[str, str, int, str] | None:
        place = self._known.get(id(function))
        return place if place is not None and self.find(*place) is function else None

    def find(self, module: str, path: str, unwraps: int, role: str) -> types.FunctionType | None:
        """The function of a name; None where there is none."""
        if role not in _ROLES or type(unwraps) is not int:
            return None
        found = variables(module).get(path)
        for _ in range(min(unwraps, _MAX_DEPTH)):
            found = (
                getattr(found, "__wrapped__", None) if isinstance(found, self._jit_type) else None
            )
        if not isinstance(found, self._classes):
            return None
        function = vars(found).get(role)
        return function if isinstance(function, types.FunctionType) else None

    def _look(self, modules: Iterable[str]) -> None:
        """Notes the functions of modules that have rules."""
        for name in sorted(modules):
            for path, value in list(variables(name).items()):
                unwraps = 0
                # Not by what somebody's objects say of themselves.
                while type(value) is self._jit_type and unwraps < _MAX_DEPTH:
                    value, unwraps = value.__wrapped__, unwraps + 1
                if type(value) in self._classes:
                    self._note(name, path, unwraps, value)

    def _note(self, module: str, path: str, unwraps: int, value: Any) -> None:
        is_home = getattr(value.fun, "__module__", None) == module
        for role in _ROLES:
            function = vars(value).get(role)
            if not isinstance(function, types.FunctionType):
                continue
            known = self._known.get(id(function))
            # Others may import it. Its own module comes first, then the first by name.
            if known is None or self.find(*known) is not function or is_home:
                self._known[id(function)] = module, path, unwraps, role


# ---- what a rule is ----------------------------------------------------------------------------


def _is_of_jax(value: Any, depth: int = 0) -> bool:
    """Whether a function is one of jax's, and so is all that is in it; a value of such a function
    may also be a plain one."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, types.FunctionType):
        if not trust.is_own_function(value) or set(vars(value)) - _OF_WRAPS:
            return False
        inside = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        inside += closure(value).values()
        return all(_is_of_jax(part, depth + 1) for part in inside)
    if type(value) in (tuple, list):
        return all(_is_of_jax(part, depth + 1) for part in value)
    place = library_name(value)
    package = "" if place is None else place[0].partition(".")[0]
    return type(value) in _PLAIN or package in _FOUNDATION or package in sys.stdlib_module_names


# What jax is made of.
_FOUNDATION = ("jax", "jaxlib", "ml_dtypes", "numpy")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# What `functools.wraps` leaves; what was wrapped is in a closure if it is called.
_OF_WRAPS = frozenset({"__wrapped__", "__signature__"})
