"""What is said through the ``logging`` library, and who prints it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable


def print_loggers(names: Iterable[str]) -> None:
    """From now on, what the loggers of jaxide with these names say is printed on stderr."""
    for name in names:
        _print(name)


@functools.cache
def _print(name: str) -> None:
    logger = logging.getLogger(f"jaxide.{name}")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # The user's handlers, if any, would print it once more.
    logger.propagate = False
