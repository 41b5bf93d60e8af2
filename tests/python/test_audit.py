"""Auditing: what is remembered is compared with what jax does; differences have consequences."""

import gc
import json
import os
import pathlib
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import partial_eval
from jax.extend.core import Primitive

import jaxide
from jaxide._jit.executables import EXECUTABLES
from jaxide._reports import audit

pytestmark = pytest.mark.plants
X = jnp.arange(3.0)


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Nothing is audited, remembered or barred; files go to a folder of the test's."""
    monkeypatch.setenv("JAXIDE_AUDIT_DIR", str(tmp_path))
    before = audit.audit_every(0)
    jaxide.clear_caches()
    jaxide.clear_audit()
    yield
    audit.audit_every(before)
    audit.unbar()
    jax.clear_caches()
    jaxide.clear_caches()
    jaxide.clear_audit()


def traced(fun, *args):
    """The text of a program that is traced through a new function object."""
    return str(jaxide.make_jaxpr(lambda *args: fun(*args))(*args))


def stock(fun, *args):
    return str(jax.make_jaxpr(lambda *args: fun(*args))(*args))


def warm(fun, *args):
    for _ in range(4):
        text = traced(fun, *args)
    assert text == stock(fun, *args)


def plant(fun, *args, primitive="jit", **planted):
    """Has replays give other params to the equations of a primitive: those that `fun` has now."""
    eqns = jaxide.make_jaxpr(lambda *args: fun(*args))(*args).eqns
    names = [eqn.params.keys() for eqn in eqns if eqn.primitive.name == primitive]
    dicts = [d for d in gc.get_objects() if type(d) is dict and d.keys() in names]
    # What a replay has is known to the core alone; others are jax's.
    addresses = {*map(id, dicts)}
    known = set()
    for other in gc.get_referrers(*dicts):
        referred = {*map(id, gc.get_referents(other))}
        # The list itself has just these, and so have the arguments made of it.
        if type(other) not in (list, tuple) or referred != addresses:
            known |= referred
    own = [d for d in dicts if id(d) not in known]
    assert own, "there is nothing to change"
    for params in own:
        params.update(planted)


def clipped(x):
    return jnp.clip(x, 0.0, 1.0) * 2


def audited(every, fun, *args):
    """What is traced once the audit is on, with the warnings."""
    audit.audit_every(every)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        text = traced(fun, *args)
    return text, [warning for warning in said if warning.category is jaxide.AuditWarning]


def test_what_is_right_is_left():
    fun = jax.grad(lambda x: (clipped(x) ** 2 + jax.nn.relu(x)).sum())
    warm(fun, X)
    text, said = audited(1, fun, X)
    assert text == stock(fun, X) and not said
    report = jaxide.audit_report()
    assert report.replays == report.replays_audited > 5
    assert (report.replays_different, report.differences) == (0, ())
    assert jaxide.cache_info().hits > report.replays


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_literals_that_are_one(order):
    """The same literal twice is another call than two literals that are equal."""
    two = jax.jit(lambda x: 2.0, inline=True)
    second = jax.jit(lambda x, y: y, inline=True)

    def f(x, is_one):
        first = two(x)
        other = first if is_one else two(x)
        return second(first, other), first / other, jnp.where(first > 0, first, other)

    audit.audit_every(1)
    for is_one in order * 4:
        got = str(jaxide.make_jaxpr(lambda x: f(x, is_one))(1.0))
        assert got == str(jax.make_jaxpr(lambda x: f(x, is_one))(1.0))
    report = jaxide.audit_report()
    assert report.replays_audited
    assert not report.differences


def test_difference_is_found():
    warm(clipped, X)
    plant(clipped, X, name="planted")
    assert "name=planted" in traced(clipped, X), "the test changes what a replay gives"
    text, (warning,) = audited(1, clipped, X)
    assert text == stock(clipped, X)
    assert "clip" in str(warning.message) and warning.filename == __file__
    report = jaxide.audit_report()
    (found,) = report.differences
    assert (report.replays_different, found.kind, found.callable) == (1, "replay", "clip")
    assert found.reason == "the param name of equation 0" and __file__ in found.call
    assert str(found) in str(report) and f"{report.replays:,}" in str(report)


