"""Programs of users in files: rules and trees by name, what is left out, and what says so."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
import oracle
import user_models
from jaxide import StorageError, _compat, _core
from jaxide._compat import stored_structures, stored_trees
from jaxide._compat.stored_structures import StoredTree
from jaxide._native import program_files, symbolic_texts
from storing import loaded, stored

X = jnp.arange(3.0) - 1
MODEL = pytest.mark.parametrize("name", user_models.MODELS)


@functools.cache
def model(name: str) -> tuple[jaxide.Program, tuple[Any, ...]]:
    fun, args = user_models.MODELS[name]()
    return jaxide.trace(fun)(*args), args


# ---- models ------------------------------------------------------------------------------------


@MODEL
def test_models_survive(name: str, tmp_path: Path) -> None:
    program, args = model(name)
    program.save(tmp_path / "step.jaxide")
    again = jaxide.load(tmp_path / "step.jaxide")
    assert str(again) == str(program)
    assert again.content_hash == program.content_hash
    assert again.structural_hash == program.structural_hash
    # Functions within functions of equinox: what is called where a solver fails, and rules.
    lost = name == "diffrax_ode"
    said = ("was left out", "which a file does not have")
    assert all(text.endswith(said) or said[0] in text for text in again.left_out)
    assert bool(again.left_out) is lost
    assert (again == program) is (not lost)
    assert lost or str(again.diff(program)) == str(program.diff(program))
    expected, actual = program(*args), again(*args)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    assert oracle.describe_value(actual) == oracle.describe_value(expected)


@MODEL
def test_models_where_nothing_is_imported(name: str, tmp_path: Path) -> None:
    """Text and hash are there in any process. What is not is named."""
    program, args = model(name)
    program.save(tmp_path / "step.jaxide")
    script = """
import sys, jax, jaxide
program = jaxide.load(sys.argv[1])
assert not {"flax", "optax", "equinox", "diffrax", "numpyro"} & sys.modules.keys()
print(program.content_hash, len(program.in_avals), *program.left_out, sep="\\n")
"""
    command = [sys.executable, "-c", script, str(tmp_path / "step.jaxide")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, num_inputs, *left_out = done.stdout.splitlines()
    assert int(found) == program.content_hash
    assert int(num_inputs) == len(jax.tree.leaves(args))
    has_others = name not in ("scan_rnn", "diffrax_ode")
    assert any("which is not registered with jax here" in text for text in left_out) is has_others


# ---- rules -------------------------------------------------------------------------------------


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize(
    "fun",
    [
        jax.nn.relu,
        jax.nn.softplus,
        jax.nn.silu,
        jax.nn.gelu,
        jax.nn.elu,
        jax.nn.logsumexp,
        jnp.linalg.norm,
        lambda x: jnp.logaddexp(x, 2 * x),
        lambda x: jax.vmap(jax.nn.relu)(x),
        lambda x: jax.lax.scan(lambda c, y: (c + jax.nn.relu(y), c), 0.0, x)[0],
        lambda x: jax.checkpoint(lambda y: jax.nn.softplus(y) * jax.nn.relu(y))(x),
        lambda x: jax.grad(lambda y: jax.nn.relu(y * 2).sum())(x),
        lambda x: jax.jit(jax.nn.relu6)(x) + jax.lax.cond(x[0] > 0, jax.nn.relu, jnp.sin, x),
    ],
    ids=range(13),
)
def test_rules_of_jax_are_stored(fun: Callable[..., Any]) -> None:
    program = jaxide.trace(fun)(X)
    again = loaded(stored(program, complete=True))
    assert again.left_out == ()
    assert again == program and str(again) == str(program)
    batch = jnp.stack([X, X + 1])
    transforms: list[Callable[[Any], Any]] = [
        lambda f: jax.grad(lambda x: jnp.sum(f(x)))(X),
        lambda f: jax.jit(jax.grad(lambda x: jnp.sum(f(x) ** 2)))(X),
        lambda f: jax.jacfwd(f)(X),
        lambda f: jax.hessian(lambda x: jnp.sum(f(x)))(X),
        lambda f: jax.vmap(jax.grad(lambda x: jnp.sum(f(x * 2))))(batch),
        lambda f: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))(batch),
    ]
    # What a rule was traced to is remembered.
    for transform in transforms * 2:
        found = [oracle.describe_value(transform(f)) for f in (again, program)]
        assert found[0] == found[1]


OF_LIBRARY = """
from jax.extend.core import Primitive
mine_p = Primitive("primitive_of_two")
mine_p.def_impl(lambda x: x * {factor})
mine_p.def_abstract_eval(lambda x: x)
"""


def test_two_libraries_with_primitives_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {}
    for name, factor in (("first_library", 2.0), ("second_library", 3.0)):
        module: Any = types.ModuleType(name)
        exec(OF_LIBRARY.format(factor=factor), vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        program = jaxide.trace(lambda x: module.mine_p.bind(x))(X)
        contents[factor] = pickle.dumps(program), program
    for factor, (content, program) in contents.items():
        again = pickle.loads(content)
        assert again == program and str(again) == str(program)
        np.testing.assert_array_equal(again(X), X * factor)
    monkeypatch.delitem(sys.modules, "first_library")
    content, program = contents[2.0]
    again = pickle.loads(content)
    assert str(again) == str(program)
    with pytest.raises(jaxide.StorageError, match="primitive_of_two is none of jax"):
        again(X)


def test_primitives_without_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that no module has, nor one that a module has from elsewhere by now, is another
    one of its name."""
    modules: list[Any] = [types.ModuleType(name) for name in ("a_user", "library", "other")]
    for module, factor in zip(modules[1:], (2.0, 3.0), strict=True):
        exec(OF_LIBRARY.format(factor=factor), vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    user, library, other = modules
    held = library.mine_p
    held.impl.__module__ = "nowhere"  # so that nothing tells which module defines it
    del library.mine_p
    content = pickle.dumps(jaxide.trace(lambda x: held.bind(x))(X))
    with pytest.raises(jaxide.StorageError, match="primitive_of_two is none of jax"):
        pickle.loads(content)(X)
    library.mine_p = held
    user.mine_p = held
    monkeypatch.setitem(sys.modules, "a_user", user)
    content = pickle.dumps(jaxide.trace(lambda x: held.bind(x))(X))
    np.testing.assert_array_equal(pickle.loads(content)(X), X * 2.0)
    user.mine_p = other.mine_p
    with pytest.raises(jaxide.StorageError, match="primitive_of_two is none of jax"):
        pickle.loads(content)(X)


RULED = """
import jax
import jax.numpy as jnp

@jax.custom_jvp
def clipped(x):
    return jnp.clip(x, 0, 1)

@clipped.defjvp
def _(primals, tangents):
    return clipped(*primals), tangents[0] * {factor}

@jax.jit
@jax.custom_vjp
def doubled(x, y):
    return x * 2 + y

def forward(x, y):
    return doubled(x, y), (x, y)

def backward(residuals, cotangent):
    x, y = residuals
    return cotangent * {factor} * x, cotangent * y

doubled.__wrapped__.defvjp(forward, backward)

@jax.custom_batching.custom_vmap
def summed(x):
    return x.sum()

@summed.def_vmap
def _(axis_size, in_batched, x):
    return x.sum(1) * {factor}, True

def fun(x):
    return clipped(x) + doubled(x, x).sum() + summed(jax.lax.stop_gradient(x))
"""


@pytest.fixture
def ruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "ruled.py").write_text(RULED.format(factor=3))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("ruled")
    sys.modules.pop("ruled", None)


