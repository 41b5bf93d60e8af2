"""The native core of jaxide. Private: use the ``jaxide`` package."""

from collections.abc import Callable
from types import CodeType
from typing import Any, final

__all__ = [
    "Activation",
    "Graph",
    "clear_memo",
    "graph_of",
    "initialize",
    "memo_len",
]

@final
class Activation:
    """A context manager: traces that this thread starts inside are recorded by jaxide."""

    def __new__(cls) -> Activation: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exc: object) -> None: ...

@final
class Graph:
    """A finished program and the Python objects behind its ids."""

    def __len__(self) -> int: ...
    def to_jaxpr(self) -> tuple[Any, list[Any]]:
        """A new open jaxpr of the installed jax and the list of its constants."""

    def dump(self) -> str:
        """The program as text with the IR's own names, nested programs included."""

    def violations(self) -> list[str]:
        """Every violated invariant of the IR, as text; empty for a well-formed program."""

    def memory_bytes(self) -> int:
        """Bytes of the arena, nested programs not counted."""

def graph_of(jaxpr: Any) -> Graph:
    """The graph of any jaxpr, closed or open. Raises TypeError for anything else."""

def initialize(
    namespace: Any,
    make_trampoline: Callable[[str, Callable[..., Any]], tuple[Any, CodeType]],
) -> tuple[type, type, type]:
    """Takes the objects of jax and makes the types of tracer, trace and jaxpr."""

def clear_memo() -> None:
    """Forgets all remembered abstract evaluation."""

def memo_len() -> int:
    """How many outcomes of abstract evaluation are remembered."""
