"""The store: what one process has recorded is replayed in the next one, or not used."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from alone import run_alone, run_warm
from jaxide import _compat
from jaxide._api import warm
from jaxide._native.portable import Names

HERE = Path(__file__).parent

# Programs as texts, so that their lines are the same with and without jaxide.
PROGRAMS = """
import json, sys
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

x = jnp.arange(12.0, dtype=jnp.float32).reshape(3, 4)

def attention(q, k):
    scores = jnp.einsum("id,jd->ij", q, k) / np.sqrt(4)
    mask = jnp.tril(jnp.ones((3, 3), bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1) @ k

def norm(a):
    return (a - a.mean(-1, keepdims=True)) / jnp.sqrt(a.var(-1, keepdims=True) + 1e-5)

def loss(a):
    return jnp.sum(norm(attention(a, a + 1)) ** 2)

def indexed(a):
    parts = jnp.split(a, 2, axis=1)
    return a.at[0].set(1.0)[:, ::2] + jnp.concatenate(parts, 1)[:, 1::2]

def looped(a):
    return lax.scan(lambda c, row: (c + jnp.tanh(row), c.sum()), a[0], a)

def random(key):
    return jax.random.normal(key, (3,)) + jax.random.uniform(key)

def where(a):
    return jnp.where(a > 0, a, 0) + jnp.where(a > 1, a, 0) + a.clip(0, 1)

programs = {
    "forward": lambda: (loss, x),
    "gradient": lambda: (jax.grad(loss), x),
    "batched": lambda: (jax.vmap(lambda row: jnp.cumsum(jnp.sort(row))[::-1]), x),
    "second": lambda: (jax.hessian(lambda v: jnp.sum(jnp.sin(v) * v)), x[0]),
    "indexed": lambda: (indexed, x),
    "looped": lambda: (looped, x),
    "random": lambda: (random, jax.random.key(0)),
    "relu": lambda: (jax.grad(lambda a: jax.nn.relu(a).sum()), x),
    "where": lambda: (where, x),
}
"""

TRACE = """
import os
make = jax.make_jaxpr
if os.environ["WITH"] == "jaxide":
    import jaxide
    make = jaxide.make_jaxpr
found = {}
for name in os.environ.get("NAMES", " ".join(programs)).split():
    function, argument = programs[name]()
    made = make(function)(argument)
    found[name] = str(made), made.pretty_print(source_info=True, name_stack=True)
store = None
if os.environ["WITH"] == "jaxide":
    store = jaxide.cache_info().store
    store = store and [store.hits, store.misses, store.entries, store.refused]
print(json.dumps([found, store]))
"""


def traced(before: str = "", python: tuple[str, ...] = (), **environment: str) -> Any:
    """The texts of the programs, and what the store says, in a process of its own."""
    done = run_warm(before + PROGRAMS + TRACE, python, **environment)
    return *json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def stock() -> Any:
    """What stock jax says."""
    return traced(WITH="jax")[0]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the programs, to which nothing is added."""
    folder = tmp_path_factory.mktemp("store") / "own"
    traced(JAXIDE_CACHE_DIR=str(folder), JAXIDE_CACHE_MODE="write")
    return folder


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """A copy that may be altered."""
    copy = tmp_path / "store"
    shutil.copytree(filled, copy)
    return copy


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.jxs"))


def test_second_process(filled: Path, stock: Any) -> None:
    found, (hits, _, entries, refused), _ = traced(JAXIDE_CACHE_DIR=str(filled))
    assert found == stock
    assert hits > 50
    assert entries > 100
    assert refused == 0


def test_nothing_is_left_to_record(filled: Path, stock: Any) -> None:
    found, (hits, misses, *_), _ = traced(JAXIDE_CACHE_DIR=str(filled), NAMES="forward")
    assert found["forward"] == stock["forward"]
    assert hits > 0
    assert misses == 0


def test_modules_of_jax_that_no_program_needs_are_not_imported(filled: Path) -> None:
    at_exit = """
import atexit, sys
atexit.register(lambda: print("jax._src.pallas" in sys.modules, file=sys.stderr))
"""
    _, (hits, *_), errors = traced(at_exit, JAXIDE_CACHE_DIR=str(filled))
    assert hits > 0
    assert errors.split() == ["False"]


NAMED = """
import jax, jax.numpy as jnp
import jaxide
from jax._src import xla_bridge
from jaxide._native.portable import Names
asked = []
configuration = Names.configuration
Names.configuration = lambda *args: asked.append(1) or configuration(*args)
counts = []
def note():
    counts.append(len(asked))
jaxide.install()
assert not xla_bridge.backends_are_initialized()
note()
jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)
note()
jaxide.install()
note()
with jax.default_matmul_precision("highest"):
    jax.make_jaxpr(lambda x: jnp.cos(x) + 1)(1.0)
note()
print(counts)
"""


def test_the_configuration_is_named_before_the_first_trace(tmp_path: Path) -> None:
    done = run_warm(NAMED, JAXIDE_CACHE_DIR=str(tmp_path))
    assert done.stdout == "[1, 1, 1, 2]\n"
    assert run_warm(NAMED, JAXIDE_CACHE_DIR="").stdout == "[0, 0, 0, 0]\n"


FAILS = """
import jax, jax.numpy as jnp
import jaxide
from jaxide._native.portable import Names
configuration = Names.configuration
def refuse(*args):
    raise ValueError
Names.configuration = refuse
jaxide.install()
Names.configuration = configuration
print(jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0), jaxide.cache_info().store.entries)
"""


def test_a_configuration_that_cannot_be_named(tmp_path: Path) -> None:
    """It does not keep jaxide from being installed."""
    done = run_warm(FAILS, JAXIDE_CACHE_DIR=str(tmp_path))
    assert done.stdout.startswith("{ lambda ; a:f32[]."), done.stdout


def test_part_of_the_programs(tmp_path: Path, stock: Any) -> None:
    """Nested programs are one object, whether the call that leads to one is known or not."""
    environment = {"JAXIDE_CACHE_DIR": str(tmp_path / "store"), "JAXIDE_CACHE_MODE": "write"}
    traced(NAMES="where random", **environment)
    found, *_ = traced(**environment)
    assert found == stock
    found, *_ = traced(NAMES="gradient where forward", **environment)
    assert found == {name: stock[name] for name in ("gradient", "where", "forward")}


def test_after_eager_calls(filled: Path) -> None:
    eager = "import jax.numpy as jnp; y = jnp.where(jnp.ones((3, 4)) > 0, 1.0, 0); y.var(-1)\n"
    found, (hits, *_), _ = traced(eager, JAXIDE_CACHE_DIR=str(filled))
    assert found == traced(eager, WITH="jax")[0]
    assert hits > 0


OTHERS: dict[str, dict[str, Any]] = {
    "64 bits": {"JAX_ENABLE_X64": "1"},
    "promotion": {"JAX_NUMPY_DTYPE_PROMOTION": "strict"},
    "precision": {"JAX_DEFAULT_MATMUL_PRECISION": "highest"},
    "devices": {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"},
    "optimized": {"python": ("-O",)},
    "numpy's errors": {"before": "import numpy; numpy.seterr(over='ignore')\n"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_configuration(filled: Path, name: str) -> None:
    names = {"NAMES": "where indexed"}
    expected = traced(WITH="jax", **names, **OTHERS[name])[0]
    found, (hits, *_), _ = traced(JAXIDE_CACHE_DIR=str(filled), **names, **OTHERS[name])
    assert found == expected
    assert hits == 0


def test_a_function_of_jax_that_somebody_has_changed(filled: Path, stock: Any) -> None:
    changed = "import jax, jax.numpy as jnp; jax.lax.sqrt = lambda v: jax.lax.sin(v)\n"
    expected = traced(changed, WITH="jax")[0]
    assert traced(changed, JAXIDE_CACHE_DIR=str(filled))[0] == expected
    assert traced(JAXIDE_CACHE_DIR=str(filled))[0] == stock


def test_another_jax_of_the_same_version(filled: Path, tmp_path: Path) -> None:
    package = Path(jax.__file__).parent
    copy = tmp_path / "jax"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("experimental", "tests"))
    (copy / "experimental").symlink_to(package / "experimental")
    source = copy / "_src/lax/lax.py"
    text = source.read_text()
    changed = text.replace("  return max_p.bind(x, y)", "  return min_p.bind(x, y)")
    assert changed != text
    source.write_text(changed)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    own = {"PYTHONPATH": path, "NAMES": "where random"}
    expected = traced(WITH="jax", **own)[0]
    found, (hits, _, entries, _), _ = traced(JAXIDE_CACHE_DIR=str(filled), **own)
    assert found == expected
    assert (hits, entries) == (0, 0)


def test_programs_by_turns(stock: Any, tmp_path: Path) -> None:
    """What one process has of the store is what the next one derives from."""
    write = {"JAXIDE_CACHE_DIR": str(tmp_path / "store"), "JAXIDE_CACHE_MODE": "write"}
    for names in ("where", "forward where", "forward gradient", "gradient forward"):
        found = traced(NAMES=names, **write)[0]
        assert found == {name: stock[name] for name in names.split()}


# What other programs begin with.
SMALL = """
import os
import jax, jax.extend, jax.numpy as jnp
make = jax.make_jaxpr
if os.environ["WITH"] == "jaxide":
    import jaxide
    make = jaxide.make_jaxpr
x = jnp.arange(3.0)
"""

# Programs with derivative rules, which are made when somebody asks for them; and what asks.
RULED = (
    SMALL
    + """
def f(a):
    with jax.named_scope("own"):
        b = jax.nn.relu(a) * jax.nn.softplus(a)
    return (b + jnp.logaddexp(a, 1.0)).sum()

for function in (f, jax.grad(f), jax.vmap(jax.grad(lambda v: f(v[None])))):
    made = make(function)(x)
    print(made.pretty_print(source_info=True, name_stack=True))
    again = lambda v: jax.extend.core.jaxpr_as_fun(made)(v)[0]
    for derived in (jax.jacfwd(again), jax.jacrev(again)):
        print(make(derived)(x).pretty_print(source_info=True, name_stack=True))
        print(jax.jit(derived)(x))
if os.environ["WITH"] == "jaxide":
    import sys
    print(jaxide.cache_info().store.hits, file=sys.stderr)
"""
)


def test_rules_that_somebody_asks_for(tmp_path: Path) -> None:
    expected = run_warm(RULED, WITH="jax").stdout
    for mode in ("write", "read", "read"):
        environment = {"JAXIDE_CACHE_DIR": str(tmp_path / "store"), "JAXIDE_CACHE_MODE": mode}
        done = run_warm(RULED, **environment)
        assert done.stdout == expected
    assert int(done.stderr) > 10


# jax keeps the programs of functions of two numbers, which scatters have.
REDUCING = (
    SMALL
    + """
def decomposed(y):
    return jax.lax.linalg.svd(jnp.outer(y, y))[1]

programs = {
    "once": jax.grad(lambda v: decomposed(v).sum()),
    "twice": jax.grad(lambda w: jax.grad(lambda v: decomposed(v).sum())(w).sum()),
    "looped": jax.grad(
        lambda v: jax.lax.scan(lambda c, i: (c + v[i], jnp.sin(v[i])), 0.0, jnp.arange(3))[0]
    ),
    "top": jax.grad(lambda v: jax.vmap(lambda y: jax.lax.top_k(y, 3)[0])(jnp.stack([v, v])).sum()),
}
for name in os.environ["NAMES"].split():
    print(make(programs[name])(x).pretty_print(source_info=True, name_stack=True))
if os.environ["WITH"] == "jaxide":
    import sys
    print(jaxide.cache_info().store.whole, file=sys.stderr)
"""
)


def test_programs_of_reductions_in_loops_are_known(tmp_path: Path) -> None:
    environment = {"NAMES": "looped", "JAXIDE_CACHE_DIR": str(tmp_path / "store")}
    expected = run_warm(REDUCING, WITH="jax", NAMES="looped").stdout
    for mode, whole in (("write", 0), ("read", 1)):
        done = run_warm(REDUCING, JAXIDE_CACHE_MODE=mode, **environment)
        assert done.stdout == expected
        assert int(done.stderr) == whole


@pytest.mark.parametrize("histories", [["twice"], ["once top", "top", "once top"]], ids=str)
def test_programs_of_reductions_have_the_line_that_came_first(
    histories: list[str], tmp_path: Path
) -> None:
    for place, names in enumerate(histories):
        environment = {"NAMES": names, "JAXIDE_CACHE_DIR": str(tmp_path / "store")}
        mode = "read" if place == 2 else "write"
        found = run_warm(REDUCING, JAXIDE_CACHE_MODE=mode, **environment).stdout
        assert found == run_warm(REDUCING, WITH="jax", NAMES=names).stdout


def test_damaged_segments(store: Path, stock: Any) -> None:
    rng = random.Random(0)
    for _ in range(4):
        for path in segments(store):
            content = bytearray(path.read_bytes())
            # Of the parts: a damaged index is noticed when the segment is opened.
            for _ in range(200):
                content[rng.randrange(len(content) // 2, len(content))] ^= 1 << rng.randrange(8)
            path.write_bytes(content)
        found, (*_, refused), said = traced(JAXIDE_CACHE_DIR=str(store))
        assert found == stock
        assert refused > 0
        assert said.count("of the store is not used") == 1


def test_a_damaged_entry_that_another_segment_has(store: Path, stock: Any) -> None:
    (path,) = segments(store)
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content), 97):
        content[place] ^= 1
    path.write_bytes(content)
    write = {"JAXIDE_CACHE_DIR": str(store), "JAXIDE_CACHE_MODE": "write"}
    found, (_, misses, *_), _ = traced(**write)
    assert found == stock
    assert misses > 0
    # What was learnt anew is found, though the damaged one is asked first.
    os.utime(path)
    found, (_, misses_then, *_), said = traced(JAXIDE_CACHE_DIR=str(store))
    assert found == stock
    assert misses_then < misses / 4
    assert said.count("of the store is not used") == 1


def test_leftovers_where_nothing_is_learnt(store: Path) -> None:
    (path,) = segments(store)
    left = path.with_suffix(".1-1-1.new")
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    traced(JAXIDE_CACHE_DIR=str(store), JAXIDE_CACHE_MODE="write", NAMES="where")
    assert not left.exists()


@pytest.mark.parametrize(
    "value",
    [
        "__import__('numpy').zeros(3)",
        "(5,)",
        "((), 1, 2, 3, 4, 5, 6, 7)",
        "(((1, 2),), 0, 0, 0, 0, 0, None)",
        "((('x', -5, ()),), 0, 0, 0, 0, 0, None)",
    ],
)
def test_values_of_another_shape(value: str, store: Path, stock: Any) -> None:
    """Whoever writes to the store may write anything: nothing of it is raised."""
    # On the line before the programs, whose lines stay.
    before = (
        "from jaxide import _core; stored = _core.stored_value; _core.stored_value = "
        f"lambda *key: None if stored(*key) is None else {value}"
    )
    found, *_ = traced(before, JAXIDE_CACHE_DIR=str(store))
    assert found == stock


def test_cut_and_foreign_files(store: Path, stock: Any) -> None:
    (path,) = segments(store)
    path.write_bytes(path.read_bytes()[:-100])
    (path.parent / "garbage.jxs").write_bytes(b"garbage")
    (path.parent / "empty.jxs").write_bytes(b"")
    write = {"JAXIDE_CACHE_MODE": "write"}
    found, (hits, *_), said = traced(JAXIDE_CACHE_DIR=str(store), **write)
    assert found == stock
    assert hits == 0
    assert said.count("of the store is not used") == 1
    # What is damaged is in nobody's way.
    found, (hits, *_), _ = traced(JAXIDE_CACHE_DIR=str(store))
    assert found == stock
    assert hits > 50


def test_a_store_that_is_only_read(filled: Path, stock: Any, tmp_path: Path) -> None:
    before = [(path, path.stat().st_mtime_ns) for path in segments(filled)]
    traced(JAXIDE_CACHE_DIR=str(filled))
    assert [(path, path.stat().st_mtime_ns) for path in segments(filled)] == before
    found, _, _ = traced(JAXIDE_CACHE_DIR=str(tmp_path / "none"))
    assert found == stock
    assert not (tmp_path / "none").exists()


def test_many_processes_at_once(tmp_path: Path, stock: Any) -> None:
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "WITH": "jaxide",
        "NAMES": "forward where",
        "JAXIDE_CACHE_DIR": str(tmp_path / "store"),
    }
    command = [sys.executable, "-c", PROGRAMS + TRACE]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    for process in running:
        out, _ = process.communicate(timeout=300)
        assert json.loads(out)[0] == {name: list(stock[name]) for name in ("forward", "where")}
    found, (hits, misses, *_), _ = traced(
        JAXIDE_CACHE_DIR=str(tmp_path / "store"), NAMES="forward where"
    )
    assert found["where"] == stock["where"]
    assert hits > 10 * misses


def test_processes_that_are_killed_while_they_write(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    (source,) = segments(filled)
    script = f"""
import itertools, pathlib
from jaxide import _core, _compat
content = pathlib.Path({str(source)!r}).read_bytes()
salt, packages = _compat.installation()
print("ready", flush=True)
for _ in itertools.count():
    _core.unpack_store({str(folder)!r}, salt, packages, content)
    for path in pathlib.Path({str(folder)!r}).glob("*/*.jxs"):
        path.unlink()
"""
    rng = random.Random(1)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0.1, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert _verify(folder) == []


def _verify(folder: Path) -> Any:
    return jaxide._core.verify_store(folder, *_compat.installation())


def test_every_fourth_program_of_the_corpus(tmp_path: Path) -> None:
    own = {**os.environ, "JAXIDE_CACHE_DIR": str(tmp_path / "store"), "JAXIDE_TEST_STORE": "1"}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), own.get("PYTHONPATH"))))
    said = []
    for what in ("fill", "compare"):
        command = [sys.executable, str(HERE / "warm_corpus.py"), what, "4", "1"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=own, check=False, cwd=HERE
        )
        assert done.returncode == 0, done.stderr
        said.append(int(done.stdout.split()[-1]))
    assert said[1] > 1000


