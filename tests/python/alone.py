"""Scripts in processes of their own."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable
from pathlib import Path

import pytest

# Processes with stock jax are copies of one that has imported it. Those with jaxide are always new
# ones: what they store must hold where every address and every hash of a text is another one.
PREPARED = multiprocessing.get_context("forkserver")
PREPARED.set_forkserver_preload(["jax.numpy", "alone"])


def run_warm(
    script: str, python: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script that ``WITH`` says with jaxide or with stock jax; jaxide adds nothing to its
    store, unless the environment says so. ``python`` are options of the interpreter."""
    settled = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "WITH": "jaxide",
        "JAXIDE_CACHE_MODE": "read",
        **environment,
    }
    if settled["WITH"] != "jaxide" and not python and is_prepared_for(script, settled):
        return run_prepared(script, Path.cwd(), settled)
    done = subprocess.run(
        [sys.executable, *python, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **settled},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def run_alone(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own, which has to end well; in a fresh one, unless
    ``WITH`` says that it has stock jax."""
    script = textwrap.dedent(script)
    if environment.get("WITH") in ("jax", "stock") and is_prepared_for(script, environment):
        return run_prepared(script, Path(__file__).parent, environment)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def is_prepared_for(script: str, environment: dict[str, str]) -> bool:
    """Whether a copy of a process does for a script: the interpreter has started and jax was
    imported with these settings, and it prints no locations with all frames of its process."""
    read = ("JAX_", "PYTHON")
    settings = {name: value for name, value in environment.items() if name.startswith(read)}
    is_as_set = all(os.environ.get(name) == value for name, value in settings.items())
    return is_as_set and "debug_info=True" not in script


def run_prepared(
    script: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a copy of a process that has imported jax; it has to end well."""
    with tempfile.TemporaryDirectory() as made:
        paths = [os.path.join(made, name) for name in ("stdout", "stderr")]
        process = PREPARED.Process(target=_execute, args=(script, str(folder), environment, paths))
        process.start()
        process.join(300)
        if process.exitcode is None:
            process.kill()
        said = [Path(path).read_text() for path in paths]
    assert process.exitcode == 0, said[1]
    return subprocess.CompletedProcess(script, 0, *said)


def _execute(script: str, folder: str, environment: dict[str, str], paths: list[str]) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    for number, path in enumerate(paths, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    sys.argv = ["-c"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(script, "<string>", "exec"), vars(main))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first of the processes of this run makes, and that all only read."""
    of_worker = factory.getbasetemp()
    base = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
    folder, complete = base / name, base / f"{name}.complete"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            make(folder)
            complete.touch()
    return folder
