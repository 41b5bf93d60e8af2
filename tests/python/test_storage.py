"""Programs in files: there and back, what is refused, and files that are none."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import source_info_util
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxide
import oracle
from jaxide import StorageError, _compat, _core
from jaxide._compat import stored_tracebacks
from jaxide._compat.stored_structures import StoredTree
from jaxide._native import program_files
from storing import ANNOTATED, assert_survives, loaded, stored

X = jnp.arange(3.0)


def loss(weights: dict[str, Any], x: jax.Array) -> dict[str, Any]:
    with jax.named_scope("hidden"):
        hidden = jnp.tanh(x * weights["scale"] + weights["shift"])
    total, steps = lax.scan(lambda c, h: (c + h, c * h), 0.0, hidden)
    noise = jax.random.normal(jax.random.key(1), (3,), jnp.bfloat16)
    return {"total": total, "rest": (steps, [noise])}


WEIGHTS = {"scale": X + 1, "shift": X}


def test_a_program_computes_the_same_with_the_same_arguments(tmp_path: Path) -> None:
    program = jaxide.trace(loss)(WEIGHTS, X)
    program.save(tmp_path / "loss.jxd")
    again = jaxide.load(tmp_path / "loss.jxd")
    assert again == program
    expected, actual = program(WEIGHTS, X), again(WEIGHTS, X)
    assert oracle.describe_value(expected) == oracle.describe_value(actual)
    with pytest.raises(TypeError, match="arguments of structure"):
        again(X)
    assert again.by_line() == program.by_line()
    assert [str(s.name) for s in again.by_line()] == [str(s.name) for s in program.by_line()]
    for name, setting in oracle.PRINT_SETTINGS.items():
        assert again.pretty(**setting) == program.pretty(**setting), name
    # As jax prints it, of equations that were made.
    assert again.jaxpr.eqns
    assert str(again.jaxpr.pretty_print(**ANNOTATED)) == program.pretty(**ANNOTATED)
    assert os.listdir(tmp_path) == ["loss.jxd"]


def test_transformations_work_on_what_is_loaded() -> None:
    program = loaded(stored(jaxide.trace(lambda x: jnp.sum(jnp.sin(x) ** 2))(X)))
    np.testing.assert_array_equal(
        jax.grad(program)(X), jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)))(X)
    )
    assert jax.vmap(program)(jnp.ones((2, 3))).shape == (2,)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(4, dtype=np.int8),
        np.zeros((0, 3), np.complex64),
        jnp.asarray(2.0),
        jnp.full((2,), jnp.nan, jnp.float8_e4m3fn),
        jnp.array([1, 2], jnp.int4),
        jax.random.key(3),
        np.zeros(2, jax.dtypes.float0),
    ],
    ids=lambda value: str(value.dtype),
)
def test_constants_have_the_same_bits(value: Any) -> None:
    program = jaxide.trace(lambda: value)()
    again = loaded(stored(program))
    described = oracle.describe_value
    assert described(program.jaxpr.consts) == described(again.jaxpr.consts)
    assert [c.weak_type for c in map(jax.typeof, again.jaxpr.consts)] == [
        c.weak_type for c in map(jax.typeof, program.jaxpr.consts)
    ]
    assert_survives(program)


def test_constants_on_a_mesh_are_on_it_again() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    value = jax.device_put(jnp.arange(4), NamedSharding(mesh, PartitionSpec("x")))
    (again,) = loaded(stored(jaxide.trace(lambda: value + 1)())).jaxpr.consts
    assert again.sharding == value.sharding and again.committed


def test_variables_of_several_programs_and_dropped_ones_stay() -> None:
    jaxpr = jax.make_jaxpr(lambda x: lax.cond(x[0] > 0, lambda: x * 2, lambda: x))(X)
    assert_survives(jaxide.from_jaxpr(jaxpr))
    assert_survives(jaxide.from_jaxpr(jax.make_jaxpr(lambda x: (jnp.linalg.qr(x)[0],))(jnp.eye(2))))


def test_deep_programs_and_deep_stacks() -> None:
    def nested(depth: int, x: jax.Array) -> jax.Array:
        return jnp.sin(x) if depth == 0 else jax.jit(lambda y: nested(depth - 1, y))(x)

    assert_survives(jaxide.trace(lambda x: nested(30, x))(X))

    def deep(depth: int, x: jax.Array) -> jax.Array:
        return jnp.sin(x) if depth == 0 else deep(depth - 1, x)

    program = jaxide.trace(lambda x: deep(600, x))(X)
    # The outermost frames are not stored; nobody prints them.
    again = loaded(stored(program))
    assert again.pretty(source_info=True) == program.pretty(source_info=True)


def test_a_traceback_without_frames_is_not_none() -> None:
    # jax puts the line of whoever evaluates an equation in the place of None.
    (eqn,) = (closed := jax.make_jaxpr(jnp.sin)(1.0)).eqns
    for traceback in (stored_tracebacks.no_frames(), None):
        source = source_info_util.SourceInfo(traceback, eqn.source_info.name_stack)
        own = closed.map_jaxpr(lambda jaxpr: jaxpr.replace(eqns=[eqn.replace(source_info=source)]))
        again = loaded(stored(jaxide.from_jaxpr(own))).jaxpr
        found = again.eqns[0].source_info.traceback
        assert found is None if traceback is None else not found.frames
        lines = []
        for program in (own, again):
            function = jax.extend.core.jaxpr_as_fun(program)
            (evaluated,) = jax.make_jaxpr(lambda x: function(x))(1.0).eqns
            lines.append(source_info_util.summarize(evaluated.source_info))
        assert lines[0] == lines[1]
        assert bool(lines[0]) == (traceback is None)


def test_the_same_program_is_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    script = tmp_path / "step.py"
    script.write_text(
        "import sys, jax.numpy as jnp, jaxide\n"
        "from jax import lax\n"
        "def f(x):\n"
        "    return lax.psum(jnp.sin(x), ('i', 'j')) + lax.psum(x, 'j') + jnp.where(x > 0, x, 2.)\n"
        "env = [('i', 2), ('j', 3)]\n"
        "jaxide.from_jaxpr(jaxide.make_jaxpr(f, axis_env=env)(1.)).save(sys.argv[1])\n"
    )
    contents = []
    for seed in ("1", "2"):
        path = tmp_path / seed
        command = [sys.executable, str(script), str(path)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


# ---- what is refused ---------------------------------------------------------------------------


@jax.custom_jvp
def halved(x: jax.Array) -> jax.Array:
    return x / 2


def rectified(x: jax.Array) -> jax.Array:
    rule = jax.custom_jvp(halved.fun)
    rule.defjvp(lambda primals, tangents: (halved.fun(*primals), tangents[0]))
    return rule(x)


def test_rules_are_refused_with_the_line_or_left_out() -> None:
    program = jaxide.trace(rectified)(X)
    line = rectified.__code__.co_firstlineno + 3
    with pytest.raises(StorageError) as refused:
        stored(program, complete=True)
    message = str(refused.value)
    assert f"test_storage.py:{line} (rectified)" in message
    assert "(custom_jvp_call)" in message and "param jvp_jaxpr_fun" in message
    assert "drop=('rules',)" in message
    again = loaded(stored(program, drop=("rules",)))
    assert again.structural_hash == program.structural_hash
    np.testing.assert_array_equal(again(X), program(X))
    np.testing.assert_array_equal(jax.jit(again)(X), program(X))
    with pytest.raises(StorageError, match="of custom_jvp_call, was left out"):
        jax.grad(lambda x: again(x).sum())(X)


def test_rules_of_reverse_mode_are_left_out() -> None:
    @jax.custom_vjp
    def double(x: jax.Array) -> jax.Array:
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 2,))
    again = loaded(stored(jaxide.trace(lambda x: double(x))(X), drop=("rules",)))
    np.testing.assert_array_equal(again(X), X * 2)
    np.testing.assert_array_equal(jax.jit(again)(X), X * 2)
    with pytest.raises(StorageError, match="was left out"):
        jax.grad(lambda x: again(x).sum())(X)


def test_the_equation_of_a_nested_program_is_named() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x)

    program = jaxide.trace(lambda x: jax.jit(step)(x * 2) + 1)(X)
    line = step.__code__.co_firstlineno + 1
    with pytest.raises(StorageError) as refused:
        stored(program, complete=True)
    assert "equation 1.0 (pure_callback) at " in str(refused.value)
    assert f"test_storage.py:{line} (" in str(refused.value)
    assert "it is a callback" in str(refused.value)
    again = loaded(stored(program, drop=("callbacks",)))
    assert len(again) == len(program)
    with pytest.raises(Exception, match="was left out when the program was stored"):
        jax.block_until_ready(again(X))


def test_a_debug_callback_that_was_left_out_does_nothing() -> None:
    seen: list[Any] = []

    def noted(x: jax.Array) -> jax.Array:
        jax.debug.callback(seen.append, x)
        return x + 1

    again = loaded(stored(jaxide.trace(noted)(X), drop=("callbacks",)))
    np.testing.assert_array_equal(again(X), X + 1)
    jax.effects_barrier()
    assert seen == []


def test_what_is_printed_is_stored(capfd: pytest.CaptureFixture[str]) -> None:
    def printing(x: jax.Array) -> jax.Array:
        jax.debug.print("x is {x}", x=x)
        return x

    loaded(stored(jaxide.trace(printing)(X)))(X)
    jax.effects_barrier()
    assert "x is [0. 1. 2.]" in capfd.readouterr().out


# No module has it by this name.
Point = collections.namedtuple("Point", "x y")
Point.__qualname__ = "Elsewhere"


def test_trees_of_other_nodes_are_refused_or_left_out() -> None:
    program = jaxide.trace(lambda p: Point(p.x + p.y, p.x))(Point(X, X))
    with pytest.raises(StorageError, match=r"Elsewhere is no class.*drop=\('trees',\)"):
        stored(program, complete=True)
    again = loaded(stored(program, drop=("trees",)))
    np.testing.assert_array_equal(again(X, X)[0], X + X)
    for wrong in (("tree",), "trees", None):
        with pytest.raises(ValueError, match=r"drop takes a tuple of callbacks, rules, trees"):
            program.save(os.devnull, drop=wrong)  # type: ignore[arg-type]


def test_trees_that_have_a_form_are_not_left_out() -> None:
    program = jaxide.trace(lambda x: {"out": x + 1})(X)
    again = loaded(stored(program, drop=("trees",)))
    np.testing.assert_array_equal(again(X)["out"], X + 1)


def test_standard_containers_are_kept() -> None:
    tree = collections.OrderedDict(b=[X, None], a=({"k": X}, collections.defaultdict(list, z=X)))
    program = jaxide.trace(lambda t: t)(tree)
    again = loaded(stored(program))
    assert jax.tree.structure(again(tree)) == jax.tree.structure(program(tree))


# ---- files -------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "p.jxd"
    program = jaxide.trace(jnp.sin)(X)
    path.write_text("what was there")

    def fails(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no space left"):
            program.save(path)
    assert path.read_text() == "what was there"
    assert os.listdir(tmp_path) == ["p.jxd"]
    program.save(path)
    assert jaxide.load(path) == program
    with pytest.raises(OSError):
        program.save(tmp_path)
    with pytest.raises(OSError):
        program.save(tmp_path / "missing" / "p.jxd")


def test_a_file_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    program = jaxide.trace(jnp.sin)(X)
    path, link = tmp_path / "p.jxd", tmp_path / "link.jxd"
    path.touch(mode=0o600)
    link.symlink_to(path)
    program.save(link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert jaxide.load(os.fsencode(path)) == program
    # As long as a name may be.
    longest = tmp_path / ("n" * 255)
    program.save(longest)
    mask = os.umask(0)
    os.umask(mask)
    assert longest.stat().st_mode & 0o777 == 0o666 & ~mask
    for wrong in (5, None):
        with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike"):
            program.save(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike"):
            jaxide.load(wrong)  # type: ignore[arg-type]


def test_nobody_else_reads_a_file_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file beside is never more open than the one that it replaces."""
    path = tmp_path / "p.jxd"
    path.touch()
    path.chmod(0o640)
    modes: list[int] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        modes.append(os.fstat(file).st_mode & 0o777)
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    jaxide.trace(jnp.sin)(X).save(path)
    assert modes == [0o600] and path.stat().st_mode & 0o777 == 0o640


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    program = jaxide.trace(jnp.sin)(X)
    for name in (f"{tmp_path}/p/", os.fsencode(f"{tmp_path}/p//")):
        with pytest.raises(IsADirectoryError, match="path names a folder"):
            program.save(name)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    program = jaxide.trace(jnp.sin)(X)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    program.save(pipe)
    reader.join()
    assert loaded(read[0]) == program
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_paths_that_are_no_programs(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        jaxide.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        jaxide.load(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(StorageError, match="no regular file"):
            jaxide.load(path)
    (tmp_path / "text").write_text("import os")
    with pytest.raises(
        StorageError, match=r"no program stored by jaxide \(byte 0, in the header\)"
    ):
        jaxide.load(tmp_path / "text")


def test_every_truncation_and_every_flipped_bit_is_an_error() -> None:
    content = stored(jaxide.trace(lambda x: jnp.sin(x) * 2)(X))
    for end in range(len(content)):
        with pytest.raises(StorageError, match="byte"):
            loaded(content[:end])
    altered = bytearray(content)
    for bit in range(8 * len(content)):
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageError, match="byte"):
            loaded(bytes(altered))
        altered[bit // 8] ^= 1 << bit % 8
    newer = content[:8] + b"\x02" + content[9:]
    with pytest.raises(StorageError, match="version of the format is 2, this jaxide reads up to 1"):
        loaded(newer)


class Forged(program_files.FileRecords):
    """Records that somebody made up, for objects of a kind."""

    def __init__(self, kind: str, parts: Any, name: str | None = None):
        super().__init__(_compat.program_files())
        self._forged = (kind, parts, name or kind)

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        kind, parts = super().record(value, place)
        own, forged, name = self._forged
        return (name, forged) if kind == own else (kind, parts)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (Forged("primitive", 3), "byte"),
        (Forged("primitive", ("while", False)), "has other results"),
        (Forged("primitive", None), "byte"),
        (Forged("context", {"compute_type": "x", "nonsense": 1}), "contexts of jax"),
        (Forged("context", 3), "byte"),
        (Forged("program tree", (("tuple", None, 7),)), "fewer nodes"),
        (Forged("program tree", (("os.system", None, 0),)), "no trees of 'os.system'"),
        (Forged("program tree", ()), "byte"),
        (Forged("context", None, "os.system"), "nothing that is a 'os.system'"),
        (Forged("context", "os.system", "function"), "no function os.system"),
        (Forged("context", (1, 2), "partial"), "byte"),
        (Forged("context", [0, 99], "device"), "byte"),
        (Forged("context", 99, "device"), "device 99"),
        (Forged("context", "float7", "dtype"), "no dtype 'float7'"),
        (Forged("context", (np.zeros(2), 1), "keys"), "byte"),
        (Forged("context", {"shape": (1 << 70,)}, "array type"), "byte"),
    ],
)
def test_records_that_somebody_made_up_are_refused(records: Forged, message: str) -> None:
    program = jaxide.trace(lambda x: jnp.sin(x) + 1)(X)
    trees = tuple(map(StoredTree.of, (program._in_tree, program._out_tree)))
    content = _core.save((jax.__version__, program.jaxpr, trees), records)
    with pytest.raises(StorageError, match=message):
        loaded(content)


def test_a_file_of_something_else() -> None:
    records = program_files.FileRecords(_compat.program_files())
    for root in (None, (1, 2), ("0.10", "jaxpr", (None, None))):
        with pytest.raises(StorageError, match="something other than a program"):
            loaded(_core.save(root, records))
