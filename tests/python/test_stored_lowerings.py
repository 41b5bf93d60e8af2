"""Programs that a process has lowered and compiled are not lowered in the next one, or as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alone import run_warm

# Each program is executed; what XLA has compiled is in jax's own cache.
RUN = """
import json, os, sys, warnings
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

counts = {"lowered": 0, "read": 0}
def heard(name, *_, **__):
    counts["lowered"] += name == "/jax/core/compile/jaxpr_to_mlir_module_duration"
    counts["read"] += name == "/jax/compilation_cache/cache_retrieval_time_sec"
jax.monitoring.register_event_duration_secs_listener(heard)
jax.config.update("jax_compilation_cache_dir", os.environ["COMPILED"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
if os.environ["WITH"] == "jaxide":
    import jaxide
    jaxide.install()

x = np.arange(12, dtype=np.float32).reshape(3, 4)
table = np.linspace(0, 1, 4, dtype=np.float32)

def bits(value):
    leaves, tree = jax.tree.flatten(value)
    return str(tree), [
        [str(leaf.dtype), list(leaf.shape), leaf.aval.weak_type, str(leaf.sharding), leaf.committed,
         np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
                    else leaf).tobytes().hex()]
        for leaf in leaves
    ]
"""

PROGRAMS = """
def plain(a, unused, b):
    return {"sum": a + b, "same": a, "count": 3}

def captured(a):
    return a @ jnp.asarray(table)[:, None] + jax.jit(lambda c: c * jnp.asarray(table)[1])(a)

def looped(a):
    step = lambda carry, row: (jnp.tanh(carry + row), jax.nn.relu(row).sum())
    return lax.scan(step, a[0], a), lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, a)

def trained(params, batch):
    loss = lambda p: jnp.mean((batch @ p["w"] + p["b"]) ** 2)
    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

def random(key):
    return jax.random.split(key), jax.random.normal(key, (3,))

params = lambda: {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}
devices = jax.devices()
mesh = jax.make_mesh((len(devices),), ("d",)) if len(devices) > 1 else None
spread = lambda spec: jax.sharding.NamedSharding(mesh, jax.P(*spec))
calls = {
    "plain": lambda: jax.jit(plain)(x, 1, 2.0),
    "unused": lambda: jax.jit(lambda *args: plain(*args), keep_unused=True)(x, 1, 2.0),
    "captured": lambda: jax.jit(captured)(x),
    "looped": lambda: jax.jit(looped)(x),
    "trained": lambda: jax.jit(trained)(params(), x),
    "donated": lambda: jax.jit(trained, donate_argnums=0)(params(), x),
    "random": lambda: jax.jit(random)(jax.random.key(0)),
    "static": lambda: jax.jit(lambda a, n: a ** n, static_argnums=1)(x, 3),
    "eager": lambda: jnp.sort(x)[::-1] @ jnp.ones(4),
    "nothing": lambda: jax.jit(lambda: (jnp.arange(3), 1))(),
    "options": lambda: jax.jit(jnp.sin, compiler_options={"xla_cpu_enable_fast_math": True})(x),
}
if mesh:
    y = jnp.ones((8, 4))
    def constrained(a):
        return lax.with_sharding_constraint(a * 2, spread((None, None))) + 1
    calls |= {
        "spread": lambda: jax.jit(jnp.cos)(jax.device_put(y, spread(("d",)))),
        "gathered": lambda: jax.jit(lambda a: jnp.cos(a) + 1, out_shardings=spread(()))(
            jax.device_put(y, spread(("d",)))
        ),
        "constrained": lambda: jax.jit(constrained)(jax.device_put(y, spread(("d",)))),
        "last": lambda: jax.jit(jnp.sin)(jax.device_put(y, devices[-1])),
    }