def test_what_is_given_up_first(store: Path) -> None:
    (path,) = segments(store)
    other = store / ("0" * 32)
    other.mkdir(mode=0o700)
    (other / "old.jxs").write_bytes(bytes(1 << 16))
    os.utime(other / "old.jxs", (0, 0))
    size = path.stat().st_size + (1 << 16)
    own = {"JAXIDE_CACHE_MAX_BYTES": str(size), "JAXIDE_CACHE_MODE": "write"}
    traced("x = 1\n", JAXIDE_CACHE_DIR=str(store), NAMES="looped second", **own)
    left = segments(store)
    assert path in left
    assert sum(path.stat().st_size for path in left) <= size


def test_a_folder_that_others_may_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(jaxide.StoreError, match="others may write"):
        warm.check_folder(folder)
    monkeypatch.setenv("JAXIDE_CACHE_TRUST", "1")
    warm.check_folder(folder)
    monkeypatch.delenv("JAXIDE_CACHE_TRUST")
    folder.chmod(0o700)
    warm.check_folder(folder)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(jaxide.StoreError, match="no folder"):
        warm.check_folder(file)


def test_settings_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(jaxide.StoreError, match="one of write, read"):
        warm.open_store(tmp_path, mode="append")
    monkeypatch.delenv("JAXIDE_CACHE_DIR", raising=False)
    with pytest.raises(jaxide.StoreError, match="no folder is named"):
        warm.store_folder()
    with pytest.raises(jaxide.StoreError, match="jax_compilation_cache_dir"):
        warm.store_folder(warm.BESIDE_JAX)


