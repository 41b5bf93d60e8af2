"""What an executable rests on, and a jaxpr does not show."""

from __future__ import annotations

import dataclasses
import enum
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.interpreters import mlir

from world.kinds.rules import complete
from world.world import array, attribute, item, kind

LOWERING = "lowering rules"
CALLBACKS = "callbacks"
PARAMS = "objects among params"
ARRAYS = "captured arrays"
F32 = jax.ShapeDtypeStruct((3,), jnp.float32)


def _lowered(scale):
    return mlir.lower_fun(lambda x, **_: x * scale, False)


# ---- lowering ----


@kind(LOWERING, needs="executed")
def lowering_registered_anew():
    p = complete()

    def change(on):
        mlir.register_lowering(p, _lowered(7.0 if on else 2.0))

    change(False)
    return lambda x: p.bind(x), change


@kind(LOWERING, needs="executed")
def lowering_for_a_platform():
    p = complete()

    def change(on):
        if on:
            mlir.register_lowering(p, _lowered(7.0), platform="cpu")
        else:
            mlir._platform_specific_lowerings["cpu"].pop(p, None)

    return lambda x: p.bind(x), change


@kind(LOWERING, needs="executed")
def lowering_reads_a_list():
    p, scale = complete(), [2.0]
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x * scale[0], False))
    return lambda x: p.bind(x), item(scale, 0, 7.0)


@kind(LOWERING, needs="executed")
def lowering_of_sin():
    rule = mlir._lowerings[lax.sin_p]

    def change(on):
        mlir.register_lowering(lax.sin_p, _lowered(7.0)) if on else mlir._lowerings.update(
            {lax.sin_p: rule}
        )

    return lambda x: lax.sin(x), change


@kind(LOWERING, needs="executed")
def lowering_of_a_primitive_of_the_same_name():
    """Two primitives of one name, with different rules."""
    holder = [complete()]
    other = complete()
    mlir.register_lowering(other, _lowered(7.0))
    return lambda x: holder[0].bind(x), item(holder, 0, other)


@kind(LOWERING, needs="executed")
def implementation_within_an_executable():
    """`pure_callback` of a primitive's implementation."""
    gain = [2.0]
    return (
        lambda x: jax.pure_callback(lambda v: v * np.float32(gain[0]), F32, x),
        item(gain, 0, 7.0),
    )


# ---- callbacks ----


@kind(CALLBACKS, needs="executed")
def callback_is_another_function():
    def made(scale):
        def host(v):
            return np.asarray(v) * np.float32(scale)

        return host

    holder = [made(2)]
    return lambda x: jax.pure_callback(holder[0], F32, x), item(holder, 0, made(7))


@kind(CALLBACKS, needs="executed")
def callback_is_an_equal_object():
    @dataclasses.dataclass(frozen=True)
    class Host:
        name: str
        scale: float = dataclasses.field(compare=False)

        def __call__(self, v):
            return np.asarray(v) * np.float32(self.scale)

    holder = [Host("host", 2.0)]
    return lambda x: jax.pure_callback(holder[0], F32, x), item(holder, 0, Host("host", 7.0))


@kind(CALLBACKS, needs="executed")
def callback_is_another_object_of_its_class():
    class Log:
        def __init__(self):
            self.rows = []

        def __call__(self, v):
            self.rows.append(np.asarray(v).tolist())

    logs = [Log(), Log()]
    holder = [logs[0]]

    def f(x):
        io_callback(holder[0], None, x)
        return x * 2

    return f, item(holder, 0, logs[1]), lambda: [log.rows for log in logs]


@kind(CALLBACKS, needs="executed")
def callback_is_a_bound_method():
    class Host:
        def __init__(self, scale):
            self.scale = scale

        def __eq__(self, other):
            return isinstance(other, Host)

        def __hash__(self):
            return 1

        def call(self, v):
            return np.asarray(v) * np.float32(self.scale)

    holder = [Host(2.0)]
    return lambda x: jax.pure_callback(holder[0].call, F32, x), item(holder, 0, Host(7.0))


