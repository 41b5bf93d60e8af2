"""jaxide for every trace of the process: ``install``, ``uninstall``, ``accelerated``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from jaxide import _compat, _core, _jits, _sites

_lock = threading.Lock()
_installed: contextlib.ExitStack | None = None


def install(*, captured: str = "auto") -> None:
    """From now on, every trace of the process is recorded by jaxide.

    That is ``jax.jit``, ``jax.make_jaxpr``, ``jax.eval_shape``, ``jax.export``, and whatever
    libraries start, in all threads. A jit whose program another one had is not compiled again, but
    runs the executable of that (see :func:`jaxide.jit`). Calling it again changes nothing. Where
    jaxide does not know the installed jax (it has said so at import), tracing stays jax's.

    Args:
      captured: how captured arrays are given to executables, see :func:`jaxide.jit`. The last call
        decides.
    """
    global _installed
    _jits.give_captured(captured)
    with _lock:
        if _installed is None and _compat.native():
            with contextlib.ExitStack() as stack:
                stack.enter_context(accelerated())
                _installed = stack.pop_all()


def uninstall() -> None:
    """Undoes :func:`install`: jax is as it was found.

    Traces that are under way in other threads end as they began. Without a previous ``install``
    nothing happens.
    """
    global _installed
    with _lock:
        if _installed is not None:
            _installed.close()
            _installed = None


@contextlib.contextmanager
def accelerated() -> Iterator[None]:
    """A context in which every trace of the process is recorded by jaxide, and executables are
    shared, as after :func:`install`.

    It may be nested, entered by several threads, and mixed with :func:`install`.
    """
    if not _compat.native():
        yield
        return
    _sites.catch_new()
    with _core.Activation(process=True), _jits.sharing():
        yield