def test_beside_the_compilation_cache(tmp_path: Path) -> None:
    script = f"""
    import jax
    jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
    import jax.numpy as jnp
    import jaxide
    jaxide.install(cache_dir=":jax:")
    jaxide.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    store = jaxide.cache_info().store
    print(store.mode, store.hits, store.folder.parent)
    """
    for hits in (0, 1):
        said = run_alone(script).stdout.split()
        assert said == ["write", str(hits), str(tmp_path / "jaxide")]


def test_one_file_for_other_machines(store: Path, tmp_path: Path, stock: Any) -> None:
    packed, other = tmp_path / "warm.jxs", tmp_path / "other"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jaxide", "cache", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert "entries" in run("info", "--dir", str(store)).stdout
    assert "entries" in run("pack", str(packed), "--dir", str(store)).stdout
    assert "entries" in run("unpack", str(packed), "--dir", str(other)).stdout
    assert run("verify", "--dir", str(other)).stdout == "nothing is damaged\n"
    found, (hits, *_), _ = traced(JAXIDE_CACHE_DIR=str(other))
    assert found == stock
    assert hits > 50
    (path,) = [path for path in segments(other) if path.stat().st_size == packed.stat().st_size]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    damaged = run("verify", "--dir", str(other))
    assert damaged.returncode == 1
    assert str(path) in damaged.stdout
    packed.write_bytes(b"garbage")
    refused = run("unpack", str(packed), "--dir", str(other))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert len(refused.stderr.splitlines()) == 1
    assert "files removed" in run("clear", "--dir", str(other)).stdout
    assert segments(other) == []
    nothing = run("pack", str(packed), "--dir", str(other))
    assert nothing.returncode == 2
    assert "no entries" in nothing.stderr