def derived(fun: Any) -> Any:
    batch = jnp.stack([X, X + 1])
    return jax.grad(lambda x: fun(x).sum())(X), jax.vmap(fun)(batch), jax.jacrev(fun)(X)


def test_rules_of_modules_are_stored_by_name(ruled: Any, tmp_path: Path) -> None:
    program = jaxide.trace(ruled.fun)(X)
    content = stored(program, complete=True)
    again = loaded(content)
    assert again.left_out == () and str(again) == str(program)
    described = oracle.describe_value
    assert described(derived(again)) == described(derived(program)) == described(derived(ruled.fun))
    # In a process that has imported the module later, or never.
    (tmp_path / "step.jaxide").write_bytes(content)
    script = f"""
import sys, jax, jax.numpy as jnp, jaxide
sys.path.insert(0, {str(tmp_path)!r})
program = jaxide.load({str(tmp_path / "step.jaxide")!r})
print(*program.left_out, sep="\\n")
x = jnp.arange(3.0) - 1
grad = jax.grad(lambda x: program(x).sum())
assert "ruled" not in sys.modules
try:
    grad(x)
except jaxide.StorageError as error:
    print("refused:", error)
import ruled
print(grad(x).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *said, refused, values = done.stdout.splitlines()
    assert len(said) >= 4
    assert all("ruled was not imported, or has none" in text for text in [*said, refused])
    assert eval(values) == derived(ruled.fun)[0].tolist()


def test_rules_that_have_changed_are_not_used(ruled: Any, tmp_path: Path) -> None:
    program = jaxide.trace(ruled.fun)(X)
    content = stored(program)
    (tmp_path / "ruled.py").write_text(RULED.format(factor=4) + "# longer\n")
    sys.modules.pop("ruled")
    importlib.invalidate_caches()
    other = importlib.import_module("ruled")
    again = loaded(content)
    np.testing.assert_array_equal(again(X), program(X))
    assert again.structural_hash == program.structural_hash
    assert any("jvp of ruled.clipped has changed since" in text for text in again.left_out)
    assert any("bwd of ruled.doubled has changed since" in text for text in again.left_out)
    with pytest.raises(StorageError, match=r"jvp of ruled\.clipped has changed since"):
        jax.grad(lambda x: again(x).sum())(X)
    # The forward rule calls `doubled`, which has the other one.
    assert any("fwd of ruled.doubled has changed since" in text for text in again.left_out)
    assert other.fun(X).shape == (3,)


def test_rules_without_a_name_are_left_out() -> None:
    @jax.custom_vjp
    def double(x: jax.Array) -> jax.Array:
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 2,))
    program = jaxide.trace(lambda x: double(jax.nn.relu(x)))(X)
    again = loaded(stored(program))
    assert again.structural_hash == program.structural_hash
    assert str(again) == str(program)
    assert len(again.left_out) >= 2
    assert all("<lambda>" in text and "was left out" in text for text in again.left_out)
    np.testing.assert_array_equal(again(X), program(X))
    np.testing.assert_array_equal(jax.vmap(again)(jnp.stack([X, X])), jnp.stack([program(X)] * 2))
    with pytest.raises(StorageError, match="the fwd_jaxpr_thunk of custom_vjp_call, was left out"):
        jax.grad(lambda x: again(x).sum())(X)
    with pytest.raises(StorageError, match=r"drop=\('rules',\) leaves it out"):
        stored(program, complete=True)


# ---- trees -------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, value: Any, *static: Any):
        self.value, self.static = value, static

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.value,), self.static

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Registered:
        return cls(*children, *static)


SENTINEL = Registered(None)
Registered.__hash__ = lambda self: 3  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "tree",
    [
        Pair(X, {"k": X}),
        [Registered(X, 1, "a", None, 2.5, (b"b", frozenset({1})))],
        Registered(Registered(Pair(X, X), Pair), jax.nn.relu, jax.nn.gelu, dict, stored),
        Registered(X, SENTINEL, np.dtype("int8"), jax.tree.structure((1, 2)), Pair(1, [2])),
        Registered(X, jax.sharding.AxisType.Auto, jax.ShapeDtypeStruct),
    ],
    ids=range(5),
)
def test_registered_trees_are_stored(tree: Any) -> None:
    program = jaxide.trace(lambda t: jax.tree.map(lambda x: x * 2, t))(tree)
    content = stored(program, complete=True)
    again = loaded(content)
    assert jax.tree.structure(again(tree)) == jax.tree.structure(tree)
    assert again.left_out == () and again == program and stored(again) == content


def test_trees_without_a_name_are_left_out() -> None:
    class Local(NamedTuple):
        x: Any

    program = jaxide.trace(lambda t: Local(t.x * 2))(Local(X))
    again = loaded(stored(program))
    assert again.left_out == ("the structure of arguments and results was left out",)
    np.testing.assert_array_equal(again(X)[0], X * 2)
    for options in ({"complete": True}, {"complete": True, "drop": ("rules",)}):
        with pytest.raises(StorageError, match=r"Local is no class.*drop=\('trees',\)"):
            stored(program, **options)
    assert loaded(stored(program, complete=True, drop=("trees",))).left_out == again.left_out
    # Those that have a name are left out where that is asked for.
    named = jaxide.trace(lambda t: t.first)(Pair(X, X))
    assert loaded(stored(named, drop=("trees",))).left_out == again.left_out
    assert loaded(stored(named, drop=("rules", "trees", "callbacks"))).left_out == again.left_out


# ---- copies ------------------------------------------------------------------------------------


@MODEL
def test_copies(name: str) -> None:
    program, _ = model(name)
    again = pickle.loads(pickle.dumps(program))
    assert again.content_hash == program.content_hash and str(again) == str(program)
    for copied in (copy.copy(program), copy.deepcopy({"program": program})["program"]):
        assert copied == program


# ---- files that somebody made up ---------------------------------------------------------------


class Forged(program_files.FileRecords):
    """Records that somebody made up: of the first object of a kind."""

    def __init__(self, kind: str, name: str, parts: Any):
        super().__init__(_compat.program_files())
        self._forged: tuple[str, str, Any] | None = (kind, name, parts)

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        kind, parts = super().record(value, place)
        if self._forged is not None and self._forged[0] == kind:
            kind, parts = self._forged[1:]
        return kind, parts


PROGRAM = "program tree"
PLACE = ("jax._src.nn.functions", "relu", 0, "jvp", ("os", "system"), "", "")


@pytest.mark.parametrize(
    ("kind", "name", "parts", "message"),
    [
        ("rule", "rule", ("os", "system", *PLACE[2:]), "left out"),
        ("rule", "rule", (*PLACE[:2], 0, "__class__", *PLACE[4:]), "left out"),
        ("rule", "rule", (*PLACE[:2], 99, *PLACE[3:]), "left out"),
        ("rule", "rule", (1, 2, *PLACE[2:]), "left out"),
        ("rule", "of a module", ("global", "os", "system"), "byte"),
        ("rule", "function", "os.system", "no function os.system"),
        ("closure", "closure", ("rule", "x", ("y",), ("os", "system"), []), "left out"),
        ("closure", "closure", 3, "byte"),
        ("wrapped", "wrapped", (None, [("os", "system", ())], [None], {}, ("", "", None)), "byte"),
        ("remembering", "remembering", (None, ("", "", None)), "byte"),
        ("single", "single", ("system", 0), "byte"),
        (PROGRAM, PROGRAM, (("registered", ("own", "system", None, None), 0),), "tree"),
        (PROGRAM, PROGRAM, (("registered", ("builtins", "exec", None, "print()"), 0),), "tree"),
        (PROGRAM, PROGRAM, (("registered", 3, 0),), "byte"),
        (PROGRAM, PROGRAM, (("none", None, 0), *[("list", None, 1)] * 600), "too deeply"),
        (PROGRAM, "tree", (False, (("none", None, 0),)), "something other than a program"),
    ],
)
def test_records_that_somebody_made_up(kind: str, name: str, parts: Any, message: str) -> None:
    """Nothing is called; a function that is none of those that a file may have is not there."""
    program = jaxide.trace(jax.nn.relu)(X)
    trees = map(StoredTree.of, (program._in_tree, program._out_tree))
    root = (jax.__version__, program.jaxpr, tuple(trees))
    content = _core.save(root, Forged(kind, name, parts))
    if message not in ("tree", "left out"):
        with pytest.raises(StorageError, match=message):
            loaded(content)
        return
    again = loaded(content)
    if message == "tree":
        assert any("not registered with jax here" in text for text in again.left_out)
    elif message == "left out":
        assert again.left_out
        with pytest.raises((StorageError, TypeError)):
            jax.grad(lambda x: again(x).sum())(X)


def test_trees_among_params_make_nothing() -> None:
    """jax calls some of what it unpacks. A file has these nodes by name."""
    rows = (("leaf", None, 0), ("registered", ("jax._src.tree_util", "Partial", "(system,)"), 1))
    tree = stored_trees.param_tree_of((False, rows))
    assert str(tree) == "PyTreeDef(CustomNode(Partial[(system,)], [*]))"
    assert stored_trees.missing_classes(tree) == ["jax._src.tree_util.Partial"]
    with pytest.raises(
        StorageError, match=r"does not have the class jax\._src\.tree_util\.Partial"
    ):
        jax.tree.unflatten(tree, [X])
    with pytest.raises(StorageError, match="none of jax's"):
        stored_trees.tree_of(rows)
    partial = jax.tree_util.Partial(jnp.sin, X)
    program = jaxide.trace(lambda f: f())(partial)
    assert loaded(stored(program)).left_out == (
        "the structure of arguments and results was left out",
    )


def test_callbacks_of_a_file_are_no_functions() -> None:
    class Called(program_files.FileRecords):
        def function(self, value: Any, place: str, what: str) -> tuple[str, Any]:
            return "rule", ("jax._src.nn.functions", "relu", 0, "jvp", ("a", "b"), "", "")

    program = jaxide.trace(lambda x: jax.pure_callback(lambda x: x, x, x))(X)
    trees = tuple(map(StoredTree.of, (program._in_tree, program._out_tree)))
    root = (jax.__version__, program.jaxpr, trees)
    content = _core.save(root, Called(_compat.program_files()))
    with pytest.raises(StorageError, match="of the file has a rule"):
        loaded(content)


class Held:
    """A value of which only the record is there."""

    def __init__(self, kind: str, parts: Any):
        self.record = kind, parts


# A function of a module, which a file may have where a transformation calls it.
RULE = Held("rule", ("jax._src.nn.functions", "relu", 0, "jvp", ("a", "b"), "", ""))


class WithHeld(program_files.FileRecords):
    """Records with others in place of some."""

    guarded_params = frozenset()

    def __init__(self, replaced: Callable[[tuple[str, Any], Any], tuple[str, Any] | None]):
        super().__init__(_compat.program_files())
        self._replaced = replaced

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        if isinstance(value, Held):
            return value.record
        record = super().record(value, place)
        return self._replaced(record, value) or record


def with_params(program: jaxide.Program, **params: Any) -> Any:
    """The jaxpr of a program, with other params of the first equation."""
    closed = program.jaxpr
    first, *rest = getattr(closed, "jaxpr", closed).eqns
    eqns = [first.replace(params={**first.params, **params}), *rest]
    return closed.replace(jaxpr=getattr(closed, "jaxpr", closed).replace(eqns=eqns))


def forged_file(jaxpr: Any, replaced: Any = lambda record, value: None) -> bytes:
    return _core.save((jax.__version__, jaxpr, (None, None)), WithHeld(replaced))


def seeded(seed: Any) -> Any:
    return jax.random.key_data(jax.random.key(seed))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (("partial", (RULE, ("/etc/passwd",), {})), "a partial has a"),
        (RULE.record, "a .*PRNGImpl of the file has a rule"),
        (("function", "jax._src.random.prng.threefry_split"), "none of jax's own|no function"),
    ],
    ids=["partial", "rule", "other"],
)
def test_executing_a_program_calls_no_function_of_its_file(made: Any, message: str) -> None:
    def seed(record: tuple[str, Any], value: Any) -> tuple[str, Any] | None:
        return made if record[0] == "function" and "seed" in record[1] else None

    program = jaxide.trace(seeded)(jnp.uint32(3))
    assert loaded(stored(program))(jnp.uint32(3)).tolist() == [0, 3]
    with pytest.raises(StorageError, match=message):
        loaded(forged_file(program.jaxpr, seed))


def test_kinds_of_keys_are_those_of_jax() -> None:
    program = jaxide.trace(seeded)(jnp.uint32(3))
    seed = getattr(program.jaxpr, "jaxpr", program.jaxpr).eqns[0]
    other = seed.params["impl"]._replace(tag="other")
    closed = with_params(program, impl=other)
    with pytest.raises(StorageError, match="the kind of keys is none of jax's own"):
        stored(jaxide.from_jaxpr(closed))
    with pytest.raises(StorageError, match="is none of jax's own"):
        loaded(forged_file(closed))


def printed(x: Any) -> Any:
    jax.debug.print("{} {x.shape}", x, x=x)
    return x


@pytest.mark.parametrize(
    "options",
    [
        (("formatter", {"float_kind": Held("value", (RULE,))}),),
        (("formatter", {"float_kind": RULE}),),
        RULE,
    ],
    ids=["nested", "formatter", "itself"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_only_params_of_rules_have_rules(options: Any, nested: bool) -> None:
    """Printing calls the formatters of numpy."""
    own = jaxide.trace(printed)(X)

    closed = with_params(own, np_printoptions=options)
    if nested:
        outer = jaxide.trace(jax.jit(printed))(X)
        closed = with_params(outer, jaxpr=closed)
    with pytest.raises(StorageError, match="the file has a rule as np_printoptions of debug_print"):
        loaded(forged_file(closed))


FORMATS = {
    "attribute": "{0.__class__.__format__.__globals__}",
    "element": "{0[_x]}",
    "later": "{} {0.shape} {x._y}",
    "width": "{0:{x.__class__}}",
    "malformed": "{0.__class__} }",
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_printed_texts_have_no_private_fields(text: str) -> None:
    program = jaxide.trace(printed)(X)
    assert not any("callback" in said for said in loaded(stored(program)).left_out)
    closed = with_params(program, fmt=text)
    with pytest.raises(StorageError, match=r"\(debug_print\).*leads to what is private"):
        stored(jaxide.from_jaxpr(closed))
    with pytest.raises(StorageError, match="the fmt of the file has the field"):
        loaded(forged_file(closed))


@pytest.mark.parametrize("record", [("function", "jax.numpy.sin"), ("class", "float32")])
def test_callbacks_of_a_file_are_nothing_else(record: tuple[str, Any]) -> None:
    class Called(program_files.FileRecords):
        def record(self, value: Any, place: str) -> tuple[str, Any]:
            return record if place.endswith(".callback") else super().record(value, place)

    program = jaxide.trace(lambda x: jax.pure_callback(lambda x: x, x, x))(X)
    root = (jax.__version__, program.jaxpr, (None, None))
    with pytest.raises(StorageError, match=r"the callback of the file is a function|byte"):
        loaded(_core.save(root, Called(_compat.program_files())))


def forged(program: jaxide.Program, results: Any, version: str = jax.__version__) -> bytes:
    """The file of a program, with other rows of the structure of results."""
    trees = StoredTree.of(program._in_tree), StoredTree(results)
    root = (version, program.jaxpr, trees)
    return _core.save(root, program_files.FileRecords(_compat.program_files()))


def named(module: str, name: str) -> Any:
    return stored_structures._Named("global", module, name, name)


# A class and how it is registered, without what jax keeps of a node.
REGISTERED = stored_structures._registration(
    stored_structures._Digests(), False, Registered, None, 1
)[:3]


@pytest.mark.parametrize(
    "node",
    [
        ("jax._src.tree_util", "Static", ("val",), named("posix", "system")),
        ("jax._src.tree_util", "Partial", None, named("posix", "system")),
        (*REGISTERED, (named("timeit", "timeit"), 3)),
    ],
    ids=["static", "partial", "registered"],
)
def test_nothing_that_a_file_names_is_in_results(node: Any) -> None:
    program = jaxide.trace(jnp.sin)(X)
    rows = (("leaf", None, 0), ("none", None, 0), ("registered", node, 1), ("tuple", None, 2))
    again = loaded(forged(program, rows))
    assert len(again.left_out) == 1
    np.testing.assert_array_equal(again(X)[0], jnp.sin(X))
    assert len(again(X)) == 1


def test_functions_in_results_are_those_that_were_given() -> None:
    program = jaxide.trace(lambda t: Registered(t.value * 2, *t.static))(Registered(X, stored, 3))
    again = loaded(stored(program, complete=True))
    made = again(Registered(X, stored, 3))
    assert type(made) is Registered and made.static == (stored, 3)
    # As in jax's structures, values count by `==`.
    assert again(Registered(X, stored, 3.0)).static == (stored, 3)
    for other in (Registered(X, loaded, 3), Registered(X, stored, 4), Registered(X, stored)):
        with pytest.raises(TypeError, match="traced with arguments of structure"):
            again(other)
    # A result with a function that no argument has.
    program = jaxide.trace(lambda x: Registered(x * 2, stored))(X)
    again = loaded(stored(program))
    said = "the structure of results has storing.stored, which no argument has"
    assert again.left_out == (said,)
    np.testing.assert_array_equal(again(X)[0], X * 2)
    with pytest.raises(StorageError, match=r"storing\.stored, which no argument has"):
        stored(program, complete=True)


def test_nodes_of_a_file_have_no_functions() -> None:
    for value in (jnp.sin, functools.partial(jnp.sin), [len], {"f": jax.nn.relu}, X):
        node = (*REGISTERED, value)
        with pytest.raises(StorageError, match="a node of a tree has a"):
            StoredTree((("leaf", None, 0), ("registered", node, 1)))


@pytest.mark.parametrize(
    "row",
    [
        ("dict", ["a"], 2),
        ("dict", ["a", "a"], 2),
        ("dict", None, 2),
        ("dict", [len, "b"], 2),
        ("OrderedDict", "ab", 2),
        ("defaultdict", ("system", ["a", "b"]), 2),
        ("tuple", ["a"], 2),
        ("leaf", None, 2),
        ("tuple", None, -1),
        ("tuple", None, 3),
    ],
    ids=range(10),
)
def test_nodes_have_what_their_kind_has(row: Any) -> None:
    rows = (("leaf", None, 0), ("leaf", None, 0), row)
    with pytest.raises(StorageError):
        StoredTree(rows)
    with pytest.raises(StorageError):
        stored_trees.tree_of(rows)


@dataclasses.dataclass
class Data:
    x: Any
    y: Any
    kept: Any = 1


jax.tree_util.register_dataclass(Data, ["x", "y"], ["kept"])


def test_nodes_of_dataclasses_have_their_fields() -> None:
    """What jax makes of too few values is not looked at."""
    program = jaxide.trace(lambda d: Data(d.y, d.x, d.kept))(Data(X, X + 1, 2))
    again = loaded(stored(program, complete=True))
    made = again(Data(X, X + 1, 2))
    assert (made.kept, type(made)) == (2, Data)
    np.testing.assert_array_equal(made.x, X + 1)
    node = (
        *stored_structures._registration(stored_structures._Digests(), False, Data, None, 1)[:3],
        (),
    )
    rows = (("leaf", None, 0), ("leaf", None, 0), ("registered", node, 2))
    trees = StoredTree.of(program._in_tree), StoredTree(rows)
    root = (jax.__version__, program.jaxpr, trees)
    records = program_files.FileRecords(_compat.program_files())
    wrong = loaded(_core.save(root, records))
    # A field that is not there has its default, or jax refuses it: nothing is read past the end.
    with contextlib.suppress(TypeError, ValueError):
        assert wrong(Data(X, X, 2)).kept == 1


def test_a_pickle_is_the_first_use(tmp_path: Path) -> None:
    path = tmp_path / "program.pkl"
    path.write_bytes(pickle.dumps(jaxide.trace(lambda x: x * 2)(1.0)))
    code = f"import pickle; print(pickle.load(open({str(path)!r}, 'rb'))(2.0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("4.0\n", "")


def test_another_jax_is_named() -> None:
    program = jaxide.trace(jnp.sin)(X)
    again = loaded(forged(program, (("leaf", None, 0),), "0.0.1"))
    assert len(again.left_out) == 1
    assert "stored by jax 0.0.1" in again.left_out[0]
    np.testing.assert_array_equal(again(X), jnp.sin(X))


def test_classes_that_are_not_here_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_trees, "MAX_MISSING", 0)
    row = ("registered", ("nobody", "Has", "()"), 1)
    tree = stored_trees.param_tree_of((False, (("leaf", None, 0), row)))
    assert str(tree) == "PyTreeDef(CustomNode(Node[()], [*]))"


LARGE = {
    "power": "b^1000000000",
    "powers": "b^3000*b^3000",
    "length": "b+" * 9000 + "b",
    "underscores": "b^1_000_000",
    "digits": "b^\uff14\uff10\uff19\uff17",
    "power of a sum": "floordiv(a+b+c, 1)^400",
    "products of sums": "*".join(["floordiv(a+b+c+d, 1)"] * 40),
    "nested powers": "floordiv(" * 20 + "b" + "^64, 1)" * 20,
    "numbers": "floordiv(" * 20 + "9" + "^64, 1)" * 20,
    "nested": "max(b, " * 150 + "a" + ")" * 150,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("kind", ["symbolic", "symbolic scope"])
def test_symbolic_dimensions_are_bounded(text: str, kind: str) -> None:
    (dim,) = jax.export.symbolic_shape("b")

    def large(record: tuple[str, Any], value: Any) -> tuple[str, Any] | None:
        if record[0] != kind:
            return None
        return kind, (f"{text} >= b",) if "scope" in kind else (record[1][0], text)

    program = jaxide.trace(jnp.sin)(jax.ShapeDtypeStruct((dim,), jnp.float32))
    with pytest.raises(StorageError, match="too large"):
        loaded(forged_file(program.jaxpr, large))


def test_constraints_of_symbolic_dimensions_are_few() -> None:
    many = [f"max(a, {i}) == c{i}" for i in range(symbolic_texts.MAX_CONSTRAINTS)]
    (dim,) = jax.export.symbolic_shape("b", constraints=["b >= 2", *many])
    program = jaxide.trace(jnp.sin)(jax.ShapeDtypeStruct((dim,), jnp.float32))
    with pytest.raises(StorageError, match="constraints of symbolic dimensions are too large"):
        stored(program)


def test_symbolic_dimensions_of_use_are_stored() -> None:
    shape = "b, 2*b^2*c + 3*floordiv(c^3 + b + -1, 4)^2 + -1*mod(b, 3), max(b, c*b)"
    dims = jax.export.symbolic_shape(shape, constraints=["b >= 2", "mod(c^2, 2) == 0", "c <= 64"])
    program = jaxide.trace(jnp.sin)(jax.ShapeDtypeStruct(dims, jnp.float32))
    again = loaded(stored(program, complete=True))
    assert str(again) == str(program)


def test_sets_within_sets_are_hashed() -> None:
    """Each set around doubled the text, whose quotes were escaped again."""
    nested = frozenset({"a"})
    for _ in range(28):
        nested = frozenset({nested})

    class Nested(program_files.FileRecords):
        def record(self, value: Any, place: str) -> tuple[str, Any]:
            kind, parts = super().record(value, place)
            return (
                (kind, {**parts, "cur_abstract_mesh": nested})
                if kind == "context"
                else (kind, parts)
            )

    root = (jax.__version__, jaxide.trace(jnp.sin)(X).jaxpr, (None, None))
    content = _core.save(root, Nested(_compat.program_files()))
    assert loaded(content).content_hash == loaded(content).content_hash
    assert len(_compat.objects().describe_settled(nested)) < 1 << 14


def test_static_functions_are_not_replaced(ruled: Any) -> None:
    """A rule may compare what it was given."""
    rule = jax.custom_jvp(lambda mode, x: x, nondiff_argnums=(0,))
    rule.defjvp(lambda mode, p, t: (p[0], t[0] * (2.0 if mode is derived else 3.0)))
    ruled.compared = rule
    program = jaxide.trace(lambda x: ruled.compared(derived, x))(X)
    again = loaded(stored(program))
    assert len(again.left_out) == 1
    with pytest.raises(StorageError, match="was left out"):
        jax.grad(lambda x: again(x).sum())(X)


@pytest.mark.parametrize(
    "value", ["np.float32(3)", "np.ones(2)", "{1, 2}", "Mode.A", "len", "(1, [2.5], None)"]
)
@pytest.mark.parametrize("other", ["np.float32(4)", "np.zeros(2)", "{1, 3}", "Mode.B", "abs", "()"])
def test_what_a_rule_closes_over_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, other: str
) -> None:
    code = """