"""

SAY = """
found = {}
for name in os.environ.get("NAMES", " ".join(calls)).split():
    before = dict(counts)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(os.environ.get("FILTER", "always"))
        try:
            result = bits(calls[name]())
        except Exception as error:
            result = [type(error).__name__, str(error)]
    texts = [str(one.message) for one in said]
    found[name] = result, texts, {what: counts[what] - before[what] for what in counts}
store = None
if os.environ["WITH"] == "jaxide":
    store = jaxide.cache_info().store
    store = store and [store.hits, store.misses, store.refused]
print(json.dumps([found, store]))
"""


def executed(before: str = "", programs: str = PROGRAMS, **environment: str) -> Any:
    """What the programs come to in a process of its own: results, warnings, what was done."""
    done = run_warm(RUN + before + programs + SAY, **environment)
    return json.loads(done.stdout.splitlines()[-1])


class Folders:
    """A store, and what jax has compiled."""

    def __init__(self, folder: Path):
        self.store, self.compiled = folder / "store", folder / "compiled"

    def executed(self, before: str = "", **options: Any) -> Any:
        environment = {"JAXIDE_CACHE_DIR": str(self.store), "COMPILED": str(self.compiled)}
        return executed(before, **{**environment, **options})

    def fill(self, before: str = "", **options: Any) -> Any:
        return self.executed(before, **{"JAXIDE_CACHE_MODE": "write", **options})

    def stock(self, before: str = "", **options: Any) -> Any:
        return self.executed(before, **{"WITH": "stock", **options})


def results(found: Any) -> dict[str, Any]:
    return {name: each[:2] for name, each in found[0].items()}


def lowered(found: Any) -> dict[str, int]:
    """Of each program, how much of it was lowered."""
    return {name: each[2]["lowered"] for name, each in found[0].items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    folders = Folders(tmp_path_factory.mktemp("filled"))
    folders.fill()
    return folders


def test_second_process(filled: Folders) -> None:
    """Nothing is lowered; results, shardings and warnings are stock jax's, to the last bit."""
    stock, found = filled.stock(), filled.executed()
    assert results(found) == results(stock)
    assert set(lowered(found).values()) == {0}, lowered(found)
    assert all(each[2]["read"] for each in found[0].values())
    assert found[1][2] == 0


def test_several_devices(tmp_path: Path) -> None:
    folders, flags = Folders(tmp_path), "--xla_force_host_platform_device_count=4"
    folders.fill(XLA_FLAGS=flags)
    stock, found = folders.stock(XLA_FLAGS=flags), folders.executed(XLA_FLAGS=flags)
    assert results(found) == results(stock)
    assert set(lowered(found).values()) == {0}, lowered(found)
    # Another number of devices is another key.
    fewer = "--xla_force_host_platform_device_count=2"
    found = folders.executed(XLA_FLAGS=fewer)
    assert results(found) == results(folders.stock(XLA_FLAGS=fewer))
    assert all(lowered(found).values())


def test_what_jax_has_forgotten_is_lowered(filled: Folders, tmp_path: Path) -> None:
    other = str(tmp_path / "empty")
    found = filled.executed(COMPILED=other)
    assert results(found) == results(filled.stock())
    assert all(lowered(found).values())


