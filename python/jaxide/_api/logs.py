"""What is said through the ``logging`` library, and ``JAXIDE_LOG``."""

from __future__ import annotations

import logging
import os
import warnings

# The loggers that a setting may name.
LOGGERS = ("retraces",)


def log_of_environment() -> None:
    """Prints what the loggers say that ``JAXIDE_LOG`` names, separated by commas, on stderr."""
    for name in filter(None, map(str.strip, os.environ.get("JAXIDE_LOG", "").split(","))):
        if name not in LOGGERS:
            warnings.warn(
                f"JAXIDE_LOG names {name!r}: it may name {', '.join(LOGGERS)}", stacklevel=2
            )
            continue
        logger = logging.getLogger(f"jaxide.{name}")
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        # The user's handlers, if any, would print it once more.
        logger.propagate = False
