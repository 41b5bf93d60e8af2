"""What an executable depends on, item by item: two programs that differ in one thing, in turns.

Stock jax, which lowers each new function, is the oracle. Beside each item of the key is a pair that
shows a wrong result where the item is left out.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import jaxide
from compilations import Compiled
from jaxide._compat.lowering_rules import lowering_rules
from jaxide._jit import intercept, lowering_warnings
from jaxide._jit.executable_key import ITEMS
from jaxide._jit.executables import Executables
from jaxide._native.content import IDENTITIES, Unsettled

X = np.arange(4.0, dtype=np.float32)
Jit = Callable[..., Any]
Run = Callable[[Jit], Any]


def content(value: Any) -> bytes:
    from jaxide import _compat

    return _compat.objects().contents.content(value)


def assert_as_stock(run: Run, jit: Jit = jaxide.jit) -> None:
    """Twice, since what is known the second time is what the first has left."""
    jaxide.clear_caches()
    expected = run(jax.jit)
    for _ in range(2):
        assert repr(run(jit)) == repr(expected)


# What differs between two programs that ``==`` of Python takes for one, or their names.

PLAIN_VALUES = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (float("nan"), -float("nan")),
    (
        struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0],
        struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000002))[0],
    ),
    (complex(0.0, 0.0), complex(0.0, -0.0)),
    ("1", b"1"),
    ((1, 2), [1, 2]),
    ({1: 0}, {True: 0}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (np.float32(1), np.float64(1)),
    (np.float16(0.0), np.float16(-0.0)),
    (np.dtype("<f4"), np.dtype(">f4")),
    (np.int32(1), 1),
    (frozenset({1}), frozenset({True})),
]


@pytest.mark.parametrize("pair", PLAIN_VALUES, ids=map(repr, range(len(PLAIN_VALUES))))
def test_values_count_by_all_bits_and_their_class(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert content(one) == content(one)
    assert content(one) != content(other)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_signs_and_payloads_of_nans(dtype: Any) -> None:
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    quiet = np.array(float("nan"), dtype).view(bits)
    values = [(quiet | bits(k)).view(dtype)[()] for k in (0, 1, 2)]
    assert len({content(value) for value in [*values, *(-value for value in values)]}) == 6


def tree_keys(key: Any) -> Any:
    return jax.tree.structure({key: 1.0, "z": (None, [2])})


@pytest.mark.parametrize("keys", [(1, True), (0, False), (1, 1.0), (0.0, -0.0)])
def test_trees_count_with_the_classes_of_their_keys(keys: tuple[Any, Any]) -> None:
    one, other = (jax.tree.structure({key: 1.0}) for key in keys)
    assert one == other
    assert content(one) != content(other)


class Node:
    """A node whose data claim to be all the same."""

    def __init__(self, child: Any, data: Any):
        self.child, self.data = child, data


class Same:
    """Equal to anything."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


jax.tree_util.register_pytree_node(
    Node, lambda node: ((node.child,), node.data), lambda data, children: Node(*children, data)
)


def test_the_users_equality_does_not_decide() -> None:
    def run(jit: Jit) -> Any:
        results = []
        for value in (1.0, 2.0, 1.0):
            data = Same(value)
            f = lambda node: np.float32(node.child * node.data.value)
            results.append(
                jit(lambda x, f=f, data=data: jax.pure_callback(f, SCALAR, Node(x, data)))(3.0)
            )
        return [float(result) for result in results]

    assert_as_stock(run)


SCALAR = jax.ShapeDtypeStruct((), np.float32)


class Scale:
    """A callable that equals all others of its kind."""

    def __init__(self, scale: float):
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return np.float32(x * self.scale)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scale)

    def __hash__(self) -> int:
        return 0

    def method(self, x: Any) -> Any:
        return self(x)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """As above, equal by its fields, of which the interesting one is none."""

    scale: Any = dataclasses.field(compare=False)

    def __call__(self, x: Any) -> Any:
        return np.float32(x * self.scale)