@kind(CALLBACKS, needs="executed")
def keys_of_a_callbacks_tree():
    holder = [1]
    host = lambda d: np.full(3, sum(100 if k is True else 1 for k in d), np.float32)
    return lambda x: jax.pure_callback(host, F32, {holder[0]: x}), item(holder, 0, True)


@kind(CALLBACKS, needs="executed")
def text_of_a_debug_callback():
    holder, said = ["before {}"], []
    calls = itertools.count()

    def f(x):
        jax.debug.callback(lambda v, text: said.append(text.format(next(calls))), x, holder[0])
        return x * 2

    return f, item(holder, 0, "after {}"), lambda: said


# ---- params ----


def _with_param():
    p = Primitive("with_param")
    p.def_abstract_eval(lambda x, **_: core.ShapedArray(x.shape, x.dtype))
    return p


@kind(PARAMS, needs="executed")
def member_of_an_enum_of_the_same_name():
    p = _with_param()
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: x * m.value, False))

    def new(value):
        class Mode(enum.Enum):
            A = value

        return Mode.A

    holder = [new(2.0)]
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, new(7.0))


@kind(PARAMS, needs="executed")
def flag_without_a_name():
    class Flag(enum.IntFlag):
        A = 1

    p = _with_param()
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: x * float(m.value), False))
    holder = [Flag(8)]
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, Flag(16))


@kind(PARAMS, needs="executed")
def attribute_that_equality_leaves_out():
    @dataclasses.dataclass(frozen=True)
    class Meta:
        name: str
        scale: float = dataclasses.field(compare=False)

    p = _with_param()
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: x * m.scale, False))
    holder = [Meta("m", 2.0)]
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, Meta("m", 7.0))


@kind(PARAMS, needs="executed")
def field_of_a_param():
    @dataclasses.dataclass
    class Meta:
        scale: float

        __hash__ = object.__hash__

    p, meta = _with_param(), Meta(2.0)
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: x * m.scale, False))
    return lambda x: p.bind(x, m=meta), attribute(meta, "scale", 7.0)


@kind(PARAMS, needs="executed")
def sign_of_a_zero_among_params():
    p, holder = _with_param(), [0.0]
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: x / m, False))
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, -0.0)


@kind(PARAMS, needs="executed")
def boolean_among_params():
    p, holder = _with_param(), [1]
    rule = lambda x, *, m: x * (7.0 if m is True else 2.0)
    mlir.register_lowering(p, mlir.lower_fun(rule, False))
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, True)


@kind(PARAMS, needs="executed")
def function_among_params():
    p, holder = _with_param(), [lambda x: x * 2.0]
    mlir.register_lowering(p, mlir.lower_fun(lambda x, *, m: m(x), False))
    return lambda x: p.bind(x, m=holder[0]), item(holder, 0, lambda x: x * 7.0)


# ---- captured arrays ----


@kind(ARRAYS, needs="executed")
def captured_array_of_other_values():
    holder = [array(2.0)]
    return lambda x: x * jnp.exp(holder[0]), item(holder, 0, array(1.0))


@kind(ARRAYS, needs="executed")
def captured_array_with_nans():
    holder = [jnp.array([1.0, 1.0, 1.0])]
    return lambda x: x * (holder[0] * 0), item(holder, 0, jnp.array([jnp.nan, 2.0, 1.0]))


@kind(ARRAYS, needs="executed")
def captured_array_on_another_device():
    holder = [array(2.0)]
    other = jax.device_put(array(7.0), jax.devices()[1])
    return lambda x: x * holder[0], item(holder, 0, other)


@kind(ARRAYS, needs="executed")
def captured_numpy_array_changed_in_place():
    a = np.full(3, 2.0, np.float32)

    def change(on):
        a[...] = 7.0 if on else 2.0

    return lambda x: x * jnp.asarray(a), change


@kind(ARRAYS, needs="executed")
def sign_of_a_nan_in_a_literal():
    holder = [float("nan")]
    return lambda x: jnp.where(x > 0, holder[0], x), item(holder, 0, -float("nan"))
