"""Programs that were written to get something else from jaxide than from stock jax, and did."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import opt_einsum
import pytest
from jax import lax
from jax._src import dtypes
from jax._src.lax import lax as lax_internal

import jaxide
from alone import run_alone

X = np.ones(3, np.float32)


def text(make: Callable[..., Any], program: Callable[..., Any], *args: Any) -> str:
    return str(make(lambda *args: program(*args))(*args or (X,)))


def warm(program: Callable[..., Any], *args: Any) -> None:
    for _ in range(4):
        text(jaxide.make_jaxpr, program, *args)


def assert_same(program: Callable[..., Any], *args: Any) -> None:
    stock = text(jax.make_jaxpr, program, *args)
    assert text(jaxide.make_jaxpr, program, *args) == stock


def ruled(function: Callable[..., Any]) -> Any:
    """A function with a rule, which is replayed where it only computes."""
    made = jax.custom_jvp(function)
    made.defjvp(lambda p, t: (made(*p), t[0]))
    return made


# ---- what functions do --------------------------------------------------------------------------

ONES, OUT, SMALL = np.ones((3, 1)), np.zeros(1), np.array([5.0, 6.0])
FILLING: dict[str, Callable[[], Any]] = {
    "sum": lambda: ONES.sum(0, None, OUT),
    "cumsum": lambda: ONES[0].cumsum(out=OUT),
    "dot": lambda: ONES[:1].dot(ONES[:1], OUT.reshape(1, 1)),
    "clip": lambda: ONES[0].clip(0, 3, OUT),
    "take": lambda: ONES[:, 0].take([0], out=OUT),
    "max": lambda: ONES.max(0, OUT),
    "mean": lambda: ONES.mean(0, out=OUT),
    "round": lambda: ONES[0].round(0, OUT),
}


@ruled
def filling_sum(x: Any) -> Any:
    ONES.sum(0, None, OUT)
    return x * 2


@ruled
def filling_clip(x: Any) -> Any:
    ONES[0].clip(0, 3, OUT)
    return x * 2


@ruled
def filling_take(x: Any) -> Any:
    ONES[:, 0].take([0], out=OUT)
    return x * 2


@pytest.mark.parametrize("function", [filling_sum, filling_clip, filling_take])
def test_methods_that_write_to_an_array_they_are_given(function: Any) -> None:
    for _ in range(5):
        OUT[:] = 0
        jaxide.make_jaxpr(lambda x: function(x))(X)
        assert OUT[0] != 0


@pytest.mark.parametrize("name", FILLING)
def test_such_methods_where_only_types_are_asked_for(name: str) -> None:
    fill = FILLING[name]

    def program(x: Any) -> Any:
        return x * jax.eval_shape(lambda y: y * fill().size, x).shape[0]

    for _ in range(4):
        OUT[:] = 0
        jaxide.make_jaxpr(lambda x: program(x))(X)
        assert OUT[0] != 0


def test_elements_of_numpy_arrays_where_only_types_are_asked_for() -> None:
    sizes = np.arange(1, 100)
    program = lambda x: x * jax.eval_shape(lambda y: y[: int(sizes[1])], x).shape[0]
    warm(program)
    sizes[1] = 1
    assert_same(program)


# ---- which objects they read --------------------------------------------------------------------

DEFAULT: Any = [1, 2]
MODE: Any = DEFAULT
NAN = float("nan")
SEEN: Any = [NAN]


@ruled
def by_identity(x: Any) -> Any:
    return x * 2 if MODE is DEFAULT else x * 3


@ruled
def by_membership(x: Any) -> Any:
    return x * 2 if NAN in SEEN else x * 3


def helper(x: Any) -> Any:
    return x * 2 if MODE is not DEFAULT else x * 3


@jax.custom_vjp
def by_identity_in_a_helper(x: Any) -> Any:
    return helper(x)


by_identity_in_a_helper.defvjp(
    lambda x: (by_identity_in_a_helper(x), None), lambda _, cotangent: (helper(cotangent),)
)


@pytest.mark.parametrize(
    ("default", "equal"),
    [
        ([1, 2], [1, 2]),
        ((5.0,), tuple(map(float, "5"))),
        ({1: 2}, {1: 2}),
        (2.5, float("2.5")),
    ],
    ids=["list", "tuple", "dict", "float"],
)
@pytest.mark.parametrize(
    "program",
    [by_identity, lambda x: jax.grad(lambda x: by_identity_in_a_helper(x).sum())(x)],
    ids=["custom_jvp", "custom_vjp"],
)
def test_which_of_equal_objects(
    program: Any, default: Any, equal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEFAULT", default)
    for mode in (default, equal, default):
        monkeypatch.setattr(sys.modules[__name__], "MODE", mode)
        warm(program)
        assert_same(program)


def test_nans_are_equal_to_themselves_in_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    warm(by_membership)
    monkeypatch.setattr(sys.modules[__name__], "NAN", float("nan"))
    assert_same(by_membership)


def test_two_nans_are_two_static_arguments() -> None:
    inner = jax.jit(lambda x, s: x * s, static_argnums=1)
    one, other = float("nan"), float("nan")
    program = lambda x: inner(x, one) + inner(x, other) + inner(x, one)
    for _ in range(4):
        assert_same(program)


def test_globals_that_look_names_up_in_their_own_way() -> None:
    class Names(dict):
        def __getitem__(self, name: str) -> Any:
            return gain[0] if name == "G" else dict.__getitem__(self, name)

    gain = [2.0]
    code = compile("def f(x): return x * G\n", "names", "exec").co_consts[0]
    names = Names(G=2.0, __builtins__=__builtins__, __name__="names")
    names["f"] = function = ruled(types.FunctionType(code, names, "f"))
    warm(function)
    gain[0] = 5.0
    assert_same(function)


# ---- classes ------------------------------------------------------------------------------------


class Pair(NamedTuple):
    a: float
    b: float


PAIR = Pair(2.0, 5.0)


@ruled
def by_a_field(x: Any) -> Any:
    return x * PAIR.a


def test_fields_that_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    warm(by_a_field)
    first, second = vars(Pair)["a"], vars(Pair)["b"]
    monkeypatch.setattr(Pair, "a", second)
    monkeypatch.setattr(Pair, "b", first)
    assert_same(by_a_field)
    warm(by_a_field)
    monkeypatch.undo()
    assert_same(by_a_field)


# ---- what jax looks into ------------------------------------------------------------------------


def test_functions_of_packages_that_jax_calls() -> None:
    args = jnp.ones((2, 50)), jnp.ones((50, 3)), jnp.ones((3, 90))
    program = lambda *args: jnp.einsum("ij,jk,kl->il", *args)
    warm(program, *args)
    find = opt_einsum.contract_path

    def other(*args: Any, **kwargs: Any) -> Any:
        return find(*args, **{**kwargs, "optimize": [(1, 2), (0, 1)]})

    with mock.patch("opt_einsum.contract_path", other):
        assert_same(program, *args)
    assert_same(program, *args)


def test_tables_of_such_packages() -> None:
    args = jnp.ones((2, 50)), jnp.ones((50, 3)), jnp.ones((3, 90))
    program = lambda *args: jnp.einsum("ij,jk,kl->il", *args, optimize="mine")
    paths = opt_einsum.paths._PATH_OPTIONS
    with mock.patch.dict(paths, mine=lambda *_: [(0, 1), (0, 1)]):
        warm(program, *args)
        paths["mine"] = lambda *_: [(1, 2), (0, 1)]
        assert_same(program, *args)


@pytest.mark.parametrize(
    ("program", "table", "name", "value"),
    [
        (
            lambda x: lax.dot(x, x, precision="high"),
            lax_internal._precision_strings,
            "high",
            lax.Precision.HIGHEST,
        ),
        (
            lambda x: x + jnp.isdtype(x.dtype, "real floating") * 1.0,
            dtypes._dtype_kinds,
            "real floating",
            set(),
        ),
    ],
    ids=["precisions", "kinds of dtypes"],
)
def test_tables_of_jax_by_text(program: Any, table: Any, name: str, value: Any) -> None:
    warm(program)
    with mock.patch.dict(table, {name: value}):
        assert_same(program)
    assert_same(program)


def test_a_profiler_that_is_set_within_a_trace_stays() -> None:
    def profile(*_: Any) -> None:
        pass

    def inner(x: Any) -> Any:
        sys.setprofile(profile)
        return jnp.arctan(x)  # what is refused once is refused again: no other test has it

    before = sys.getprofile()
    with mock.patch.object(jax.nn, "relu", lambda x: x * 2):
        jaxide.make_jaxpr(lambda x: jax.jit(inner)(x))(X)
    found = sys.getprofile()
    sys.setprofile(before)
    assert found is profile


def test_methods_of_classes_of_packages_that_jax_calls() -> None:
    args = [jnp.ones((2 + i, 3 + i)) for i in range(4)]
    program = lambda *args: jnp.einsum("ab,cd,ef,gh->", *args, optimize="branch-all")
    warm(program, *args)
    pairs = lambda *_, **__: [(0, 1), (0, 1), (0, 1)]
    with mock.patch.object(opt_einsum.paths.BranchBound, "__call__", pairs):
        assert_same(program, *args)
    assert_same(program, *args)


def test_functions_of_a_package_in_its_own_table() -> None:
    args = jnp.ones((2, 50)), jnp.ones((50, 3)), jnp.ones((3, 90)), jnp.ones((90, 2))
    program = lambda *args: jnp.einsum("ij,jk,kl,lm->im", *args, optimize="dp")
    warm(program, *args)
    with mock.patch.dict(opt_einsum.paths._PATH_OPTIONS, dp=lambda *_, **__: [(0, 1)] * 3):
        assert_same(program, *args)
    with mock.patch.dict(opt_einsum.paths._PATH_OPTIONS, dp=opt_einsum.paths.greedy):
        assert_same(program, *args)
    assert_same(program, *args)


# ---- literals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 2])
def test_literals_that_are_operands_of_transpositions(first: int) -> None:
    """A number is a literal where it is a Python number, and may have a tracer where it is not."""
    two = np.float32(2)

    def made(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
        function = jax.custom_jvp(lambda x: x * 1)
        function.defjvp(lambda p, t: (p[0] * 1, rule(t[0])))
        return lambda x: jax.grad(lambda y: function(y).sum())(x)

    rules = [lambda t: t * 2, lambda t: t * two, lambda t: t * np.float32(2)]
    programs = list(map(made, rules[first:] + rules[:first]))
    for program in programs * 4:
        assert_same(program)


# ---- texts ---------------------------------------------------------------------------------------


@jax.custom_vjp
def by_a_text(x: Any) -> Any:
    return x * 2


by_a_text.defvjp(
    lambda x: (x * 2, None),
    lambda _, cotangent: (cotangent * len(f"{(np.float32(1.23456789),)}"),),
)


def stacks(make: Callable[..., Any], program: Callable[..., Any]) -> list[str]:
    equations = make(lambda x: program(x))(X).eqns
    return [f"{eqn.primitive} {eqn.source_info.name_stack}" for eqn in equations]


@pytest.mark.parametrize("name", ["jvp", "vmap", "transpose"])
def test_scopes_with_the_name_of_a_transformation(name: str) -> None:
    """A scope is equal to a transformation of its name, and is another one."""

    def within(x: Any) -> Any:
        with jax.named_scope(name):
            return jax.nn.gelu(x)

    def around(x: Any) -> Any:
        with jax.named_scope(name):
            return jax.linearize(jax.nn.gelu, x)[0]

    def batched(x: Any) -> Any:
        with jax.named_scope(name):
            return jax.vmap(jax.nn.gelu)(x)

    programs = [
        lambda x: jax.linearize(within, x)[0],
        around,
        batched,
        jax.vmap(within),
        jax.grad(lambda x: within(x).sum()),
        lambda x: jax.named_call(jax.grad(lambda x: jax.nn.gelu(x).sum()), name=name)(x),
    ]
    for program in programs * 3:
        assert stacks(jaxide.make_jaxpr, program) == stacks(jax.make_jaxpr, program)


@pytest.mark.parametrize("is_known", [False, True])
def test_what_forwarding_rules_come_to(is_known: bool) -> None:
    """jax asks forwarding rules each time, and what they call may be changed, and changed back."""
    function = jax._src.core.definitely_equal_shape
    stock = function.__code__
    program = lambda x: lax.broadcast_in_dim(x, (1, 3), (1,))
    other = lambda x: lax.broadcast_in_dim(x[0], (1,), ())
    try:
        for _ in range(2):
            if is_known:
                assert_same(program)
                assert_same(other)
            function.__code__ = (lambda s1, s2: True).__code__
            assert_same(program)
            assert_same(other)
            function.__code__ = stock
            assert_same(program)
            assert_same(other)
    finally:
        function.__code__ = stock


CODES = {
    "within": """
        own = function.__code__
        def program(x):
            y = function(x, 0)
            function.__code__ = own
            return y, function(x, 1)
        for _ in range(12):
            make(lambda x: program(x))(x)
    """,
    "outside": """
        codes = []
        def program(x):
            codes.append(function.__code__)
            return function(x, 0)
        for _ in range(12):
            make(lambda x: program(x))(x)
            function.__code__ = codes[0]
            function(x, 0)
            with jaxide.accelerated():
                pass
    """,
}


@pytest.mark.parametrize("program", CODES.values(), ids=list(CODES))
def test_functions_that_are_given_their_own_codes(program: str) -> None:
    """Whoever keeps a function's code and gives it back takes a reference to the one it had."""
    lines = """
        import gc, numpy as np, jax.numpy as jnp, jaxide
        function, x, make = jnp.expand_dims, np.ones(3, np.float32), jaxide.make_jaxpr
    """
    after = """
        program = own = codes = None
        gc.collect()
        junk = [compile(f"def f{i}(): pass", "f", "exec") for i in range(1000)]
        print(make(lambda x: function(x, 0))(x), function(x, 0).shape)
    """
    script = "".join(map(textwrap.dedent, (lines, program, after)))
    assert "broadcast_in_dim" in run_alone(script).stdout


