"""jaxide: a Rust-accelerated tracer for JAX."""

from importlib.metadata import version as _version

from jaxide import _compat as _compat
from jaxide._api import from_jaxpr as from_jaxpr
from jaxide._api import make_jaxpr as make_jaxpr
from jaxide._api import trace as trace
from jaxide._compat import JaxideFallbackWarning as JaxideFallbackWarning
from jaxide._program import Program as Program

__version__ = _version("jaxide")

# Looks at the installed jax now, so that what jaxide cannot do is said at import.
_compat.native()