@pytest.fixture(scope="module")
def names() -> Names:
    return _compat.portable_names()


def test_names_tell_values_apart(names: Names) -> None:
    values = [
        *(None, True, False, 1, 0, "1", b"1", (1,), (True,), (1, 1), (), 2**70, -1),
        *(np.int64(1), np.int32(1), np.float32(1), np.bool_(True)),
        *(
            np.dtype("float32"),
            np.dtype(">f4"),
            jnp.float32,
            np.float32,
            jnp.bfloat16.dtype,
            float,
            int,
        ),
        *(jax.typeof(jnp.ones(3)), jax.typeof(jnp.ones((3, 1))), jax.typeof(jnp.ones(3, int))),
        jax.eval_shape(lambda: 1.0 * jnp.asarray(1)).update(weak_type=True),
        *(jnp.sin, jnp.cos, jnp.add, jax.nn.relu, jax.lax.sin_p, jax.lax.cos_p),
        *(jax.lax.Precision.HIGH, jax.lax.Precision.HIGHEST, jax.lax.GatherScatterMode.CLIP),
    ]
    found = [names.name(value) for value in values]
    known = [name for name in found if name is not None]
    assert len(set(known)) == len(known)
    assert len(known) >= len(values) - 1


def test_what_has_no_name(names: Names) -> None:
    class Own:
        pass

    nan = float("nan")
    others = [object(), Own(), Own, lambda: 1, nan, complex(nan, 0), print, sys, [Own()]]
    assert [names.name(value) for value in others] == [None] * len(others)


def test_names_are_those_of_other_processes(names: Names) -> None:
    script = """
    import jax, jax.numpy as jnp, numpy as np, jaxide
    from jaxide import _compat
    assert _compat.native()
    names = _compat.portable_names()
    values = jax.typeof(jnp.ones((2, 3))), jnp.where, jax.lax.sin_p, jax.nn.relu, np.dtype("int8")
    print([names.name(value) for value in values])
    """
    values = jax.typeof(jnp.ones((2, 3))), jnp.where, jax.lax.sin_p, jax.nn.relu, np.dtype("int8")
    assert run_alone(script).stdout.strip() == str([names.name(value) for value in values])