import enum, jax, numpy as np
class Mode(enum.Enum):
    A = 1
    B = 2
def make(value):
    def rule(primals, tangents):
        value
        return primals[0], tangents[0]
    return rule
fun = jax.custom_jvp(lambda x: x)
fun.defjvp(make({}))
"""
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType("closing")
    monkeypatch.setitem(sys.modules, "closing", module)
    exec(code.format(value), vars(module))
    program = jaxide.trace(lambda x: module.fun(x))(X)
    content = stored(program, complete=True)
    assert loaded(content).left_out == ()
    exec(code.format(other), vars(module))
    assert any("has changed" in text for text in loaded(content).left_out)


CHANGED = """
import collections, enum, functools, random
import jax, jax.numpy as jnp, jax.scipy.special, ml_dtypes, numpy as np

def make(helper):
    @jax.custom_jvp
    def f(x): return jnp.sin(x)
    f.defjvp(lambda p, t: (jnp.sin(*p), helper(t[0])))
    return f

@jax.jit
def jitted(t): return t * FACTOR

@jax.custom_jvp
def custom(t): return t * FACTOR
custom.defjvp(lambda p, t: (p[0], t[0]))

class Mode(enum.Enum):
    SCALE = FACTOR

class Callable:
    def __new__(cls, t): return t * FACTOR

