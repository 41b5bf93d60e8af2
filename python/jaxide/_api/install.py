"""jaxide for every trace of the process: ``install``, ``uninstall``, ``accelerated``."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from jaxide import _compat, _core, _settings
from jaxide._api.logs import print_loggers
from jaxide._api.run import check_report, write_at_exit
from jaxide._api.warm import open_of_environment, open_store
from jaxide._jit import intercept
from jaxide._jit.run_log import RUN_LOG
from jaxide._native import interposed
from jaxide._reports.audit import audit_every

# The context that `install` has entered, if it has. Changed in one step each time: whoever comes in
# between, be it a thread or a signal handler, finds it there or not, and waits for nobody.
_installed: dict[str, contextlib.ExitStack] = {}
# What was audited before `install` said otherwise.
_AUDIT_BEFORE: list[int] = []


def install(
    *,
    disable: bool | None = None,
    captured: str | None = None,
    audit: int | None = None,
    audit_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_mode: str | None = None,
    cache_max_bytes: int | None = None,
    cache_trust: bool | None = None,
    log: str | Iterable[str] | None = None,
    report: str | os.PathLike[str] | None = None,
) -> None:
    """From now on, jaxide records every trace of the process.

    That is ``jax.jit``, ``jax.make_jaxpr``, ``jax.eval_shape``, ``jax.export``, and traces that
    libraries start, in all threads. A jit whose program is equal to one that was compiled runs its
    executable (see :func:`jaxide.jit`). A second call changes nothing but the settings that it
    names. Where jaxide does not know the installed jax (it has said so at import), tracing stays
    jax's.

    Each argument is a setting, which the environment may say as well (``docs/settings.md``):
    ``JAXIDE_AUDIT`` for ``audit``. An argument goes before the environment.

    Args:
      disable: with True, jaxide does nothing, and all is left to jax, until this is called with
        False or :func:`uninstall` is called.
      captured: how captured arrays are given to executables: "auto", "constants" or "arguments",
        see :func:`jaxide.jit`. It holds until :func:`uninstall`.
      audit: of every so many replayed calls, and of every so many shared executables, jax does one
        again, and the two are compared (``docs/audit.md``); 0 for none. It holds until
        :func:`uninstall`.
      audit_dir: the folder of the files that say what an audit has found. It holds until
        :func:`uninstall`.
      cache_dir: the folder of the store, in which what was recorded is kept for other processes
        (``docs/warm_start.md``); ":jax:" for one beside jax's compilation cache. It stays open
        until the process ends.
      cache_mode: "write", or "read" where nothing is to be added to the store.
      cache_max_bytes: bound of the folder of the store.
      cache_trust: whether a folder that others may write to is used as well.
      log: names of loggers whose messages are printed on stderr: "retraces".
      report: a file (``.html`` or ``.json``) for the report of the run, see
        :func:`jaxide.report_run`; it is written when the process ends.

    Raises:
      ValueError: an argument is none that the setting can have.
      StoreError: the store cannot be used, see ``docs/warm_start.md``.
    """
    given = _settings.checked_arguments(
        {
            "disable": disable,
            "captured": captured,
            "audit": audit,
            "audit_dir": audit_dir,
            "cache_dir": cache_dir,
            "cache_mode": cache_mode,
            "cache_max_bytes": cache_max_bytes,
            "cache_trust": cache_trust,
            "log": log,
            "report": report,
        }
    )
    with _settings.arguments(given):
        _apply(given)
    if _settings.is_disabled():
        _leave()
    else:
        _enter()


def _apply(given: dict[str, Any]) -> None:
    """Does what settings say that were given; what may fail comes first."""
    if "report" in given:
        check_report("report", given["report"])
    is_native = _compat.native()
    if is_native and any(name.startswith("cache_") for name in given):
        open_store()
    if "report" in given:
        write_at_exit(given["report"])
    print_loggers(given.get("log", ()))
    if not is_native:
        return
    use_native_environment()
    if "audit" in given:
        before = audit_every(given["audit"])
        if not _AUDIT_BEFORE:
            _AUDIT_BEFORE.append(before)


def use_environment() -> None:
    """Does what the environment says of loggers and the report."""
    _settings.check_environment()
    print_loggers(_settings.value("log"))
    if (report := _settings.value("report")) is not None:
        try:
            check_report(_settings.said_by("report"), report)
            write_at_exit(report)
        except ValueError as error:
            warnings.warn(f"no report is written: {error}", stacklevel=2)


@functools.cache
def use_native_environment() -> None:
    """Audits, and opens the store, as the environment says; once."""
    audit_every(_settings.value("audit"))
    open_of_environment()


def _enter() -> None:
    """Has jaxide record all traces, unless it does."""
    stack = contextlib.ExitStack()
    if _installed.setdefault("context", stack) is not stack:
        return
    try:
        stack.enter_context(accelerated())
        _core.name_configuration()
    except BaseException:
        if _installed.get("context") is stack:
            del _installed["context"]
        stack.close()
        raise
    if _installed.get("context") is not stack:
        # `uninstall` was called meanwhile.
        stack.close()


def uninstall() -> None:
    """Undoes :func:`install`: jax is as it was found.

    Traces that are under way in other threads end as they began. The store stays open, and a report
    that was asked for is written all the same. Without a previous ``install`` nothing happens.
    """
    _leave()
    _settings.forget_arguments()
    while _AUDIT_BEFORE:
        audit_every(_AUDIT_BEFORE.pop())


def _leave() -> None:
    stack = _installed.pop("context", None)
    if stack is not None:
        stack.close()


@contextlib.contextmanager
def accelerated() -> Iterator[None]:
    """A context in which jaxide records every trace of the process and shares executables, as after
    :func:`install`.

    It may be nested, entered by several threads, and mixed with :func:`install`.

    Example:
      >>> with jaxide.accelerated():
      ...     jax.jit(lambda x: x + 1)(1.0)
      Array(2., dtype=float32, weak_type=True)

    Returns:
      A context manager, whose value is None.
    """
    with RUN_LOG.recording():
        if not _compat.native():
            yield
            return
        interposed.interpose_new()
        with _core.Activation(process=True), intercept.sharing():
            yield
