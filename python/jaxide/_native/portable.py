"""Names that mean the same in every process: what keys of the store are made of.

A key of the expansion cache names objects by their addresses. The store has the *portable name* of
each in its place: its content, where that says all of it, or the place in a module of jax where the
very object is. What has neither has no portable name, and a call with it is not stored.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide._native.content import (
    PLAIN,
    Contents,
    Known,
    Unsettled,
    Writer,
    encoded,
    is_genuine,
    name_of,
    text_of,
)
from jaxide._native.interposed import name_of_callable
from jaxide._native.interruptions import is_of_signal
from jaxide._native.pure_functions import is_pure_function


class Symbols(NamedTuple):
    """Private things of jax that have portable names."""

    known: Known
    axis_env: Any
    # What `vmap` says of an axis, and the name of one that has none.
    axis_data: Any
    no_axis_name: Any
    # Classes of programs, and by which calls of its jits jax has made them.
    programs: tuple[type, ...]
    chain: Callable[[Any], tuple[Any, ...] | None]
    # Classes of jax that are what these attributes are: array types, and what these have.
    slots: Mapping[type, tuple[str, ...]]
    # Name stacks, and what they consist of.
    name_stack: Any
    scopes: tuple[Any, ...]
    # Classes of what avals have in common, which nobody changes.
    lasting: frozenset[type]
    trace_context: Callable[[], tuple[Any, ...]]
    # The mesh that is set, and the one where none is.
    concrete_mesh: Callable[[], Any]
    empty_mesh: Any
    settings: Mapping[str, Any]
    number_errors: Callable[[], tuple[Any, ...] | None]
    # What differs in jax under a number.
    world: Callable[[int], tuple[Any, ...]]
    # The variables of the module that starts backends.
    backends: dict[str, Any]


_MAX_LASTING = 4096
# Settings that say where files are, and what is written there.
_OF_FILES = frozenset({"jax_compilation_cache_dir", "jax_dump_ir_to", "jax_debug_log_modules"})


def place_of(value: Any) -> str | None:
    """Where in a module of jax the very object is; None where that is not found."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(qualname) is not str:
        return None
    if value is jax.Array:
        return "jax:Array"
    found = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is value:
        return f"{module}:{qualname}"
    # What a wrapper of jax's wraps, such as the function of a `custom_jvp`.
    for attribute in ("fun", "jvp", "fwd", "bwd", "__wrapped__"):
        if getattr(found, attribute, None) is value:
            return f"{module}:{qualname}.{attribute}"
    # What a transformation of functions is applied to, which jax curries.
    curried: Any = found
    if type(curried) is functools.partial and any(own is value for own in curried.args):
        return f"{module}:{qualname}.args"
    return None


def fields_of(value: Any) -> tuple[Any, ...]:
    """What a dataclass consists of."""
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value))