class Scale:
    k = FACTOR

class Inherited(Scale):
    pass

def attributed(t): return t
attributed.k = FACTOR

class Stateful(enum.Enum):
    ONE = 1
    k = enum.nonmember(FACTOR)

Stateful.ONE.extra = FACTOR

class Cached:
    @functools.cached_property
    def k(self): return FACTOR

SCALE = FACTOR

def wrapping(g):
    @functools.wraps(g)
    def inner(*a): return g(*a)
    return inner

jit = make(jitted)
custom_rule = make(custom)
member = (lambda m: make(lambda t: t * m.value))(Mode.SCALE)
class_ = make(Callable)
jax_array = (lambda a: make(lambda t: t * a))(jnp.float32(FACTOR))
ordered = (lambda o: make(lambda t: t * o["k"]))(collections.OrderedDict(k=FACTOR))
counter = (lambda o: make(lambda t: t * o["k"]))(collections.Counter(k=FACTOR))
partial = (lambda o: make(lambda t: t * o.args[0]))(jax.tree_util.Partial(len, FACTOR))
masked = (lambda o: make(lambda t: t * o.data[0]))(np.ma.array([FACTOR]))
random_ = (lambda o: make(lambda t: t * float(o.getstate()[1][0])))(random.Random(FACTOR))
nonmember = (lambda m: make(lambda t: t * m.k))(Stateful)
attribute_of_member = (lambda m: make(lambda t: t * m.extra))(Stateful.ONE)
cached = (lambda c: make(lambda t: t * c().k))(Cached)
constant = make(lambda t: t * SCALE)
of_jax = jax.custom_jvp(lambda x, y: x * y)
of_jax.defjvp(RULE.jvp)
attribute = (lambda g: make(lambda t: t * g.k))(attributed)
class_attribute = (lambda c: make(lambda t: t * c.k))(Scale)
base = (lambda c: make(lambda t: t * c.k))(Inherited)
wrapped = make(wrapping(jitted))
bits, numbers = np.array([60], np.uint8).view(DTYPE), (2.0, 5.0)
dtype = (lambda a: make(lambda t: t * a.astype(np.float32)[0]))(bits)
record = np.array(numbers, [(name, "f4") for name in FIELDS])
fields = (lambda a: make(lambda t: t * float(a["k"])))(record)
"""
BEFORE = {
    "FACTOR": "2.0",
    "DTYPE": "ml_dtypes.float8_e4m3fn",
    "FIELDS": "'kj'",
    "RULE": "jax.scipy.special.xlogy",
}
AFTER = {
    "FACTOR": "5.0",
    "DTYPE": "ml_dtypes.float8_e4m3b11fnuz",
    "FIELDS": "'jk'",
    "RULE": "jax.scipy.special.xlog1py",
}
KINDS = (
    "jit custom_rule member class_ attribute class_attribute base wrapped dtype fields jax_array "
    "ordered counter partial masked random_ nonmember attribute_of_member cached constant of_jax"
).split()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rule_has_by_a_closure_counts_whole(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    module = types.ModuleType("closing")
    monkeypatch.setitem(sys.modules, "closing", module)

    def written(values: dict[str, str]) -> Any:
        code = functools.reduce(lambda text, item: text.replace(*item), values.items(), CHANGED)
        exec(code, vars(module))
        return getattr(module, kind)

    args = (1.0, 2.0) if kind == "of_jax" else (1.0,)
    program = jaxide.trace(written(BEFORE))(*args)
    content = stored(program)
    gradient = jax.grad(program)(*args)
    # The same module again: rules are used or were left out, never other ones.
    written(BEFORE)
    again = loaded(content)
    if not again.left_out:
        assert jax.grad(again)(*args) == gradient
    written(AFTER)
    again = loaded(content)
    if kind == "of_jax" and not again.left_out:
        # The rule is known by the function of jax's that has it, which is what it was.
        assert jax.grad(again)(*args) == gradient
        return
    assert again.left_out
    with pytest.raises(StorageError, match=r"changed since|left out"):
        jax.grad(again)(*args)


def test_options_of_jits_are_not_stored() -> None:
    """jax gives them to no jit within another, a program may have them all the same."""
    closed = jax.make_jaxpr(jax.jit(lambda x: x * 2))(X)
    jaxpr = getattr(closed, "jaxpr", closed)
    (eqn,) = jaxpr.eqns
    options = (("xla_dump_to", "somewhere"),)
    eqn = eqn.replace(params={**eqn.params, "compiler_options_kvs": options})
    program = jaxide.from_jaxpr(closed.replace(jaxpr=jaxpr.replace(eqns=[eqn])))
    with pytest.raises(StorageError, match="options of XLA's may name files"):
        stored(program)

    class Unguarded(program_files.FileRecords):
        guarded_params = frozenset()

    root = (jax.__version__, program.jaxpr, (None, None))
    content = _core.save(root, Unguarded(_compat.program_files()))
    with pytest.raises(StorageError, match="the file has options of XLA's"):
        loaded(content)


def test_targets_that_call_python_are_refused() -> None:
    call = jax.ffi.ffi_call("xla_ffi_python_cpu_callback", jax.ShapeDtypeStruct((3,), jnp.float32))
    program = jaxide.trace(lambda x: call(x, index=np.uint64(0)))(X)
    content = stored(program)
    with pytest.raises(StorageError, match="which calls Python functions"):
        loaded(content)


def test_odd_values_of_nodes_are_left_out() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for value in ((jnp.ones(2),), cyclic, object()):
        program = jaxide.trace(lambda t: t.value * 2)(Registered(X, value))
        again = loaded(stored(program))
        assert again.left_out == ("the structure of arguments and results was left out",)
        pickle.dumps(program)


class Model:
    def __init__(self, number: float):
        self.number = number

    def apply(self, x: Any) -> Any:
        return x * self.number


class Shaped:
    """What is made of nothing but arrays."""

    def __init__(self, value: Any, kept: Any = None):
        self.value, self.kept, self.shape = value, kept, value.shape


jax.tree_util.register_pytree_node(
    Shaped, lambda node: ((node.value,), node.kept), lambda kept, values: Shaped(*values, kept)
)


def test_nodes_that_want_arrays_are_stored() -> None:
    program = jaxide.trace(lambda node: Shaped(node.value + 1, node.kept))(Shaped(X, len))
    made = loaded(stored(program, complete=True))(Shaped(X, len))
    assert made.shape == X.shape and made.kept is len
    functions = [lambda x: x + number for number in range(2)]
    program = jaxide.trace(lambda node: Shaped(node.value, functions[1]))(Shaped(X, functions[0]))
    assert loaded(stored(program)).left_out


@pytest.mark.parametrize("way", ["method", "function"])
def test_functions_of_nodes_are_those_that_were_given(way: str) -> None:
    """Such as `apply_fn` of a `TrainState` of flax, and its optimizer. They count by their names,
    so there may be one of each."""

    def state(number: float) -> Data:
        return Data(X, X, Model(number).apply if way == "method" else lambda x: x * number)

    program = jaxide.trace(lambda t: Data(t.kept(t.x), t.y, t.kept))(state(2.0))
    again = loaded(stored(program, complete=True))
    given = state(3.0)
    made = again(given)
    assert made.kept is given.kept
    np.testing.assert_array_equal(made.x, 2.0 * X)
    with pytest.raises(TypeError, match="traced with arguments of structure"):
        again(Data(X, X, max))
    two = lambda t, u: (Data(t.x, u.y, u.kept), t)
    assert loaded(stored(jaxide.trace(two)(state(2.0), state(3.0)))).left_out


def test_names_survive_where_nothing_is_imported(ruled: Any) -> None:
    content = stored(jaxide.trace(ruled.fun)(X))
    expected = derived(ruled.fun)
    module = sys.modules.pop("ruled")
    again = stored(loaded(content))
    assert loaded(again).left_out
    sys.modules["ruled"] = module
    assert loaded(again).left_out == ()
    assert oracle.describe_value(derived(loaded(again))) == oracle.describe_value(expected)


def test_fields_in_another_order_are_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    content = stored(jaxide.trace(lambda p: p.first - p.second)(Pair(X, X)))
    monkeypatch.setattr(Pair, "_fields", ("second", "first"))
    assert any("Pair" in text for text in loaded(content).left_out)


# A class of two numbers, and how it is registered with jax: as it was, and edited.
NODE = """
import dataclasses, functools, jax
from typing import Any