def test_the_programs_of_jits_are_those_that_jax_has(tmp_path: Path) -> None:
    script = """
    import jax, jax.numpy as jnp, jaxide
    x = jnp.ones(3)
    made = jaxide.make_jaxpr(lambda x: jnp.where(x > 0, x, 0.0))(x)
    later = jax.make_jaxpr(lambda x: jnp.where(x > 0, x, 0.0))(x)
    programs = [p.eqns[-1].params["jaxpr"] for p in (made, later)]
    print(programs[0] is programs[1], jaxide.cache_info().store.hits > 0)
    jax.clear_caches()
    made = jaxide.make_jaxpr(lambda x: jnp.where(x > 0, x, 0.0))(x)
    later = jax.make_jaxpr(lambda x: jnp.where(x > 0, x, 0.0))(x)
    again = [p.eqns[-1].params["jaxpr"] for p in (made, later)]
    print(again[0] is again[1], again[0] is programs[0])
    """
    for known in ("False", "True"):
        said = run_alone(script, JAXIDE_CACHE_DIR=str(tmp_path / "store")).stdout.split()
        assert said == ["True", known, "True", "False"]


def in_two_processes(
    folder: Path, script: str, *, first: str = "", **environment: str
) -> list[str]:
    """What a script prints with stock jax, and twice with one store; ``first`` is for the process
    that fills it."""
    own = {"JAX_PLATFORMS": "cpu", "JAXIDE_CACHE_DIR": str(folder), **environment}
    start = "import os, warnings, jax, jax.numpy as jnp, numpy as np\nmake = jax.make_jaxpr\n"
    start += "if os.environ['WITH'] == 'jaxide':\n    import jaxide; make = jaxide.make_jaxpr\n"
    said = [run_alone(start + script, **{**own, "WITH": "jax"}).stdout]
    said += [
        run_alone(start + text, **{**own, "WITH": "jaxide"}).stdout
        for text in (first + script, script)
    ]
    return said


# The second process has the equations of the bodies in other lines.
DERIVED = """
from jax import lax
x = jnp.arange(6.0).reshape(2, 3)

def cell(c, a):
    # here
    c = jnp.where(c > 0, jnp.tanh(c * a), a)
    return c, jnp.logaddexp(c, a)
# there

def looped(x):
    return lax.scan(cell, x[0], x)[1].sum()

@jax.jit
def inner(x):
    # here
    return jnp.var(x, -1) + jnp.where(x[0] > 1, x[0], 0.5).sum()
# there

@jax.jit
def outer(x):
    return inner(x) * 2 + inner(x + 1)

def picked(x):
    return jnp.take_along_axis(jax.nn.log_softmax(x), jnp.zeros((2, 1), int), 1).sum()

functions = {
    "looped": jax.grad(looped),
    "twice": jax.grad(lambda x: outer(x).sum()),
    "shared": jax.grad(lambda x: inner(x).sum() + outer(x).sum()),
    "second": jax.hessian(lambda v: inner(v[None] * jnp.ones((2, 3))).sum()),
    "batched": jax.vmap(outer),
    "batched gradient": jax.vmap(jax.grad(lambda v: inner(v[None] * x).sum())),
    "forward": jax.jacfwd(outer),
    "picked": jax.grad(picked),
    "rematerialized": jax.grad(jax.checkpoint(lambda x: outer(x).sum())),
}
arguments = {"batched": jnp.ones((4, 2, 3)), "second": x[0], "batched gradient": x}
for name in os.environ["NAMES"].split(", ") if os.environ.get("NAMES") else functions:
    made = make(functions[name])(arguments.get(name, x))
    print(name, made)
    print(made.pretty_print(source_info=True, name_stack=True))
"""
COUNT = """
counts = jaxide.cache_info().callables
print("@", sum(counts[name].misses for name in counts if name.endswith("_jaxpr")))
print("@", jaxide.cache_info().store.refused)
"""


@pytest.mark.parametrize("names", ["", "shared, picked", "batched gradient, second, looped"])
def test_derived_programs(tmp_path: Path, names: str) -> None:
    """What jax has made of a program is there, with the lines and the nested programs at hand."""
    script = DERIVED.replace("# here", "# here\n\n")
    before = DERIVED.replace("# there", "# there\n\n")
    own = {"JAX_PLATFORMS": "cpu", "JAXIDE_CACHE_DIR": str(tmp_path / "store")}
    start = "import os, jax, jax.numpy as jnp\nmake = jax.make_jaxpr\n"
    with_jaxide = start + "import jaxide; make = jaxide.make_jaxpr\n"
    run_alone(with_jaxide + before, **own, NAMES=names)
    stock = run_alone(start + "\n" + script, **own).stdout
    *said, misses, refused = run_alone(with_jaxide + script + COUNT, **own).stdout.splitlines()
    assert said == stock.splitlines()
    assert refused == "@ 0"
    if not names:
        # In one of dozens is a program that jax does not keep.
        assert int(misses.removeprefix("@ ")) <= 3