class _Portable(Writer):
    """Writes contents that are the same in every process."""

    def __init__(self, symbols: Symbols, lasting: dict[int, tuple[Any, Any]]):
        super().__init__(symbols.known)
        self._symbols = symbols
        # What was written of objects that many others have, which stay alive.
        self._lasting = lasting

    def write(self, value: Any, depth: int = 0) -> Any:
        """As for an executable, but that nothing is remembered."""
        class_ = type(value)
        if class_ in PLAIN:
            if value != value and value is not np.nan:
                raise Unsettled("a NaN is equal to no other")
            return PLAIN[class_](value)
        if class_ not in self._symbols.lasting:
            return self._written(value, class_, depth)
        if (found := self._lasting.get(id(value))) is not None:
            return found[1]
        written = self._written(value, class_, depth)
        if len(self._lasting) < _MAX_LASTING:
            self._lasting[id(value)] = value, written
        return written

    def _written(self, value: Any, class_: Any, depth: int) -> Any:
        symbols, known = self._symbols, self._symbols.known
        if depth > 16:
            raise Unsettled("it is nested too deeply")

        def parts(values: Any) -> tuple[Any, ...]:
            return tuple(self.write(item, depth + 1) for item in values)

        if isinstance(value, known.primitive):
            return "primitive", primitive_place(value)
        if (slots := symbols.slots.get(class_)) is not None:
            return name_of(class_), parts(getattr(value, slot) for slot in slots)
        if class_ is symbols.axis_env:
            return "axes", parts((tuple(value.axis_sizes.items()), tuple(value.spmd_axis_names)))
        if isinstance(value, symbols.programs):
            if (chain := symbols.chain(value)) is None:
                raise Unsettled("a program that no jit of jax's own leads to")
            return "program", parts(chain)
        if value is symbols.no_axis_name:
            return ("no axis name",)
        if class_ is symbols.axis_data:
            return "axis data", parts(fields_of(value))
        if class_ is symbols.name_stack:
            return "stack", parts(value.stack)
        if class_ in symbols.scopes:
            return "scope", symbols.scopes.index(class_), value.name
        if class_ is types.CodeType:
            return self._code(value, depth)
        if (place := self._place(value)) is not None:
            return place
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "jax":
            if sys.modules.get(value.__name__) is not value:
                raise Unsettled("a module that is none of jax's")
            return "module", value.__name__
        is_text = class_ in known.immutable or isinstance(value, known.effect)
        if is_text and text_of(value) != repr(value):
            # What looks like an address is none in every process.
            raise Unsettled(f"a {name_of(class_)} prints with an address")
        return super()._written(value, class_, depth)

    def _place(self, value: Any) -> Any:
        if not callable(value):
            return None
        if (name := name_of_callable(value)) is not None:
            return "callable", name
        if isinstance(value, np.ufunc):
            name = value.__name__
            return ("place", f"numpy:{name}") if getattr(np, name, None) is value else None
        place = place_of(value)
        own = place is not None and place.partition(":")[0].partition(".")[0] == "jax"
        if own or is_pure_function(value):
            return "place", place
        return None

    def _code(self, code: types.CodeType, depth: int) -> Any:
        parts = (
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_code,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
            code.co_filename,
            code.co_name,
            code.co_qualname,
            code.co_firstlineno,
            code.co_linetable,
            code.co_exceptiontable,
            code.co_consts,
        )
        return "code", tuple(self.write(part, depth + 1) for part in parts)

    def identity(self, value: Any) -> Any:
        """The place of what only identity tells apart."""
        if isinstance(value, type) and is_genuine(value):
            return name_of(value)
        if (place := self._place(value)) is not None:
            return place
        raise Unsettled(f"a {name_of(type(value))} has no place in jax")

    def rules(self, primitive: Any) -> Any:
        raise Unsettled(f"{primitive} is no primitive of a module of jax")

    def device(self, device: Any) -> Any:
        """A device, by what it is called."""
        return name_of(type(device)), device.platform, device.id, device.process_index

    def callback(self, value: Any, depth: int) -> Any:
        raise Unsettled("a callback has no portable name")


_PRIMITIVES: dict[int, tuple[Any, str]] = {}
# Modules of jax that define most of its primitives. Others import these from there.
_DEFINING = tuple(
    f"jax._src.{name}"
    for name in (
        "lax.lax",
        "lax.slicing",
        "pjit",
        "ad_util",
        "custom_derivatives",
        "lax.control_flow.loops",
        "lax.control_flow.conditionals",
        "lax.parallel",
        "lax.convolution",
        "lax.linalg",
        "lax.windowed_reductions",
        "ad_checkpoint",
        "random.prng",
        "prng",
        "core",
    )
)
# Modules of jax by what their names begin with, and how many modules there were then.
_modules: dict[str, tuple[int, list[tuple[str, dict[str, Any]]]]] = {}
_OF_LAX, _OF_JAX = "jax._src.lax.", "jax._src."


def _own_modules(prefix: str) -> list[tuple[str, dict[str, Any]]]:
    """The modules of jax whose names begin so, with their variables."""
    known = _modules.get(prefix)
    if known is None or known[0] != len(sys.modules):
        modules = list(sys.modules.items())
        own = [(name, vars(module)) for name, module in modules if name.startswith(prefix)]
        known = _modules[prefix] = len(sys.modules), own
    return known[1]


# What stands before the place of a primitive in that of its node in a backward pass.
_NODE = "node of "


def _node_of(primitive: Any) -> Any:
    """The node of a primitive in a backward pass, which there is one of (jax 0.12 on)."""
    make = getattr(sys.modules["jax._src.interpreters.ad"], "vjp_node", None)
    return None if make is None else make(primitive)


def primitive_place(primitive: Any) -> str:
    """Where in a module of jax a primitive is.

    Raises:
      Unsettled: it is in none, under the name that jax's primitives have.
    """
    found = _PRIMITIVES.get(id(primitive))
    if found is None or found[0] is not primitive:
        if (inner := getattr(primitive, "prim", None)) is not None and _node_of(inner) is primitive:
            place = f"{_NODE}{primitive_place(inner)}"
            _PRIMITIVES[id(primitive)] = primitive, place
            return place
        attribute = str(primitive.name).replace("-", "_") + "_p"
        module = _module_of(primitive, attribute)
        found = _PRIMITIVES[id(primitive)] = primitive, f"{module}:{attribute}"
    return found[1]