def test_file_says_what_was_different():
    warm(clipped, X)
    plant(clipped, X, name="planted")
    audited(1, clipped, X)
    (found,) = jaxide.audit_report().differences
    written = json.loads(pathlib.Path(found.file).read_text())
    ((remembered,),) = written["remembered"]
    ((real,),) = written["jax"]
    assert (remembered["params"]["name"], real["params"]["name"]) == ("'planted'", "'clip'")
    assert remembered["operands"] == real["operands"]
    assert "float32[3]" in written["key"]["traced"][0] and written["key"]["words"]
    assert written["versions"]["jax"] == jax.__version__
    assert written["configuration"]["jax_enable_x64"] == "False"
    assert any("in clipped" in line or "(clipped)" in line for line in written["stack"])


def test_callable_is_barred():
    warm(clipped, X)
    plant(clipped, X, name="planted")
    audited(1, clipped, X)
    audit.audit_every(0)
    before = jaxide.cache_info().callables["clip"]
    for _ in range(3):
        assert traced(clipped, X) == stock(clipped, X)
    after = jaxide.cache_info().callables["clip"]
    assert after.entries == 0 and after.hits == before.hits
    assert after.bypasses["barred by audit"] == before.bypasses.get("barred by audit", 0) + 3
    jax.clear_caches()
    traced(clipped, X)
    assert jaxide.cache_info().callables["clip"].entries == 0, "it is barred for good"


def test_every_nth_is_audited():
    warm(clipped, X)
    audit.audit_every(3)
    for _ in range(9):
        traced(clipped, X)
    report = jaxide.audit_report()
    assert report.replays >= 18 and report.replays_audited == report.replays // 3
    assert report.every == 3 and "one of every 3" in str(report)


def test_difference_is_found_in_the_end():
    warm(clipped, X)
    plant(clipped, X, name="planted")
    audit.audit_every(7)
    with pytest.warns(jaxide.AuditWarning):
        texts = [traced(clipped, X) for _ in range(14)]
    assert texts[-1] == stock(clipped, X) and len(jaxide.audit_report().differences) == 1


def test_under_differentiation():
    fun = jax.grad(lambda x: clipped(x).sum())
    warm(fun, X)
    plant(fun, X, name="planted")
    text, said = audited(1, fun, X)
    assert text == stock(fun, X) and said
    assert all(found.kind == "replay" for found in jaxide.audit_report().differences)


def loop(x):
    return jax.grad(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x, x).sum())(x)


def test_programs_of_rules():
    warm(loop, X)
    plant(loop, X, primitive="scan", unroll=2)
    assert "unroll=2" in traced(loop, X), "the test changes what a replay gives"
    text, said = audited(1, loop, X)
    assert text == stock(loop, X) and said
    for _ in range(3):
        assert traced(loop, X) == stock(loop, X)


def of_new_jit(fun):
    """What jax derives of the program of a jit that is made anew."""
    return lambda x: jax.grad(lambda x: jax.jit(lambda x: fun(x) * 2)(x).sum())(x)


def derivations():
    """What is remembered of that, by function, program, configuration and key."""
    gc.unfreeze()  # what earlier tests left is set aside
    return next(
        held
        for held in gc.get_objects()
        if type(held) is dict
        and held
        and type(next(iter(held.values()))).__name__ == "KnownDerivation"
    )


def exchange_derivations(fun, another):
    """Has programs of one function get what was derived of another's."""
    warm(fun, X)
    own = list(derivations())
    warm(another, X)
    known = derivations()
    others = {(key[0], key[2:]): key for key in known if key not in own}
    for key in own:
        other = others.pop((key[0], key[2:]), None)
        if other is not None:
            known[key], known[other] = known[other], known[key]


def test_derivations():
    sine, cosine = of_new_jit(jnp.sin), of_new_jit(jnp.cos)
    exchange_derivations(sine, cosine)
    assert traced(sine, X) != stock(sine, X), "the test exchanges what was derived"
    jax.clear_caches()
    exchange_derivations(sine, cosine)
    text, said = audited(1, sine, X)
    assert text == stock(sine, X) and said
    (found, *_) = jaxide.audit_report().differences
    assert found.reason == "what is derived of the program"
    written = json.loads(pathlib.Path(found.file).read_text())
    assert "neg" in written["remembered"][0] and "neg" not in written["jax"][0]
    for _ in range(3):
        assert traced(sine, X) == stock(sine, X)