class Pair(NamedTuple):
    scale: float

    def __call__(self, x: Any) -> Any:
        return np.float32(x * self.scale)


CALLABLES: dict[str, Callable[[float], Any]] = {
    "object": Scale,
    "method": lambda scale: Scale(scale).method,
    "frozen dataclass": Frozen,
    "named tuple": Pair,
    "lambda": lambda scale: lambda x: np.float32(x * scale),
    "partial": lambda scale: functools.partial(lambda s, x: np.float32(x * s), Same(scale).value),
}


@pytest.mark.parametrize("make", CALLABLES.values(), ids=CALLABLES)
@pytest.mark.parametrize("kind", ["pure", "io", "ordered"])
def test_callbacks_are_objects(make: Callable[[float], Any], kind: str) -> None:
    def call(f: Any, x: Any) -> Any:
        if kind == "pure":
            return jax.pure_callback(f, SCALAR, x)
        return jax.experimental.io_callback(f, SCALAR, x, ordered=kind == "ordered")

    def run(jit: Jit) -> Any:
        functions = [make(scale) for scale in (1.0, 2.0, 3.0)]
        jits = [jit(lambda x, f=f: call(f, x)) for f in functions]
        return [float(f(np.float32(2))) for f in (*jits, *jits)]

    assert_as_stock(run)


def identity_primitive() -> Any:
    primitive = Primitive("jit_keys_test")
    primitive.def_abstract_eval(lambda x, **_: x)
    return primitive


def test_a_rule_of_the_users_runs_for_each_function() -> None:
    scale = [2.0]
    primitive = identity_primitive()
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * scale[0], False))

    def run(jit: Jit) -> Any:
        results = []
        for value in (2.0, 3.0, 2.0):
            scale[0] = value
            results.append(jit(lambda x: primitive.bind(x) + 1)(X).tolist())
        return results

    assert_as_stock(run)


def test_a_rule_that_is_registered_anew_counts() -> None:
    rules = mlir._lowerings
    sin = next(primitive for primitive in rules if str(primitive) == "sin")
    stock, other = rules[sin], rules[next(p for p in rules if str(p) == "cos")]

    def run(jit: Jit) -> Any:
        results = []
        try:
            for rule in (stock, other, stock, other):
                rules[sin] = rule
                results.append(jit(lambda x: jax.lax.sin(x) * 3)(X).tolist())
        finally:
            rules[sin] = stock
        return results

    assert_as_stock(run)


def test_rules_of_jax_are_known_as_such() -> None:
    rules = lowering_rules()
    primitives = [p for p in mlir._lowerings if str(p) in ("sin", "add", "scan", "while")]
    assert len(primitives) == 4
    assert all(rules.of(primitive) for primitive in primitives)
    for rule in (
        lambda ctx, x: [x],
        mlir.lower_fun(lambda x: x, False),
        functools.partial(lambda ctx, x: [x]),
    ):
        primitive = identity_primitive()
        mlir.register_lowering(primitive, rule)
        assert rules.of(primitive) is None


class Mode(enum.Enum):
    A = 1


class Flags(enum.IntFlag):
    A = 1


def test_members_of_enumerations_are_of_their_class() -> None:
    def another() -> Any:
        class Mode(enum.Enum):
            A = 1

        return Mode

    classes = [another(), another()]
    assert len({content(class_.A) for class_ in (Mode, *classes)}) == 3
    assert content(Flags(8)) == content(Flags(8)) != content(Flags(16))
    assert content(Flags.A) != content(1)


class Number(float):
    """Not what it says."""

    def __mul__(self, other: Any) -> Any:
        return 7.0


class Text(str):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Options:
    value: int


