"""jaxide for every trace of the process: ``install``, ``uninstall``, ``accelerated``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from jaxide import _compat, _core, _sites

_lock = threading.Lock()
_installed: _core.Activation | None = None


def install() -> None:
    """From now on, every trace of the process is recorded by jaxide.

    That is ``jax.jit``, ``jax.make_jaxpr``, ``jax.eval_shape``, ``jax.export``, and whatever
    libraries start, in all threads. Calling it again changes nothing. Where jaxide does not know
    the installed jax (it has said so at import), tracing stays jax's.
    """
    global _installed
    with _lock:
        if _installed is None and _compat.native():
            activation = _activation()
            activation.__enter__()
            _installed = activation


def uninstall() -> None:
    """Undoes :func:`install`: jax is as it was found.

    Traces that are under way in other threads end as they began. Without a previous ``install``
    nothing happens.
    """
    global _installed
    with _lock:
        if _installed is not None:
            _installed.__exit__(None, None, None)
            _installed = None


@contextlib.contextmanager
def accelerated() -> Iterator[None]:
    """A context in which every trace of the process is recorded by jaxide.

    It may be nested, entered by several threads, and mixed with :func:`install`.
    """
    if not _compat.native():
        yield
        return
    with _activation():
        yield


def _activation() -> _core.Activation:
    _sites.catch_new()
    return _core.Activation(process=True)