@dataclasses.dataclass
class Node:
    x: Any
    y: Any
    z: Any = 2.0
    {methods}

{registration}
"""
NODES = {
    "class": (
        """
    def tree_flatten(self): return (self.{}, self.{}), self.{}
    @classmethod
    def tree_unflatten(cls, own, children): return cls(**dict(zip("{}{}{}", (*children, own))))
""",
        "jax.tree_util.register_pytree_node_class(Node)",
    ),
    "names of a class": (
        """
    FIELDS = "{}", "{}", "{}"
    def tree_flatten(self):
        children = tuple(getattr(self, name) for name in self.FIELDS)
        return children[:2], children[2]
    @classmethod
    def tree_unflatten(cls, own, children):
        return cls(**dict(zip(cls.FIELDS, (*children, own))))
# {} {} {}
""",
        "jax.tree_util.register_pytree_node_class(Node)",
    ),
    "method": (
        """
    def names(self): return self.within()
    @staticmethod
    def within(): return "{}{}{}"
    def tree_flatten(self):
        children = tuple(getattr(self, name) for name in self.names())
        return children[:2], children[2]
    @classmethod
    def tree_unflatten(cls, own, children):
        return cls(**dict(zip(Node.within(), (*children, own))))
# {} {} {}
""",
        "jax.tree_util.register_pytree_node_class(Node)",
    ),
    "constructor": (
        """
    def __init__(self, x=None, y=None, z=2.0, children=()):
        self.x, self.y, self.z = x, y, z
        vars(self).update(zip("{}{}{}", children))
    def __iter__(self): return iter((self.{}, self.{}, self.{}))
    def tree_flatten(self): return tuple(self)[:2], tuple(self)[2]
    @classmethod
    def tree_unflatten(cls, own, children): return cls(children=(*children, own))
