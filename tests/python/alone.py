"""Scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


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
    """Runs a script in a fresh interpreter, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
