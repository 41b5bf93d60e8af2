"""jaxide for every trace of the process: ``install``, ``uninstall``, ``accelerated``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from jaxide import _compat, _core
from jaxide._api.warm import open_store
from jaxide._jit import intercept
from jaxide._native import interposed
from jaxide._reports.audit import audit_every

# The context that `install` has entered, if it has. Changed in one step each time: whoever comes in
# between, be it a thread or a signal handler, finds it there or not, and waits for nobody.
_installed: dict[str, contextlib.ExitStack] = {}
# What was audited before `install` said otherwise.
_AUDIT_BEFORE: list[int] = []


def install(
    *,
    audit: int | None = None,
    captured: str = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_mode: str | None = None,
) -> None:
    """From now on, jaxide records every trace of the process.

    That is ``jax.jit``, ``jax.make_jaxpr``, ``jax.eval_shape``, ``jax.export``, and traces that
    libraries start, in all threads. A jit whose program is equal to one that was compiled runs its
    executable (see :func:`jaxide.jit`). A second call changes nothing but its options. Where
    jaxide does not know the installed jax (it has said so at import), tracing stays jax's.

    Args:
      audit: of every so many replayed calls, and of every so many shared executables, jax does one
        again, and the two are compared (``docs/audit.md``); 0 for none. It holds until
        :func:`uninstall`. Without it, ``JAXIDE_AUDIT`` decides.
      captured: how captured arrays are given to executables: "auto", "constants" or "arguments",
        see :func:`jaxide.jit`. The last call decides, until :func:`uninstall`.
      cache_dir: the folder of the store, in which what was recorded is kept for other processes
        (``docs/warm_start.md``); ":jax:" for one beside jax's compilation cache. Without it,
        ``JAXIDE_CACHE_DIR`` decides. It stays open until the process ends.
      cache_mode: "write", or "read" where nothing is to be added to the store. Without it,
        ``JAXIDE_CACHE_MODE`` decides.

    Raises:
      ValueError: ``audit`` is negative, or ``captured`` is none of the three.
      StoreError: the store cannot be used, see ``docs/warm_start.md``.
    """
    intercept.give_captured(captured)
    if not _compat.native():
        return
    if cache_dir is not None or cache_mode is not None:
        open_store(cache_dir, cache_mode)
    if audit is not None:
        before = audit_every(audit)
        if not _AUDIT_BEFORE:
            _AUDIT_BEFORE.append(before)
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

    Traces that are under way in other threads end as they began. Without a previous ``install``
    nothing happens.
    """
    stack = _installed.pop("context", None)
    if stack is not None:
        stack.close()
        intercept.give_captured("auto")
        while _AUDIT_BEFORE:
            audit_every(_AUDIT_BEFORE.pop())


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
    if not _compat.native():
        yield
        return
    interposed.interpose_new()
    with _core.Activation(process=True), intercept.sharing():
        yield
