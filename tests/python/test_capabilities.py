"""What jaxide does on a jax of which something has another source: that is left to jax, nothing
else, and all is as on that jax."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxide
import other_jax
from jaxide._compat import capabilities, sources

PATHS = sorted(
    path
    for path in {path for c in capabilities.CAPABILITIES for path in c.rests_on}
    if sources.node_at(path) is not None
)

# Functions that may add an equation: they are called while something is traced. Where they did so
# unseen, a program would lack it.
LOUD = [
    "api:_check_input_dtype_revderiv",
    "api:_vjp3_callable",
    "api:vjp",
    "core:eval_jaxpr",
    "custom_derivatives:lift_jvp",
    "interpreters.ad:backward_pass3",
    "interpreters.ad:linearize",
    "interpreters.batching:batch_custom_vjp_bwd",
]
if jax.__version_info__ < (0, 11):  # from then on these are called where nothing can be bound
    LOUD += [
        "interpreters.partial_eval:inline_jaxpr_into_trace",
        "lax.lax:_broadcast_in_dim_staging_rule",
    ]

# Traces programs with jax and with jaxide, and says what was different and what is native.
SCRIPT = """
import json, re, warnings
import jax, jax.numpy as jnp
import jax.extend.core
import numpy as np

@jax.custom_vjp
def halved(x): return jnp.sin(x)
halved.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x) / 2,))

@jax.custom_jvp
def doubled(x): return x * 2
doubled.defjvp(lambda p, t: (p[0] * 2, t[0] * 2))

def net(w, x):
    h = jnp.tanh(x @ w["a"] + w["b"])
    h = jax.checkpoint(lambda h: doubled(jnp.sin(h)) * h)(h)
    h, _ = jax.lax.scan(lambda c, a: (c * a + halved(c), a.sum()), h[0], h)
    return jax.jit(lambda h: jnp.where(h > 0, h, 0).mean())(jax.nn.relu(h.reshape(-1, 1)))

def shapes(x):
    struct = jax.eval_shape(lambda x: x @ x.T, x)
    assert struct == jax.ShapeDtypeStruct((2, 2), x.dtype)
    inner = jax.make_jaxpr(jnp.sin)(x)
    return jnp.zeros(struct.shape) + jax.extend.core.jaxpr_as_fun(inner)(x)[0].sum()

W = {"a": np.ones((3, 3), np.float32), "b": np.ones(3, np.float32)}
X = np.ones((2, 3), np.float32)
PROGRAMS = {
    "net": (net, W, X),
    "grad": (jax.grad(net), W, X),
    "value and grad of jit": (jax.value_and_grad(jax.jit(net)), W, X),
    "vmap of grad": (jax.vmap(jax.grad(net), (None, 0)), W, X[:, None]),
    "jvp": (lambda x: jax.jvp(lambda x: net(W, x), (x,), (x,)), X),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x)), X[0]),
    "inlined": (lambda x: jax.jit(lambda x: x * 2 + 1, inline=True)(x), X),
    "cond": (jax.grad(lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sum, lambda x: x[0, 0], x)), X),
    "shapes": (shapes, X),
    "dead code": (jax.grad(lambda x: jax.jit(lambda x: (jnp.sin(x), jnp.cos(x)))(x)[0].sum()), X),
}

def texts(make):
    jax.clear_caches()
    return [
        make(lambda *args, f=f: f(*args))(*args).pretty_print(name_stack=True)
        for _ in range(3)
        for f, *args in PROGRAMS.values()
    ]

def numbers(jit):
    return [float(jit(lambda w, x: net(w, x))(W, X)) for _ in range(2)]

def scrub(found):
    return [re.sub("0x[0-9a-f]+", "0x", text) for text in found]

expected, results = scrub(texts(jax.make_jaxpr)), numbers(jax.jit)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import jaxide
    actual = scrub(texts(jaxide.make_jaxpr))
    shared = numbers(jaxide.jit)
    printed = [str(jax.make_jaxpr(net)(W, X)), str(jaxide.trace(net)(W, X))]
names = [name for _ in range(3) for name in PROGRAMS]
said = jaxide.status()
print(json.dumps({
    "different": [n for n, e, a in zip(names, expected, actual) if e != a],
    "numbers": [results, shared],
    "printed": printed,
    "warnings": [str(w.message) for w in caught if w.category is jaxide.JaxideFallbackWarning],
    "off": [c.name for c in said.capabilities if not c.is_native],
    "hits": jaxide.cache_info().hits,
}))
"""


def run(folder: Path) -> dict[str, Any]:
    """What the script says of the jax in a folder."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path, "JAXIDE_ASSUME_KNOWN": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def switched_off(path: str) -> set[str]:
    """The capabilities that rest on what is changed, and those that need one of them."""
    changed = other_jax.changed_path(path)
    found = {
        c.name
        for c in capabilities.CAPABILITIES
        if any(changed == place or changed.startswith(f"{place}.") for place in c.rests_on)
    }
    while True:
        more = {c.name for c in capabilities.CAPABILITIES if found & set(c.needs)} - found
        if not more:
            return found
        found |= more


