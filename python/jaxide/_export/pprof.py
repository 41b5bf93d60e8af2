"""What programs cost as a profile that ``pprof`` reads: gzipped ``profile.proto``.

A sample is what the equations of one stack cost, as often as they run; all samples together are
what the program costs. The stack is the primitive, the name scopes around it and the user's calls
that were under way when it was traced, then the stack of the equation that runs its program.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Sequence
from typing import Any

from jaxide import _compat
from jaxide._export.model import Equation, ProgramModel
from jaxide._reports.cost import Cost

# Of profile.proto (github.com/google/pprof), the fields that are written: number, type, whether
# there are several. Messages refer to each other by name.
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Profile": {
        "sample_type": (1, "ValueType", True),
        "sample": (2, "Sample", True),
        "mapping": (3, "Mapping", True),
        "location": (4, "Location", True),
        "function": (5, "Function", True),
        "string_table": (6, "string", True),
        "comment": (13, "int64", True),
        "default_sample_type": (14, "int64", False),
    },
    "ValueType": {"type": (1, "int64", False), "unit": (2, "int64", False)},
    "Sample": {"location_id": (1, "uint64", True), "value": (2, "int64", True)},
    "Mapping": {"id": (1, "uint64", False)},
    "Location": {"id": (1, "uint64", False), "line": (4, "Line", True)},
    "Line": {"function_id": (1, "uint64", False), "line": (2, "int64", False)},
    "Function": {
        "id": (1, "uint64", False),
        "name": (2, "int64", False),
        "system_name": (3, "int64", False),
        "filename": (4, "int64", False),
    },
}

# What a sample says, and its unit.
VALUES = (("flops", "count"), ("transcendentals", "count"), ("bytes", "bytes"))
MAX_VALUE = 2**63 - 1
# Of longer stacks the innermost locations.
MAX_STACK = 512

# A function, its file and a line of it.
Frame = tuple[str, str, int]


@functools.cache
def profile_class() -> Any:
    """The class of profiles.

    Raises:
      ImportError: the package ``protobuf`` is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise ImportError(
            "profiles are written with the package protobuf: pip install 'jaxide[pprof]'"
        ) from None
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"int64": field.TYPE_INT64, "uint64": field.TYPE_UINT64, "string": field.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(
        name="jaxide/profile.proto", package="perftools.profiles", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, type_, is_repeated) in fields.items():
            label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            new = message.field.add(name=key, number=number, label=label)
            if type_ in plain:
                new.type = plain[type_]
            else:
                new.type, new.type_name = field.TYPE_MESSAGE, f".perftools.profiles.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("perftools.profiles.Profile")
    return message_factory.GetMessageClass(found)


def profile(programs: Sequence[ProgramModel]) -> bytes:
    """The profile, gzipped.

    Raises:
      ImportError: the package ``protobuf`` is not installed.
    """
    written = _Profile(programs).message()
    # The same bytes for the same program.
    return gzip.compress(written.SerializeToString(deterministic=True), mtime=0)


class _Profile:
    def __init__(self, programs: Sequence[ProgramModel]):
        self._programs = programs
        self._profile = profile_class()()
        self._strings: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[Frame, int] = {}
        self._frames: dict[int, list[Frame]] = {}
        self._samples: dict[tuple[int, ...], list[int]] = {}
        self._string("")

    def message(self) -> Any:
        profile = self._profile
        for name, unit in VALUES:
            profile.sample_type.add(type=self._string(name), unit=self._string(unit))
        profile.default_sample_type = self._string("flops")
        # Locations without addresses still are of some mapping.
        profile.mapping.add(id=1)
        # The stack below a program: that of the first equation that runs it, which is read before.
        below: dict[int, tuple[int, ...]] = {0: ()}
        for place, program in enumerate(self._programs):
            for eqn in program.equations:
                within = [p for p in eqn.params.places if p not in below]
                cost = eqn.cost if eqn.is_leaf and program.times else None
                if not within and cost is None:
                    continue
                stack = (self._stack(eqn) + below[place])[:MAX_STACK]
                below.update(dict.fromkeys(within, stack))
                if cost is not None:
                    self._add(stack, cost, program.times)
        for stack, values in self._samples.items():
            sample = profile.sample.add()
            sample.location_id.extend(stack)
            sample.value.extend(min(value, MAX_VALUE) for value in values)
        profile.string_table.extend(self._strings)
        return profile

    def _add(self, stack: tuple[int, ...], cost: Cost, times: int) -> None:
        values = cost.flops, cost.transcendentals, cost.bytes_accessed
        known = self._samples.setdefault(stack, [0] * len(values))
        for number, value in enumerate(values):
            known[number] += value * times

    def _stack(self, eqn: Equation) -> tuple[int, ...]:
        """The locations of an equation's stack, the innermost first."""
        key = id(eqn.traceback)
        if key not in self._frames:
            self._frames[key] = _compat.user_frames(eqn.traceback)
        scopes = [scope for scope in eqn.name_stack.split("/") if scope]
        frames = [(eqn.primitive.name, "", 0), *((scope, "", 0) for scope in reversed(scopes))]
        return tuple(map(self._location, [*frames, *self._frames[key]]))

    def _location(self, frame: Frame) -> int:
        known = self._locations.get(frame)
        if known is None:
            name, file, line = frame
            known = self._locations[frame] = len(self._locations) + 1
            location = self._profile.location.add(id=known)
            location.line.add(function_id=self._function(name, file), line=line)
        return known

    def _function(self, name: str, file: str) -> int:
        known = self._functions.get((name, file))
        if known is None:
            known = self._functions[name, file] = len(self._functions) + 1
            self._profile.function.add(
                id=known,
                name=self._string(name),
                system_name=self._string(name),
                filename=self._string(file),
            )
        return known

    def _string(self, text: str) -> int:
        # Lone surrogates have no UTF-8.
        text = text.encode(errors="replace").decode()
        return self._strings.setdefault(text, len(self._strings))