def test_warning_may_be_an_error():
    warm(clipped, X)
    plant(clipped, X, name="planted")
    audit.audit_every(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxide.AuditWarning)
        with pytest.raises(jaxide.AuditWarning, match="clip"):
            traced(clipped, X)
    assert traced(clipped, X) == stock(clipped, X)


def test_side_effects_happen_once():
    """A call that is audited runs once, as it would with jax."""
    calls = []

    @jax.jit
    def noted(x):
        return jnp.sin(x) * 2

    warm(noted, X)
    audit.audit_every(1)
    traced(lambda x: calls.append(1) or noted(x) + noted(x), X)
    assert calls == [1]
    assert traced(lambda x: noted(x) + noted(x), X) == stock(lambda x: noted(x) + noted(x), X)


def test_abstract_evaluation():
    """A rule that reads what it should not is found once jax has forgotten what it said."""
    primitive = Primitive("evaluated")
    types = [jnp.float32]

    @primitive.def_abstract_eval
    def _(x):
        return x.update(dtype=np.dtype(types[0]))

    warm(primitive.bind, X)
    types[0] = jnp.bfloat16
    assert traced(primitive.bind, X) == stock(primitive.bind, X), "jax has not forgotten it"
    partial_eval._cached_abstract_eval.cache_clear()
    text, (warning,) = audited(1, primitive.bind, X)
    assert "abstract evaluation of evaluated" in str(warning.message)
    assert text == stock(primitive.bind, X) and "bf16" in text
    (found,) = jaxide.audit_report().differences
    assert found.kind == "evaluation" and "bfloat16" in pathlib.Path(found.file).read_text()
    types[0] = jnp.float16
    partial_eval._cached_abstract_eval.cache_clear()
    audit.audit_every(0)
    assert ":f16[3]" in traced(primitive.bind, X), "nothing is remembered of it"


def executed(shift, jit=None):
    step = (jit or jaxide.jit)(lambda x: jnp.sin(x) * 2 + shift)
    return step(X).tolist()


def test_executables():
    audit.audit_every(2)
    for shift in range(5):
        executed(X + shift)
    # The first has its array built in, the second takes it as an argument, as do those after it.
    report = jaxide.audit_report()
    assert (report.executables, report.executables_audited, report.executables_different) == (
        3,
        1,
        0,
    )


def exchange():
    """Has the programs that were lowered run each other's executables."""
    programs = [program for same in EXECUTABLES._programs.values() for program in same]
    first, second = programs
    assert list(first.executables) == list(second.executables)
    first.executables, second.executables = second.executables, first.executables


def test_executable_of_another_program():
    double, triple = (lambda: jaxide.jit(lambda x: x * 2)), (lambda: jaxide.jit(lambda x: x * 3))
    for make in (double, triple):
        make()(X), make()(X)
    exchange()
    assert double()(X).tolist() == [0, 3, 6], "the test exchanges executables"
    audit.audit_every(1)
    with pytest.warns(jaxide.AuditWarning, match="executable"):
        assert double()(X).tolist() == [0, 2, 4]
    (found,) = jaxide.audit_report().differences
    assert found.kind == "executable" and found.reason == "the module"
    written = json.loads(pathlib.Path(found.file).read_text())
    assert written["shared"]["module"] != written["jax"]["module"]
    assert "stablehlo" in written["jax"]["module"]
    audit.audit_every(0)
    before = jaxide.audit_report().executables
    assert double()(X).tolist() == [0, 2, 4]
    assert jaxide.audit_report().executables == before


def test_modules_are_compared_by_what_they_say():
    """Whether equal programs within are one object is nothing to warn of."""

    def step(x):
        return jax.jit(lambda x: jnp.sin(x))(x) + jax.jit(lambda x: jnp.sin(x))(x)

    audit.audit_every(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxide.AuditWarning)
        for _ in range(3):
            jaxide.jit(lambda x: step(x))(X)
    assert jaxide.audit_report().executables_audited == 2


def test_install():
    assert jaxide.audit_report().every == 0
    jaxide.install(audit=5)
    try:
        assert jaxide.audit_report().every == 5
        jaxide.install()
        assert jaxide.audit_report().every == 5
        jaxide.install(audit=7)
        assert jaxide.audit_report().every == 7
    finally:
        jaxide.uninstall()
    assert jaxide.audit_report().every == 0


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "3"])
def test_wrong_numbers(wrong):
    with pytest.raises(ValueError, match="audit is a number"):
        jaxide.install(audit=wrong)
    assert jaxide.audit_report().every == 0


