"""The report of a whole run: ``report_run``."""

from __future__ import annotations

import atexit
import dataclasses
import datetime
import functools
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from jaxide import _compat, _settings
from jaxide._api.cache import CacheInfo, cache_info
from jaxide._api.settings import Settings, settings
from jaxide._api.status import Status, status
from jaxide._jit.explanation import Retraces
from jaxide._jit.retraces import retraces
from jaxide._jit.run_log import RUN_LOG
from jaxide._program import files
from jaxide._reports.audit import AuditReport, audit_report
from jaxide._reports.run import NOT_RECORDED, RunFunction, RunSpan, RunTimes
from jaxide._reports.tables import Fitted, Shown, as_text, counted, shown_line, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclasses.dataclass(frozen=True)
class RunReport(Shown):
    """What was traced, lowered, compiled and shared in a run, and how long each took.

    Attributes:
      command: the arguments of the process.
      pid: its number.
      devices: what jax computes on; empty where jax has not looked for devices yet.
      began: when recording began; None where it never did.
      seconds: how long ago that was.
      recorded: in how many of these seconds the run was recorded.
      times: where they went.
      functions: what became of each function, the dearest first.
      spans: the longest traces, lowerings and compilations, in order.
      num_spans: how many of these there were.
      retraces: which jits were traced again, and why.
      cache: the expansion cache, the executed programs and the store.
      audit: what was audited.
      status: what jaxide does with the installed jax.
      settings: the settings in force.
    """

    command: tuple[str, ...]
    pid: int
    devices: tuple[str, ...]
    began: datetime.datetime | None
    seconds: float
    recorded: float
    times: RunTimes
    functions: tuple[RunFunction, ...]
    spans: tuple[RunSpan, ...]
    num_spans: int
    retraces: Retraces
    cache: CacheInfo
    audit: AuditReport
    status: Status
    settings: Settings

    __str__ = as_text

    def __repr__(self) -> str:
        return (
            f"<jaxide.RunReport: {self.recorded:.1f} s, "
            f"{counted(len(self.functions), 'function')}, {counted(self.num_spans, 'span')}>"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        # No name is markup.
        yield Text(f"{self.title}, {_versions(self.status)}")
        if self.began is None:
            yield NOT_RECORDED
        else:
            yield f"recorded: {self.recorded:.2f} s, from {self.began:%Y-%m-%d %H:%M:%S} UTC"
        yield _times(self.times)
        yield _functions(self.functions)
        yield (
            f"expansion cache: {self.cache.hits:,} hits, {self.cache.misses:,} misses, "
            f"{sum(self.cache.bypasses.values()):,} bypasses"
        )
        again = sum(row.count - 1 for row in self.retraces)
        yield f"retraces: {again:,} (jaxide.retraces() says why)"
        for capability in self.status.capabilities:
            if not capability.is_native:
                yield Text(f"left to jax: {capability.name} ({capability.why})")

    @property
    def title(self) -> str:
        """The command, as far as it fits in a line."""
        text = " ".join(self.command) or "a run"
        return text if len(text) <= 100 else text[:97] + "..."

    @overload
    def to_json(self, path: None = None) -> str: ...
    @overload
    def to_json(self, path: str | os.PathLike[str]) -> None: ...
    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The report as JSON (``docs/run_report.md``).

        Args:
          path: a file; without it, the text is returned.

        Returns:
          The text, or None where it was written to a file.

        Raises:
          OSError: the file cannot be written.
        """
        return files.deliver(json.dumps(self._data(), indent=1, allow_nan=False), path)

    @overload
    def to_html(self, path: None = None) -> str: ...
    @overload
    def to_html(self, path: str | os.PathLike[str]) -> None: ...
    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The report as a page for a browser: one file, which works offline.

        Args:
          path: a file; without it, the text is returned.

        Returns:
          The text, or None where it was written to a file.

        Raises:
          OSError: the file cannot be written.
        """
        from jaxide._export import run_page

        return files.deliver(run_page.text(self._data()), path)

    def _data(self) -> dict[str, Any]:
        """All of it as plain values, rates and sums included."""
        plain = dataclasses.asdict
        store = self.cache.store
        cache = plain(dataclasses.replace(self.cache, store=None))
        del cache["store"]
        return {
            "command": list(self.command),
            "title": self.title,
            "pid": self.pid,
            "devices": list(self.devices),
            "began": self.began and self.began.isoformat(timespec="seconds"),
            "seconds": self.seconds,
            "recorded": self.recorded,
            "versions": {
                "jaxide": self.status.jaxide,
                "jax": self.status.jax,
                "python": self.status.python,
            },
            "times": plain(self.times),
            "functions": [
                {**plain(row), "line": shown_line(row.line), "is_of_jax": row.is_of_jax}
                for row in self.functions
            ],
            "spans": [{**plain(span), "line": shown_line(span.line)} for span in self.spans],
            "num_spans": self.num_spans,
            "retraces": [
                {
                    **plain(row),
                    "site": shown_line(row.site),
                    "reasons": dict(row.reasons),
                    "is_of_jax": row.is_of_jax,
                }
                for row in self.retraces
            ],
            "cache": {
                **cache,
                "bypasses": dict(self.cache.bypasses),
                "callables": {
                    name: {**plain(of), "bypasses": dict(of.bypasses)}
                    for name, of in self.cache.callables.items()
                },
            },
            "store": store
            and {**plain(store), "folder": str(store.folder), "traced": dict(store.traced)},
            "audit": plain(self.audit),
            "capabilities": [plain(each) for each in self.status.capabilities],
            "settings": [
                {**plain(each), "shown": _settings.shown(each.value)} for each in self.settings
            ],
        }


def _versions(status: Status) -> str:
    return f"jaxide {status.jaxide}, jax {status.jax}, Python {status.python}"


def _times(times: RunTimes) -> Fitted:
    columns = ("tracing s", "lowering s", "compiling s", "loading s", "rest s")
    seconds = [dataclasses.astuple(times)]
    return table(columns, seconds, lambda row: (f"{each:.3f}" for each in row), texts=0)


def _functions(functions: tuple[RunFunction, ...]) -> Fitted:
    def cells(row: RunFunction) -> Iterator[str]:
        yield from (row.name, shown_line(row.line))
        counts = row.traced, row.recorded, row.lowered, row.compiled, row.loaded, row.shared
        yield from (f"{count:,}" for count in counts)
        yield f"{row.seconds:.3f}"

    numbers = ("traced", "by jaxide", "lowered", "compiled", "loaded", "shared", "seconds")
    return table(("function", "at", *numbers), functions, cells, texts=2)


def report_run(path: str | os.PathLike[str] | None = None) -> RunReport:
    """The report of the run so far: what was traced, lowered, compiled and shared, and how long
    each took.

    A run is recorded from :func:`jaxide.install` on, and within :func:`jaxide.accelerated`. With
    ``jaxide.install(report="run.html")`` or ``JAXIDE_REPORT=run.html`` the report is written when
    the process ends (``docs/run_report.md``).

    Example:
      >>> with jaxide.accelerated():
      ...     y = jax.jit(lambda x: x + 40)(2.0)
      >>> report = jaxide.report_run()
      >>> report.times.compiling > 0
      True

    Args:
      path: a file for it; a page for a browser where the name ends in ``.html``, data where it ends
        in ``.json``. Without it nothing is written.

    Returns:
      A :class:`RunReport`, which prints as a table; ``to_html`` and ``to_json`` write it.

    Raises:
      ValueError: the name of the file ends in something else.
      OSError: the file cannot be written.
    """
    file: str | None = None
    if path is not None:
        file = os.path.expanduser(_settings.SETTINGS["report"].checked(path, "path"))
    notes = RUN_LOG.notes()
    report = RunReport(
        command=tuple(map(str, getattr(sys, "argv", ()))),
        pid=os.getpid(),
        devices=_compat.known_devices(),
        began=notes.began,
        seconds=notes.seconds,
        recorded=notes.recorded,
        times=notes.times,
        functions=notes.functions,
        spans=notes.spans,
        num_spans=notes.num_spans,
        retraces=retraces(),
        cache=cache_info(),
        audit=audit_report(),
        status=status(),
        settings=settings(),
    )
    if file is not None:
        write = report.to_json if file.endswith(".json") else report.to_html
        write(file)
    return report


def check_report(called: str, path: str) -> None:
    """Refuses a file that cannot be one for the report.

    Raises:
      ValueError: its folder is none, or it is a folder; ``called`` says what named it.
    """
    try:
        file = Path(path).expanduser().absolute()
        has_folder, is_folder = file.parent.is_dir(), file.is_dir()
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{called} names a file, got {path!r}: {error}") from None
    if not has_folder:
        raise ValueError(f"{called} names a file in a folder, got {path!r}: {file.parent} is none")
    if is_folder:
        raise ValueError(f"{called} names a file, got {path!r}, which is a folder")


# Where the report is written when the process ends, and by which process.
_AT_EXIT: dict[str, tuple[Path, int]] = {}


def write_at_exit(path: str) -> None:
    """Records the run from now on, and has the report written when this process ends; no child of
    it does. The last file that was named counts."""
    _record_for_exit()
    _AT_EXIT["file"] = Path(path).expanduser().absolute(), os.getpid()


@functools.cache
def _record_for_exit() -> None:
    RUN_LOG.begin()
    atexit.register(_write_now)


def _write_now() -> None:
    path, pid = _AT_EXIT["file"]
    if os.getpid() != pid:
        return
    try:
        report_run(path)
    except Exception as error:  # what ended the process is what counts
        warnings.warn(f"the report of the run was not written: {error}", stacklevel=2)
