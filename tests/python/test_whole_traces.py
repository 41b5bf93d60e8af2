"""Functions that are traced as a whole: their programs are in the store, or jax traces them."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from alone import run_alone

START = """
import os, warnings, typing, collections, functools
import jax, jax.numpy as jnp, numpy as np
from jax import lax
make = jax.make_jaxpr
x = jnp.arange(6.0).reshape(2, 3)
if os.environ["WITH"] == "jaxide":
    import jaxide
    from jaxide import _core
    make = jaxide.make_jaxpr

def show(function, *args, **kwargs):
    made = make(function)(*args, **kwargs)
    if os.environ["WITH"] == "jaxide":
        info = jaxide.cache_info()
        misses = sum(known.misses for known in info.callables.values())
        print("@", info.store.hits, misses, _core.refused_whole())
    print(made)
    print(made.pretty_print(source_info=True, name_stack=True))
    print(made.in_avals, made.out_avals, made.jaxpr.debug_info)
    print(make(function, return_shape=True)(*args, **kwargs)[1])
"""


def run(script: str, folder: Path | None, **environment: str) -> list[str]:
    """What a script prints, with jaxide and a store or with stock jax."""
    own = {"JAX_PLATFORMS": "cpu", "WITH": "jax" if folder is None else "jaxide", **environment}
    if folder is not None:
        own["JAXIDE_CACHE_DIR"] = str(folder)
    return run_alone(START + textwrap.dedent(script), **own).stdout.splitlines()


def without_counts(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("@")]


PURE = {
    "operators": "show(lambda x, y: jnp.sin(x) * y + 1.0 - x[0], x, 2.0)",
    "gradient": """
        def loss(p, x):
            y = jnp.where(x > 0, x @ p["w"].T, 0.5) + p["b"]
            return -jax.nn.log_softmax(y).mean()
        show(jax.value_and_grad(loss), {"w": jnp.ones((3, 3)), "b": jnp.zeros(3)}, x)
    """,
    "closure": """
        def made(scale, *, by=2):
            def inner(x):
                return [x * scale * n for n in range(by)]
            return lambda x: {"a": inner(x), "b": (x, None)}
        show(made(3.0), x)
    """,
    "named tuples": """
        class State(typing.NamedTuple):
            count: typing.Any
            mean: typing.Any = 0.0
        def step(state, x):
            return State(state.count + 1, mean=state.mean + x.mean()), State(x)
        show(step, State(jnp.int32(0), jnp.float32(0)), x)
    """,
    "loops": """
        def cell(c, row):
            return c + jnp.tanh(row), c.sum()
        def looped(x):
            last, sums = lax.scan(cell, x[0], x)
            return lax.cond(sums[0] > 0, jnp.sin, lambda v: v * 2, last), lax.fori_loop(
                0, 3, lambda i, c: c * i, last
            )
        show(jax.grad(lambda x: looped(x)[0].sum()), x)
    """,
    "inlined jits": """
        @functools.partial(jax.jit, inline=True)
        def inlined(x, n):
            return x * n
        @functools.partial(jax.jit, static_argnums=1, inline=True)
        def power(x, n):
            return x ** n
        show(lambda x: inlined(power(x, 3), 2.0), x)
    """,
    "generators": """
        def total(*parts, scale=1.0):
            if len(parts) > 5:
                raise ValueError(f"{len(parts)} parts")
            return sum(p * scale for p in parts), max(n for n in (1, 2))
        show(lambda x: total(x, x + 1, scale=0.5), x)
    """,
    "randoms": """
        def draw(seed):
            key, _ = jax.random.split(jax.random.key(seed))
            return jax.random.normal(key, (3,))
        show(draw, 3)
    """,
    "derivative rules": """
        def layer(p, x):
            y = jax.nn.relu(x @ p) + jax.nn.relu6(x @ p) * jax.nn.relu(x)
            return jax.vmap(jax.nn.relu)(y) + jax.vmap(jax.vmap(jax.nn.relu))(y) + jax.nn.silu(y)
        def loss(p, x):
            return layer(p, jax.nn.relu(layer(p, x))).sum()
        show(jax.value_and_grad(loss), jnp.ones((3, 3)), x)
    """,
    "transformations": """
        def f(x):
            return jnp.sum(jnp.tanh(x) ** 2)
        show(lambda x: (jax.hessian(f)(x), jax.vmap(jax.grad(f))(x), jax.jvp(f, (x,), (x,))), x)
    """,
}


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", PURE)
def test_a_second_process_runs_nothing(tmp_path: Path, name: str) -> None:
    stock, first, second = (run(PURE[name], of) for of in (None, tmp_path, tmp_path))
    assert without_counts(first) == stock
    assert without_counts(second) == stock
    [counts] = [line for line in second if line.startswith("@")]
    _, hits, misses, refused = counts.split()
    assert refused == "None"
    # Rules are made once the trace is over.
    assert (hits, misses) == ("1", "0") or (name == "derivative rules" and int(misses) < 10)


# Instead of `make_jaxpr` a jit: its trace, what is lowered, and what it computes.
JITTED = """
def show(function, *args, **settings):
    static = settings.pop("static_argnums", ())
    jitted = jax.jit(function, static_argnums=static, **settings)
    if os.environ["WITH"] == "jaxide":
        jaxide.install()
    traced = jitted.trace(*args)
    if os.environ["WITH"] == "jaxide":
        print("@", jaxide.cache_info().store.hits, _core.refused_whole())
    print(traced.jaxpr)
    print(traced.jaxpr.pretty_print(source_info=True, name_stack=True))
    print(traced.jaxpr.jaxpr.debug_info, traced.out_info)
    if "custom_jvp" not in str(traced.jaxpr):  # programs of these are lowered once
        print(traced.lower().as_text(debug_info=True))
    print(jax.make_jaxpr(jitted, static_argnums=static)(*args))
    print(jax.make_jaxpr(function, static_argnums=static)(*args))
    print(jitted(*args))