@pytest.mark.parametrize(
    "setting",
    [
        "jax_enable_compilation_cache=False",
        "jax_compilation_cache_include_metadata_in_key=True",
        "jax_dump_ir_to=FOLDER",
        "jax_compilation_cache_check_contents=True",
    ],
)
def test_settings_that_ask_for_a_lowering(filled: Folders, tmp_path: Path, setting: str) -> None:
    name, value = setting.replace("FOLDER", repr(str(tmp_path / "texts"))).split("=")
    change = f"jax.config.update({name!r}, {value})\n"
    found = filled.executed(change, NAMES="plain trained")
    assert results(found) == results(filled.stock(change, NAMES="plain trained"))
    assert all(lowered(found).values())


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("two of the same", "plain"),
        ("another dtype", "plain"),
        ("not weak", "plain"),
        ("captured", "captured"),
        ("captured within", "captured"),
        ("a constant result", "plain"),
        ("the name of a result", "plain"),
        ("the name of the function", "plain"),
        ("donation", "donated"),
        ("a static argument", "static"),
        ("a compiler option", "options"),
        ("64 bits", "trained"),
        ("a precision", "trained"),
        ("a device", "plain"),
        ("a layer of jits", "trained"),
        ("a generator of random numbers", "random"),
        ("unused arguments", "plain"),
    ],
)
def test_another_program_is_lowered(filled: Folders, change: str, name: str) -> None:
    """What differs in one thing is another key."""
    old, new = {
        "two of the same": ('"same": a,', '"same": a + 0,'),
        "another dtype": ("(x, 1, 2.0)", "(x.astype(np.int32), 1, 2)"),
        "not weak": ("(x, 1, 2.0)", "(x, 1, np.float32(2))"),
        "captured": ("a @ jnp.asarray(table)", "a @ jnp.asarray(2 * table)"),
        "captured within": ("c * jnp.asarray(table)[1]", "c * jnp.asarray(2 * table)[1]"),
        "a constant result": ('"count": 3', '"count": 4'),
        "the name of a result": ('"count": 3', '"number": 3'),
        "the name of the function": ("jax.jit(plain)", "jax.jit(lambda a, _, b: plain(a, _, b))"),
        "donation": ("donate_argnums=0", "donate_argnums=1"),
        "a static argument": ("(x, 3)", "(x, 4)"),
        "a compiler option": ('fast_math": True', 'fast_math": False'),
        "64 bits": ("devices =", "jax.config.update('jax_enable_x64', True); devices ="),
        "a precision": (
            "devices =",
            "jax.config.update('jax_default_matmul_precision', 'float32'); devices =",
        ),
        "a device": ("jax.jit(plain)(x, ", "jax.jit(plain)(jax.device_put(x, devices[0]), "),
        "a layer of jits": ("(batch @ p", "(jax.jit(lambda b: b)(batch) @ p"),
        "a generator of random numbers": ("random.key(0)", "random.key(0, impl='rbg')"),
        "unused arguments": ("jax.jit(plain)", "jax.jit(plain, keep_unused=True)"),
    }[change]
    assert old in PROGRAMS
    programs = PROGRAMS.replace(old, new)
    found = filled.executed(programs=programs, NAMES=name)
    assert results(found) == results(filled.stock(programs=programs, NAMES=name))
    assert lowered(found)[name] > 0


def test_rules_of_the_users(filled: Folders) -> None:
    """A program that somebody else's rule lowers is lowered by it."""
    change = """
from jax.interpreters import mlir
mlir.register_lowering(lax.tanh_p, mlir.lower_fun(lambda a, **_: a * 0, multiple_results=False))
"""
    found = filled.executed(change, NAMES="looped plain")
    assert results(found) == results(filled.stock(change, NAMES="looped plain"))
    assert lowered(found)["looped"] > 0


EFFECTS = """
def called(a):
    jax.debug.callback(lambda v: None, a[0, 0])
    return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(a.shape, a.dtype), a)
calls = {"called": lambda: jax.jit(called)(x)}
"""