TRANSPOSED = """
from jax import lax
x, ids = jnp.arange(6.0).reshape(2, 3), jnp.array([1, 0, 1])

def first(x):
    return jnp.where(x > 1, x, 0.5).sum() + jax.nn.log_softmax(x)[0, 1]

def second(x):
    y = jnp.where(x > 1, x, 0.5)
    return (y * jnp.var(x) + jnp.take_along_axis(x, jnp.zeros((2, 1), int), 1)).sum()

def third(x):
    x = x[ids]
    return (jax.ops.segment_sum(x, ids, 2) ** 2).sum() + x.at[0].mul(2.0).sum()

functions = {
    "first": jax.grad(first),
    "second": jax.grad(second),
    "third": jax.grad(third),
    "both": jax.grad(lambda x: first(x) + second(x)),
    "batched": jax.vmap(jax.grad(lambda v: first(v[None] * x) + second(x * v))),
    "rematerialized": jax.grad(jax.checkpoint(lambda x: second(x) + third(x))),
    "again": jax.grad(lambda x: jax.grad(second)(x).sum()),
    # Two programs that are structurally equal, in each.
    "pulled back": lambda x: jax.vjp(lambda v: jax.scipy.special.rel_entr(v, x), x)[1](x),
    "second pull": lambda x: jax.vjp(
        lambda v: jax.jvp(lambda w: jax.vjp(jnp.triu, w)[1](w), (v,), (v,))[1], x
    )[1]((x,)),
    "wrapped": jax.grad(lambda x: jnp.sum(jax.linearize(
        lambda v: jnp.pad(v, 1, mode="wrap"), x)[1](x) ** 2)),
    "looped": jax.grad(lambda x: lax.scan(lambda c, r: (c + first(c * r), r), x, x)[0].sum()),
}
for name in ORDER.split(", "):
    made = make(functions[name])(x)
    print(name, made)
    print(made.pretty_print(source_info=True, name_stack=True))
"""
ORDERS = [
    "first, second, third, both, batched, rematerialized, again, looped, pulled back, wrapped",
    "wrapped, looped, again, rematerialized, batched, both, third, second, first, second pull",
    "second pull, pulled back, second, first",
    "both, third, looped, pulled back",
]


@pytest.mark.parametrize(
    ("before", "order"), [(ORDERS[0], order) for order in ORDERS] + [(ORDERS[2], ORDERS[1])]
)
def test_who_transposes_first(tmp_path: Path, before: str, order: str) -> None:
    """The equations of a transposed program have the line of who has transposed it first, in each
    process."""
    script = f"ORDER = {order!r}{TRANSPOSED}"
    first = f"ORDER = {before!r}{TRANSPOSED}\nmake = jaxide.make_jaxpr\n"
    stock, _, second = in_two_processes(tmp_path / "store", script, first=first)
    assert second == stock


def test_bodies_of_jits_are_stored(tmp_path: Path) -> None:
    script = f"ORDER = {ORDERS[0]!r}{TRANSPOSED}"
    said = """
if os.environ["WITH"] == "jaxide":
    counts = jaxide.cache_info().callables
    print("@", sum(counts[name].hits for name in counts if name.startswith("body of")))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script + said)
    *first, hits_before = first.splitlines()
    *second, hits = second.splitlines()
    assert first == second == stock.splitlines()
    assert hits_before == "@ 0"
    assert int(hits.removeprefix("@ ")) > 3


def test_lines_of_calls_that_derive(tmp_path: Path) -> None:
    """What is derived has the line of the call in equations that are none of the program's: in one
    process that is a line of the program, in the next one it is not."""
    script = """
from jax import lax
of_jax = jax.jit(lax.cond, static_argnums=(1, 2))
own = jax.jit(lambda p, f, g, *x: lax.cond(p, f, g, *x), static_argnums=(1, 2))
x = jnp.ones(3)
for function in (
    jax.vmap(lambda x: cond(x > 0, jnp.sin, jnp.ones_like, x)),
    jax.grad(lambda x: cond(x[0] > 0, jnp.sin, jnp.ones_like, x).sum()),
):
    print(make(function)(x).pretty_print(source_info=True))
"""
    own = {"JAX_PLATFORMS": "cpu", "JAXIDE_CACHE_DIR": str(tmp_path / "store")}
    start = "import jax, jax.numpy as jnp\nmake = jax.make_jaxpr\n"
    with_jaxide = start.replace("make =", "import jaxide; make =").replace(
        "jax.make", "jaxide.make"
    )
    run_alone(with_jaxide + script.replace("cond(x", "of_jax(x"), **own)
    script = script.replace("cond(x", "own(x")
    assert run_alone(with_jaxide + script, **own).stdout == run_alone(start + script, **own).stdout


def test_programs_that_were_traced_under_another_configuration(tmp_path: Path) -> None:
    """A jit of jax's own has another program under each: what is known of one says nothing of the
    other, though both are of the same call."""
    script = """
x = jnp.ones((3, 3))
for precision in ("highest", "tensorfloat32"):
    with jax.default_matmul_precision(FIRST or precision):
        program = make(lambda x: jnp.vdot(x, x) + jnp.linalg.matrix_power(x, 3).sum())(x)
    run = jax.jit(jax.extend.core.jaxpr_as_fun(program), inline=True)
    with jax.default_matmul_precision(precision):
        print(make(jax.grad(lambda x: run(x)[0]))(x))
"""
    script = "import jax.extend\nFIRST = 'bfloat16'" + script
    first = script.replace("'bfloat16'", "''")
    stock, _, read = in_two_processes(tmp_path / "store", script, first=first)
    assert read == stock


def test_programs_of_jits_under_other_configurations(tmp_path: Path) -> None:
    script = """
def power(x):
    return jnp.linalg.matrix_power(x, 3)

def all_of_it(x):
    found = []
    for precision in ("highest", None, "bfloat16"):
        with jax.default_matmul_precision(precision):
            found.append(power(x))
    for wide in (False, True):
        with jax.enable_x64(wide):
            found += [jnp.clip(x, 0, 1), jnp.var(x), jnp.where(x > 0, x, 1), jax.nn.relu(x)]
    return found

print(make(all_of_it)(jnp.ones((3, 3))))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == stock
    assert second == stock


def test_programs_that_a_jit_has_forgotten(tmp_path: Path) -> None:
    script = """
def twice(x):
    first = jnp.linalg.matrix_power(x, 3)
    jnp.linalg.matrix_power.clear_cache()
    return first, jnp.linalg.matrix_power(x, 3)

print(make(twice)(jnp.ones((3, 3))))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == stock
    assert second == stock


def test_warnings_that_the_first_process_has_heard_before(tmp_path: Path) -> None:
    script = """
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    print(make(lambda x: jnp.sum(x, dtype=np.int64))(jnp.ones(3)))
print([str(warning.message) for warning in heard])
"""
    before = "jnp.sum(jnp.ones(3), dtype=np.int64)\n"
    stock, _, second = in_two_processes(tmp_path / "store", script, first=before)
    assert "int64" in stock
    assert second == stock


def test_functions_with_rules(tmp_path: Path) -> None:
    script = """