"""


def jitted(script: str) -> str:
    return JITTED + textwrap.dedent(script)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize(
    "name", ["gradient", "closure", "named tuples", "inlined jits", "derivative rules"]
)
def test_a_jit_in_a_second_process_runs_nothing(tmp_path: Path, name: str) -> None:
    script = jitted(PURE[name])
    stock, first, second = (run(script, of) for of in (None, tmp_path, tmp_path))
    assert without_counts(first) == stock
    assert without_counts(second) == stock
    assert [line for line in second if line.startswith("@")] == ["@ 1 None"]


# Scripts, a part of each, and what is there in another one.
STATIC = (
    ("show(lambda x, n: x * n, x, 2, static_argnums=1)", "2", "3"),
    ("show(lambda x, n: x * n, x, 1, static_argnums=1)", "1,", "True,"),
    ("show(lambda x, n: x * 2 + n, 2, 3, static_argnums=0)", "nums=0", "nums=1"),
    (
        "a = jax.typeof(x)\nshow(lambda a, b: jnp.zeros(a.shape), a, x, static_argnums=0)",
        "a, x, static_argnums=0",
        "x, a, static_argnums=1",
    ),
    (
        "g = lambda x: x * 2\nshow(lambda f, x: f(x), g, x, static_argnums=0)",
        "x * 2",
        "x * 3",
    ),
    (
        "show(lambda x, n: getattr(jnp, n)(x), x, 'sin', static_argnums=1)",
        "'sin'",
        "'cos'",
    ),
    (
        "show(lambda x, n: {'a': x * 2, 'b': n}, x, None, static_argnums=1)",
        "static_argnums=1",
        "static_argnums=()",
    ),
)


def test_static_arguments_are_in_the_key(tmp_path: Path) -> None:
    before = "\n".join(script for script, _, _ in STATIC)
    after = "\n".join(script.replace(of, another) for script, of, another in STATIC)
    for script in (before, after):
        stock = run(jitted(script), None)
        for _ in range(2):
            said = run(jitted(script), tmp_path)
            assert without_counts(said) == stock
        assert "@ 7 None" in said


# Each with something in another form.
PAIRS = {
    "global": ("s = 2.0\nshow(lambda x: x * s, x)", "s = 3.0\nshow(lambda x: x * s, x)"),
    "class of a number": ("s = 1\nshow(lambda x: x * s, x)", "s = True\nshow(lambda x: x * s, x)"),
    "sign of zero": ("s = 0.0\nshow(lambda x: x * s, x)", "s = -0.0\nshow(lambda x: x * s, x)"),
    "default": ("show(lambda x, n=2.0: x * n, x)", "show(lambda x, n=2.5: x * n, x)"),
    "keyword's default": (
        "def f(x, *, n=2.0): return x * n\nshow(f, x)",
        "def f(x, *, n=2.5): return x * n\nshow(f, x)",
    ),
    "closure": (
        "show((lambda n: lambda x: x * n)(2.0), x)",
        "show((lambda n: lambda x: x * n)(2.5), x)",
    ),
    "line": ("show(lambda x: x * 2, x)", "\n\nshow(lambda x: x * 2, x)"),
    "name": ("def f(x): return x * 2\nshow(f, x)", "def g(x): return x * 2\nshow(g, x)"),
    "operator": ("show(lambda x: x * 2, x)", "show(lambda x: x + 2, x)"),
    "function within": (
        "g = lambda x: x * 2\nshow(lambda x: g(x), x)",
        "g = lambda x: x + 2\nshow(lambda x: g(x), x)",
    ),
    "attribute of a jit": tuple(
        "j = jax.jit(lambda x: x, inline=True)\n"
        f"j.s = {n}\nshow(lambda x: [j(x) * g.s for g in (j,)], x)"
        for n in (2, 5)
    ),
    "attribute of a function of jax": tuple(
        f"jnp.sin.s = {n}\ndef f(x):\n    g = jnp.sin\n    return g(x) * g.s\nshow(f, x)"
        for n in (2, 5)
    ),
    "attribute of a class": tuple(
        "class C(typing.NamedTuple):\n    a: typing.Any\n"
        f"C.s = {n}\nshow(lambda c: c.a * c.s, C(x))"
        for n in (2, 5)
    ),
    "alias of a default": (
        "a = [1.0]\ndef f(x, a=a, b=a):\n    a.append(1.0)\n    n = len(b)\n    a.pop()\n"
        "    return x * n\n"
        "show(f, x)",
        "def f(x, a=[1.0], b=[1.0]):\n    a.append(1.0)\n    n = len(b)\n    a.pop()\n"
        "    return x * n\nshow(f, x)",
    ),
    "defaults of a class that somebody sets": (
        "T = collections.namedtuple('T', 'a b')\nT.__new__.__defaults__ = (2.0,)\n"
        "show(lambda x: T(x).b * x, x)",
        "T = collections.namedtuple('T', 'a b')\nT.__new__.__defaults__ = (3.0,)\n"
        "show(lambda x: T(x).b * x, x)",
    ),
    "base of a class": (
        "B = collections.namedtuple('B', 'a')\nclass T(B): pass\n"
        "show(lambda t: t.a * (2 if isinstance(t, B) else 3), T(x))",
        "B = collections.namedtuple('B', 'a')\nclass T(typing.NamedTuple):\n    a: int\n"
        "show(lambda t: t.a * (2 if isinstance(t, B) else 3), T(x))",
    ),
    "one function or two": (
        "m = lambda: lambda x: x * 2\nf = m()\ng = f\n"
        "show(lambda x: jax.jit(f)(x) + jax.jit(g)(x), x)",
        "m = lambda: lambda x: x * 2\nf = m()\ng = m()\n"
        "show(lambda x: jax.jit(f)(x) + jax.jit(g)(x), x)",
    ),
    "container of arguments": ("show(lambda a: a[0] * 2, (x,))", "show(lambda a: a[0] * 2, [x])"),
    "tree of arguments": (
        "show(lambda *a, **k: x_of(a, k), x, x)\n".replace("x_of(a, k)", "[*a, *k.values()]"),
        "show(lambda *a, **k: x_of(a, k), x, b=x)\n".replace("x_of(a, k)", "[*a, *k.values()]"),
    ),
    "names of arguments": ("show(lambda **k: k, b=x, a=x)", "show(lambda **k: k, b=x, c=x)"),
    "types of arguments": ("show(lambda a: a * 2, 1.0)", "show(lambda a: a * 2, jnp.float32(1))"),
    "list": ("l = [1, 2]\nshow(lambda x: x * l[1], x)", "l = [1, 3]\nshow(lambda x: x * l[1], x)"),
    "array": (
        "a = np.array([1, 2, 3])\nshow(lambda x: x * a[1], x)",
        "a = np.array([1, 4, 3])\nshow(lambda x: x * a[1], x)",
    ),
    "configuration": (
        "show(lambda x: x @ x.T, x)",
        "jax.config.update('jax_default_matmul_precision', 'highest')\nshow(lambda x: x @ x.T, x)",
    ),
    "64 bits": (
        "show(lambda x: x * np.arange(3)[1], x)",
        "jax.config.update('jax_enable_x64', True)\nshow(lambda x: x * np.arange(3)[1], x)",
    ),
    "fields": (
        "T = collections.namedtuple('T', 'a b')\nshow(lambda x: T(x, x + 1), x)",
        "T = collections.namedtuple('T', 'b a')\nshow(lambda x: T(x, x + 1), x)",
    ),
    "defaults of fields": (
        "T = collections.namedtuple('T', 'a b', defaults=(1.0,))\nshow(lambda x: T(x), x)",
        "T = collections.namedtuple('T', 'a b', defaults=(2.0,))\nshow(lambda x: T(x), x)",
    ),
    "class with methods": (
        "class T(typing.NamedTuple):\n    a: int\nshow(lambda t: t.a * 2, T(x))",
        "class T(typing.NamedTuple):\n    a: int\n    def __mul__(self, o): return self.a\n"
        "show(lambda t: t.a * 2, T(x))",
    ),
    "settings of a jit": (
        "f = jax.jit(lambda x: x * 2)\nshow(lambda x: f(x), x)",
        "f = jax.jit(lambda x: x * 2, inline=True)\nshow(lambda x: f(x), x)",
    ),
    "function of jax": (
        "show(lambda x: jnp.sin(x), x)",
        "jnp.sin = jnp.cos\nshow(lambda x: jnp.sin(x), x)",
    ),
    "function of numpy": (
        "show(lambda x: x * np.sqrt(4.0), x)",
        "np.sqrt = np.square\nshow(lambda x: x * np.sqrt(4.0), x)",
    ),
    "axis": (
        "show(lambda x: x * 2, x)",
        "show(jax.vmap(lambda x: x * lax.axis_index('i'), axis_name='i'), x)",
    ),
}


# What these change, the scripts after them in one process would find changed; or their lines.
ALONE = (
    "line",
    "attribute of a function of jax",
    "configuration",
    "64 bits",
    "function of jax",
    "function of numpy",
)
TOGETHER = [name for name in PAIRS if name not in ALONE]
GROUPS = [*([name] for name in ALONE), *(TOGETHER[start::4] for start in range(4))]


def at_the_same_lines(names: list[str]) -> Iterator[str]:
    """The scripts of each of the two forms."""
    heights = [max(script.count("\n") + 1 for script in PAIRS[name]) for name in names]
    for form in (0, 1):
        scripts = [PAIRS[name][form].splitlines() for name in names]
        padded = ([*s, *[""] * (h - len(s))] for s, h in zip(scripts, heights, strict=True))
        yield "\n".join(itertools.chain.from_iterable(padded))


@pytest.mark.parametrize("names", GROUPS, ids="; ".join)
def test_whatever_counts_is_in_the_key(tmp_path: Path, names: list[str]) -> None:
    """The second process has something else, the third one what the first had."""
    before, after = at_the_same_lines(names)
    run(before, tmp_path)
    assert without_counts(run(after, tmp_path)) == run(after, None)
    assert without_counts(run(before, tmp_path)) == run(before, None)


IMPURE = {
    "prints": "def f(x):\n    print('traced')\n    return x * 2\nshow(f, x)",
    "appends": "l = []\ndef f(x):\n    l.append(1)\n    return x * len(l)\nshow(f, x)\nprint(l)",
    "warns": "def f(x):\n    warnings.warn('here')\n    return x\nshow(f, x)",
    "warning of jax": "show(lambda x: x.astype(jnp.float64), x)",
    "writes to an array": (
        "a = np.zeros(2)\ndef f(x):\n    np.add(a, 1, a)\n    return x\nshow(f, x)\nprint(a)"
    ),
    "state": "n = iter(range(9))\nshow(lambda x: x * next(n), x)",
    "default that changes": "def f(x, l=[]):\n    l.append(1)\n    return x * len(l)\nshow(f, x)",
    "captured array": "a = jnp.ones(3)\nshow(lambda x: x * a, x)",
    "effects": "def f(x):\n    jax.debug.print('{}', x)\n    return x\nshow(f, x)",
    "text of an array": "a = np.arange(3.0)\nshow(lambda x: {str(a): x}, x)",
    "attribute of a class": (
        "class C:\n    @property\n    def n(self):\n        print('read')\n        return 2\n"
        "c = C()\nshow(lambda x: x * c.n, x)"
    ),
    "context": "def f(x):\n    with jax.named_scope('here'):\n        return x * 2\nshow(f, x)",
    "class of trees": (
        "@jax.tree_util.register_pytree_node_class\nclass C:\n"
        "    def __init__(self, a): print('made'); self.a = a\n"
        "    def tree_flatten(self): return (self.a,), None\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, a): return cls(*a)\n"
        "show(lambda c: c.a * 2, C(x))"
    ),
}


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", IMPURE)
def test_what_does_more_than_compute_runs(tmp_path: Path, name: str) -> None:
    script = "warnings.simplefilter('always')\n" + IMPURE[name]
    stock = run(script, None)
    for _ in range(2):
        assert without_counts(run(script, tmp_path)) == stock


SETS = {
    "of a global": "s = {'alpha', 'beta', 'gamma'}\nshow(lambda x: [x * len(k) for k in s], x)",
    "in code": "show(lambda x: [x * len(k) for k in {'alpha', 'beta', 'gamma'}], x)",
    "made of a dict": "show(lambda d: [d[k] * len(k) for k in set(d)], dict(alpha=x, beta=x, c=x))",
    "of a view": (
        "show(lambda d: [d[k] * len(k) for k in d.keys() & d.keys()], dict(alpha=x, beta=x, c=x))"
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_the_order_of_sets(tmp_path: Path, name: str) -> None:
    """It is another one in each process."""
    run(SETS[name], tmp_path, PYTHONHASHSEED="1")
    said = run(SETS[name], tmp_path, PYTHONHASHSEED="2")
    assert without_counts(said) == run(SETS[name], None, PYTHONHASHSEED="2")


ORDERS = {
    "another configuration after it": """
        show(lambda x: jnp.var(x) + jnp.where(x > 0, x, 0.5).sum(), x)
        with jax.enable_x64(True):
            show(lambda x: jnp.var(x) * 2, x)
            print(jax.jit(lambda x: jnp.where(x > 0, x, 0.5))(x))
        show(jax.grad(lambda x: jnp.var(x)), x)
    """,
    "other random numbers": """
        key = jax.random.key_data(jax.random.key(7))
        def f(seed):
            return jax.random.normal(jax.random.key(seed), (3,))
        show(f, 7)
        with jax.threefry_partitionable(False):
            print(jax.random.normal(jax.random.key(7), (5,)))
            show(lambda seed: f(seed) * 2, 7)
    """,
    "derived by an earlier process": """
        if os.environ.get("FIRST") == "1":
            show(jax.grad(jnp.var), x)
        def var(x):
            return jnp.var(x)
        show(var, x)
        show(jax.grad(var), x)
    """,
    "a program of a jit with a literal": """
        def f(x):
            return jnp.heaviside(x, 0.5) * x
        show(f, x)
        show(lambda x: jnp.nan_to_num(x) + f(x), x)
    """,
    "warnings of numpy": """
        if "FIRST" in os.environ:
            warnings.simplefilter("ignore")
        zero = np.float64(0)
        def f(x):
            return x * (np.float64(1) / zero)
        try:
            with warnings.catch_warnings():
                if "FIRST" not in os.environ:
                    warnings.simplefilter("error")
                show(f, x)
        except RuntimeWarning as error:
            print(error)
    """,
    # jax keeps what it has traced of a function, whatever the function reads by then.
    "a global that changes": """
        scale = 2.0
        def f(x):
            return x * scale
        show(f, x)
        scale = 3.0
        show(f, x)
        show(lambda x: x * scale, x)
    """,
    "a function that jax has seen": """
        scale = 2.0
        def body(c, r):
            return c * scale, r
        if "FIRST" not in os.environ:
            make(lambda x: lax.scan(body, x[0], x))(x)
            scale = 3.0
        else:
            scale = 3.0
        show(lambda x: lax.scan(body, x[0], x), x)
    """,
    "a jit that was called": """
        scale = 2.0
        f = jax.jit(lambda x: x * scale)
        if "FIRST" not in os.environ:
            f(x)
        scale = 3.0
        show(lambda x: f(x), x)
    """,
    "programs of jits": """
        show(lambda x: jnp.where(x > 0, x, 0.0), x)
        show(lambda x: jnp.where(x > 0, x, 0.0) + jnp.var(x), x)
        m = make(lambda x: jnp.where(x > 1, x, 0.5))(x)
        n = make(lambda x: jnp.where(x > 2, x, 0.5))(x)
        print(m.eqns[1].params["jaxpr"] is n.eqns[1].params["jaxpr"])
    """,
    "a jit of a function that jax has seen": """
        if os.environ["WITH"] == "jaxide":
            jaxide.install()
        scale = 2.0
        def f(x, n=2):
            return x * scale if n == 0 else jax.vmap(lambda x: f(x, n - 1))(x[None])[0]
        if "FIRST" not in os.environ:
            jax.grad(lambda x: f(x).sum())(x)
        scale = 3.0
        print(jax.jit(f).trace(x).jaxpr)
    """,
    "a jit that fails": """
        import traceback
        if os.environ["WITH"] == "jaxide":
            jaxide.install()
        def f(x):
            return jnp.where(x > 0, x, 0.5) @ x
        for _ in range(2):
            try:
                jax.jit(f)(x)
            except TypeError as error:
                print(error)
                print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
        if "FIRST" not in os.environ:
            print(jax.jit(f)(x[:2, :2]))
    """,
    "a jit within others": """
        if os.environ["WITH"] == "jaxide":
            jaxide.install()
        def f(x):
            return jnp.where(x > 0, x, 0.5).sum()
        g = jax.jit(f)
        print(jax.grad(g)(x), jax.vmap(g)(x))
        print(jax.make_jaxpr(jax.grad(g))(x), jax.make_jaxpr(jax.vmap(g))(x))
        print(jax.make_jaxpr(lambda x: (g(x), jax.jit(f)(x + 1), f(x)))(x))
    """,
    "a jit that gives its arguments away": """
        if os.environ["WITH"] == "jaxide":
            jaxide.install()
        def f(x, y, *, by):
            return {"x": x + by["n"], "y": (y * 2, None)}
        g = jax.jit(f, donate_argnums=0, keep_unused=True)
        print(g.lower(x, 2.0, by=dict(n=1, m=x)).as_text(debug_info=True))
        print(g(x + 0, 2.0, by=dict(n=1, m=x)), g(x + 0, y=2.0, by=dict(n=1)))
        print(jax.eval_shape(f, x, 2.0, by=dict(n=1)))
    """,
    "derivatives of a program with derivative rules": """
        def f(x):
            return (jax.nn.relu(x) + jax.vmap(jax.nn.relu)(x * 2) + jax.nn.relu6(x)).sum()
        import jax.extend.core
        of_program = jax.extend.core.jaxpr_as_fun(make(f)(x))
        g = lambda x: of_program(x)[0]
        for h in (g, jax.grad(g), jax.vmap(jax.grad(f)), lambda x: jax.jvp(g, (x,), (x,))):
            made = make(h)(x)
            print(made, made.pretty_print(source_info=True, name_stack=True))
        print(jax.hessian(g)(x), jax.linearize(g, x)[1](x), jax.vjp(g, x)[1](1.0))
        print(jax.vmap(lambda x: of_program(x)[0])(x[None]))
    """,
    "a program with derivative rules under another configuration": """
        def f(x):
            return (jax.nn.relu(x) + jax.nn.relu(x * 2)).sum()
        made = make(f)(x)
        import jax.extend.core
        of_program = jax.extend.core.jaxpr_as_fun(made)
        with jax.enable_x64(True):
            print(jax.grad(lambda x: of_program(x)[0])(x))
            show(lambda x: jax.nn.relu(x) * 2, x)
        rule = made.eqns[0].params["jvp_jaxpr_fun"]
        print(type(rule).__name__, type(rule).__module__, rule)
        print(len({made.eqns[0].params["jvp_jaxpr_fun"], made.eqns[2].params["jvp_jaxpr_fun"]}))
    """,
    "rules that somebody looks at": """
        import copy, jax.extend.core
        def f(x):
            return jax.nn.relu(x), jax.nn.relu(x * 2), jax.nn.relu6(x)
        made = make(f)(x)
        rules = [e.params["jvp_jaxpr_fun"] for e in made.eqns if "jvp_jaxpr_fun" in e.params]
        print(type(copy.copy(rules[0])), rules[0].in_type, hash(rules[1]) == hash(rules[1]))
        jax.nn.relu6.defjvps(lambda g, ans, x: g * 5)
        print(jax.grad(lambda x: jax.extend.core.jaxpr_as_fun(made)(x)[2].sum())(x))
        print(len(set(map(id, rules))), rules[2] == rules[2], rules[1].debug_info.func_src_info)
    """,
    "a jit of the function": """
        scale = 2.0
        if os.environ["WITH"] == "jaxide":
            jaxide.install()
        def f(x):
            return jnp.where(x > 0, x, 0.5) * scale
        show(f, x)
        scale = 3.0
        print(jax.jit(f)(x))
        m = jax.make_jaxpr(lambda x: jax.jit(f)(x) + 1)(x)
        print(m, m.eqns[0].params["jaxpr"] is make(f)(x))
    """,
    "caches that are cleared": """
        scale = 2.0
        def f(x):
            return x * scale
        show(f, x)
        jax.clear_caches()
        scale = 3.0
        show(f, x)
    """,
    "eager gradients": """
        def f(x):
            return jax.nn.log_softmax(jnp.where(x > 0, x, 0.5)).sum()
        if "FIRST" not in os.environ:
            jax.grad(f)(x)
        show(jax.grad(lambda x: f(x) * 2), x)
        jax.grad(f)(x)
        show(jax.grad(lambda x: f(x) * 3), x)
    """,
}


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", ORDERS)
def test_orders_of_events(tmp_path: Path, name: str) -> None:
    script = ORDERS[name]
    run(script, tmp_path, FIRST="1")
    assert without_counts(run(script, tmp_path)) == run(script, None)


def test_an_error_ends_the_process_as_ever(tmp_path: Path) -> None:
    """What the error's traceback keeps alive dies with the interpreter."""
    script = """
    def f(p, x):
        y = jnp.where(x > 0, x @ p.T, 0.5)
        raise SystemExit(3) if "EXIT" in os.environ else ValueError("mine")
    try:
        make(jax.value_and_grad(lambda p, x: f(p, x).sum()))(x, x)
    except ValueError as error:
        import sys
        sys.last_value = error
    """
    for _ in range(2):
        assert run(script, tmp_path) == []


