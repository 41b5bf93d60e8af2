"""Values as Python expressions, in terms of jax's public names."""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import keyword
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxide import _compat

# How the source code calls modules, in the order in which names are looked for.
MODULES: dict[str, Any] = {
    "np": np,
    "lax": jax.lax,
    "jnp": jax.numpy,
    "jax": jax,
    "jax.sharding": jax.sharding,
    "lax.linalg": jax.lax.linalg,
    "jax.nn": jax.nn,
    "jax.random": jax.random,
    "jax.dtypes": jax.dtypes,
    "jax.memory": getattr(jax, "memory", None),  # not in every jax
    "jax.checkpoint_policies": jax.checkpoint_policies,
}
# Names that variables of the source code cannot have.
TAKEN = frozenset({*keyword.kwlist, *dir(builtins), "jax", "jnp", "lax", "np"})

# Implementations of random keys that have a public name.
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


class Unwritable(Exception):
    """There is no expression for a value."""


@functools.cache
def _public_names() -> dict[int, tuple[Any, str]]:
    """Functions, classes and enumerations with their names, by their addresses."""
    names: dict[int, tuple[Any, str]] = {}
    for alias, module in MODULES.items():
        for name, value in getattr(module, "__dict__", {}).items():
            if not name.startswith("_") and (callable(value) or inspect.isclass(value)):
                names.setdefault(id(value), (value, f"{alias}.{name}"))
    return names


def public_name(value: Any) -> str:
    """How a function or class of jax or numpy is called.

    Raises:
      Unwritable: it is no public one.
    """
    if (known := _public_names().get(id(value))) is None:
        raise Unwritable(f"{_named(value)} has no public name")
    return known[1]


def _named(value: Any) -> str:
    named = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{named}" if named else f"a {type(value).__qualname__}"


def identifier(name: str, default: str = "f") -> str:
    """An identifier like a name."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or default
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if name in TAKEN else name


def expression(value: Any, depth: int = 0, *, is_public: bool = False) -> str:
    """An expression that makes a value, or one that a public function takes for it.

    Raises:
      Unwritable: there is none.
    """
    if depth > 32:
        raise Unwritable("it is nested too deeply")
    within: Callable[[Any], str] = lambda item: expression(item, depth + 1, is_public=is_public)
    kind = type(value)
    if value is None or value is Ellipsis or kind in (bool, int, str, bytes):
        return repr(value)
    if kind is float:
        return number(value)
    if kind is complex:
        return f"complex({number(value.real)}, {number(value.imag)})"
    if kind in (tuple, list):
        items = ", ".join(map(within, value))
        if kind is list:
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is dict:
        return "{" + ", ".join(f"{within(k)}: {within(v)}" for k, v in value.items()) + "}"
    if kind in (set, frozenset):
        items = ", ".join(sorted(map(within, value)))
        return f"{kind.__name__}([{items}])"
    if kind is slice:
        return f"slice({within(value.start)}, {within(value.stop)}, {within(value.step)})"
    if isinstance(value, enum.Enum):
        return f"{public_name(kind)}.{value.name}"
    if isinstance(value, np.dtype) or is_extended(value):
        return dtype(value, is_public=is_public)
    if isinstance(value, np.generic):
        return scalar(value)
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, jax.sharding.PartitionSpec):
        parts = [within(part) for part in value.partitions]
        for name in ("unreduced", "reduced"):
            if axes := getattr(value, name):
                parts.append(f"{name}={{{', '.join(map(within, sorted(axes)))}}}")
        return f"jax.sharding.PartitionSpec({', '.join(parts)})"
    if isinstance(value, jax.sharding.NamedSharding):
        return f"jax.sharding.NamedSharding({within(value.mesh)}, {within(value.spec)})"
    if isinstance(value, jax.sharding.AbstractMesh):
        sizes, names, types = value.axis_sizes, value.axis_names, value.axis_types
        return f"jax.sharding.AbstractMesh({within(sizes)}, {within(names)}, {within(types)})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return f"{public_name(kind)}({', '.join(f'{k}={within(v)}' for k, v in fields)})"
    if kind in _compat.flat_trees():
        return _flat_tree(value, within)
    if callable(value):
        return public_name(value)
    raise Unwritable(f"{_named(value)} has no expression")


def _flat_tree(value: Any, within: Callable[[Any], str]) -> str:
    """A tree of jax's, as the helper of that name makes it."""
    kind = type(value)
    parts = [getattr(value, name) for name in _compat.flat_trees()[kind]]
    if kind.__name__ == "FTPyTree":
        leaves, tree = parts
        sample = tree.unflatten([0] * tree.num_leaves)
        return f"_flat_tree('flatten', {within(sample)}).update({within(leaves)})"
    if kind.__name__ == "FTTuple":
        (parts,) = parts
    return f"_flat_tree({', '.join([repr(kind.__name__), *map(within, parts)])})"


