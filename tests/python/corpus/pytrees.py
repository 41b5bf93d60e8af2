"""Arguments and results of every structure, including none."""

import collections
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from corpus.registry import call, case, f32, given, i32


class Point(NamedTuple):
    x: jax.Array
    y: jax.Array


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: jax.Array
    b: jax.Array
    name: str = "layer"


@jax.tree_util.register_pytree_node_class
class Pair:
    """Registered without keys, so that its leaves are named by position."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def tree_flatten(self):
        return (self.first, self.second), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_pytree_with_keys_class
class Keyed(Pair):
    def tree_flatten_with_keys(self):
        name = jax.tree_util.GetAttrKey
        return ((name("first"), self.first), (name("second"), self.second)), None


@jax.tree_util.register_static
class Setting(str):
    """A leafless node."""


NESTED = {"a": [f32(2), (f32(), None)], "b": {"c": i32(2)}}

call("pytree_nested", lambda p: jax.tree.map(lambda v: v * 2, p), NESTED)
call("pytree_namedtuple", lambda p: Point(p.y, p.x + 1), Point(f32(2), f32()))
call(
    "pytree_dataclass",
    lambda layer, x: Layer(layer.w @ x, layer.b, "out"),
    Layer(f32(2, 3), f32(2)),
    f32(3),
)
call("pytree_registered", lambda p: Pair(p.second, {"n": p.first}), Pair(f32(2), f32()))
call(
    "pytree_names_like_flat_indices",
    lambda d: {"<flat index 1>": d["<flat index 0>"].first, "<flat": d["<flat index 0>"].second},
    {"<flat index 0>": Pair(f32(2), f32())},
)
call("pytree_registered_with_keys", lambda p: Keyed(p.first * 2, [p.second]), Keyed(f32(2), f32()))
call("pytree_static_node", lambda s, x: (s, x + len(s)), Setting("abc"), f32(2))
call(
    "pytree_ordered_dict",
    lambda d: collections.OrderedDict(z=d["b"], a=d["a"]),
    collections.OrderedDict(b=f32(2), a=f32()),
)
call("pytree_default_dict", lambda d: d["a"], collections.defaultdict(list, a=f32(2)))
call("pytree_partial", lambda g, x: g(x), jax.tree_util.Partial(jnp.add, f32(2)), f32(2))
call("pytree_none_argument", lambda a, x: (a, x), None, f32(2))
call("pytree_empty_containers", lambda a, b, x: ((), [], {}, a, b, x), (), {}, f32(2))
call("pytree_dict_order", lambda d: {"z": d["a"], "a": d["z"], "m": 1}, {"z": f32(2), "a": f32()})
call("pytree_integer_keys", lambda d: {1: d[2], 2: d[1]}, {2: f32(2), 1: f32()})
call("pytree_flatten_inside", lambda p: jax.tree.leaves(p)[0].sum(), NESTED)
call("pytree_reduce", lambda p: jax.tree.reduce(lambda a, v: a + v.sum(), p, 0.0), NESTED)
call("ravel_pytree", lambda p: ravel_pytree(p)[0], {"a": f32(2), "b": [f32(), f32(2, 2)]})
call("no_arguments", lambda: jnp.ones(3) * 2)
call("no_outputs", lambda x: None, f32(2))
call("no_arguments_no_outputs", lambda: ())
call("no_equations", lambda x: x, f32(2))
call("constant_outputs", lambda x: (1, 2.5, True, 1j, np.float32(3), np.arange(3)), f32(2))
call("unused_arguments", lambda a, b, c: b + 1, f32(2), f32(), i32(2))
call("unused_computation", lambda x: [jnp.sin(x), x * 2][1], f32(2))
call("outputs_repeated", lambda x: (x, x, x * 1, x), f32(2))
call("outputs_are_inputs", lambda x, y: (y, x, {"x": x}), f32(2), i32())
call("many_arguments", lambda *xs: sum(xs), *[f32(2)] * 30)
call("many_results", lambda x: [x + i for i in range(30)], f32())
call(
    "varargs_and_keywords",
    lambda x, *rest, **named: x + rest[0] * named["s"],
    f32(2),
    f32(2),
    kwargs={"s": f32(), "t": f32(2)},
)
call("default_arguments", lambda x, n=3, *, m=2.0: x * n + m, f32(2))
call("default_arguments_given", lambda x, n=3, *, m=2.0: x * n + m, f32(2), 5, kwargs={"m": 1.5})
call(
    "named_tuple_of_dicts", lambda p: Point({"u": p.x["u"] * 2}, [p.y]), Point({"u": f32(2)}, f32())
)
call(
    "device_arrays_and_lists",
    lambda xs: [x.sum() for x in xs],
    [f32(2), f32(3), given(lambda: np.ones(2, np.float32))],
)
call(
    "grad_of_pytree",
    lambda p: jax.grad(lambda q: (q.w**2).sum() + q.b.sum())(p),
    Layer(f32(2, 3), f32(2)),
)
call(
    "scan_over_pytree",
    lambda p: jax.lax.scan(lambda c, q: (c + q.x, Point(q.y, c)), jnp.zeros(()), p),
    Point(f32(3), f32(3, 2)),
)
call(
    "vmap_over_pytree",
    lambda p: jax.vmap(lambda q: Point(q.x * q.y.sum(), q.y))(p),
    Point(f32(3), f32(3, 2)),
)
call(
    "jit_over_pytree",
    lambda layer, x: jax.jit(lambda m, v: Layer(m.w @ v, m.b))(layer, x),
    Layer(f32(2, 3), f32(2)),
    f32(3),
)


class Model:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale

    def method(self, x):
        return x + self.scale


@case(f32(2))
def callable_object():
    return Model(2.0)


@case(f32(2))
def bound_method():
    return Model(3.0).method


@case(f32(2))
def partial_function():
    return functools.partial(lambda a, b, *, c: a * b + c, 2.0, c=1.0)


@case(f32(2))
def unhashable_callable():
    class Unhashable(Model):
        __hash__ = None

    return Unhashable(2.0)


@case(f32(2))
def wrapped_function():
    def inner(value):
        return value * 2

    @functools.wraps(inner)
    def wrapper(*args, **kwargs):
        return inner(*args, **kwargs)

    return wrapper
