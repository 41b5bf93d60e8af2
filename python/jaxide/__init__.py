"""jaxide: a Rust-accelerated tracer for JAX.

The names of the package are those of ``jaxide._public``, which is loaded when the first of them is
used: ``python -m jaxide --help`` needs no jax, nor does a program that only imports jaxide.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxide._public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    # An import looks for submodules here first, and debuggers for what any module may have.
    if not name.startswith("_") or name == "__version__":
        public = importlib.import_module("jaxide._public")
        if hasattr(public, name):
            return globals().setdefault(name, getattr(public, name))
        if getattr(public.__spec__, "_initializing", False):
            # A signal handler, or a finalizer, that came in between.
            raise AttributeError(f"jaxide is being loaded, and has no {name!r} yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    public = importlib.import_module("jaxide._public")
    names = {*vars(public), *globals()} - _OWN
    return sorted(name for name in names if not name.startswith("_"))


# What this module needs itself.
_OWN = frozenset(globals())