def test_options_that_a_library_adds() -> None:
    """They leave jax as it was."""
    script = """
        import jax, jaxide
        from jax._src import config
        make = lambda: jaxide.make_jaxpr(lambda x: jax.numpy.sin(x))(1.0)
        make()
        option = config.bool_state("jax_of_a_library", False, "Of a library.")
        before = jaxide.cache_info().hits
        for _ in range(4):
            make()
        assert jaxide.cache_info().hits > before
    """
    run_alone(script)


def test_texts_of_scalars_that_a_rule_makes() -> None:
    program = lambda x: jax.grad(lambda x: by_a_text(x).sum())(x)
    warm(program)
    with np.printoptions(legacy="1.13"):
        assert_same(program)
    assert_same(program)


# ---- processes of their own ---------------------------------------------------------------------

SCRIPTS = {
    "callable object under jit": """
        class Scaled:
            __name__ = "scaled"
            by = 2.0
            def __call__(self, x):
                return x * self.by
        scaled = Scaled()
        jax.nn.relu = jax.jit(scaled)
        import jaxide
        program = lambda x: jax.nn.relu(x)
        warm(program)
        scaled.by = 5.0
        jax.nn.relu.clear_cache()
        assert_same(program)
    """,
    "callable object under vmap": """
        class Scaled:
            def __call__(self, x):
                return x * 2
        jax.nn.relu = jax.vmap(Scaled())
        import jaxide
        program = lambda x: jax.nn.relu(x)
        warm(program)
        assert_same(program)
    """,
    "other code of a function that jaxide steps into": """
        import inspect, textwrap, warnings
        import jaxide
        from jax._src import core
        NOTED = core.NOTED = []
        head, rest = textwrap.dedent(inspect.getsource(core.Primitive.bind)).split(":\\n", 1)
        space = {}
        exec(f"{head}:\\n  NOTED.append(self.name)\\n{rest}", vars(core), space)
        program = lambda x: jax.jit(jnp.sin)(x) + jax.grad(lambda y: jnp.tanh(y).sum())(x)
        warm(program)
        stock, core.Primitive.bind.__code__ = core.Primitive.bind.__code__, space["bind"].__code__
        for make in (jax.make_jaxpr, jaxide.make_jaxpr, jaxide.trace):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                NOTED.append(make)
                text(make, program)
            says = [str(one.message) for one in said]
            assert make is jax.make_jaxpr or "Primitive.bind was replaced" in says[0], says
        seen = [NOTED[NOTED.index(make) + 1:][:5] for make in NOTED if callable(make)]
        assert seen[0] == seen[1] == seen[2] and len(seen[0]) == 5, seen
        with jaxide.accelerated():
            assert_same(program)
        core.Primitive.bind.__code__ = stock
        assert_same(program)
        del NOTED[:]
        text(jaxide.make_jaxpr, program)
        assert not NOTED
    """,
    "axes that are not reduced yet": """
        import os, tempfile
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
        import jaxide
        from jax.sharding import AxisType, PartitionSpec as P
        mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        spec = P("x", None, unreduced={"y"})
        with jax.sharding.set_mesh(mesh):
            a = jax.device_put(jnp.ones((4, 8)), P("x", "y"))
            b = jax.device_put(jnp.ones((8, 4)), P("y", None))
            product = lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=spec)
            for make in (jax.jit, jaxide.jit, jaxide.jit):
                assert make(lambda a, b: product(a, b))(a, b).sharding.spec == spec
            program = jaxide.trace(product)(a, b)
            from jaxide._export.expressions import expression
            assert eval(expression(spec)) == spec
            with tempfile.TemporaryDirectory() as folder:
                program.save(f"{folder}/program")
                assert jaxide.load(f"{folder}/program") == program
    """,
    "leaves that become trees": """
        import jaxide
        window = (slice(1, 2), 3.0)
        @jax.custom_jvp
        def f(x):
            return x * len(jax.tree.leaves(window))
        f.defjvp(lambda p, t: (f(*p), t[0]))
        program = lambda x: f(x)
        warm(program)
        jax.tree_util.register_pytree_node(
            slice, lambda s: ((s.start, s.stop), None), lambda _, c: slice(*c)
        )
        assert_same(program)
    """,
}
PRELUDE = """
import contextlib
import sys
import jax, jax.numpy as jnp

def text(make, program):
    return str(make(lambda x: program(x))(jnp.ones(3)))

def warm(program):
    import jaxide
    for _ in range(4):
        text(jaxide.make_jaxpr, program)

def assert_same(program):
    import jaxide
    assert text(jaxide.make_jaxpr, program) == text(jax.make_jaxpr, program)
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_in_a_process(name: str) -> None:
    made = run_alone(PRELUDE + textwrap.dedent(SCRIPTS[name]))
    assert "JaxideFallbackWarning" not in made.stderr


# ---- what numpy's objects say -------------------------------------------------------------------

TIME: Any = None
RECORD: Any = None
FIELDS: Any = None
STRUCT: Any = None
OBJECTS: Any = None


@ruled
def reading_a_time(x: Any) -> Any:
    return x * float(TIME / np.timedelta64(1, "s"))


@ruled
def reading_a_record(x: Any) -> Any:
    return x * int(RECORD["a"])


@ruled
def writing_to_a_record(x: Any) -> Any:
    RECORD["a"] = RECORD["a"] + 1
    return x * 2


@ruled
def reading_fields(x: Any) -> Any:
    return x * FIELDS["a"].itemsize


@ruled
def reading_a_struct(x: Any) -> Any:
    return x * STRUCT.dtype.num * (2 if isinstance(STRUCT.shape[0], bool) else 7)


@ruled
def reading_objects(x: Any) -> Any:
    return x * OBJECTS[0][0]


def record(*names: str) -> Any:
    return np.array([(1, 2)], [(name, "i4") for name in names])[0]


def test_times_have_a_unit() -> None:
    global TIME
    for unit in "ssssmh":
        TIME = np.timedelta64(5, unit)
        assert_same(lambda x: reading_a_time(x))


@pytest.mark.parametrize("kind", ["timedelta64", "datetime64"])
def test_static_times_have_a_unit(kind: str) -> None:
    scaled = jax.jit(lambda x, t: x * t.astype(kind + "[s]").astype(int), static_argnums=1)
    for make in (jax.jit, jaxide.jit):
        times = [getattr(np, kind)(5, unit) for unit in ("s", "s", "s", "s", "m", "h")]
        made = [float(make(lambda x, t=t: scaled(x, t))(1.0)) for t in times]
        assert made == [5.0, 5.0, 5.0, 5.0, 300.0, 18000.0]


def test_records_have_names() -> None:
    global RECORD
    for names in ("ab", "ab", "ab", "ab", "ba"):
        RECORD = record(*names)
        assert_same(lambda x: reading_a_record(x))


def test_records_may_be_written_to() -> None:
    global RECORD
    RECORD = record("a", "b")
    for _ in range(6):
        text(jaxide.make_jaxpr, lambda x: writing_to_a_record(x))
    assert int(RECORD["a"]) == 7


def test_fields_may_get_other_names() -> None:
    global FIELDS
    FIELDS = np.dtype([("a", "i4"), ("b", "i8")])
    named = jax.extend.core.Primitive("named")
    named.def_abstract_eval(lambda x, *, t: jax.core.ShapedArray((len(t.names[0]),), x.dtype))
    for names in ("ab", "ab", "ab", "ab", "ba"):
        FIELDS.names = tuple(names)
        assert_same(lambda x: reading_fields(x))
    for name in ("a", "a", "a", "a", "abc"):
        FIELDS.names = (name, "b" + name)
        assert_same(lambda x: named.bind(x, t=FIELDS) + 1)


def test_equal_structs_may_differ() -> None:
    global STRUCT
    for shape, dtype in [((1,), "int64")] * 4 + [((1,), "longlong"), ((True,), "int64")]:
        STRUCT = jax.ShapeDtypeStruct(shape, np.dtype(dtype))
        assert_same(lambda x: reading_a_struct(x))


def test_objects_in_arrays_may_change() -> None:
    global OBJECTS
    OBJECTS = np.array([[1], None], dtype=object)
    for number in (1, 1, 1, 1, 2):
        OBJECTS[0][0] = number
        assert_same(lambda x: reading_objects(x))


# ---- what numpy does about errors ---------------------------------------------------------------

MODES = ["ignore"] * 5 + ["raise"] * 2 + ["ignore"] + ["warn"] * 2 + ["call", "raise", "ignore"]


def test_the_error_state_of_numpy() -> None:
    def scaled(x: Any) -> Any:
        try:
            return x * jnp.asarray(np.float64(1e300), jnp.float32)
        except FloatingPointError:
            return x * jnp.finfo(jnp.float32).max

    def program(mode: str) -> Callable[[Any], Any]:
        def made(x: Any) -> Any:
            with np.errstate(over=mode):  # type: ignore[call-overload]
                return scaled(x)

        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mode in filter("call".__ne__, MODES):
            assert_same(program(mode))
            stock, made = (jit(program(mode))(np.float32(1)) for jit in (jax.jit, jaxide.jit))
            assert stock == made


def test_errors_of_numpy_are_said_again() -> None:
    def seen(make: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for mode in MODES:
            called: list[Any] = []
            with (
                np.errstate(invalid=mode, call=lambda *args: called.append(args)),  # type: ignore[call-overload]
                warnings.catch_warnings(record=True) as said,
            ):
                warnings.simplefilter("always")
                try:
                    text(make, lambda x: x + jnp.asarray(np.float32("nan"), jnp.int32))
                    raised = ""
                except FloatingPointError as error:
                    raised = str(error)
            found.append((mode, raised, len(said), len(called)))
        return found

    assert seen(jaxide.make_jaxpr) == seen(jax.make_jaxpr)


def test_meshes_that_are_set_around_shard_map() -> None:
    """Within, the abstract mesh is the same one. Equations of jits have the mesh that is set."""
    mesh = jax.make_mesh((1,), ("x",))
    spec = jax.sharding.PartitionSpec()
    functions: list[Callable[[Any], Any]] = [
        lambda a: jnp.var(a, 0),
        lambda a: jax.vmap(lambda t: jnp.where(t.sum() > 0, t, 0.0), 1)(a),
        lambda a: jax.jit(lambda t: jnp.clip(t, 0, 1))(a),
    ]

    def text(trace: Any, function: Any, is_set: bool) -> str:
        mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
            return str(trace(lambda a: mapped(a))(jnp.ones((3, 4))))

    for function in functions:
        for is_set in (False, True) * 2 + (True, False, True):
            ours = text(jaxide.make_jaxpr, function, is_set)
            assert ours == text(jax.make_jaxpr, function, is_set)
            assert ("ctx_mesh" in ours) is is_set