def test_callbacks_are_lowered(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.fill(programs=EFFECTS)
    found = folders.executed(programs=EFFECTS)
    assert results(found) == results(folders.stock(programs=EFFECTS))
    assert lowered(found)["called"] > 0


WARNED = """
def summed(a, b):
    return a.sum() + b.sum()
calls = {"summed": lambda: jax.jit(summed, donate_argnums=(0, 1))(jnp.ones((3, 4)), jnp.ones(5))}
"""


def test_warnings_of_a_lowering_are_given(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.fill(programs=WARNED)
    found = folders.executed(programs=WARNED)
    assert results(found) == results(folders.stock(programs=WARNED))
    assert "donated" in found[0]["summed"][1][0]


OVERFLOWING = """
def overflowing(a, number):
    return jnp.where(a > number, 1e300, a)
calls = {
    "first": lambda: jax.jit(lambda a: overflowing(a, 1))(x),
    "second": lambda: jax.jit(lambda a: overflowing(a, 2))(x),
    "again": lambda: jax.jit(lambda a: overflowing(a, 2))(x),
    "plain": lambda: jax.jit(lambda a: a + 1)(x),
}
"""


@pytest.mark.parametrize("shown", ["always", "default"])
def test_warnings_of_numpy(tmp_path: Path, shown: str) -> None:
    """Native code warns without `warnings.warn`, and each location may warn once only."""
    folders, change = Folders(tmp_path), f"warnings.simplefilter({shown!r})\n"
    folders.fill(change, programs=OVERFLOWING, FILTER=shown)
    found, stock = (
        run(change, programs=OVERFLOWING, FILTER=shown) for run in (folders.executed, folders.stock)
    )
    assert results(found) == results(stock)
    assert "overflow" in stock[0]["first"][1][0]


@pytest.mark.parametrize("store", [True, False])
def test_a_cache_of_jax_that_cannot_be_opened(tmp_path: Path, store: bool) -> None:
    (tmp_path / "file").write_text("no folder")
    options = {"COMPILED": str(tmp_path / "file"), "NAMES": "plain trained"}
    if not store:
        options["JAXIDE_CACHE_DIR"] = ""
    folders = Folders(tmp_path)
    found, stock = folders.fill(**options), folders.stock(**options)
    assert results(found) == results(stock)
    assert "Error reading persistent compilation cache entry" in stock[0]["plain"][1][0]


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_entries_of_jax_that_are_damaged(tmp_path: Path, content: bytes | None) -> None:
    folders = Folders(tmp_path)
    folders.fill(NAMES="plain looped")
    for file in folders.compiled.glob("*-cache"):
        file.write_bytes(file.read_bytes()[:-99] if content is None else content)
    found, stock = (run(NAMES="plain looped") for run in (folders.executed, folders.stock))
    assert results(found) == results(stock)
    assert "Error reading persistent compilation cache entry" in stock[0]["plain"][1][0]


MISMATCH = """
calls = {"wrong": lambda: jax.jit(jnp.add)(
    jax.device_put(x, devices[0]), jax.device_put(x, devices[1]))}
"""


def test_errors_are_stocks(tmp_path: Path) -> None:
    folders, flags = Folders(tmp_path), "--xla_force_host_platform_device_count=2"
    folders.fill(programs=MISMATCH, XLA_FLAGS=flags)
    found = folders.executed(programs=MISMATCH, XLA_FLAGS=flags)
    assert results(found) == results(folders.stock(programs=MISMATCH, XLA_FLAGS=flags))


AFTERWARDS = """
step = jax.jit(trained)
def afterwards():
    first = step(params(), x)
    text = step.lower(params(), x).as_text()
    compiled = step.lower(params(), x).compile()
    again = jax.jit(lambda p, b: trained(p, b))(params(), x)
    grads = jax.grad(lambda p: step(p, x)[1])(params())
    batched = jax.vmap(step, (None, 0))(params(), jnp.stack([x, x]))
    return first, step(params(), x), compiled(params(), x), again, grads, batched, len(text)
calls = {"afterwards": afterwards}
"""


def test_what_is_done_with_a_jit_afterwards(filled: Folders) -> None:
    programs = PROGRAMS + AFTERWARDS
    found = filled.executed(programs=programs)
    assert results(found) == results(filled.stock(programs=programs))


def test_small_programs_that_jax_does_not_keep(tmp_path: Path) -> None:
    """Nothing is stored of what jax's cache does not have."""
    folders = Folders(tmp_path)
    change = "jax.config.update('jax_persistent_cache_min_compile_time_secs', 99)\n"
    folders.fill(change)
    found = folders.executed(change)
    assert results(found) == results(folders.stock(change))
    assert all(lowered(found).values())


def test_audits(filled: Folders) -> None:
    """Each program that the store knows is lowered, and is the one that was compiled."""
    found = filled.executed(JAXIDE_AUDIT="1", NAMES="plain captured looped trained random")
    stock = filled.stock(NAMES="plain captured looped trained random")
    assert results(found) == results(stock)
    assert all(lowered(found).values())


EXCHANGED = """
from jaxide import _core
known, first = [], []
def store(key, value):
    if not value or type(value[0]) is not str:
        return keep(key, value)  # not of a program
    known.append(value)
    # From the second program on, each says that it was compiled to the first one.
    keep(key, (known[0][0], *value[1:]))
keep, _core.store_value = _core.store_value, store
"""
PAIR = """
calls = {
    "twice": lambda: jax.jit(lambda a: a * 2)(x),
    "thrice": lambda: jax.jit(lambda a: a * 3)(x),
}
"""


def test_an_audit_finds_another_module(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.fill(EXCHANGED, programs=PAIR)
    wrong, stock = folders.executed(programs=PAIR), folders.stock(programs=PAIR)
    assert results(wrong)["thrice"][0] == results(stock)["twice"][0], "the entries are exchanged"
    found = folders.executed(programs=PAIR, JAXIDE_AUDIT="1")
    assert results(found)["thrice"][0] == results(stock)["thrice"][0]
    assert any("executable" in text for text in found[0]["thrice"][1])


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize(
    "value",
    [
        "('../../../etc/passwd', *value[1:])",
        "('/etc/' + value[0], *value[1:])",
        "(value[0], 'other', *value[2:])",
        "(*value[:2], (-1,), *value[3:])",
        "(*value[:2], (1, 0), *value[3:])",
        "(*value[:2], (0, 99), *value[3:])",
        "(*value[:2], (), *value[3:])",
        "value[:3]",
        "'a text'",
        "tuple(map(str, value))",
        "(*value[:3], True, *value[4:])",
    ],
)
def test_entries_that_are_wrong(tmp_path: Path, value: str) -> None:
    """What an entry cannot say is as if it were not there."""
    folders = Folders(tmp_path)
    change = f"""
from jaxide import _core
keep = _core.store_value
def store(key, value):
    keep(key, {value})
_core.store_value = store
"""
    programs = "calls = {'one': lambda: jax.jit(lambda a, b, c: a * 2 + c)(x, 1.0, 2.0)}\n"
    folders.fill(change, programs=programs)
    found = folders.executed(programs=programs)
    assert results(found) == results(folders.stock(programs=programs))


INTERRUPTED = """
import signal

class TimeIsOver(TimeoutError):
    pass

def handler(*_):
    global fired
    fired += 1
    raise TimeIsOver

def interrupted():
    global fired
    fired = raised = 0
    jax.jit(lambda a: a + 1)(x)
    signal.signal(signal.SIGALRM, handler)
    for number in range(150):
        step = jax.jit(lambda a: jnp.tanh(a * (number + 1) + 0.75) @ a.T)
        try:
            if os.environ.get("INTERRUPTS"):
                signal.setitimer(signal.ITIMER_REAL, 0.0001 * (number % 25 + 1))
            try:
                step(x)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeIsOver:
            raised += 1
        except ValueError as error:  # jaxlib's caches take it for an error of the keys' comparison
            if "TimeIsOver" not in str(error):
                raise
            raised += 1
    return fired, raised
calls = {"interrupted": lambda: np.asarray(interrupted())}
"""


def test_exceptions_of_signal_handlers(tmp_path: Path) -> None:
    """A time-out is no failure of the store. jax itself takes one for a failure of its cache where
    it comes while that reads, and warns."""
    change = "bits = lambda found: found.tolist()\n"
    folders = Folders(tmp_path)
    folders.fill(change, programs=INTERRUPTED)
    found = folders.executed(change, programs=INTERRUPTED, INTERRUPTS="1")
    fired, raised = found[0]["interrupted"][0]
    assert fired > 20
    assert raised > 0.8 * fired, (fired, raised)
