"""The command line, as a new user would try it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxide
from jaxide._cli import main
from jaxide._cli.arguments import parse

MODULE = """
import jax
import jax.numpy as jnp

SIZE = 3


def loss(params, x):
    y = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.sum(y**2)


def params():
    return {"w": jnp.ones((8, 4)), "b": jnp.zeros(4)}


def double(x):
    return x * 2


def triple(x):
    return x * 3


def activation(x, kind="relu", *, scale=1.0):
    return getattr(jax.nn, kind)(x) * scale


def doubtful(x):
    return x.reshape(7)


def exits():
    raise SystemExit(3)


def needs(argument):
    return argument


def raises():
    return 1 / 0


def exiting(x):
    return exits()


double_program = jax.make_jaxpr(double)(jnp.ones(3))
"""

PARAMS = 'tree:{"w": f32[8,4], "b": f32[4]}'
LOSS = ["users_module:loss", "--arg", PARAMS, "--arg", "f32[2,8]"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with a module; its status, stdout and stderr."""
    (tmp_path / "users_module.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("1 / 0")
    (tmp_path / "exiting_module.py").write_text("import sys; sys.exit()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("users_module", "broken_module", "exiting_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        return status, *capsys.readouterr()

    return run


def test_show(run: Run) -> None:
    status, out, err = run("show", *LOSS)
    import users_module

    avals = {"w": jax.ShapeDtypeStruct((8, 4), "f"), "b": jax.ShapeDtypeStruct((4,), "f")}
    args = avals, jax.ShapeDtypeStruct((2, 8), "f")
    assert (status, err) == (0, "")
    assert out == f"{jax.make_jaxpr(users_module.loss)(*args)}\n"
    status, out, _ = run("show", *LOSS, "--grad")
    assert status == 0
    assert out == f"{jax.make_jaxpr(jax.grad(users_module.loss))(*args)}\n"
    status, out, _ = run("show", *LOSS, "--source-info", "--max-eqns", "2", "--width", "100")
    assert status == 0
    assert "users_module.py:9" in out


def test_transformations_are_applied_in_their_order(run: Run) -> None:
    arg = ["--arg", "f32[3]"]
    _, jit_of_vmap, _ = run("show", "users_module:double", *arg, "--vmap", "--jit")
    _, vmap_of_jit, _ = run("show", "users_module:double", *arg, "--jit", "--vmap")
    import users_module

    x = jax.ShapeDtypeStruct((3,), "f")
    assert jit_of_vmap == f"{jax.make_jaxpr(jax.jit(jax.vmap(users_module.double)))(x)}\n"
    assert vmap_of_jit == f"{jax.make_jaxpr(jax.vmap(jax.jit(users_module.double)))(x)}\n"


def test_arguments_of_all_kinds(run: Run) -> None:
    function = "users_module.py:activation"
    arguments = ["--arg", "f32[3]", "--arg", "'tanh'", "--static", "1", "--kwarg", "scale=0.5"]
    status, out, err = run("show", function, *arguments)
    assert (status, err) == (0, "")
    assert "tanh" in out
    given = ["--arg", "from:users_module:params", "--arg", "f32[2,8]"]
    assert run("show", "users_module:loss", *given) == run("show", *LOSS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[8,128]", jax.ShapeDtypeStruct((8, 128), jnp.float32)),
        ("bf16[]", jax.ShapeDtypeStruct((), jnp.bfloat16)),
        ("bool[2]", jax.ShapeDtypeStruct((2,), jnp.bool_)),
        ("int8[2,]", jax.ShapeDtypeStruct((2,), jnp.int8)),
        ("f8_e4m3fn[1]", jax.ShapeDtypeStruct((1,), jnp.float8_e4m3fn)),
        ("3", 3),
        ("-0.5", -0.5),
        ("None", None),
        ("'f32[3]'", "f32[3]"),
        (
            "tree:[f32[1], (c64[2], {'a': u8[], 'f32[3]': 1}), ()]",
            [
                jax.ShapeDtypeStruct((1,), jnp.float32),
                (
                    jax.ShapeDtypeStruct((2,), jnp.complex64),
                    {"a": jax.ShapeDtypeStruct((), jnp.uint8), "f32[3]": 1},
                ),
                (),
            ],
        ),
    ],
)
def test_specifications(text: str, expected: object) -> None:
    assert parse(text) == expected


def test_keys() -> None:
    key = parse("key[4]")
    assert key.shape == (4,) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def test_cost(run: Run) -> None:
    status, out, err = run("cost", *LOSS)
    assert (status, err) == (0, "")
    assert "dot_general" in out and "users_module.py:9" in out
    status, out, _ = run("cost", *LOSS, "--json")
    assert json.loads(out)["by_primitive"]["dot_general"]["cost"]["flops"] == 2 * 2 * 8 * 4


@pytest.mark.parametrize("by", ["primitive", "line", "program"])
def test_cost_by(run: Run, by: str) -> None:
    status, out, err = run("cost", *LOSS, "--by", by)
    assert (status, err) == (0, "")
    assert out.split()[0] == by and out.count(" share ") == 1
    status, out, _ = run("cost", *LOSS, "--by", by, "--json")
    assert all({"name", "times", "cost"} <= share.keys() for share in json.loads(out))


def test_cost_by_scope(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("cost", *LOSS, "--by", "scope")
    assert (status, out) == (
        0,
        "no equation is in a name scope (jax.named_scope, modules of flax)\n",
    )
    file = tmp_path / "scoped.py"
    file.write_text(
        "import jax\ndef f(p, x):\n  with jax.named_scope('block'):\n    return x @ p['w']\n"
    )
    target = [f"{file}:f", "--arg", 'tree:{"w": f32[8,4]}', "--arg", "f32[2,8]"]
    status, out, _ = run("cost", *target, "--by", "scope")
    block = next(line.split() for line in out.splitlines() if line.startswith("block"))
    assert (status, block[1], block[2], block[-1]) == (0, "1", "100%", "32")


def test_hash(run: Run) -> None:
    status, out, _ = run("hash", "users_module:double", "--arg", "f32[3]")
    assert status == 0
    expected = jaxide.trace(lambda x: x * 2)(jax.ShapeDtypeStruct((3,), "f")).structural_hash
    assert int(out, 16) == expected
    assert run("hash", "users_module:double_program")[1] == out
    again = ["hash", "users_module:double", "--arg", "f32[3]", "--expect", out.strip()]
    assert run(*again)[0] == 0
    assert run("hash", "users_module:triple", "--arg", "f32[3]", *again[-2:])[0] == 1


def test_diff(run: Run, tmp_path: Path) -> None:
    same = ["users_module:double", "users_module:double", "--arg", "f32[3]"]
    assert run("diff", *same)[0] == 0
    other = ["users_module:double", "users_module:triple", "--arg", "f32[3]"]
    status, out, _ = run("diff", *other, "--html", "page.html")
    assert status == 1
    assert "2.0" in out and "3.0" in out and "users_module.py:18" in out
    assert (tmp_path / "page.html").read_text().startswith("<!")
    status, out, _ = run("diff", *same, "--other-arg", "f32[4]")
    assert status == 1


def test_how_much_differs(run: Run) -> None:
    programs = "users_module:double", "users_module:triple", "--arg", "f32[3]"
    status, out, _ = run("diff", "--stat", *programs)
    assert status == 1 and out.splitlines()[0] == "equations: 1 changed"
    assert "@@" not in out
    assert "literal 1: 2.0" in run("diff", "--repeats", *programs)[1]


def test_no_color(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    show = "show", "users_module:double", "--arg", "f32[3]"
    assert "\x1b[" in run(*show)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run(*show)[1]


def test_stored_programs(run: Run) -> None:
    assert run("report", *LOSS, "-o", "loss.jaxide") == (0, "", "")
    assert run("show", "loss.jaxide") == run("show", *LOSS)
    assert run("hash", "loss.jaxide") == run("hash", *LOSS)
    assert run("diff", "loss.jaxide", *LOSS)[0] == 0


@pytest.mark.parametrize(
    "command",
    [["show"], ["cost"], ["report", "-o", "odd.html"], ["optimize"]],
)
def test_programs_of_no_jax(run: Run, command: list[str]) -> None:
    """A file may have params that the installed jax does not know."""
    closed = jax.make_jaxpr(lambda x: jax.lax.reduce_precision(x @ x, 5, 3))(jnp.ones((2, 2)))
    jaxpr = getattr(closed, "jaxpr", closed)
    eqns = [eqn.replace(params={"other": 1}) for eqn in jaxpr.eqns]
    odd = jaxide.from_jaxpr(closed.replace(jaxpr=jaxpr.replace(eqns=eqns)))
    odd.save("odd.jaxide")
    status, out, err = run(*command, "odd.jaxide")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "odd.jaxide: not a program as jax" in err and "Traceback" not in err


@pytest.mark.parametrize("name", ["a.html", "a.dot", "a.py", "a.json", "a.pb.gz"])
def test_reports(run: Run, tmp_path: Path, name: str) -> None:
    assert run("report", *LOSS, "--grad", "-o", name) == (0, "", "")
    assert (tmp_path / name).stat().st_size > 100


def test_bench(run: Run) -> None:
    status, out, _ = run("bench", *LOSS, "--grad", "--rounds", "2")
    assert status == 0
    assert "identical" in out
    kwarg = ["users_module:activation", "--arg", "f32[3]", "--kwarg", "scale=f32[]"]
    status, out, _ = run("bench", *kwarg, "--rounds", "1", "--json")
    assert status == 0
    assert json.loads(out)["identical"]


WRONG = {
    "no command": ([], "Missing command"),
    "no such command": (["shwo"], "No such command 'shwo'"),
    "no target": (["show"], "Missing argument"),
    "no such option": (["show", "users_module:double", "--agr", "f32[3]"], "No such option"),
    "no function": (["show", "users_module"], "neither MODULE:FUNCTION nor a stored program"),
    "no module": (["show", "no_module:f"], "No module named 'no_module'"),
    "no file": (["show", "no_file.py:f"], "there is no file no_file.py"),
    "no such function": (["show", "users_module:dubble"], "did you mean 'double'?"),
    "not callable": (["show", "users_module:SIZE"], "is no function but of type int"),
    "a module that fails": (["show", "broken_module:f"], "ZeroDivisionError"),
    "no arguments": (["show", "users_module:double"], "--arg 'f32[8,128]'"),
    "an unknown dtype": (["show", "users_module:double", "--arg", "q32[3]"], "no dtype 'q32'"),
    "a 64-bit dtype": (["show", "users_module:double", "--arg", "f64[3]"], "--x64"),
    "no type": (["show", "users_module:double", "--arg", "f32[3"], "expected a type"),
    "code": (["show", "users_module:double", "--arg", "exit()"], "expected types"),
    "a bad shape": (["show", "users_module:double", "--arg", "f32[a]"], "no shape"),
    "a negative shape": (["show", "users_module:double", "--arg", "f32[-1]"], "negative"),
    "a static position": (["show", "users_module:double", "--static", "0"], "there are 0"),
    "a keyword": (["show", "users_module:double", "--kwarg", "x"], "expected NAME=SPEC"),
    "a function that fails": (
        ["show", "users_module:doubtful", "--arg", "f32[3]"],
        "users_module.py:30",
    ),
    "a gradient of no scalar": (
        ["show", "users_module:double", "--arg", "f32[3]", "--grad"],
        "scalar",
    ),
    "no stored program": (["show", "no_program.jaxide"], "No such file"),
    "a file that is none": (["show", "no_jaxide"], "no_jaxide"),
    "arguments of a stored one": (["show", "a.jaxide", "--arg", "f32[3]"], "takes no arguments"),
    "arguments of a program": (
        ["hash", "users_module:double_program", "--arg", "f32[3]"],
        "takes no arguments",
    ),
    "a hash": (["hash", "users_module:double", "--expect", "xyz"], "no hexadecimal number"),
    "a negative limit": (["show", "users_module:double", "--max-eqns", "-1"], "--max-eqns"),
    "no number": (["cost", "users_module:double", "--while-trips", "many"], "--while-trips"),
    "no rounds": (["bench", "users_module:double", "--rounds", "0"], "--rounds"),
    "no output": (["report", "users_module:double"], "--output"),
    "an unknown format": (["report", "users_module:double", "-o", "a.doc"], "must end in one of"),
    "one program": (["diff", "users_module:double"], "Missing argument"),
    "a factory that raises": (
        ["show", "users_module:double", "--arg", "from:users_module:raises"],
        "ZeroDivisionError",
    ),
    "a factory with arguments": (
        ["show", "users_module:double", "--arg", "from:users_module:needs"],
        "missing 1 required positional argument",
    ),
    "a factory that exits": (
        ["show", "users_module:double", "--arg", "from:users_module:exits"],
        "SystemExit: 3",
    ),
    "a function that exits": (
        ["show", "users_module:exiting", "--arg", "f32[3]"],
        "SystemExit: 3",
    ),
    "a module that exits": (["show", "exiting_module:f"], "SystemExit"),
    "an unhashable key": (["show", "users_module:double", "--arg", "{[]: 1}"], "no argument"),
    "a sum": (["show", "users_module:double", "--arg", "1 + 'a'"], "no argument"),
    "brackets": (["show", "users_module:double", "--arg", "(" * 500], "no argument"),
    "many brackets": (["show", "users_module:double", "--arg", "-" * 100000 + "1"], "no argument"),
    "a long number": (["show", "users_module:double", "--arg", "9" * 9999], "no argument"),
    "a stored program for bench": (["bench", "a.jaxide"], "is not traced again"),
    "a negative hash": (["hash", "users_module:double", "--expect=-1"], "no hexadecimal number"),
    "a long hash": (["hash", "users_module:double", "--expect", "1" * 33], "no hexadecimal number"),
    "an input that is none": (
        ["liveness", "users_module:double", "--arg", "f32[3]", "--donate", "1"],
        "has 1 inputs",
    ),
    "something to drop": (
        ["report", "users_module:double", "--arg", "f32[3]", "-o", "a.jaxide", "--drop", "code"],
        "--drop",
    ),
    "nothing to drop": (
        ["report", "users_module:double", "--arg", "f32[3]", "-o", "a.json", "--drop", "rules"],
        "is for a stored program",
    ),
    "no folder": (
        ["report", "users_module:double", "--arg", "f32[3]", "-o", "no/folder/a.json"],
        "No such file",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_in_one_line(run: Run, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "no_jaxide").write_bytes(b"something else")
    argv, said = WRONG[wrong]
    status, out, err = run(*argv)
    assert status == 2
    assert out == ""
    assert err.startswith("python -m jaxide")
    assert err.count("\n") == 1 and err.endswith("\n")
    assert said in err


def test_what_is_left_out_is_said(run: Run) -> None:
    call = ["users_module:activation", "--arg", "f32[3]"]
    assert run("report", *call, "-o", "a.jaxide") == (0, "", "")
    status, out, err = run("report", *call, "-o", "b.jaxide", "--drop", "rules")
    assert (status, out) == (0, "")
    assert err.startswith("b.jaxide: ") and "was left out" in err
    assert run("hash", "a.jaxide") == run("hash", "b.jaxide") == run("hash", *call)


def test_values_that_are_alive(run: Run) -> None:
    status, out, _ = run("liveness", *LOSS, "--fused", "--donate", "0")
    assert status == 0 and "peak" in out
    status, out, _ = run("liveness", *LOSS, "--json")
    assert status == 0 and json.loads(out)["peak"] > 0


def test_equations_are_found(run: Run) -> None:
    status, out, _ = run("find", *LOSS[:1], "tanh", *LOSS[1:])
    assert status == 0 and out.count("\n") == 1 and "tanh" in out
    assert run("find", *LOSS, "--dtype", "float32", "--count")[:2] == (0, "6\n")
    assert run("find", *LOSS, "--shape", "2,4", "--line", "users_module.py", "--count")[0] == 0
    assert run("find", *LOSS[:1], "sin", *LOSS[1:])[:2] == (1, "")


def test_a_program_is_optimized(run: Run) -> None:
    status, out, _ = run("optimize", *LOSS, "-o", "optimized.jaxide")
    assert status == 0 and "equations" in out
    assert run("show", "optimized.jaxide") == run("show", *LOSS, "--optimize")


def test_a_script_finds_its_neighbours(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "neighbour_of_script.py").write_text("FACTOR = 3")
    (folder / "a_script.py").write_text(
        "import neighbour_of_script\ndef f(x): return x * neighbour_of_script.FACTOR"
    )
    status, out, err = run("show", "scripts/a_script.py:f", "--arg", "f32[]")
    assert (status, err) == (0, "") and "mul a 3.0" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "users_module.py").write_text(MODULE)
    command = [sys.executable, "-m", "jaxide", "show", "users_module:double", "--arg", "f32[3]"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert (
        done.stderr == "python -m jaxide: the output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_that_a_terminal_cannot_show(tmp_path: Path, environment: dict[str, str]) -> None:
    text = "import jax\ndef f(x):\n  with jax.named_scope('\u00e4\u65e5'):\n    return x * 2\n"
    (tmp_path / "named_module.py").write_text(text, encoding="utf-8")
    for command in (["show", "--name-stack"], ["cost"], ["find"], ["liveness"]):
        done = subprocess.run(
            [sys.executable, "-m", "jaxide", *command, "named_module:f", "--arg", "f32[3]"],
            cwd=tmp_path,
            capture_output=True,
            env={**os.environ, **environment},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()


def test_as_a_process(tmp_path: Path) -> None:
    (tmp_path / "users_module.py").write_text(MODULE)
    command = [sys.executable, "-m", "jaxide"]
    done = subprocess.run(
        [*command, "show", "users_module:double", "--arg", "f64[3]", "--x64", "--jit"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{ lambda ; a:f64[3].")
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in ("show", "cost", "diff", "report", "hash", "bench"))


WITHOUT_JAX = """
import sys
from jaxide._cli import main
status = main(sys.argv[1:])
assert "jax" not in sys.modules and "rich" not in sys.modules
sys.exit(status)
"""


@pytest.mark.parametrize("options", ["--help", "--version", "show --help", "cache info --help"])
def test_help_needs_no_jax(options: str) -> None:
    command = [sys.executable, "-c", WITHOUT_JAX, *options.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("Usage: " if "help" in options else "version ") in done.stdout


def completed(shell: str, line: str, folder: Path) -> list[str]:
    """What a shell is told; bash takes a colon for a word of its own."""
    words = line.replace(":", " : ").split(" ") if shell == "bash" else line.split(" ")
    if words[-2:] == [":", ""]:
        words.pop()
    environment = {
        **os.environ,
        "_JAXIDE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line if shell == "fish" else "\n".join(words),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    code = "from jaxide._cli import main; main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_shells_complete(tmp_path: Path, run: Run) -> None:
    assert completed("bash", "jaxide sh", tmp_path) == ["plain,show"]
    assert completed("bash", "jaxide show users", tmp_path) == ["file,users"]
    assert completed("bash", "jaxide show users_module.py:d", tmp_path) == [
        "plain,double",
        "plain,doubtful",
    ]
    assert "plain,loss" in completed("bash", "jaxide show users_module:", tmp_path)
    assert completed("bash", "jaxide report --drop r", tmp_path) == ["plain,rules"]
    assert completed("fish", "jaxide show users_module.py:lo", tmp_path) == [
        "plain,users_module.py:loss"
    ]
    # A module that is broken is not run.
    assert completed("fish", "jaxide show broken_module.py:x", tmp_path) == []
    assert "_JAXIDE_COMPLETE=zsh_complete" in run("completion", "zsh")[1]
    assert run("completion", "tcsh")[0] == 2
