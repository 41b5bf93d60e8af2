"""Programs of jits of jax's own that are from the store, and of which jax is told once it asks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from alone import made_once, run_warm
from jaxide._compat.whole_programs import jit_programs

pytestmark = pytest.mark.skipif(
    jit_programs() is None, reason="equations have the line of whoever asks first"
)

# What programs begin with. The containers are the user's, so nothing is loaded as a whole.
BEGINNING = """
import os, signal, sys, threading
import numpy as np
import jax, jax.numpy as jnp
jaxide = None
if os.environ["WITH"] == "jaxide":
    import jaxide
    from jaxide import _core
    jaxide.install()

@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, value):
        self.value = value
    def tree_flatten(self):
        return (self.value,), None
    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)
"""

# What a step prints depends on which programs are the same object.
SCRIPT = (
    BEGINNING
    + """
def f(box):
    a = box.value
    b = jax.nn.relu(a + 1.0 * a) + jnp.add(a, a)
    c = jnp.where(b > 0, b, 0.0) * jax.nn.softplus(b).mean(axis=-1, keepdims=True)
    return (jnp.clip(c, 0, 1) + jax.nn.silu(c) + jnp.linalg.norm(c, axis=0)).sum()

x = jax.device_put(np.ones((3, 4), "float32"))
inner = jax.jit(f)

def show(function, *args):
    print(jax.make_jaxpr(function)(*args).pretty_print(source_info=True, name_stack=True))

def both(box):
    a = box.value
    b = jax.nn.relu(a) + jnp.add(a, a) + jax.nn.silu(jnp.where(a > 0, a, 0.0))
    return inner(box) + b.sum()

def eager():
    print(jax.nn.relu(x).sum(), jnp.add(x, x).sum(), jnp.where(x > 0, x, 0.0).sum())

def far():
    with jax.enable_x64(True):
        show(f, Box(x))
        show(f, Box(x.astype("float64")))

def filled(*numbers):
    return lambda box: [jnp.where(box.value > 0, box.value, number) for number in numbers]

def rounded(*decimals):
    return lambda box: [jnp.round(box.value, number) for number in decimals]

def taken(*values):
    return lambda box: [
        1 / jnp.take(box.value, box.value[0].astype(int), mode="fill", fill_value=value)
        for value in values
    ]

own = jax.jit(jnp.nansum.__wrapped__)

def small(box):
    a = box.value
    return jax.nn.relu(a), jnp.where(a > 0, a, 0.0), jax.nn.silu(a), jnp.clip(a, 0, 1)

def threads():
    # Each has jax trace functions of which the store has programs for the others.
    arrays = [jax.device_put(np.ones(5 + size, "float32")) for size in range(12)]
    for a in arrays:
        jax.make_jaxpr(small)(Box(a))
    barrier, interval = threading.Barrier(len(arrays)), sys.getswitchinterval()
    results = []
    def run(a):
        barrier.wait()
        results.append(sum(float(r.sum()) for r in small(Box(a))))
    sys.setswitchinterval(1e-6)
    running = [threading.Thread(target=run, args=(a,)) for a in arrays]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    sys.setswitchinterval(interval)
    print(sorted(results))

def uninstalled():
    if jaxide:
        jaxide.uninstall()
    show(both, Box(x))
    if jaxide:
        jaxide.install()

steps = {
    "forward": lambda: show(f, Box(x)),
    "gradient": lambda: show(jax.grad(f), Box(x)),
    "second": lambda: show(lambda b: jax.jvp(jax.grad(f), (b,), (b,)), Box(x)),
    "batched": lambda: show(jax.vmap(f), Box(jnp.stack([x, x]))),
    "both": lambda: show(both, Box(x)),
    "inner": lambda: print(inner(Box(x))),
    "eager": eager,
    "evaluated": lambda: print(jax.eval_shape(f, Box(x))),
    "cleared": lambda: jax.clear_caches(),
    "far": far,
    "zero": lambda: show(filled(0.0), Box(x)),
    "one": lambda: show(filled(1.0), Box(x)),
    "numbers": lambda: show(filled(0.0, 1.0, np.float32(1)), Box(x)),
    "threads": threads,
    "whole": lambda: show(rounded(1), Box(x)),
    "rounded": lambda: show(rounded(1, True, np.int32(1), 1), Box(x)),
    "taken": lambda: show(taken(0), Box(x)),
    "fills": lambda: show(taken(0, False, -0.0, 1, True), Box(x)),
    "sum": lambda: show(lambda b: jnp.nansum(b.value, None), Box(x)),
    "sums": lambda: show(lambda b: [own(b.value, None), jnp.nansum(b.value, None)], Box(x)),
    "uninstalled": uninstalled,
}
for name in os.environ["STEPS"].split():
    print("-----", name)
    steps[name]()
    if jaxide and name == "forward":
        print(_core.num_traces(), file=sys.stderr)