def test_reasons_are_counted(tmp_path: Path) -> None:
    script = """
    def pure(x):
        return jnp.where(x > 0, x, 0.5)
    def scoped(x):
        with jax.named_scope("here"):
            return x * 2
    a = jnp.ones(3)
    for f in (pure, scoped, lambda x: x * a, functools.partial(pure)):
        make(f)(x)
    make(lambda x: x * 2)(collections.OrderedDict(a=x)["a"])
    make(lambda x: x["a"] * 2)(collections.OrderedDict(a=x))
    info = jaxide.cache_info().store
    print(info.whole, sorted(info.traced.items()))
    """
    first, second = (run(script, tmp_path)[-1] for _ in range(2))
    reasons = [
        ("arguments in containers of the user's", 1),
        ("callable that is no function", 1),
        ("callable without a stable identity", 1),
        ("concrete array", 1),
    ]
    assert (first, second) == (f"0 {reasons}", f"2 {reasons}")


SIGNALS = """
import signal, sys
jaxide.install()

class Late(Exception):
    pass

def handler(number, frame):
    raise Late

def at(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "{}":
        sys.setprofile(None)
        print("signal")
        signal.raise_signal(signal.SIGUSR1)

signal.signal(signal.SIGUSR1, handler)
f = lambda x: jnp.where(x > 0, x, 0.5)
g = lambda x, y: x * y
try:
    if {}:
        jax.jit(f)(x)
    sys.setprofile(at)
    jax.jit(lambda x: f(x) + 1)(x)
except Late:
    print("raised")
sys.setprofile(None)
print(jax.jit(g).trace(x, x).jaxpr, jax.jit(f).trace(x).jaxpr)
"""


