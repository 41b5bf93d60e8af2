"""Runs brainstate's own tests of its transformations with stock jax and with jaxide.

The test files in brainstate's wheel (`brainstate/transform/*_test.py`) run twice, in processes of
their own: with stock jax, and after `jaxide.install()`. The exit status is 1 where a test does
worse in the second run, 2 where a run breaks off.

    python tests/brainstate_suite.py [--processes N] [FILE ...]

FILE is the name of a test file, such as `_jit_test.py`; without one, all run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

# ---- the pytest plugin that installs jaxide: this file, loaded with `-p` ----------------------

PLUGIN = Path(__file__).stem


def _tracer_type() -> type:
    """The type of the tracers that jax makes now."""
    import jax

    seen: list[type] = []
    jax.make_jaxpr(lambda x: seen.append(type(x)))(0.0)
    return seen[0]


def pytest_configure(config: Any) -> None:
    import jaxide

    config.stock_tracer = _tracer_type()
    jaxide.install()
    assert _tracer_type() is not config.stock_tracer, "jaxide.install() has not installed jaxide"


def pytest_runtest_teardown(item: Any) -> None:
    assert _tracer_type() is not item.config.stock_tracer, "jaxide is not installed any more"


# ---- the two runs -----------------------------------------------------------------------------


class BrokenOff(Exception):
    """pytest could not run the tests to the end."""


def run(package: Path, files: Sequence[str], processes: int, *plugins: str) -> dict[str, str]:
    """The outcome of every test by its name, with pytest's plugins `plugins` loaded."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", *files]
        command += ["--quiet", "--tb=short", "--disable-warnings", f"--junitxml={report}"]
        # Nothing but the tests themselves decides what runs, and in which order.
        command += [f"--rootdir={package.parent}", "-c", os.devnull]
        command += ["-o", "python_files=*_test.py"]
        command += ["-p", "no:randomly", "-p", "no:cacheprovider"]
        if importlib.util.find_spec("xdist"):
            command += ["--numprocesses", str(processes), "--dist", "loadfile"]
        for plugin in plugins:
            command += ["-p", plugin]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
            ),
        }
        status = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
        if status not in (0, 1):  # all passed, some failed
            raise BrokenOff(f"pytest broke off with status {status}")
        return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of every test in a JUnit report, which may name a test more than once."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            found[name] = "failed"
        else:
            found.setdefault(name, "skipped" if case.find("skipped") is not None else "passed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2, help="for each run (default: 2)")
    parser.add_argument("files", nargs="*", metavar="FILE", help="names of test files")
    options = parser.parse_args()

    specification = importlib.util.find_spec("brainstate")
    if specification is None or specification.origin is None:
        parser.error("brainstate is not installed: pip install jaxide[brainstate]")
    package = Path(specification.origin).parent
    files = [str(package / "transform" / name) for name in options.files or [""]]

    results = {}
    for title, plugins in {"stock jax": [], "jaxide": [PLUGIN]}.items():
        print(f"---- {title}", flush=True)
        start = time.perf_counter()
        try:
            results[title] = run(package, files, options.processes, *plugins)
        except BrokenOff as error:
            print(f"{title}: {error}", file=sys.stderr)
            return 2
        counts = Counter(results[title].values())
        summary = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
        print(f"{title}: {summary} in {time.perf_counter() - start:.0f} s", flush=True)

    stock, ours = results.values()
    worse = 0
    for name in sorted(stock.keys() | ours.keys()):
        before, after = stock.get(name, "missing"), ours.get(name, "missing")
        if before == after == "failed":
            print(f"{name}: failed with both")
        elif before != after:
            print(f"{name}: {before} with stock jax, {after} with jaxide")
            worse += after != "passed"
    print(f"{worse} of {len(stock)} tests do worse with jaxide")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