def loss(x):
    return (jax.nn.relu(x) + jax.nn.relu(2 * x) + jax.nn.silu(x) + jax.nn.relu6(x)).sum()

for function in (loss, jax.grad(loss), jax.vmap(jax.grad(loss)), jax.hessian(loss)):
    print(make(function)(jnp.ones((2, 3))).pretty_print(source_info=True))
if os.environ["WITH"] == "jaxide":
    import sys
    sys.stderr.write(str(jaxide.cache_info().store.hits))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == stock
    assert second == stock


def test_functions_with_rules_within_jits(tmp_path: Path) -> None:
    """A jit that is inlined has one program of the function, which is not new at each call."""
    script = """
def loss(x):
    return (jax.nn.softplus(x) + jnp.logaddexp(x, 2 * x) * jax.nn.log_sigmoid(x)).sum()

def twice(x):
    return jnp.logaddexp2(x, x) * jnp.logaddexp2(x, x) + jnp.logaddexp(x, jnp.logaddexp(x, x))

for function in (loss, jax.grad(loss), jax.vmap(jax.grad(loss)), twice, jax.vmap(twice)):
    print(make(function)(jnp.ones((2, 3))).pretty_print(source_info=True))
    print(make(lambda x: function(x))(jnp.ones((2, 3))))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == second == stock


def test_jits_of_numpy_arrays(tmp_path: Path) -> None:
    """Of an array of numpy's the request of a jit has the type, too."""
    script = """
half, key = np.array(0.5), jax.random.key(0)

def drawn(x):
    return jax.random.uniform(key, minval=half) * jnp.subtract(half, x).sum()

for function in (drawn, jax.grad(drawn)):
    print(make(function)(jnp.ones((2, 3))).pretty_print(source_info=True))
if os.environ["WITH"] == "jaxide":
    import sys
    sys.stderr.write(str(jaxide.cache_info().store.hits))
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == second == stock


def test_warnings_that_are_errors(tmp_path: Path) -> None:
    script = """
def one_hot(x):
    return jax.nn.one_hot(x, 3, dtype=np.int64)

is_filling = os.environ["WITH"] == "jaxide" and not jaxide.cache_info().store.entries
warnings.simplefilter("ignore" if is_filling else "error")
try:
    print(make(one_hot)(jnp.arange(3)))
except Warning as error:
    print(type(error), error)
if os.environ["WITH"] == "jaxide":
    assert jaxide.cache_info().store.refused == 0
"""
    heard = "jax.nn.one_hot(jnp.arange(3), 3, dtype=np.int64)\n"
    stock, first, second = in_two_processes(tmp_path / "store", script, first=heard)
    assert "int64" in stock
    assert "lambda" in first
    assert second == stock


def test_a_stack_that_is_too_deep_for_an_entry(tmp_path: Path) -> None:
    script = """
import sys
from jax import nn

def deep(depth):
    if depth:
        return deep(depth - 1)
    traced = lambda x: nn.one_hot(x, 3) + jnp.var(nn.relu(nn.log_softmax(nn.softplus(1.0 * x))))
    return make(traced)(jnp.arange(3))

make(lambda x: nn.one_hot(x, 3))(jnp.arange(3))
if os.environ["WITH"] == "jaxide" and jaxide.cache_info().store.entries:
    warnings.simplefilter("error")
    limit = sys.getrecursionlimit()
    failed = 0
    for depth in range(60, 200, 4):
        jax.clear_caches()
        sys.setrecursionlimit(220)
        try:
            deep(depth)
        except RecursionError:
            failed += 1
        finally:
            sys.setrecursionlimit(limit)
    assert failed, failed
    assert jaxide.cache_info().store.refused == 0, jaxide.cache_info().store
else:
    deep(0)
"""
    in_two_processes(tmp_path / "store", script)


def test_warnings_of_jits_of_the_user(tmp_path: Path) -> None:
    script = """
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    print(make(lambda x: inlined(x) + jnp.clip(x, 0, 1))(jnp.ones(3)))
print([str(warning.message) for warning in heard])
"""
    inlined = "inlined = jax.jit(lambda x: jnp.sum(x, dtype=np.int64), inline=True)\n"
    script = f"if 'inlined' not in globals():\n    {inlined}{script}"
    before = f"{inlined}inlined(jnp.ones(3))\n"
    stock, _, second = in_two_processes(tmp_path / "store", script, first=before)
    assert "int64" in stock
    assert second == stock


def test_batched_functions_with_rules(tmp_path: Path) -> None:
    script = """
import jax.extend

def relu(x):
    return jax.nn.relu(x) + jax.nn.relu6(x)

def transposed(x):
    return jax.vmap(jax.vmap(relu, 1, 1), 1)(x)

def named(x):
    return jax.vmap(lambda x: jax.nn.relu(x) - jax.lax.pmean(x, "i"), axis_name="i")(x)

def summed(function):
    return lambda x: function(x).sum()

def unbatched(x):
    return jax.vmap(lambda y: jax.nn.log1mexp(y) * jax.nn.relu(x), axis_size=3)(x[:3])

x = jnp.ones((4, 3))
batched = jax.vmap(relu), transposed, jax.vmap(jax.vmap(relu), 2, 1), named, unbatched
given = x, x[None], x[None], x, x[0]
for function, argument in zip(batched, given, strict=True):
    derived = jax.grad(summed(function)), jax.vmap(jax.grad(summed(function))), jax.jacfwd(function)
    for one, value in zip((function, *derived), (argument, argument, argument[None], argument)):
        made = make(one)(value)
        print(made.pretty_print(source_info=True))
        evaluated = jax.extend.core.jaxpr_as_fun(made)
        print(make(lambda x: jax.jvp(evaluated, (x,), (x,)))(value))