def is_extended(value: Any) -> bool:
    """Whether a value is a dtype of jax's own, as that of random keys."""
    scalar_type = getattr(value, "type", None)
    return isinstance(scalar_type, type) and issubclass(scalar_type, jax.dtypes.extended)


def number(value: float) -> str:
    """A float of Python."""
    if math.isnan(value):
        return "np.nan"
    return repr(value) if math.isfinite(value) else "np.inf" if value > 0 else "-np.inf"


def dtype(value: Any, *, is_public: bool = False) -> str:
    """A dtype, or what public functions take for it."""
    if not is_extended(value):
        if is_public and hasattr(jax.numpy, np.dtype(value).name):
            return f"jnp.{np.dtype(value).name}"
        return f"np.dtype({np.dtype(value).name!r})"
    impl = next((i for i in KEYS if jax.random.key(0, impl=i).dtype == value), None)
    if impl is None:
        raise Unwritable(f"the dtype {value} has no expression")
    return f"_key_dtype({impl!r})"


def scalar(value: np.generic) -> str:
    """A scalar of numpy's, of a dtype that need not be numpy's own."""
    name = value.dtype.name
    own = (
        f"np.{name}"
        if getattr(np, name, None) is value.dtype.type
        else f"{dtype(value.dtype)}.type"
    )
    if value.dtype.kind == "b":
        return f"np.bool_({bool(value)})"
    plain = value.item()
    if isinstance(plain, complex):
        return f"{own}({expression(plain)})"
    if isinstance(plain, int):
        return f"{own}({plain})"
    # The shortest text that is read back as the same number.
    short = str(value)
    plain = float(value)
    return f"{own}({short if math.isfinite(plain) else number(plain)})"


def array(value: np.ndarray) -> str:
    """An array of numpy's."""
    if value.dtype.hasobject or value.dtype.names or is_extended(value.dtype):
        raise Unwritable(f"an array of {value.dtype} has no expression")
    if value.size == 0:
        return f"np.zeros({value.shape}, dtype={dtype(value.dtype)})"
    # Numbers of ml_dtypes' dtypes are no numbers of Python's.
    numbers = value if value.dtype.kind in "biufc" else value.astype(np.float64)
    return f"np.array({_items(numbers.tolist())}, dtype={dtype(value.dtype)})"


def _items(items: Any) -> str:
    """Numbers, in lists as deep as an array has dimensions."""
    if isinstance(items, list):
        return f"[{', '.join(map(_items, items))}]"
    return expression(items)


def literal(value: Any, aval: Any, x64: bool) -> str:
    """A scalar of a type, as an operand.

    Raises:
      Unwritable: there is no expression for it.
    """
    if aval.dtype == jax.dtypes.float0:
        raise Unwritable("a value of float0 has no expression")
    plain: Any = np.asarray(value).astype(aval.dtype)[()]
    if getattr(aval, "weak_type", False) or aval.dtype == bool:
        defaults = {"i": np.int64 if x64 else np.int32, "f": np.float64 if x64 else np.float32}
        if plain.dtype == defaults.get(plain.dtype.kind):
            if plain.dtype.kind == "i":
                return expression(int(plain))
            return number(float(value) if isinstance(value, float) else float(str(plain)))
        if plain.dtype.kind in "bc":
            return expression(plain.item())
    return scalar(plain)