@pytest.mark.parametrize(
    "value",
    [
        Number(1.0),
        Text("a"),
        np.ones(2),
        Same(1),
        Options(1),
        Pair(1.0),
        {1, 2},
        type("Derived", (np.float32,), {})(1),
        np.dtype("f4", metadata={"a": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_another_thing_has_no_content(value: Any) -> None:
    with pytest.raises(Unsettled):
        content(value)
    with pytest.raises(Unsettled):
        content((1, [value]))


def test_serial_numbers_are_never_given_again() -> None:
    numbers = set()
    for _ in range(100):
        numbers.add(IDENTITIES.of(Scale(1.0)))
    assert len(numbers) == 100


def generator(value: int) -> Any:
    from jax.extend.random import define_prng_impl

    return define_prng_impl(
        key_shape=(2,),
        seed=lambda s: jnp.zeros(2, jnp.uint32),
        split=lambda k, s: jnp.zeros((*s, 2), jnp.uint32),
        fold_in=lambda k, d: k,
        random_bits=lambda k, w, s: jnp.full(s, value, jnp.uint32),
        name="threefry2x32",
        tag="fry",
    )


@pytest.mark.parametrize("captured", [False, True])
def test_generators_count_as_objects(captured: bool) -> None:
    """Even under the name of one of jax's own."""
    data = np.zeros(2, np.uint32)

    def run(jit: Jit) -> Any:
        results = []
        for implementation in ("threefry2x32", generator(1), generator(2), "threefry2x32"):
            key = jax.random.wrap_key_data(data, impl=implementation)
            if captured:
                results.append(jit(lambda x, key=key: jax.random.bits(key, (2,)) + x)(np.uint32(0)))
            else:
                results.append(jit(lambda k: jax.random.bits(k, (2,)))(key))
        return [result.tolist() for result in results]

    assert_as_stock(run)


# Captured arrays.


def test_equal_arrays_run_one_executable() -> None:
    jaxide.clear_caches()
    arrays = [jnp.arange(4.0), jnp.arange(4.0), np.arange(4, dtype=np.float32)]
    jaxide.jit(lambda x: x * arrays[0])(X)
    with Compiled() as compiled:
        for array in (arrays[0], arrays[1]):
            np.testing.assert_array_equal(jaxide.jit(lambda x, c=array: x * c)(X), X * X)
    assert compiled.count == 0
    np.testing.assert_array_equal(jaxide.jit(lambda x: x * arrays[2])(X), X * X)


@pytest.mark.parametrize("stays", [False, True])
def test_what_is_lowered_while_a_setting_changes_is_not_shared(stays: bool) -> None:
    jaxide.clear_caches()
    setting = "jax_default_matmul_precision"
    frames: list[Any] = []

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "lower_jaxpr_to_module" and not frames:
            frames.append(frame)
            jax.config.update(setting, "highest")
        elif event == "return" and not stays and frame in frames:
            jax.config.update(setting, None)

    def call() -> int:
        with Compiled() as compiled:
            jaxide.jit(lambda x: jnp.tan(x) * 41.0 + jnp.cosh(x))(np.ones(7, np.float32))
        return compiled.count

    try:
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
        assert frames
        jax.config.update(setting, None)
        assert [call(), call()] == [1, 0]
    finally:
        jax.config.update(setting, None)


INFINITE = np.array([np.inf, np.nan, -2, 3], np.float32)


def test_a_mask_that_is_captured_is_a_constant() -> None:
    """XLA makes a selection of a product with a constant mask, which an infinity shows."""
    mask = np.array([False, False, False, True])

    def run(jit: Jit) -> Any:
        results = []
        for array in (jnp.array(mask), jnp.array(mask), mask, mask.copy()):
            results.append(jit(lambda x, m=array: x * m)(INFINITE).tolist())
        return results

    assert_as_stock(run)


@pytest.mark.parametrize("captured", ["auto", "constants", "arguments"])
def test_how_captured_arrays_are_given(captured: str) -> None:
    jaxide.clear_caches()
    arrays = [jnp.full(4, float(i)) for i in (1, 1, 2, 3)]
    counts = []
    for array in arrays:
        with Compiled() as compiled:
            result = jaxide.jit(lambda x, c=array: jnp.sin(x) * c, captured=captured)(X)
        counts.append(compiled.count)
        np.testing.assert_allclose(result, np.sin(X) * np.asarray(array), rtol=1e-6)
    # With arguments, the preparation is a program too.
    assert (
        counts
        == {
            "auto": [1, 0, 2, 0],
            "constants": [1, 0, 1, 1],
            "arguments": [2, 0, 0, 0],
        }[captured]
    )


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="captured"):
        jaxide.jit(lambda x: x, captured="sometimes")
    with pytest.raises(ValueError, match="captured"):
        jaxide.install(captured="sometimes")


def test_installed_with_constants() -> None:
    first, second = jnp.ones(4), jnp.full(4, 2.0)
    jaxide.install(captured="constants")
    try:
        jax.jit(lambda x: x + first * 5)(X)
        with Compiled() as compiled:
            jax.jit(lambda x: x + second * 5)(X)
        assert compiled.count == 1
    finally:
        jaxide.uninstall()
        jaxide.install()
        jaxide.uninstall()


@pytest.mark.parametrize("within", [False, True])
def test_numpy_arrays_that_change(within: bool) -> None:
    """jax has the elements of the first lowering, for each sharding and layout of arguments."""

    def run(jit: Jit) -> Any:
        results = []
        for i in range(3):
            array = np.ones(2, np.float32)
            inner = jax.jit(lambda x, a=array: x * a) if within else lambda x, a=array: x * a
            f = jit(lambda x, inner=inner: inner(x) + 1)
            x = np.ones(2, np.float32)
            results.append(f(x).tolist())
            array[...] = 5 + i
            placed = jax.device_put(x, jax.devices()[-1])
            results += [f(y).tolist() for y in (x, placed, x[:1])]
            results.append(f.lower(x).compile()(x).tolist())
            lowered_first = jit(lambda x, inner=inner: inner(x) + 2)
            lowered_first.lower(x).compile()
            array[...] = 50 + i
            results.append(lowered_first(x).tolist())
            results.append(jit(lambda x, inner=inner: inner(x) + 2)(x).tolist())
        return results

    assert_as_stock(run)


@pytest.mark.parametrize("captured", ["auto", "arguments"])
def test_layouts_of_captured_arrays(captured: str) -> None:
    from jax.experimental.layout import Format, Layout

    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def run(jit: Jit) -> Any:
        results = []
        for order in ((1, 0), (1, 0), (0, 1)):
            for shift in (0, 1, 2):
                elements = np.arange(6.0, dtype=np.float32).reshape(2, 3) + shift
                array = jax.device_put(elements, Format(Layout(major_to_minor=order), place))
                result = jit(lambda x, c=array: x + c)(np.ones((2, 3), np.float32))
                results.append((result.tolist(), result.format.layout.major_to_minor))
        return results

    assert_as_stock(run, functools.partial(jaxide.jit, captured=captured))


def test_shardings_of_results() -> None:
    """As stock jax spells them, whatever lies where, and whatever is captured."""
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices()[:2])
    meshes = [
        Mesh(chosen, (name,), axis_types=(AxisType.Auto,))
        for chosen, name in ((devices, "a"), (devices[::-1], "a"), (devices, "b"))
    ]
    specs = [((name,), name, None, ()) for name in ("a", "a", "b")]
    places = [
        NamedSharding(mesh, PartitionSpec(*(() if spec == () else (spec,))))
        for mesh, ours in zip(meshes, specs, strict=True)
        for spec in ours
    ]

    def run(jit: Jit) -> Any:
        results = []
        for shift in range(2):
            for place in places:
                array = jax.device_put(np.arange(4.0, dtype=np.float32) + shift, jax.devices()[3])
                x = np.arange(4.0, dtype=np.float32)
                bound = lambda x, c=array, p=place: jax.lax.with_sharding_constraint(x + c, p)
                results += [
                    jit(lambda x, c=array: x * 2 + c)(jax.device_put(x, place)),
                    jit(lambda x, c=array: x * 2 + c, out_shardings=place)(x),
                    jit(bound)(x),
                ]
        return [(r.tolist(), r.sharding, r.sharding._device_assignment) for r in results]

    assert_as_stock(run)


def test_deleted_arrays() -> None:
    def run(jit: Jit) -> Any:
        results = []
        for _ in range(2):
            array = jnp.arange(4.0)
            results.append(jit(lambda x, c=array: x * c)(X).tolist())
            array.delete()
            with pytest.raises(RuntimeError, match="deleted"):
                jit(lambda x, c=array: x * c)(X)
        return results

    assert_as_stock(run)


def are_captured_arrays_donated() -> bool:
    """Whether stock jax donates an array that it has built into an executable."""
    array = jnp.arange(4.0)
    jax.jit(lambda x: x + array)(jnp.ones(4))
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    return array.is_deleted()


def test_donated_aliases_of_captured_buffers() -> None:
    if not are_captured_arrays_donated():
        pytest.skip("docs/limits.md: on jax 0.11.2")

    def run(jit: Jit) -> Any:
        results: list[Any] = []
        for i in range(4):
            array = jnp.arange(4.0) + i
            f = jit(lambda x, c=array: x + c, donate_argnums=0)
            for donated in (jax.device_put(array, array.sharding), jnp.ones(4), array):
                try:
                    results.append(f(donated).tolist())
                except Exception as error:
                    results.append(type(error).__name__)
        return results

    assert_as_stock(run)


def test_captured_arrays_may_be_deleted_after_the_first_call() -> None:
    for i in range(3):
        array = jnp.arange(4.0) + i
        f = jaxide.jit(lambda x, c=array: x * c)
        expected = f(X)
        array.delete()
        np.testing.assert_array_equal(f(X), expected)


def warned(run: Callable[[], Any], action: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        try:
            run()
        except Warning as error:
            return type(error), str(error)
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("captures", [False, True])
def test_warnings_are_said_again(captures: bool) -> None:
    def run(jit: Jit) -> Any:
        said = []
        for i, action in enumerate(("always", "always", "error", "ignore", "default", "always")):
            array = jnp.full(2, float(i))
            f = lambda x, c=array: x[:2] + (c if captures else 1)
            call = lambda f=f: jit(f, donate_argnums=0)(jnp.arange(4.0))
            said.append(warned(call, action))
        return said

    assert_as_stock(run)


@pytest.mark.parametrize("first", ["lower", "call"])
def test_what_was_lowered_warns_once(first: str) -> None:
    def run(jit: Jit) -> Any:
        said = []
        for _ in range(3):
            f = jit(lambda x: x[:2] + 7, donate_argnums=0)
            lower = lambda f=f: f.lower(jnp.arange(4.0)).compile()
            call = lambda f=f: f(jnp.arange(4.0))
            order = (lower, call) if first == "lower" else (call, lower)
            said += [warned(step, "always") for step in order]
        return said

    assert_as_stock(run)


def traced(make: Any) -> None:
    make(lambda x: jnp.sin(x))(X)


@pytest.mark.parametrize("order", ["heard first", "traced first", "crossed"])
def test_warn_is_put_back(order: str) -> None:
    """Traces and lowerings both look at warnings: neither takes the other for what was there."""
    stock = warnings.warn
    heard = lowering_warnings.noting()
    active = jaxide.accelerated()
    first, second = (active, heard) if order == "traced first" else (heard, active)
    first.__enter__()
    traced(jax.make_jaxpr)
    second.__enter__()
    traced(jax.make_jaxpr)
    said = warned(lambda: warnings.warn("said", stacklevel=1), "always")
    assert [message for message, *_ in said] == ["said"]
    for context in (first, second) if order == "crossed" else (second, first):
        context.__exit__(None, None, None)
        said = warned(lambda: warnings.warn("said", stacklevel=1), "always")
        assert [message for message, *_ in said] == ["said"]
    traced(jaxide.make_jaxpr)
    assert warnings.warn is stock


def test_a_warn_of_the_users_is_called_once_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    with jaxide.accelerated():
        traced(jax.make_jaxpr)
        inner = warnings.warn

        def outer(*args: Any, **kwargs: Any) -> None:
            calls.append(args)
            inner(*args, **kwargs)

        monkeypatch.setattr(warnings, "warn", outer)
        traced(jax.make_jaxpr)
        with lowering_warnings.noting():
            warned(lambda: warnings.warn("said", stacklevel=1), "always")
        assert len(calls) == 1
    assert warnings.warn is outer
    warned(lambda: warnings.warn("said", stacklevel=1), "always")
    assert len(calls) == 2


# Items of the key beside the program: what differs, and what shows it.


def named(name: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        return x * 5

    f.__name__ = name
    return f


def donation(jit: Jit) -> Any:
    results = []
    for donated in ((), (0,), ()):
        x = jnp.arange(4.0)
        jit(lambda x: x * 5, donate_argnums=donated)(x)
        results.append(x.is_deleted())
    return results


def settings(jit: Jit) -> Any:
    with Compiled() as compiled:
        jit(lambda x: jnp.sin(x) * 13)(X)
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            jit(lambda x: jnp.sin(x) * 13)(X)
        finally:
            jax.config.update("jax_disable_most_optimizations", False)
    return compiled.count


def environment(jit: Jit) -> Any:
    with Compiled() as compiled, pytest.MonkeyPatch.context() as patch:
        for flags in ("", "--a=1"):
            patch.setenv("LIBTPU_INIT_ARGS", flags)
            jit(lambda x: jnp.sin(x) * 14)(X)
    return compiled.count


def number_errors(jit: Jit) -> Any:
    results = []
    calls: list[Any] = []
    modes = ["ignore", "raise", "ignore", "call"]
    for mode, action in [*((mode, "ignore") for mode in modes), ("warn", "error")]:
        with (
            np.errstate(over=mode, call=lambda *args: calls.append(args)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter(action)
            try:
                results.append(jit(lambda x: x * 1e40)(np.arange(1, 4)).tolist())
            except (FloatingPointError, RuntimeWarning) as error:
                results.append(repr(error))
    return results, len(calls) > 0


def changes_of_jax(jit: Jit) -> Any:
    # The rule that lowers `logistic` calls `exp` of the module of jax, which binds the primitive.
    from jax._src.lax import lax as module

    places: list[tuple[Any, str, Any]] = [
        (module, "exp", lambda x, accuracy=None: jax.lax.cos(x)),
        (jax.lax.exp_p, "bind", lambda x, **params: jax.lax.cos(x)),
        (module.logistic_impl, "__code__", (lambda x, accuracy: x).__code__),
    ]

    def run() -> Any:
        return jit(lambda x: jax.nn.sigmoid(x) * 2)(X).tolist()

    results = [run()]
    for owner, name, value in places:
        is_of_class, before = name == "bind", getattr(owner, name)
        setattr(owner, name, value)
        results += [run(), run()]
        # Versions of pytest differ in what they leave behind of an attribute of the class.
        if is_of_class:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
        results.append(run())
    return results


def default_devices(jit: Jit) -> Any:
    results = []
    for device in jax.devices()[:2]:
        with jax.default_device(device):
            results.append(jit(lambda x: x * 2)(X).devices())
    return results


def in_shardings(jit: Jit) -> Any:
    devices = [jit(lambda x: x * 2)(jax.device_put(X, d)).devices() for d in jax.devices()[:2]]
    return devices


def out_shardings(jit: Jit) -> Any:
    places = map(jax.sharding.SingleDeviceSharding, jax.devices()[:2])
    return [jit(lambda x: x * 2, out_shardings=place)(X).devices() for place in places]


def layouts(which: str) -> Run:
    def run(jit: Jit) -> Any:
        from jax.experimental.layout import Format, Layout

        place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        results = []
        for order in ((0, 1), (1, 0), (0, 1)):
            form = Format(Layout(major_to_minor=order), place)
            x = jax.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), form)
            if which == "input":
                result = jit(lambda x: x.sum(0), in_shardings=form)(x)
            else:
                result = jit(lambda x: x * 2, out_shardings=form)(np.ones((2, 3), np.float32))
            results.append((result.tolist(), result.format.layout.major_to_minor))
        return results

    return run


def names(jit: Jit) -> Any:
    # As a profiler shows it.
    return [
        jit(named(name)).lower(X).compile().as_text().partition("\n")[0] for name in ("one", "two")
    ], [_module_name(jit, name) for name in ("one", "two")]


def _module_name(jit: Jit, name: str) -> Any:
    with Compiled() as compiled:
        jit(named(name))(X)
    return compiled.count


def unused(jit: Jit) -> Any:
    with Compiled() as compiled:
        for keep in (True, False):
            jit(lambda x, y: x * 5, keep_unused=keep)(X, X)
    return compiled.count


def compiler_options(jit: Jit) -> Any:
    with Compiled() as compiled:
        for value in (True, False):
            options = {"xla_cpu_enable_fast_min_max": value}
            jit(lambda x: jnp.maximum(x, 2) * 3, compiler_options=options)(X)
    return compiled.count


def transformations(jit: Jit) -> Any:
    """A pass of XLA's that has it compute cosines in the place of sines."""
    xla = pytest.importorskip("jax.extend.xla")
    from jax._src.lib import hlo

    def to_cosines(serialized: bytes) -> bytes:
        module = hlo.HloModule.from_serialized_hlo_module_proto(serialized)
        for computation in module.computations():
            for sine in computation.instructions():
                if sine.opcode == hlo.HloOpcode.kSin:
                    (operand,) = sine.operands()
                    cosine = computation.create_unary_instruction(hlo.HloOpcode.kCos, operand)
                    computation.replace_instruction(sine, cosine)
        return module.as_serialized_hlo_module_proto()

    def run() -> Any:
        return jit(lambda x: jnp.sin(x))(X).tolist()

    stage = xla.PipelineStage.PRE_SCHEDULER
    before = run()
    xla.register_hlo_module_transformation(to_cosines, name="cosines", stage=stage)
    try:
        return before, run(), run()
    finally:
        xla.clear_hlo_module_transformation("cosines", stage)


LEFT_OUT: dict[str, Run] = {
    "jax": changes_of_jax,
    "input shardings": in_shardings,
    "output shardings": out_shardings,
    "input layouts": layouts("input"),
    "output layouts": layouts("output"),
    "donation": donation,
    "name": names,
    "unused arguments": unused,
    "compiler options": compiler_options,
    "settings": settings,
    "environment": environment,
    "errors in numbers": number_errors,
    "transformations": transformations,
}


@pytest.mark.unaudited
@pytest.mark.parametrize("item", LEFT_OUT)
def test_each_item_of_the_key_is_needed(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LEFT_OUT[item]
    jaxide.clear_caches()
    expected = run(jax.jit)
    monkeypatch.setattr(intercept, "EXECUTABLES", Executables())
    assert repr(run(jaxide.jit)) == repr(expected)
    monkeypatch.setattr(intercept, "EXECUTABLES", Executables(left_out=frozenset({item})))
    assert repr(run(jaxide.jit)) != repr(expected)


# Nothing is known that shows these: what they say is said by the program or by another item too.
IMPLIED = {
    # Meshes that are set are part of the context and of the types; inlining concerns nested jits.
    "mesh",
    "inlining",
    # Which device is the default one is a setting as well.
    "context",
    # Constants and inputs are told apart by their order alone.
    "number of constants",
}


def test_every_item_of_the_key_is_tested() -> None:
    assert set(ITEMS) == {*LEFT_OUT, *IMPLIED}