def _module_of(primitive: Any, attribute: str) -> str:
    modules = sys.modules
    for name in _DEFINING:
        if name in modules and vars(modules[name]).get(attribute) is primitive:
            return name
    # The module that defines it is mostly the one of those that are below others.
    for prefix in (_OF_LAX, _OF_JAX):
        if places := [n for n, own in _own_modules(prefix) if own.get(attribute) is primitive]:
            return min(places)
    raise Unsettled(f"{primitive} is no primitive of a module of jax")


def primitive_at(place: str, class_: Any) -> Any:
    """The primitive at a place.

    Raises:
      LookupError: there is none, or its module is not imported.
    """
    if place.startswith(_NODE):
        return _node_of(primitive_at(place.removeprefix(_NODE), class_))
    module, _, attribute = place.partition(":")
    found = vars(sys.modules[module])[attribute] if module.startswith("jax._src.") else None
    if not isinstance(found, class_):
        raise LookupError(place)
    _PRIMITIVES.setdefault(id(found), (found, place))
    return found


class PortableObjects:
    """What the objects of a program are to an executable, in every process."""

    def __init__(self, symbols: Symbols, describe_captured: Callable[[Any], bytes]):
        self._symbols = symbols
        self._contents = Contents(symbols.known)
        self._lasting: dict[int, tuple[Any, Any]] = {}
        self.settle_class = self._contents.settle_class
        self.describe_captured = describe_captured

    def write(self, value: Any) -> Any:
        """The content of an object, in tuples of texts, bytes and whole numbers.

        Raises:
          Unsettled: it has none that another process has too.
        """
        return _Portable(self._symbols, self._lasting).write(value)

    def describe_settled(self, value: Any) -> bytes:
        """The content of an object.

        Raises:
          Unsettled: as for :meth:`write`.
        """
        return encoded(self.write(value))

    def settle_type(self, aval: Any) -> bytes:
        """What the text of an array type does not say of it.

        Raises:
          Unsettled: as for :meth:`write`.
        """
        self._contents.settle_type(aval)
        return self.describe_settled(aval)


class Names:
    """Portable names of objects."""

    is_of_signal = staticmethod(is_of_signal)

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self.backends = symbols.backends
        # The core writes the names of these itself, and of tuples, lists, dicts and plain values.
        self.slots = dict(symbols.slots)
        self.axis_env = symbols.axis_env
        self.programs = symbols.programs
        self.chain = symbols.chain
        self._lasting: dict[int, tuple[Any, Any]] = {}
        # What takes the values of settings in the order of their names, and how many jax has.
        self._num_settings = 0
        self._setting_names = ""
        self._in_order: Callable[[Any], Any] = tuple
        self._read_settings()

    def name(self, value: Any) -> bytes | None:
        """The portable name of an object; None where it has none."""
        if value is np.nan:
            return b"nan"
        if type(value) in (float, complex):
            # A number that is an object of its own in a key is none: it is not equal to itself.
            return None
        try:
            return encoded(_Portable(self._symbols, self._lasting).write(value))
        except Unsettled:
            return None

    def devices(self) -> bytes:
        """The portable name of the devices that jax has found, and of none before that."""
        found = []
        for name, client in self.backends["_backends"].items():
            devices = tuple(
                (device.id, device.platform, device.device_kind, device.process_index)
                for device in client.devices()
            )
            found.append((name, client.platform_version, client.process_index(), devices))
        return repr(found).encode()

    def configuration(self, world: int, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Everything that is configured now in this thread, where what differs in jax has a number
        and the settings have these values; None where that cannot be said."""
        symbols = self._symbols
        if (errors := symbols.number_errors()) is None:
            return None
        if self._num_settings != len(values):
            self._read_settings()
        settings = self._in_order(values)
        mesh = symbols.concrete_mesh()
        context = symbols.trace_context(), None if mesh is symbols.empty_mesh else mesh
        return context, self._setting_names, settings, errors, symbols.world(world)

    def _read_settings(self) -> None:
        places = {name: place for place, name in enumerate(self._symbols.settings)}
        names = sorted(places.keys() - _OF_FILES)
        self._num_settings = len(places)
        self._setting_names = " ".join(names)
        self._in_order = operator.itemgetter(*map(places.__getitem__, names))
