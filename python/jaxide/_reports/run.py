"""What was traced, lowered and compiled in a run: the rows of its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from jaxide import _compat

# What is said where there is nothing to report.
NOT_RECORDED = (
    "Nothing was recorded: a run is recorded from jaxide.install() on, or from the first use of "
    "jaxide where JAXIDE_REPORT names a file."
)
_PACKAGE = str(Path(_compat.__file__).parent.parent)


@dataclasses.dataclass(frozen=True)
class RunTimes:
    """Where the seconds of a run went. Nothing is counted twice: a compilation within a trace is
    compiling.

    Attributes:
      tracing: in traces of functions.
      lowering: in lowering programs to modules.
      compiling: in XLA.
      loading: in reading executables from jax's compilation cache.
      rest: in all else; zero where several threads worked at once for longer than the run.
    """

    tracing: float
    lowering: float
    compiling: float
    loading: float
    rest: float


@dataclasses.dataclass(frozen=True)
class RunFunction:
    """What became of one function.

    Attributes:
      name: its name.
      line: file and line of its definition; empty where jax says only the name.
      traced: how often it was traced, not counting traces within others.
      recorded: how many of these traces jaxide recorded; jax made the others.
      lowered: how often its program was lowered.
      compiled: how often XLA compiled it.
      loaded: how often jax's compilation cache had the executable.
      stored: how many of those the store of jaxide knew, so that nothing was lowered.
      shared: how often it ran an executable that an equal program had.
      tracing: seconds spent in its traces.
      lowering: seconds spent in lowering it.
      compiling: seconds spent in compiling it.
      loading: seconds spent in reading its executables.
      left: why executables were not looked for by program, and how often.
    """

    name: str
    line: str
    traced: int
    recorded: int
    lowered: int
    compiled: int
    loaded: int
    stored: int
    shared: int
    tracing: float
    lowering: float
    compiling: float
    loading: float
    left: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """All that was spent."""
        return self.tracing + self.lowering + self.compiling + self.loading

    @property
    def is_of_jax(self) -> bool:
        """Whether it is known as one of jax's own, such as that of ``jnp.ones``, or of jaxide's."""
        place = f"{self.name} at {self.line}"
        return _compat.is_place_of_jax(place) or self.line.startswith(_PACKAGE)


@dataclasses.dataclass(frozen=True)
class RunSpan:
    """A trace, lowering or compilation on the time line.

    Attributes:
      kind: "trace", "lower", "compile" or "load".
      name: the name of the function.
      line: file and line of its definition; empty where they are not known.
      thread: the name of the thread.
      begin: seconds from the begin of the run.
      seconds: how long it took.
    """

    kind: str
    name: str
    line: str
    thread: str
    begin: float
    seconds: float