def run(code, **environment):
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run([sys.executable, *code], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_environment():
    code = "import jaxide; print(jaxide.audit_report().every)"
    assert run(["-c", code], JAXIDE_AUDIT="12")[:2] == (0, "12\n")
    status, said, error = run(["-c", code], JAXIDE_AUDIT="often")
    assert (status, said) == (0, "0\n")
    assert "JAXIDE_AUDIT is a number of replays, 0 for none, got 'often'" in error


DISABLED = """
import warnings; warnings.simplefilter("error")
import jax, jax.numpy as jnp, jaxide
x = jnp.arange(3.0)
for _ in range(3):
    jaxpr = jaxide.make_jaxpr(lambda x: jnp.sin(x))(x).jaxpr
    assert type(jaxpr) is type(jax.make_jaxpr(jnp.sin)(x).jaxpr)
jaxide.install(audit=1)
assert jax.jit(lambda x: jnp.clip(x, 0, 1))(x).tolist() == [0, 1, 1]
assert jaxide.jit(lambda x: x * 2)(x).tolist() == [0, 2, 4]
info = jaxide.cache_info()
assert (info.hits, info.misses, info.entries, info.programs) == (0, 0, 0, 0), info
try:
    jaxide.trace(lambda x: x)(x).structural_hash
except NotImplementedError as error:
    assert "JAXIDE_DISABLE" in str(error)
else:
    raise AssertionError
print(jaxide.audit_report().replays)
"""


def test_disabled():
    assert run(["-c", DISABLED], JAXIDE_DISABLE="1", JAXIDE_AUDIT="1") == (0, "0\n", "")
    assert run(["-c", DISABLED], JAXIDE_DISABLE="0")[0] == 1


def test_disabled_command_line(tmp_path):
    (tmp_path / "module.py").write_text("def double(x): return x * 2")
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    of = ["module:double", "--arg", "float32[3]"]
    disabled = {"JAXIDE_DISABLE": "1", "PYTHONPATH": paths}
    status, out, error = run(["-m", "jaxide", "cost", *of], **disabled)
    assert (status, out) == (2, "")
    assert error == "python -m jaxide: jaxide is switched off by JAXIDE_DISABLE\n"
    status, out, error = run(["-m", "jaxide", "bench", *of], **disabled)
    assert status == 0 and "texts identical" in out and not error.strip()
    status, out, error = run(["-m", "jaxide", "--help"], JAXIDE_DISABLE="1")
    assert status == 0 and "usage" in out.lower() and not error


def host(x):
    return np.asarray(x)


def count(d):
    return np.float32(len(d))


def other_host(x):
    return np.asarray(x) + 1


class Log:
    """What is called back goes by identity."""

    def __call__(self, x):
        return np.asarray(x)


LOG = Log()


@pytest.mark.parametrize(
    ("one", "another", "holds"),
    [
        (lambda x: {1: x}, lambda x: {1: x}, True),
        (lambda x: {1: x}, lambda x: {True: x}, False),
        (lambda x: {1: x}, lambda x: {2: x}, False),
    ],
)
def test_trees_of_callbacks(one, another, holds):
    shared, own = (lowered_callback(count, tree) for tree in (one, another))
    assert compared(shared, own) == holds


@pytest.mark.parametrize(
    ("one", "another", "holds"),
    [(host, host, True), (host, other_host, False), (LOG, LOG, True), (LOG, Log(), False)],
)
def test_callbacks(one, another, holds):
    assert compared(lowered_callback(one), lowered_callback(another)) == holds


def lowered_callback(function, tree=lambda x: x):
    result = jax.ShapeDtypeStruct((), np.float32)
    return jax.jit(lambda x: jax.pure_callback(function, result, tree(x))).lower(np.float32(0))


def compared(shared, own):
    """Whether two lowerings are found to be the same, in both directions."""
    params = {"jaxpr": jax.make_jaxpr(lambda x: x)(0.0), "name": "compared"}
    pairs = ((shared, own), (own, shared))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxide.AuditWarning)
        found = {
            audit.executable_holds(params, a._lowering, lambda b=b: b._lowering) for a, b in pairs
        }
    (holds,) = found
    assert len(jaxide.audit_report().differences) == (0 if holds else 2)
    return holds