"""
)

OTHERS = ("zero", "one", "threads", "whole", "taken", "sum")
HISTORIES = (
    "forward both",
    "gradient both uninstalled both",
    "eager forward gradient both eager",
    "gradient cleared both gradient",
    "forward far both far",
    "inner both second batched",
    "evaluated inner both uninstalled",
    "numbers both",
    "threads both",
    "whole rounded",
    "taken fills",
    "sum sums",
    "sums sum",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all steps, each from a process that has done nothing else."""

    def fill(folder: Path) -> None:
        for steps in ("forward", "gradient", "both", "second batched", "inner", "far", *OTHERS):
            environment = {"JAXIDE_CACHE_DIR": str(folder), "JAXIDE_CACHE_MODE": "write"}
            run_warm(SCRIPT, STEPS=steps, **environment)

    return made_once(tmp_path_factory, "programs_of_jits", fill)


def test_they_are_not_traced(store: Path) -> None:
    first = run_warm(SCRIPT, STEPS="forward").stderr
    second = run_warm(SCRIPT, STEPS="forward", JAXIDE_CACHE_DIR=str(store)).stderr
    # The function itself, and what has a derivative rule: `softplus`, and `logaddexp` in it.
    assert int(second) == 3 < int(first)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("steps", HISTORIES)
def test_they_are_the_same_objects(steps: str, store: Path) -> None:
    expected = run_warm(SCRIPT, STEPS=steps, WITH="jax").stdout
    for audit in ("0", "1"):
        environment = {"JAXIDE_CACHE_DIR": str(store), "JAXIDE_AUDIT": audit}
        done = run_warm(SCRIPT, STEPS=steps, **environment)
        assert done.stdout == expected
        assert "differs" not in done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(seed: int, store: Path) -> None:
    rng = random.Random(seed)
    often = "forward gradient second batched both inner eager evaluated"
    names = f"{often} cleared far uninstalled numbers zero one".split()
    steps = " ".join(rng.choices(names, k=7))
    expected = run_warm(SCRIPT, STEPS=steps, WITH="jax").stdout
    assert run_warm(SCRIPT, STEPS=steps, JAXIDE_CACHE_DIR=str(store)).stdout == expected


WIDE = (
    BEGINNING
    + """
def f(x):
    return jax.nn.standardize(x).sum() + jnp.var(x) + jnp.mean(x)

with jax.enable_x64(True):
    jax.make_jaxpr(f)(jnp.ones((3, 4), "float64"))
"""
)


def test_nobody_hears_that_the_store_is_written(tmp_path: Path) -> None:
    """The process ends under another configuration."""
    done = run_warm(WIDE, JAXIDE_CACHE_DIR=str(tmp_path / "store"), JAXIDE_CACHE_MODE="write")
    assert done.stderr == run_warm(WIDE, WITH="jax").stderr


ALARMED = (
    BEGINNING
    + """
def f(box):
    return jnp.where(box.value > 0, box.value, 0.0)

for size in range(3, 33):
    jax.make_jaxpr(f)(Box(jax.device_put(np.ones(size, "float32"))))
others = [jax.device_put(np.ones((2, size), "float32")) for size in range(1, 61)]
found = []

def handler(*_):
    a = others[len(found)]
    found.append((a.shape, jax.eval_shape(lambda a: jnp.where(a > 0, a, 0.0), a).shape))
    if len(found) < 50:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)

a = jax.device_put(np.ones((3, 1, 5), "float32"))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
for _ in range(20):
    jnp.where(a > 0, a, 0.0)
signal.setitimer(signal.ITIMER_REAL, 0)
print([pair for pair in found if pair[0] != pair[1]])
print([b.shape for b in others[:50] if jnp.where(b > 0, b, 0.0).shape != b.shape])
"""
)


