"""Environments with a version of jax each, for the scripts beside it.

An environment is made once below `.versions/`: one for each Python, with jaxide and what its tests
need, and beside it one folder for each version of jax, which comes first on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / ".versions"
# The first jax that needs a Python newer than the oldest.
NEEDS_NEWER = (0, 11)
MINORS = (14, 13, 12)


class Environment(NamedTuple):
    """A Python with a version of jax."""

    python: Path
    jax: Path
    version: str

    def variables(self) -> dict[str, str]:
        """The environment variables of a process in it."""
        path = os.pathsep.join(map(str, (self.jax, PROJECT / "python")))
        return os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}

    def run(self, *command: str, **variables: str) -> int:
        """Runs a command of this Python's; its exit status."""
        done = subprocess.run(
            [self.python, *command], cwd=PROJECT, env=self.variables() | variables, check=False
        )
        return done.returncode

    def output(self, *command: str, **variables: str) -> str:
        """What a command of this Python's prints.

        Raises:
          CalledProcessError: it fails.
        """
        return subprocess.run(
            [self.python, *command],
            cwd=PROJECT,
            env=self.variables() | variables,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


def pytest_command(names: Iterable[str], *options: str) -> list[str]:
    """What a Python is given to run test files, by the names of what they test."""
    common = ["-q", "--numprocesses", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    files = [f"tests/python/test_{name}.py" for name in names]
    return ["-m", "pytest", *common, *options, *files]


def environment(version: str, python: str | None = None) -> Environment:
    """The environment with a version of jax, made if it is not there.

    Raises:
      SystemExit: there is no Python for it, or it cannot be installed.
    """
    command = python or _python_for(version)
    tag = _output(command, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])")
    home = FOLDER / tag
    bin_ = home / "venv" / "bin" / "python"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        check(command, "-m", "venv", str(home / "venv"))
    newest = max((path.stat().st_mtime for path in sources()), default=0.0)
    stamp = home / "complete"
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        check(str(bin_), "-m", "pip", "install", "--quiet", "--editable", f"{PROJECT}[test]")
        stamp.touch()
    jax = home / f"jax-{version}"
    if not jax.exists():
        partial = jax.with_name(f"{jax.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        packages = f"jax=={version}", f"jaxlib=={version}"
        options = "--quiet", "--no-deps", "--target", str(partial)
        check(str(bin_), "-m", "pip", "install", *options, *packages)
        partial.rename(jax)
    return Environment(bin_, jax, version)


def sources() -> list[Path]:
    """What the extension is built from."""
    names = "Cargo.toml", "Cargo.lock", "pyproject.toml"
    return [*(PROJECT / "src").rglob("*.rs"), *(PROJECT / name for name in names)]


def _python_for(version: str) -> str:
    if tuple(int(part) for part in version.split(".")[:2]) < NEEDS_NEWER:
        # The newest that has wheels of this jax may be any: the oldest Python has.
        return shutil.which("python3.11") or sys.executable
    for command in pythons(MINORS):
        return command
    raise SystemExit(f"jax {version} needs Python >= 3.12, and there is none: name it by --python")


def pythons(minors: Iterable[int] = (*MINORS, 11)) -> Iterator[str]:
    """One Python of each minor version that is here and makes environments."""
    for minor in minors:
        found = (shutil.which(f"python3.{minor}"), *_of_pyenv(minor))
        yield from [command for command in found if command and _makes_environments(command)][:1]


def _of_pyenv(minor: int) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(map(str, (root / "versions").glob(f"3.{minor}.*/bin/python3")))


def _makes_environments(command: str) -> bool:
    probe = subprocess.run([command, "-c", "import ensurepip, venv"], capture_output=True)
    return probe.returncode == 0


def check(*command: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
