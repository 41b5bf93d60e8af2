"""What jaxide can do with the installed jax: ``status``."""

from __future__ import annotations

import dataclasses
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import jax

from jaxide import _compat, _settings
from jaxide._compat import capabilities
from jaxide._reports.tables import Shown, as_text, line, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclasses.dataclass(frozen=True)
class CapabilityStatus:
    """Something that jaxide does in place of jax.

    Attributes:
      name: its name.
      means: what a user has of it.
      is_native: whether jaxide does it; jax does it otherwise.
      why: why jax does it; None where jaxide does.
      changed: functions and classes of jax that are not as in a known jax, by their places.
    """

    name: str
    means: str
    is_native: bool
    why: str | None
    changed: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Status(Shown):
    """What jaxide can do with the installed jax.

    Attributes:
      jaxide: the version of jaxide.
      jax: the version of jax.
      python: the version of Python.
      supported: the versions of jax that are known.
      capabilities: what jaxide does in place of jax, the most general first.
    """

    jaxide: str
    jax: str
    python: str
    supported: str
    capabilities: tuple[CapabilityStatus, ...]

    @property
    def is_native(self) -> bool:
        """Whether jaxide does all that it can do with any jax."""
        return all(capability.is_native for capability in self.capabilities)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        native = sum(capability.is_native for capability in self.capabilities)
        return (
            f"<jaxide.Status: jax {self.jax}, {native} of {len(self.capabilities)} capabilities "
            "by jaxide>"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        versions = f"jaxide {self.jaxide}, jax {self.jax}, Python {self.python}"
        yield line(f"{versions} (known: {self.supported})")

        def cells(capability: CapabilityStatus) -> tuple[str, str, str]:
            by = "jaxide" if capability.is_native else "jax"
            return capability.name, by, capability.why or capability.means

        columns = ("capability", "by", "what it is")
        yield table(
            columns,
            self.capabilities,
            cells,
            texts=3,
            most=len(self.capabilities),
            prose="what it is",
        )


def status() -> Status:
    """What jaxide does natively with the installed jax, what it leaves to jax, and why.

    ``python -m jaxide doctor`` prints the same.

    Example:
      >>> [c.name for c in jaxide.status().capabilities if not c.is_native]
      []

    Returns:
      A :class:`Status`.
    """
    _compat.native()
    disabled = None
    if _settings.is_disabled():
        disabled = f"{_settings.said_by('disable')} leaves all to jax"
    found = []
    for capability in capabilities.CAPABILITIES:
        why = disabled or "; ".join(capabilities.reasons(capability.name)) or None
        found.append(
            CapabilityStatus(
                capability.name,
                capability.means,
                why is None,
                why,
                () if disabled else capabilities.changed(capability.name),
            )
        )
    return Status(
        version("jaxide"),
        jax.__version__,
        platform.python_version(),
        _compat.SUPPORTED,
        tuple(found),
    )
