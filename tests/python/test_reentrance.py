"""Whoever comes in between finds everything as it is: see ``docs/reentrance.md``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("reentrance.py")
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SECONDS = 600.0 if IS_LONG else 8.0
SCENARIOS = ("profiled", "collected", "interrupted", "interrupted_for_good", "threaded")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whoever_comes_in_between(scenario: str) -> None:
    seed = int.from_bytes(os.urandom(4)) if IS_LONG else 1
    command = [sys.executable, str(SCRIPT), scenario, str(SECONDS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 300)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