""",
        "jax.tree_util.register_pytree_node_class(Node)",
    ),
    "keys": (
        """
    def tree_flatten_with_keys(self):
        names = "{}{}"
        keys = tuple((jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in names)
        return keys, self.{}
    @classmethod
    def tree_unflatten(cls, own, children): return cls(**dict(zip("{}{}{}", (*children, own))))
""",
        "jax.tree_util.register_pytree_with_keys_class(Node)",
    ),
    "functions": (
        "",
        """
def unflatten(names, own, children): return Node(**dict(zip(names, (*children, own))))
jax.tree_util.register_pytree_node(
    Node, lambda n: ((n.{}, n.{}), n.{}), functools.partial(unflatten, "{}{}{}")
)
""",
    ),
    "dataclass": (
        "",
        "jax.tree_util.register_dataclass(Node, ['{}', '{}'], ['{}'])",
    ),
}
RegisteredAs = Callable[[str, str], Any]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> RegisteredAs:
    """Makes the module with the class, in a way and with the fields in an order."""

    def make(way: str, order: str) -> Any:
        parts = (text.format(*order, *order) for text in NODES[way])
        module = types.ModuleType("registered")
        monkeypatch.setitem(sys.modules, "registered", module)
        exec(
            NODE.format(**dict(zip(("methods", "registration"), parts, strict=True))), vars(module)
        )
        return module.Node

    return make


@pytest.mark.parametrize("order", ["yxz", "xzy"])
@pytest.mark.parametrize("way", NODES)
def test_how_a_class_is_registered_counts(way: str, order: str, registered: RegisteredAs) -> None:
    """Another order of children, or other children, is another structure with as many leaves."""
    node = registered(way, "xyz")
    program = jaxide.trace(lambda n: node(n.x - 10 * n.y, n.x, n.z))(node(1.0, 2.0))
    content = stored(program, complete=True)
    again = registered(way, "xyz")
    assert again is not node
    made = loaded(content)(again(1.0, 2.0))
    assert (type(made), float(made.x), float(made.y), made.z) == (again, -19.0, 1.0, 2.0)
    registered(way, order)
    changed = loaded(content)
    assert len(changed.left_out) == 1
    assert "registered.Node, which is not registered with jax here as it was" in changed.left_out[0]
    np.testing.assert_array_equal(changed(1.0, 2.0), [-19.0, 1.0])


@pytest.mark.parametrize("way", ["class", "dataclass"])
def test_a_class_may_be_edited_elsewhere(
    way: str, registered: RegisteredAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a library takes its nodes apart: other code may ask them for anything."""
    node = registered(way, "xyz")
    content = stored(jaxide.trace(lambda n: n.x - n.y)(node(1.0, 2.0)), complete=True)
    methods, registration = NODES[way]
    other = f"{methods}\n    def other(self): return 1\n"
    monkeypatch.setitem(NODES, way, (other, registration))
    node = registered(way, "xyz")
    again = loaded(content)
    assert bool(again.left_out) is (way == "class")
    if way == "dataclass":
        assert again(node(1.0, 2.0)) == -1


def test_registrations_are_compared_when_results_are_made(registered: RegisteredAs) -> None:
    """A module may be imported again after a file was loaded."""
    node = registered("dataclass", "xyz")
    again = loaded(stored(jaxide.trace(lambda n: n)(node(1.0, 2.0)), complete=True))
    other = registered("dataclass", "yxz")
    with pytest.raises(TypeError, match="traced with arguments of structure"):
        again(other(1.0, 2.0))


def test_registrations_of_libraries_count_by_name() -> None:
    for class_ in (Data, Registered):
        bytecode, *_ = stored_structures._Digests().of(class_)
        assert (bytecode == "") is (class_ is Data)
