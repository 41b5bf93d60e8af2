"""Values of the user's classes that a function captures."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from world.world import attribute, item, kind, module

CLASSES = "classes of captured values"


GAIN = 3.0


class Pair(NamedTuple):
    first: float
    second: float

    def scale(self):
        return self.first * GAIN

    @property
    def both(self):
        return self.first + self.second * GAIN

    def __mul__(self, other):
        return other * (self.first * GAIN)

    def __neg__(self):
        return self.first * GAIN


class Mode(enum.Enum):
    A = 2.0
    B = 3.0

    @property
    def gain(self):
        return self.value * GAIN


class Level(enum.IntEnum):
    LOW = 1

    def __mul__(self, other):
        return other * (2.0 * GAIN)

    __rmul__ = __mul__


@dataclasses.dataclass
class Config:
    gain: float = 2.0

    def scaled(self, x):
        return x * (self.gain * GAIN)


@dataclasses.dataclass(frozen=True)
class Frozen:
    gain: float = 2.0

    @property
    def scale(self):
        return self.gain * GAIN


class Float(float):
    factor = 1.0

    def __mul__(self, other):
        return other * (float(self) * self.factor)


class Integer(int):
    def __mul__(self, other):
        return other * (2.0 * GAIN)


class Text(str):
    def __str__(self):
        return "i,i->i"


class Row(tuple):
    def __iter__(self):
        return iter([GAIN, 2 * GAIN])

    def __getitem__(self, index):
        return GAIN


class Names(dict):
    def __getitem__(self, name):
        return GAIN


class Items(list):
    def __getitem__(self, index):
        return GAIN

    def __len__(self):
        return int(GAIN)


class Scalar(np.float32):
    def __mul__(self, other):
        return other * (float(self) * GAIN)


class Array(np.ndarray):
    def __array_priority__(self):
        return 0

    def sum(self, *args, **kwargs):
        return GAIN


class Plain:
    gain = 2.0

    def __init__(self):
        self.own = 2.0

    def method(self, x):
        return x * (self.gain * self.own)

    @property
    def scale(self):
        return self.own * GAIN

    @staticmethod
    def static(x):
        return x * GAIN

    @classmethod
    def of_class(cls, x):
        return x * cls.gain

    def __call__(self, x):
        return x * self.own


class WithArray:
    def __init__(self):
        self.value = 2.0

    def __array__(self, dtype=None, copy=None):
        return np.full(3, self.value, dtype or np.float32)


class WithJaxArray:
    def __init__(self):
        self.value = 2.0

    def __jax_array__(self):
        return jnp.full(3, self.value)


def _gain(new=7.0):
    return item(globals(), "GAIN", new)


PAIR, FROZEN, CONFIG, PLAIN = Pair(2.0, 1.0), Frozen(), Config(), Plain()
ROW, NAMES, ITEMS, SCALAR = Row((2.0, 3.0)), Names(a=2.0), Items([2.0]), Scalar(2.0)
FLOAT, INTEGER = Float(2.0), Integer(1)


@kind(CLASSES)
def method_of_a_namedtuple_reads_a_global():
    return lambda x: x * PAIR.scale(), _gain()


@kind(CLASSES)
def property_of_a_namedtuple_reads_a_global():
    return lambda x: x * PAIR.both, _gain()


@kind(CLASSES)
def operator_of_a_namedtuple_reads_a_global():
    return lambda x: PAIR * x, _gain()


@kind(CLASSES)
def unary_operator_of_a_namedtuple():
    return lambda x: x * -PAIR, _gain()


@kind(CLASSES)
def method_of_a_namedtuple_is_replaced():
    pair = Pair(2.0, 1.0)
    return lambda x: x * pair.scale(), attribute(Pair, "scale", lambda self: 7.0)


@kind(CLASSES)
def field_of_a_namedtuple_is_replaced():
    class Two(NamedTuple):
        a: float
        b: float

    two = Two(2.0, 3.0)
    return lambda x: x * two.a, attribute(Two, "a", property(lambda self: 7.0))


@kind(CLASSES)
def class_attribute_of_a_namedtuple():
    class Two(NamedTuple):
        a: float

    Two.gain = 2.0
    two = Two(2.0)
    return lambda x: x * two.gain, attribute(Two, "gain", 7.0)


@kind(CLASSES)
def namedtuple_from_a_closure():
    pair = Pair(2.0, 1.0)
    return lambda x: x * pair.scale(), _gain()


@kind(CLASSES)
def length_of_a_namedtuple():
    class Two(NamedTuple):
        a: float
        b: float

    two = Two(2.0, 3.0)
    return lambda x: x * len(two), attribute(Two, "__len__", lambda self: 7)


@kind(CLASSES)
def property_of_an_enum_reads_a_global():
    return lambda x: x * Mode.A.gain, _gain()


@kind(CLASSES)
def property_of_a_captured_member():
    mode = Mode.A
    return lambda x: x * mode.gain, _gain()


@kind(CLASSES)
def value_of_a_member():
    class Own(enum.Enum):
        A = 2.0

    mode = Own.A
    return lambda x: x * mode.value, attribute(mode, "_value_", 7.0)


@kind(CLASSES)
def attribute_of_a_member():
    class Own(enum.Enum):
        A = 2.0

    mode = Own.A
    mode.gain = 2.0
    return lambda x: x * mode.gain, attribute(mode, "gain", 7.0)


@kind(CLASSES)
def operator_of_an_integer_enum():
    return lambda x: Level.LOW * x, _gain()


@kind(CLASSES)
def captured_integer_enum():
    level = Level.LOW
    return lambda x: level * x, _gain()


@kind(CLASSES)
def class_of_an_enum_is_replaced():
    class Own(enum.Enum):
        A = 2.0

    class Other(enum.Enum):
        A = 7.0

    users = module("def f(x):\n  return x * Own.A.value\n")
    users.Own = Own
    return users.f, attribute(users, "Own", Other)


@kind(CLASSES)
def field_of_a_dataclass():
    config = Config()
    return lambda x: config.scaled(x), attribute(config, "gain", 7.0)


@kind(CLASSES)
def method_of_a_dataclass_reads_a_global():
    return lambda x: CONFIG.scaled(x), _gain()


@kind(CLASSES)
def default_of_a_dataclass():
    class Own(Config):
        pass

    return lambda x: x * Own.gain, attribute(Own, "gain", 7.0)


@kind(CLASSES)
def property_of_a_frozen_dataclass_reads_a_global():
    return lambda x: x * FROZEN.scale, _gain()


@kind(CLASSES)
def field_of_a_frozen_dataclass():
    frozen = Frozen()

    def change(on):
        object.__setattr__(frozen, "gain", 7.0 if on else 2.0)

    return lambda x: x * frozen.gain, change


@kind(CLASSES)
def property_of_a_frozen_dataclass_is_replaced():
    frozen = Frozen()
    return lambda x: x * frozen.scale, attribute(Frozen, "scale", property(lambda self: 7.0))


@kind(CLASSES)
def fields_of_a_frozen_dataclass_as_static_argument():
    @dataclasses.dataclass(frozen=True)
    class Own:
        gain: float = 2.0

        def scale(self):
            return self.gain * GAIN

    own = Own()
    return lambda x: jax.jit(lambda v, c: v * c.scale(), static_argnums=1)(x, own), _gain()


@kind(CLASSES)
def factor_of_a_float_class():
    return lambda x: FLOAT * x, attribute(Float, "factor", 7.0)


@kind(CLASSES)
def operator_of_a_float_class_is_replaced():
    f = Float(2.0)
    return lambda x: f * x, attribute(Float, "__mul__", lambda self, other: other * 7.0)


@kind(CLASSES)
def conversion_of_a_float_class():
    class Own(float):
        def __float__(self):
            return GAIN

    own = Own(2.0)
    return lambda x: x * jnp.float32(float(own)), _gain()


@kind(CLASSES)
def operator_of_an_integer_class():
    return lambda x: INTEGER * x, _gain()


@kind(CLASSES)
def axis_of_an_object():
    class Own:
        place = 0

        def __index__(self):
            return self.place

    own = Own()
    return lambda x: jnp.sum(x[None, :] * jnp.ones((2, 1)), axis=own).sum() * x, attribute(
        Own, "place", 1
    )


@kind(CLASSES)
def text_class():
    class Own(str):
        spec = "i,i->i"

        def __str__(self):
            return self.spec

        def replace(self, *args):
            return self.spec.replace(*args)

        def split(self, *args):
            return self.spec.split(*args)

    own = Own("i,i->i")
    return lambda x: jnp.einsum(own, x, x) + x, attribute(Own, "spec", "i,i->")


@kind(CLASSES)
def items_of_a_tuple_class():
    return lambda x: x * ROW[0], _gain()


@kind(CLASSES)
def iteration_of_a_tuple_class():
    return lambda x: x * jnp.asarray([*ROW])[0] + sum(ROW), _gain()


@kind(CLASSES)
def shape_of_a_tuple_class():
    class Shape(tuple):
        def __iter__(self):
            return iter((int(GAIN), 3))

    shape = Shape((3, 3))
    return lambda x: jnp.broadcast_to(x, tuple(shape))[0] + jnp.zeros(shape).sum(), _gain(4.0)


@kind(CLASSES)
def items_of_a_dict_class():
    return lambda x: x * NAMES["a"], _gain()


@kind(CLASSES)
def items_of_a_list_class():
    return lambda x: x * ITEMS[0] + len(ITEMS), _gain()


@kind(CLASSES)
def missing_items_of_a_dict_class():
    class Own(dict):
        def __missing__(self, name):
            return GAIN

    own = Own()
    return lambda x: x * own["a"], _gain()


@kind(CLASSES)
def operator_of_a_numpy_scalar_class():
    return lambda x: SCALAR * x, _gain()


@kind(CLASSES)
def method_of_a_numpy_array_class():
    array = np.ones(3, np.float32).view(Array)
    return lambda x: x * array.sum(), _gain()


@kind(CLASSES)
def attribute_of_an_object():
    plain = Plain()
    return lambda x: plain.method(x), attribute(plain, "own", 7.0)


@kind(CLASSES)
def attribute_of_a_class():
    return lambda x: PLAIN.method(x), attribute(Plain, "gain", 7.0)


@kind(CLASSES)
def attribute_of_an_object_shadows_its_class():
    plain = Plain()
    return lambda x: plain.method(x), attribute(plain, "gain", 7.0)


@kind(CLASSES)
def property_reads_a_global():
    return lambda x: x * PLAIN.scale, _gain()


@kind(CLASSES)
def static_method_reads_a_global():
    return lambda x: Plain.static(x), _gain()


@kind(CLASSES)
def static_method_is_replaced():
    return lambda x: Plain.static(x), attribute(Plain, "static", staticmethod(lambda x: x * 7.0))


@kind(CLASSES)
def class_method_reads_its_class():
    return lambda x: Plain.of_class(x), attribute(Plain, "gain", 7.0)


@kind(CLASSES)
def bound_method_as_the_function():
    plain = Plain()
    return plain.method, attribute(plain, "own", 7.0)


@kind(CLASSES)
def callable_object_as_the_function():
    plain = Plain()
    return plain, attribute(plain, "own", 7.0)


@kind(CLASSES)
def call_of_a_class_is_replaced():
    plain = Plain()
    return plain, attribute(Plain, "__call__", lambda self, x: x * 7.0)


@kind(CLASSES)
def class_of_an_object():
    class Other(Plain):
        def method(self, x):
            return x * 7.0

    plain = Plain()
    return lambda x: plain.method(x), attribute_of_object(plain, "__class__", Other)


def attribute_of_object(of, name, new):
    old = getattr(of, name)
    return lambda on: setattr(of, name, new if on else old)


@kind(CLASSES)
def bases_of_a_class():
    class One:
        gain = 2.0

    class Two:
        gain = 7.0

    class Own(One):
        pass

    return lambda x: x * Own.gain, attribute_of_object(Own, "__bases__", (Two,))


@kind(CLASSES)
def attribute_of_a_base_class():
    class Base:
        gain = 2.0

    class Own(Base):
        pass

    own = Own()
    return lambda x: x * own.gain, attribute(Base, "gain", 7.0)


@kind(CLASSES)
def attribute_of_a_metaclass():
    class Meta(type):
        @property
        def gain(cls):
            return GAIN

    class Own(metaclass=Meta):
        pass

    return lambda x: x * Own.gain, _gain()


@kind(CLASSES)
def attribute_made_by_getattr():
    class Own:
        def __getattr__(self, name):
            return GAIN

    own = Own()
    return lambda x: x * own.gain, _gain()


@kind(CLASSES)
def descriptor_of_a_class():
    class Gain:
        def __get__(self, of, owner):
            return GAIN

    class Own:
        gain = Gain()

    own = Own()
    return lambda x: x * own.gain, _gain()


@kind(CLASSES)
def slot_of_an_object():
    class Own:
        __slots__ = ("gain",)

    own = Own()
    own.gain = 2.0
    return lambda x: x * own.gain, attribute_of_object(own, "gain", 7.0)


@kind(CLASSES, tells=False)
def equality_of_a_static_argument():
    """Static arguments that are equal, of which not all that is read is compared."""

    class Own:
        gain = 2.0

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return isinstance(other, Own)

    own = Own()
    f = jax.jit(lambda x, c: x * c.gain, static_argnums=1)
    return lambda x: f(x, own), attribute(own, "gain", 7.0)


@kind(CLASSES)
def truth_of_an_object():
    class Own:
        truth = True

        def __bool__(self):
            return self.truth

    own = Own()
    return lambda x: x * 2 if own else x * 7, attribute(own, "truth", False)


@kind(CLASSES)
def reflected_operator_of_an_object():
    class Own:
        def __rmul__(self, other):
            return other * GAIN

    own = Own()
    return lambda x: x * own, _gain()


@kind(CLASSES)
def array_protocol():
    value = WithArray()
    return lambda x: x * jnp.asarray(value), attribute(value, "value", 7.0)


@kind(CLASSES)
def array_protocol_reads_a_global():
    class Own:
        def __array__(self, dtype=None, copy=None):
            return np.full(3, GAIN, np.float32)

    own = Own()
    return lambda x: jnp.add(x, jnp.asarray(own)), _gain()


@kind(CLASSES)
def jax_array_protocol():
    value = WithJaxArray()
    return lambda x: x * value, attribute(value, "value", 7.0)


@kind(CLASSES)
def jax_array_of_a_number_class():
    class Own(float):
        def __jax_array__(self):
            return jnp.float32(GAIN)

    own = Own(2.0)
    return lambda x: jnp.add(x, own) + x * own, _gain()


@kind(CLASSES)
def instance_check_of_a_class():
    class Meta(type):
        answer = True

        def __instancecheck__(cls, of):
            return Meta.answer

    class Own(metaclass=Meta):
        pass

    users = module("def f(x):\n  return x * 2 if isinstance(1.0, Own) else x * 7\n")
    users.Own = Own
    return users.f, attribute(Meta, "answer", False)


@kind(CLASSES)
def formatting_of_an_object():
    class Own:
        def __format__(self, spec):
            return "i,i->i" if GAIN == 3.0 else "i,i->"

        __str__ = lambda self: format(self)

    own = Own()
    return lambda x: jnp.einsum(f"{own}", x, x) + x, _gain()


@kind(CLASSES)
def slice_of_an_object():
    class Own:
        place = 1

        def __index__(self):
            return self.place

    own = Own()
    return lambda x: x + x[:own].sum(), attribute(Own, "place", 2)