def check(path: str, statement: str, folder: Path) -> None:
    text = other_jax.changed(path, statement)
    said = run(other_jax.copy_of_jax(folder, path.partition(":")[0], text))
    assert said["different"] == []
    assert said["numbers"][0] == said["numbers"][1]
    assert said["printed"][0] == said["printed"][1]
    assert set(said["off"]) == switched_off(path)
    (warning,) = said["warnings"]
    assert "\n" not in warning
    assert "_" not in warning
    assert "doctor" in warning
    assert (said["hits"] > 0) == ("replays" not in said["off"])


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("path", PATHS)
def test_what_has_another_source_is_left_to_jax(path: str, tmp_path: Path) -> None:
    check(path, other_jax.QUIET, tmp_path)


@pytest.mark.covering(times=1, each_value=False)
@pytest.mark.parametrize("path", LOUD)
def test_what_does_something_else_is_left_to_jax(path: str, tmp_path: Path) -> None:
    check(path, other_jax.LOUD, tmp_path)


def test_each_path_is_known_in_some_version() -> None:
    for capability in capabilities.CAPABILITIES:
        for path in capability.rests_on:
            known = sources.known().paths[path]
            assert set(known) - {sources.ABSENT}, path


def test_all_is_native_on_a_known_jax() -> None:
    assert [c.name for c in jaxide.status().capabilities if not c.is_native] == []


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("def f(x):\n  return x\n", "def f(x):\n    # why\n    return x\n", True),
        ('def f(x):\n  "Doc."\n  return x\n', "def f(x):\n  return x\n", True),
        ("def f(x):\n  return (x,\n    1)\n", "def f(x):\n  return (x, 1)\n", True),
        ("def f(x):\n  return x\n", "def f(x):\n  return -x\n", False),
        ('def f(x):\n  return "#1"\n', 'def f(x):\n  return "#2"\n', False),
        ('def f(x):\n  return f"{x}#1"\n', 'def f(x):\n  return f"{x}#2"\n', False),
        ("class A:\n  '''Doc.'''\n  x = 1\n", "class A:\n  x = 1\n", True),
        ("if x:\n  y()\n  z()\n", "if x:\n    y()\n    z()\n", True),
        ("if x:\n  y()\n  z()\n", "if x:\n  y()\nz()\n", False),
        ("def f(x):\n  return x\n", "def f(x):\n  return\n  x\n", False),
        ('def f(x):\n  return f"{x} y"\n', 'def f(x):\n  return f"{x}  y"\n', False),
        ("def f(x):\n  return 'a b'\n", "def f(x):\n  return 'a  b'\n", False),
        ("  def f(self):\n    return 1\n", "def f(self):\n    return 1\n", False),
    ],
)
def test_what_counts_of_a_source(one: str, another: str, same: bool) -> None:
    assert (sources.normalized(one) == sources.normalized(another)) == same


MODULE = """
import functools

def f(x):
    return x

class C:
    def method(self):
        return 1

def unrelated():
    f = 3
    return f
"""
# Each binds `f`, or an attribute of `C`, once more.
REBOUND = (
    "f = functools.cache(f)",
    "f, _ = (lambda x: -x), 0",
    "(f) = lambda x: -x",
    "f += 1",
    "if (f := 3):\n    pass",
    "for f in [1]:\n    pass",
    "for _ in [1]:\n    def f(x): return -x",
    "while unrelated():\n    def f(x): return -x",
    "try:\n    import nowhere\nexcept ImportError:\n    def f(x): return -x",
    "try:\n    pass\nexcept ImportError as f:\n    pass",
    "match 1:\n    case 1:\n        def f(x): return -x",
    "match 1:\n    case f:\n        pass",
    "with open('x') as f:\n    pass",
    "from elsewhere import g as f",
    "from elsewhere import *",
    "import f",
    "del f",
    "def g():\n    global f\n    f = 1",
    "@functools.cache\ndef f(x): return -x",
    "globals()['f'] = 1",
    "exec('f = 1')",
)
REBOUND_MEMBER = (
    "C.method = lambda self: 2",
    "del C.method",
    "setattr(C, 'method', lambda self: 2)",
    "class C:\n    def method(self):\n        return 2",
    "C = type('C', (C,), {})",
    "for name in ['method']:\n    setattr(C, name, lambda self: 2)",
)


def digests_of(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (folder / "made.py").write_text(text, "utf-8")
    monkeypatch.setattr(sources, "FOLDER", folder)
    sources._parsed.cache_clear()
    found = [sources.digest.__wrapped__(path) for path in ("made:f", "made:C.method")]
    sources._parsed.cache_clear()
    return found


@pytest.mark.parametrize("statement", [*REBOUND, *REBOUND_MEMBER])
def test_whatever_binds_a_name_counts(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests_of(tmp_path, MODULE, monkeypatch)
    after = digests_of(tmp_path, f"{MODULE}\n{statement}\n", monkeypatch)
    member = statement in REBOUND_MEMBER
    assert before[member] != after[member]


def test_what_binds_another_name_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests_of(tmp_path, MODULE, monkeypatch)
    others = (
        "g = f",
        "h, k = f(C.method), 1",
        "class D(C):\n    def method(self): pass",
        "for g in [f]: pass",
    )
    after = digests_of(tmp_path, "\n".join([MODULE, *others, ""]), monkeypatch)
    assert after == before


@pytest.mark.parametrize("content", [None, "", "{", "{}", "[]", '{"files": 1, "paths": {}}'])
def test_digests_that_cannot_be_read_are_none(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "known_sources.json"
    if content is not None:
        damaged.write_text(content, "utf-8")
    monkeypatch.setattr(sources, "KNOWN", damaged)
    assert sources.known.__wrapped__() == sources.Known({}, {})
