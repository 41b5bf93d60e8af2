"""Which functions and values are jax's own, and which were put there by somebody else.

A function of jax is one whose code is from a file of the installed jax and whose globals are those
of the module that jax has imported from that file.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
import sysconfig
import types
from functools import cache
from typing import Any

import jax

from jaxide import _core
from jaxide._native.addresses import AddressCache

OF_JAX = os.path.join(os.path.dirname(inspect.getfile(jax)), "")

# The class of partial applications; nothing is one where somebody has replaced it before.
PARTIAL: Any = functools.partial if isinstance(functools.partial, type) else ()

# Packages that jax is built on. What they define does not change jax when jax uses it.
_FOUNDATION: tuple[str, ...] = (
    "jaxlib",
    "nanobind",
    "numpy",
    "ml_dtypes",
    "opt_einsum",
    "scipy",
    "jaxide",
)
_FOUNDATION += ("absl", "cloudpickle", "etils", "flatbuffers", "google", "hypothesis")
# jaxlib has classes of the plugins for GPUs.
_FOUNDATION += ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_plugins", "jax_rocm60_plugin")
_FOUNDATION += ("jax_rocm7_plugin",)
_FOUNDATION += ("portpicker", "tensorstore", "typing_extensions", "zstandard")
_OWN_PACKAGES = frozenset(("jax", *_FOUNDATION))
# Packages that modules of jax import where they are installed.
_OPTIONAL = frozenset(
    (
        *("IPython", "filelock", "kubernetes", "libtpu"),
        *("matplotlib", "mpi4py", "nvidia", "pygments", "pytest", "requests", "rich", "setuptools"),
        *("tensorflow", "tensorstore", "torch", "triton", "web_pdb", "xprof"),
    )
)
# Classes whose instances have no functions in them and are nobody's.
PLAIN: frozenset[type] = frozenset(
    (str, bytes, int, float, complex, bool, type(None), list, dict, set, frozenset)
)
PLAIN |= {types.BuiltinFunctionType, types.WrapperDescriptorType}
PLAIN |= {types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType}
# Modules of the standard library whose objects stand in for others.
_STAND_INS = ("unittest", "doctest", "pdb", "code")


def is_jax_module(name: str) -> bool:
    """Whether a module of this name is one of jax's."""
    return name == "jax" or name.startswith("jax.")


def is_own_function(function: Any) -> bool:
    """Whether a Python function is jax's own, with the code and the globals that jax gave it."""
    if not isinstance(function, types.FunctionType):
        return False
    if not function.__code__.co_filename.startswith(OF_JAX):
        return False
    name = function.__globals__.get("__name__")
    if not isinstance(name, str) or not is_jax_module(name):
        return False
    module = sys.modules.get(name)
    return module is not None and vars(module) is function.__globals__


def is_own_callable(value: Any) -> bool:
    """Whether a callable of jax, a function or what jax makes of one, consists of jax's functions
    alone."""
    found = list(functions_of(value))
    return bool(found) and all(map(is_own_function, found)) and not is_foreign(value)


# Instructions that hand on values.
_HANDING_ON = frozenset(
    (
        *("RESUME", "NOP", "CACHE", "COPY", "SWAP", "POP_TOP", "RETURN_VALUE", "RETURN_CONST"),
        *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW"),
        *("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST", "BUILD_TUPLE", "BUILD_LIST"),
    )
)


def hands_on(function: types.FunctionType) -> bool:
    """Whether all that a function does is to hand on arguments and constants, and it lasts as long
    as its module.

    For example a rule of a library: ``def transpose(cotangent, x): return (cotangent,)``.
    """
    if function.__defaults__ or function.__kwdefaults__ or function.__closure__:
        return False
    known = getattr(sys.modules.get(function.__module__), function.__name__, None)
    return known is function and _only_hands_on(function.__code__)


def _only_hands_on(code: types.CodeType) -> bool:
    found = _CODES.get(code)
    if found is None:
        operations = (instruction.opname for instruction in dis.get_instructions(code))
        found = _HANDING_ON.issuperset(operations)
        _CODES.put(code, found)
    return found


# Whether codes do nothing else than to hand on what they are given.
_CODES: AddressCache[bool] = AddressCache()


@cache
def _library_folders() -> tuple[str, ...]:
    """Where code is that belongs to jax, to Python or to what jax is built on."""
    folders = [OF_JAX]
    for name in _FOUNDATION:
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__file__", None):
            file = inspect.getfile(module)
            # Of a package that is one file, that; what lies beside it is somebody else's.
            is_package = hasattr(module, "__path__")
            folders.append(os.path.join(os.path.dirname(file), "") if is_package else file)
    folders.append(os.path.join(sysconfig.get_path("stdlib"), ""))
    return tuple(folders)


@cache
def _packages() -> tuple[str, ...]:
    """Where packages are installed, which is a folder of the standard library's."""
    return tuple(os.path.join(sysconfig.get_path(key), "") for key in ("purelib", "platlib"))


# Folders of packages that were installed, as Python and Debian call them.
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_installed_package(file: str) -> bool:
    """Whether a file is one of a package that was installed: no code of whoever runs it."""
    return not _INSTALLED.isdisjoint(file.split(os.sep))


def is_installed_file(file: str) -> bool:
    """Whether a file is one of Python or of a package that was installed."""
    return _is_installed_with(file, len(sys.modules))


@functools.lru_cache(maxsize=4096)
def _is_installed_with(file: str, num_modules: int) -> bool:
    # How many modules there are tells whether more of what jax is built on may be imported.
    return is_installed_package(file) or _is_file_of_library(file)


def _is_file_of_library(file: str) -> bool:
    """Whether the code of a file belongs to jax, to Python or to what jax is built on."""
    if not file.startswith(_library_folders()):
        # What jax is built on may have been imported since.
        _library_folders.cache_clear()
    own = next((folder for folder in _library_folders() if file.startswith(folder)), None)
    if own is None:
        return False
    if own == _library_folders()[-1]:
        below = file[len(own) :].split(os.sep)[0].removesuffix(".py")
        return below not in _STAND_INS and not file.startswith(_packages())
    return True


TRUST = _core.Trust(
    PLAIN,
    _OWN_PACKAGES | sys.stdlib_module_names.difference(_STAND_INS),
    _OPTIONAL.union(_STAND_INS),
    PARTIAL,
    _is_file_of_library,
)
functions_of = TRUST.functions_of
is_foreign = TRUST.is_foreign
