"""Bad uses of tracing, one function each.

A bad use is a function of `make_jaxpr` that must raise. It makes every function and value it
needs itself, so that running it with jax's `make_jaxpr` and then with jaxide's shares nothing
but the source lines, and the two error texts can be compared to the last character.
"""

import importlib
import pkgutil
from collections.abc import Callable

BadUse = Callable[[Callable], object]

BAD_USES: dict[str, BadUse] = {}


def bad_use(function: BadUse) -> BadUse:
    """Registers `function` under its own name."""
    return _register(function.__name__, function)


def bad_uses(**functions: BadUse) -> None:
    """Registers one-line bad uses under their keywords."""
    for name, function in functions.items():
        _register(name, function)


def _register(name: str, function: BadUse) -> BadUse:
    assert name not in BAD_USES, f"two bad uses are called {name}"
    BAD_USES[name] = function
    return function


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
