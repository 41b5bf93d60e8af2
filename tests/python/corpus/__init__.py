"""Programs that jaxide must trace exactly as stock jax does, one module per family."""

import importlib
import pkgutil

from corpus.registry import CASES as CASES
from corpus.registry import Case as Case

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
