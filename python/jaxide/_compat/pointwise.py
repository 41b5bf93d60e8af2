"""What of jax computes each element of the result from the elements at the same place: what a call
appends depends on the shape of its arrays, where that is one, in nothing but the types.

Functions are added by hand, once somebody has read them: none asks for a size, but to compare
shapes. ``capabilities.py`` says which sources were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxide import _core
from jaxide._compat.symbols import known_symbols, symbol

# Operators of two operands, without their underscores.
BINARY = (
    "add sub mul truediv floordiv mod pow and or xor lshift rshift radd rsub rmul rtruediv "
    "rfloordiv rmod rpow rand ror rxor rlshift rrshift lt le eq ne gt ge"
)

_UNARY = "neg pos abs invert"

# Functions of `jax.numpy` under jit; those that are universal functions are one class.
NUMPY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh arcsin arccos arctan "
    "arcsinh arccosh arctanh sign floor ceil trunc rint square reciprocal positive negative abs "
    "absolute fabs isnan isinf isfinite signbit sinc deg2rad rad2deg real imag conjugate"
)

# Functions of `jax.lax`.
LAX = (
    "add sub mul div rem max min pow atan2 nextafter bitwise_and bitwise_or bitwise_xor shift_left "
    "shift_right_arithmetic shift_right_logical eq ne lt le gt ge neg sign abs floor ceil exp exp2 "
    "expm1 log log1p sqrt rsqrt cbrt square reciprocal logistic sin cos tan sinh cosh tanh asin "
    "acos atan asinh acosh atanh erf erfc erf_inv lgamma digamma is_finite integer_pow "
    "bitwise_not population_count clz conj real imag complex convert_element_type full_like "
    "stop_gradient"
)

# Primitives whose params say nothing of shapes.
PRIMITIVES = (
    "abs acos acosh add asin asinh atan atan2 atanh cbrt ceil clz complex conj "
    "convert_element_type copy cos cosh div eq exp exp2 expm1 floor ge gt "
    "imag integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not "
    "or and xor population_count pow real rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh"
)

# Those that not every jax has.
_OF_SOME = "one_minus_square"

SPECIAL = "digamma erf erfc erf_inv lgamma"

# Linear primitives whose transposes are made of such primitives, where all operands are of one
# shape.
_TRANSPOSED = "add add_any sub neg mul div convert_element_type select_n copy real imag"


def _sites() -> Iterator[str]:
    """The functions, as the core names where they are called."""
    for name in (*BINARY.split(), *_UNARY.split()):
        yield f"operator __{name}__"
        yield f"function Array.__{name}__"
    yield "instance ufunc"
    yield "method Array.astype"
    yield from (f"jit jax.numpy:{name}" for name in NUMPY.split())
    yield from (f"function jax.lax.{name}" for name in LAX.split())
    yield from (f"transpose of {name}" for name in _TRANSPOSED.split())


def _primitives() -> Iterator[Any]:
    names = (*PRIMITIVES.split(), *_OF_SOME.split())
    yield from known_symbols(f"lax.lax:{name}_p" for name in names).values()
    yield from known_symbols(f"lax.special:{name}_p" for name in SPECIAL.split()).values()
    yield symbol("ad_util:add_any_p")


def tell_pointwise() -> None:
    """Tells the core. Before functions are interposed."""
    broadcast = symbol("lax.lax:broadcast_in_dim_p")
    _core.tell_pointwise(list(_sites()), frozenset(_primitives()), broadcast)
