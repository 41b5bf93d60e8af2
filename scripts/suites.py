"""Sets up libraries and runs their own tests, for `scripts/libraries`.

A library has an environment of its own below `.versions/`, with jaxide's wheel in it. Each file of
tests runs in two processes, with stock jax and with jaxide installed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import outcomes
from environments import FOLDER, PROJECT, check, sources
from library_list import JAX, Library

HERE = Path(__file__).parent
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
HOME = FOLDER / TAG / "libraries"
COMMON = (f"jax=={JAX}", f"jaxlib=={JAX}", "pytest>=8.2", "pytest-timeout>=2.3")
KINDS = ("stock", "jaxide")
VARIABLES = {
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "MPLBACKEND": "agg",
    "PYTHONHASHSEED": "0",  # numpyro and others walk sets of names
    "JAXIDE_CACHE_DIR": "",
}
# Of a test, beyond which it fails, with both.
TEST_SECONDS = 300
# Tests do not run in the time of others: what they come to has to be the same twice.
QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:jaxide", "-p", "no:xdist")


class Place(NamedTuple):
    """Where a library is set up."""

    name: str
    library: Library
    home: Path

    @property
    def python(self) -> Path:
        return self.home / "venv" / "bin" / "python"

    @property
    def source(self) -> Path:
        """The folder with the tests."""
        if self.library.in_wheel:
            paths = sysconfig.get_path(
                "purelib", "posix_prefix", vars={"base": str(self.home / "venv")}
            )
            return Path(paths)
        return self.home / "source"

    def files(self) -> list[str]:
        """The files that are to be run, small ones first: a time limit leaves out few."""
        found = {
            path.relative_to(self.source).as_posix()
            for folder in self.library.tests
            for pattern in ("test_*.py", "*_test.py")
            for path in (self.source / folder).rglob(pattern)
        }
        unmet = [p for p in self.library.excluded if not any(map(_matches(p), found))]
        if unmet:
            raise SystemExit(f"{self.name}: no file is excluded by {', '.join(unmet)}")
        left_out = {f for f in found for p in self.library.excluded if _matches(p)(f)}
        return sorted(found - left_out, key=lambda f: ((self.source / f).stat().st_size, f))

    def log(self, file: str, kind: str) -> Path:
        name = file.replace("/", ".").removesuffix(".py")
        return self.home / "logs" / f"{name}.{kind}.jsonl"


def _matches(pattern: str) -> Any:
    return lambda file: fnmatch.fnmatchcase(file, pattern)


def wheel(given: str | None) -> Path:
    """jaxide's wheel: the one given, or one that is built of this checkout where it has changed."""
    if given:
        return Path(given).resolve()
    folder = HOME / "wheel"
    found = sorted(folder.glob("jaxide-*.whl"))
    python = list((PROJECT / "python").rglob("*.py"))
    newest = max(path.stat().st_mtime for path in [*sources(), *python])
    if not found or found[0].stat().st_mtime < newest:
        shutil.rmtree(folder, ignore_errors=True)
        options = "--quiet", "--no-deps", "--wheel-dir", str(folder)
        check(sys.executable, "-m", "pip", "wheel", *options, str(PROJECT))
        found = sorted(folder.glob("jaxide-*.whl"))
    return found[0]


def set_up(name: str, library: Library, built: Path, checkout: str | None) -> Place:
    """The environment of a library, made if it is not there, with its tests beside it."""
    digest = hashlib.sha256(built.read_bytes()).hexdigest()[:16]
    place = Place(name, library, HOME / name)
    if not place.python.exists():
        shutil.rmtree(place.home / "venv", ignore_errors=True)
        check(sys.executable, "-m", "venv", str(place.home / "venv"))
    package = f"{library.package or name}=={library.version}"
    wanted = [*COMMON, package, *library.needs]
    _once(place.home / "needs", "\n".join(wanted), lambda: _install(place, *wanted))
    again = "--force-reinstall", "--no-deps", str(built)
    _once(
        place.home / "wheel",
        digest,
        lambda: (_install(place, str(built)), _install(place, *again)),
    )
    if not library.in_wheel:
        _once(place.home / "unpacked", f"{package} {checkout}", lambda: _unpack(place, checkout))
    return place


def _once(stamp: Path, content: str, action: Any) -> None:
    """Does what has not been done with this content."""
    if not stamp.exists() or stamp.read_text("utf-8") != content:
        stamp.unlink(missing_ok=True)
        action()
        stamp.write_text(content, "utf-8")


def _install(place: Place, *what: str) -> None:
    check(str(place.python), "-m", "pip", "install", "--quiet", *what)


