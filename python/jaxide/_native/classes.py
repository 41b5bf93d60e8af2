"""What named tuples and enums have that says nothing about them, for the core."""

from __future__ import annotations

import collections
import enum
import sys
import types
import typing
from typing import Any

from jaxide import _core
from jaxide._native import trust


class _Plain(typing.NamedTuple):
    field: int


class _PlainEnum(enum.Enum):
    MEMBER = 1


class _PlainInt(enum.IntEnum):
    MEMBER = 1


class _PlainStr(enum.StrEnum):
    MEMBER = "a"


class _PlainFlag(enum.Flag):
    MEMBER = 1


class _PlainIntFlag(enum.IntFlag):
    MEMBER = 1


_ENUMS = (_PlainEnum, _PlainInt, _PlainStr, _PlainFlag, _PlainIntFlag)
_WRITTEN = {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
_WRITTEN |= {"__doc__", "__module__", "__qualname__", "__orig_bases__", "__firstlineno__"}
_WRITTEN |= {"__static_attributes__", "__dict__", "__weakref__"}


class _Known:
    """The fields are those that the core reads."""

    _samples = (_Plain, collections.namedtuple("_Sample", "field"))
    codes: typing.ClassVar[set[Any]] = {
        function.__code__
        for sample in (*_samples, *_ENUMS)
        for name, member in vars(sample).items()
        for function in trust.functions_of(member)
        if function.__globals__.get("__name__") in ("collections", "enum")
    }
    inert_types: typing.ClassVar[set[type]] = {
        *(type(None), bool, int, float, str, bytes, tuple, list, dict, object),
        *(types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType),
    }
    written = _WRITTEN
    namedtuple_names: typing.ClassVar[set[str]] = {
        name for sample in _samples for name in vars(sample) if name != "field"
    }
    field_type = type(vars(_Plain)["field"])
    enum_meta = enum.EnumMeta
    enum_names: typing.ClassVar[set[str]] = {
        name for sample in _ENUMS for name in vars(sample) if name != "MEMBER"
    }
    enum_bases: typing.ClassVar[set[type]] = {
        *(enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag, enum.ReprEnum),
        *(int, str, float, bytes),
    }
    enum_property = enum.property

    @staticmethod
    def is_library(cls: type) -> bool:
        """Whether a class is of jax, of Python or of what jax is built on: the module that it names
        has it."""
        if trust.is_foreign(cls):
            return False
        found: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            found = getattr(found, "__dict__", {}).get(name)
        return found is cls


def tell_classes() -> None:
    """Tells the core."""
    _core.set_known_classes(_Known)
