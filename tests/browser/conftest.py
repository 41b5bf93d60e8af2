"""The browser that pages are opened in.

Chromium is the one at `$CHROMIUM`, the one of the system, or Playwright's own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        try:
            # Chromium has no sandbox for root.
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            opened = playwright.chromium.launch(executable_path=found, args=options)
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started, set CHROMIUM: {error.message.splitlines()[0]}")
        yield opened
        opened.close()