if os.environ["WITH"] == "jaxide":
    assert jaxide.cache_info().store.refused == 0
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == stock
    assert second == stock


def test_a_batched_rule_is_stored(tmp_path: Path) -> None:
    script = """
def loss(x):
    with jax.named_scope("loss"):  # not loaded whole
        return jax.vmap(lambda row: jax.nn.relu(row).sum())(x).sum()

is_filled = os.environ["WITH"] == "jaxide" and jaxide.cache_info().store.entries > 0
print(make(jax.grad(loss))(jnp.ones((4, 3))))
if is_filled:
    rules = jaxide.cache_info().callables["custom_jvp"]
    assert (rules.hits, rules.misses) == (1, 0), rules
"""
    stock, first, second = in_two_processes(tmp_path / "store", script)
    assert first == stock
    assert second == stock


def test_jits_of_the_user_are_not_kept(tmp_path: Path) -> None:
    script = f"""
    import gc, weakref
    import jax, jax.numpy as jnp, jaxide
    jaxide.install(cache_dir={str(tmp_path / "store")!r})
    alive = []
    for number in range(4):
        step = jax.jit(lambda x: jnp.sin(x) * number)
        jaxide.make_jaxpr(lambda x: step(x) + 1)(1.0)
        alive.append(weakref.ref(step))
    del step
    jax.clear_caches()
    gc.collect()
    print(sum(ref() is not None for ref in alive))
    """
    assert run_alone(script).stdout == "0\n"


@pytest.mark.parametrize("folder", ["file/below", "x" * 300, "loop", "~nobody-at-all/store"])
def test_folders_that_cannot_be(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    place = folder if folder.startswith("~") else str(tmp_path / folder)
    _, store, said = traced(JAXIDE_CACHE_DIR=place, NAMES="where")
    assert store is None
    assert said.count("the store is not used") == 1


def test_a_linked_folder_of_jax_counts(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (tmp_path / "within").mkdir()
    package.mkdir()
    (package / "within").symlink_to(tmp_path / "within")
    found = []
    for text in ("x = 1", "x = 2"):
        (tmp_path / "within/one.py").write_text(text)
        found.append(jaxide._core.inspect_store(tmp_path / "store", b"", [str(package)])["folder"])
    assert found[0] != found[1]


def test_what_was_changed_for_a_while(tmp_path: Path) -> None:
    script = "print(make(lambda x: jax.nn.softmax(x))(jnp.ones((3, 3))))\n"
    change = """
make(jnp.cos)(1.0)
import jax._src.lax.lax as own
before = own.exp
jax.lax.exp = own.exp = lambda x, accuracy=None: jax.lax.sin(x)
make(lambda x: jax.nn.softmax(x))(jnp.ones((3, 3)))
jax.lax.exp = own.exp = before
"""
    own = tmp_path / "store"
    stock, _, second = in_two_processes(own, script, first=change)
    assert second == stock
    stock, _, second = in_two_processes(own, change + script)
    assert second == stock


def test_meshes_whose_names_look_like_addresses(tmp_path: Path) -> None:
    script = """
mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), (NAME,))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(NAME))
print(make(lambda x: jnp.sin(jax.lax.with_sharding_constraint(x, sharding)) * 2)(jnp.ones(4)))
"""
    for name in ("0xa", "0xb"):
        stock, first, second = in_two_processes(tmp_path / "store", f"NAME = {name!r}\n" + script)
        assert first == stock
        assert second == stock


MESHES = """
import os, jax, jax.numpy as jnp
if os.environ["WITH"] == "jaxide":
    import jaxide
    jaxide.install()
mesh = jax.make_mesh((1,), ("x",))
spec = jax.sharding.PartitionSpec()
mapped = jax.shard_map(
    lambda a: jax.vmap(lambda t: jnp.where(t.sum() > 0, t, 0.0), 1)(a) + jnp.var(a, 0)[:, None],
    mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False,
)
for text in os.environ["SET"].split():
    with jax.set_mesh(mesh) if text == "set" else jax.disable_jit(False):
        print(jax.make_jaxpr(lambda tree: mapped(tree["a"]))({"a": jnp.ones((4, 4))}))
"""


@pytest.mark.parametrize("others", ["not set", "set not", "set set"])
def test_meshes_that_are_set_around_shard_map(tmp_path: Path, others: str) -> None:
    for place, first in enumerate(("not", "set")):
        options = {"JAXIDE_CACHE_DIR": str(tmp_path / str(place))}
        run_warm(MESHES, SET=first, JAXIDE_CACHE_MODE="write", **options)
        found = run_warm(MESHES, SET=others, **options).stdout
        assert found == run_warm(MESHES, WITH="jax", SET=others).stdout


def test_threads_that_write_at_once(tmp_path: Path) -> None:
    script = f"""
    import threading, warnings
    import jax, jax.numpy as jnp, jaxide
    warnings.simplefilter("error")
    jaxide.install(cache_dir={str(tmp_path / "store")!r})

    def work(number):
        for turn in range(6):
            shape = (number + 1, turn + 1)
            jaxide.make_jaxpr(lambda x: jnp.where(x > 0, x, 0).var())(jnp.ones(shape))
            jaxide.clear_caches()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print("done")
    """
    assert run_alone(script).stdout == "done\n"
    assert _verify(tmp_path / "store") == []


ENDS = """
import jax, jax.numpy as jnp
import jaxide

jaxide.install()

def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)

step(jnp.ones((8, 4)), jnp.ones((16, 8)))
print(jaxide.cache_info().store.whole)
"""


def test_the_end_of_a_process_whose_last_trace_is_from_the_store(tmp_path: Path) -> None:
    """Nobody asks jax for anything any more."""
    for whole in ("0\n", "1\n"):
        done = run_warm(ENDS, JAXIDE_CACHE_DIR=str(tmp_path), JAXIDE_CACHE_MODE="write")
        assert (done.stdout, done.stderr) == (whole, "")