def test_handlers_of_signals_have_programs_of_their_own(tmp_path: Path) -> None:
    for mode in ("write", "read"):
        environment = {"JAXIDE_CACHE_DIR": str(tmp_path / "store"), "JAXIDE_CACHE_MODE": mode}
        assert run_warm(ALARMED, **environment).stdout == "[]\n[]\n"


WHOLE = (
    BEGINNING
    + """
x = jax.ShapeDtypeStruct((16, 16), "float32")
big = np.ones((16, 16), "float32")

def both(box):
    return [(f(box.value), f(big)) for f in (jax.nn.silu, jnp.var, jnp.cumsum)]

jax.make_jaxpr(lambda a: (jax.nn.silu(a), jnp.var(a), jnp.cumsum(a)))(x)
print(jax.make_jaxpr(both)(Box(x)))
kept = jax.nn.silu.trace(x).jaxpr
(eqn,) = jax.make_jaxpr(lambda box: jax.nn.silu(box.value))(Box(x)).eqns
print(kept is eqn.params["jaxpr"])
print(jax.jit(both).lower(Box(x)).as_text().count("func.func private"))
"""
)


def test_programs_that_came_with_a_whole_trace(tmp_path: Path) -> None:
    """jax keeps them, so there are no others."""
    expected = run_warm(WHOLE, WITH="jax").stdout
    for mode in ("write", "read", "read"):
        done = run_warm(WHOLE, JAXIDE_CACHE_DIR=str(tmp_path), JAXIDE_CACHE_MODE=mode)
        assert done.stdout == expected, mode


CASTING = (
    BEGINNING
    + """
import warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    jax.make_jaxpr(lambda box: jax.nn.log_softmax(box.value))(Box(jnp.ones(3, "int32")))
print([str(each.message) for each in heard])
"""
)


def test_warnings_of_numpy_are_heard_once(tmp_path: Path) -> None:
    expected = run_warm(CASTING, WITH="jax").stdout
    for mode in ("write", "read"):
        done = run_warm(CASTING, JAXIDE_CACHE_DIR=str(tmp_path), JAXIDE_CACHE_MODE=mode)
        assert done.stdout == expected, mode


FORGETTING = """
from jaxide._native.jit_programs import JitPrograms
made_anew, asked = JitPrograms._is_made_anew, []
JitPrograms._is_made_anew = lambda *args: asked.append(1) or made_anew(*args)
for _ in range(3):
    jax.make_jaxpr(f)(Box(jnp.ones(3)))
    jax.clear_caches()
    asked.append(0)
first, *others = "".join(map(str, asked)).split("0")[:-1]
print(len(first) > 3, others)
"""


def test_a_process_that_forgets_stores_once(tmp_path: Path) -> None:
    script = SCRIPT[: SCRIPT.index("x = jax.device_put")] + FORGETTING
    done = run_warm(script, JAXIDE_CACHE_DIR=str(tmp_path), JAXIDE_CACHE_MODE="write")
    assert done.stdout == "True ['', '']\n"


AUDITED = (
    BEGINNING
    + """
for _ in range(2):
    jax.make_jaxpr(lambda box: jax.nn.standardize(box.value))(Box(jnp.ones((3, 4), "int32")))
print(jaxide.audit_report().replays)
"""
)


def test_values_that_are_used_twice_are_no_difference(tmp_path: Path) -> None:
    """Of equal literals the store has one; the audit does not take this for another program."""
    options = {"JAXIDE_CACHE_DIR": str(tmp_path)}
    run_warm(AUDITED, JAXIDE_CACHE_MODE="write", **options)
    done = run_warm(AUDITED, JAXIDE_AUDIT="1", **options)
    assert "AuditWarning" not in done.stderr
    assert int(done.stdout) > 3
