"""Where a compiled program has its values: read from what XLA writes of its buffer assignment.

Compiling with `xla_dump_to` writes where each value is (`*-buffer-assignment.txt`), from when to
when it is there in the order in which XLA runs the program (`*-live-range.txt`), and the program,
whose instructions name the primitives that they come from.
"""

import collections
import dataclasses
import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

# Temporary values begin at multiples of this many bytes (`cpu_function_runtime::MinAlign`).
ALIGNMENT = 64

ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*):$")
VALUE = re.compile(
    r"^ value: <\d+ (\S+?)(\{.*?\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$"
)
RANGE = re.compile(r"^    (\S+\{.*?\}):(\d+)-(\d+)$", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?(\S+) = .*$", re.MULTILINE)
PRIMITIVE = re.compile(r'op_name="[^"]*?([\w\-]+)"')
NUMBERS = re.compile(r"(_fusion|_computation)?[.\d]*(\.clone)?[.\d]*$")


@dataclasses.dataclass(frozen=True)
class Place:
    """Some bytes of an allocation; values that are in the same ones share them."""

    allocation: int
    offset: int
    size: int
    rounded: int
    """With what is left free behind it."""
    is_tuple: bool
    """It holds but the addresses of other values."""


@dataclasses.dataclass(frozen=True)
class Buffers:
    """The memory of a compiled program, in bytes, and what is in it when the most is.

    Of arguments, outputs and temporary values; not of constants, which are in the executable.
    """

    arguments: int
    outputs: int
    temporary: int
    alive: tuple[tuple[str, int], ...]
    """What is there then, but for arguments: what made it, and its bytes."""
    empty_outputs: int
    """Bytes of outputs in which nothing is then: they are set aside all the time."""
    rounding: int
    """Bytes behind temporary values that are there then, up to the next multiple of `ALIGNMENT`."""
    gaps: int
    """Bytes of temporary memory in which nothing is then."""
    awaiting: int
    """The most bytes of what is there then that one later instruction is the last to need."""

    @property
    def idle(self) -> int:
        """All that is set aside in which nothing is then."""
        return self.empty_outputs + self.rounding + self.gaps

    @property
    def total(self) -> int:
        """All that is set aside."""
        return self.arguments + self.outputs + self.temporary


def purpose(description: str) -> str | None:
    """What an allocation is for; None where it is no memory that a run of the program needs."""
    if "parameter" in description:
        return "arguments"
    if "maybe-live-out" in description:
        return "outputs"
    return "temporary" if "preallocated-temp" in description else None


def places(assignment: str) -> tuple[dict[int, str], collections.Counter[str], dict[str, Place]]:
    """What allocations are for, the bytes of each purpose, and where each value is."""
    purposes: dict[int, str] = {}
    sizes: collections.Counter[str] = collections.Counter()
    found: dict[str, Place] = {}
    number = -1
    for line in assignment.splitlines():
        if allocation := ALLOCATION.match(line):
            number += 1
            if known := purpose(allocation[2]):
                purposes[number] = known
                sizes[known] += int(allocation[1])
        elif (value := VALUE.match(line)) and number in purposes:
            size = int(value[3])
            unit = ALIGNMENT if purposes[number] == "temporary" else 1
            rounded = -(-size // unit) * unit
            place = Place(number, int(value[4]), size, rounded, value[5].startswith("("))
            found[value[1] + (value[2] or "{}")] = place
    return purposes, sizes, found


def spans(ranges: str) -> dict[str, tuple[int, int]]:
    """From which instruction to which one each value is there, by their numbers in order."""
    found = RANGE.findall(ranges.partition("BufferLiveRange:")[2])
    return {name: (int(start), int(end)) for name, start, end in found}


def at_peak(span: dict[str, tuple[int, int]], where: dict[str, Place]) -> dict[Place, str]:
    """The places in which something is when the most is, and what came there last."""
    events = []
    for name, (start, end) in span.items():
        if name in where:
            events += [(start, 1, name), (end + 1, -1, name)]
    events.sort(key=lambda event: event[:2])
    counts: collections.Counter[Place] = collections.Counter()
    there: dict[Place, str] = {}
    now = most = 0
    peak: dict[Place, str] = {}
    for _, group in itertools.groupby(events, key=lambda event: event[0]):
        for _, step, name in group:
            place = where[name]
            counts[place] += step
            if step > 0:
                now += 0 if place in there else place.rounded
                there[place] = name
            elif not counts[place]:
                now -= place.rounded
                del there[place]
        if now > most:
            most, peak = now, dict(there)
    return peak


def maker(name: str, instruction: str, is_tuple: bool) -> str:
    """The primitive that a value comes from, or what XLA calls it where it is XLA's own."""
    own = "tuple" if is_tuple else NUMBERS.sub("", name)
    primitive = PRIMITIVE.search(instruction)
    return primitive[1] if primitive and own not in ("tuple", "copy") else f"XLA's {own}"


def read(assignment: str, ranges: str, program: str) -> Buffers:
    """Reads the three texts."""
    purposes, sizes, where = places(assignment)
    span = spans(ranges)
    final = max(end for _, end in span.values())
    last: collections.Counter[int] = collections.Counter()
    instructions = {line[1]: line[0] for line in INSTRUCTION.finditer(program)}
    used: collections.Counter[str] = collections.Counter()
    alive = []
    rounding = 0
    for place, value in at_peak(span, where).items():
        name = value.partition("{")[0]
        end = span[value][1]
        used[purposes[place.allocation]] += place.size
        last[end] += place.size if end < final else 0
        rounding += place.rounded - place.size
        if purposes[place.allocation] != "arguments":
            alive.append((maker(name, instructions[name], place.is_tuple), place.size))
    free = sizes["temporary"] - used["temporary"]
    rounding = min(rounding, free)  # There is nothing behind the last one.
    return Buffers(
        **{name: sizes[name] for name in ("arguments", "outputs", "temporary")},
        alive=tuple(alive),
        empty_outputs=sizes["outputs"] - used["outputs"],
        rounding=rounding,
        gaps=free - rounding,
        awaiting=max(last.values(), default=0),
    )


def set_aside(executable: Any) -> int:
    """The bytes that jax says a compiled program has."""
    stats = executable.memory_analysis()
    said = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return int(said - stats.alias_size_in_bytes)


def compiled(lowered: Any) -> Buffers:
    """The memory of a program that has been lowered, compiled for this."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        said = set_aside(lowered.compile(compiler_options=options))
        (assignment,) = Path(folder).glob("*-buffer-assignment.txt")
        stem = str(assignment).removesuffix("-buffer-assignment.txt")
        paths = [Path(stem + end) for end in ("-buffer-assignment.txt", "-live-range.txt", ".txt")]
        buffers = read(*(path.read_text(encoding="utf-8") for path in paths))
    if buffers.total != said:
        raise ValueError(f"XLA says {said} bytes, but its buffer assignment {buffers.total}")
    return buffers