def _unpack(place: Place, checkout: str | None) -> None:
    """Puts the library's tests into its folder: from a checkout, its repository, or its sdist."""
    library, target = place.library, place.home / "source"
    shutil.rmtree(target, ignore_errors=True)
    if checkout:
        shutil.copytree(checkout, target, symlinks=True)
    elif library.repository:
        options = "--quiet", "--depth", "1", "--branch", str(library.tag)
        check("git", "clone", *options, library.repository, str(target))
    else:
        folder = place.home / "sdist"
        shutil.rmtree(folder, ignore_errors=True)
        package = library.package or place.name
        options = "--quiet", "--no-deps", "--no-binary", package, "--dest", str(folder)
        check(sys.executable, "-m", "pip", "download", *options, f"{package}=={library.version}")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
        unpacked.rename(target)


# ---- runs -----------------------------------------------------------------------------------


class Limits(NamedTuple):
    """How long tests run, and how."""

    seconds: float
    of_a_file: float
    processes: int
    # Whether the tests of a file run in an order of chance, so that a part of them is a sample.
    is_sample: bool


def run_suite(
    place: Place, files: Iterable[str], limits: Limits, keep: Callable[[dict[str, Any]], None]
) -> None:
    """Runs files until the time is over, and gives `keep` what each has come to."""
    (place.home / "logs").mkdir(exist_ok=True)
    deadline = time.monotonic() + limits.seconds
    commit = _commit()

    def run(file: str) -> None:
        found = _run_file(place, file, deadline, limits, commit)
        if found:
            keep(found)

    with ThreadPoolExecutor(limits.processes) as pool:
        list(pool.map(run, files))


def _commit() -> str:
    """The commit of jaxide that is tested."""
    command = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _run_file(
    place: Place, file: str, deadline: float, limits: Limits, commit: str
) -> dict[str, Any] | None:
    """Runs a file both ways, and again where a test is worse with jaxide; None where the time was
    not enough for a test."""
    for kind in KINDS:
        left = min(limits.of_a_file, deadline - time.monotonic())
        is_ended = left > 0 and _run(place, file, kind, left, limits)
        if not is_ended and left < limits.of_a_file:
            return None  # What had too little time is begun anew by the next run.
    stock, ours = runs(place, file)
    compared = outcomes.compare(stock, ours)
    again = None
    if compared.worse:
        for kind in KINDS:
            _run(place, file, f"{kind}-again", limits.of_a_file, limits)
        again = outcomes.compare(*runs(place, file, "-again"))
    count = f"{compared.run} run, {compared.ours} passed, {compared.stock} with stock"
    worse = f", {len(compared.worse)} worse" if compared.worse else ""
    is_cut = stock.is_cut or ours.is_cut
    if is_cut and not stock.outcomes.keys() & ours.outcomes.keys():
        return None
    print(f"{place.name}: {file}: {count}{worse}{', in part' if is_cut else ''}", flush=True)
    return outcomes.result(
        file,
        compared,
        again,
        jaxide=commit,
        is_cut=is_cut,
        is_idle=ours.is_installed is False,
    )


def _run(place: Place, file: str, kind: str, seconds: float, limits: Limits) -> bool:
    """Runs a file in a process; whether the process came to its end in time."""
    log = place.log(file, kind)
    log.unlink(missing_ok=True)
    command = ["nice", str(place.python), "-m", "pytest", file, *QUIET, *place.library.options]
    command += ["-q", "--tb=short", f"--rootdir={place.source}", "-p", "suite_plugin"]
    command += [f"--timeout={TEST_SECONDS}"]
    environment = os.environ | VARIABLES
    environment |= {
        "PYTHONPATH": str(HERE),
        "JAXIDE_TEST_SUITE_LOG": str(log),
        "JAXIDE_TEST_SUITE_INSTALL": "1" if kind.startswith("jaxide") else "0",
        "JAXIDE_TEST_SUITE_SAMPLE": "1" if limits.is_sample else "0",
    }
    with open(log.with_suffix(".txt"), "wb") as text:
        process = subprocess.Popen(
            command,
            cwd=place.source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=text,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
            is_cut = False
        except subprocess.TimeoutExpired:
            is_cut = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with open(log, "a", encoding="utf-8") as said:
        said.write("\n" + json.dumps({"cut": True} if is_cut else {"status": process.returncode}))
    return not is_cut


def runs(place: Place, file: str, suffix: str = "") -> tuple[outcomes.Run, outcomes.Run]:
    """What a file has come to with stock jax and with jaxide."""
    stock, ours = (
        outcomes.parse(place.log(file, f"{kind}{suffix}").read_text("utf-8").splitlines())
        for kind in KINDS
    )
    return stock, ours


def run_programs(place: Place, rounds: int, fresh: int) -> dict[str, Any]:
    """What the programs of a library come to, by name."""
    command = [str(place.python), str(PROJECT / "benches" / "library_programs.py")]
    options = ["--rounds", str(rounds), "--processes", str(fresh), "--of", place.name]
    environment = os.environ | VARIABLES | {"PYTHONPATH": ""}
    done = subprocess.run(
        ["nice", *command, *options],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{place.name}: the programs failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
