"""All kinds of change."""

from world.kinds import (  # noqa: F401
    calls,
    classes,
    executables,
    functions,
    modules_of_jax,
    mutable,
    outside,
    rules,
    settings,
    trees,
)
from world.world import KINDS

__all__ = ["KINDS"]