@pytest.mark.parametrize(("where", "is_settling"), [("note_loaded", True), ("object", False)])
def test_exceptions_of_signal_handlers(tmp_path: Path, where: str, is_settling: bool) -> None:
    """They reach the caller, and nothing is left behind."""
    script = SIGNALS.format(where, is_settling)
    first, second = (run(script, tmp_path) for _ in range(2))
    assert second == ["signal", "raised", *first]


def test_an_audit_compares(tmp_path: Path) -> None:
    run(PURE["gradient"], tmp_path)
    script = textwrap.dedent(PURE["gradient"]) + "report = jaxide.audit_report()\n"
    script += "print(report.replays > 0, report.differences)"
    said = run(script, tmp_path, JAXIDE_AUDIT="1")
    assert said[-1].startswith("True")
    assert without_counts(said)[:-1] == run(PURE["gradient"], None)


def test_an_audit_finds_another_program(tmp_path: Path) -> None:
    script = """
    if "PLANT" in os.environ:
        load, other = _core.load, jax.make_jaxpr(lambda x: x * 3)(x)
        _core.load = lambda *args: other if len(args) == 3 else load(*args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(make(lambda x: x * 2)(x))
    print([warning.category.__name__ for warning in caught])
    """
    run(script, tmp_path)
    found = {"JAXIDE_AUDIT": "1", "JAXIDE_AUDIT_DIR": str(tmp_path), "PLANT": "1"}
    program, warned = run(script, tmp_path, **found)
    assert "mul a 2.0" in program
    assert warned == "['AuditWarning']"
