"""Who asks what: which modules, tables and names of jax matter to traces, lowering and printing.

The world (:mod:`jaxide._native.world`) judges a difference by these tables. For example, a table
in ``NOT_FOR_LOWERING`` may change, and what was lowered is still shared.
"""

from __future__ import annotations

# Modules that functions of jax look into, besides its own; of a package those within as well.
BESIDE = (
    "builtins",
    "collections",
    "functools",
    "itertools",
    "math",
    "ml_dtypes",
    "numpy",
    "operator",
)
PACKAGES = ("jax", "jaxlib", "opt_einsum")
# Has whoever is asked to warn; its other names are its state, so they do not count.
WARNING = "warnings"
# Names that say nothing about what a class does.
SILENT = {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
SILENT |= {"__doc__", "__static_attributes__", "__firstlineno__"}
# Written by `copyreg`, `abc` and `weakref` when they meet a class.
SILENT |= {"__slotnames__", "_abc_impl", "__weakref__", "__match_args__"}
# What modules of jax assign in others: state, no definitions.
STATE = {("jax._src.util", "test_event_listener")}
# What the start of a backend assigns, or adds to, before any trace: found without reading code.
STARTED = {
    *(("jax._src.compilation_cache", name) for name in ("_cache_checked", "_cache_used")),
    *(
        ("jax._src.xla_bridge", name)
        for name in ("_at_fork_handler_installed", "_default_backend", "_plugins_registered")
    ),
    *(("jax._src.xla_bridge", name) for name in ("_backends", "_backend_errors")),
    *(
        ("jaxlib.xla_client", f"_custom_{name}")
        for name in ("callback", "callback_handler", "type_id_handler")
    ),
}
# The class that has a property for each option.
OPTIONS = "jax._src.config.Config"
# Modules of which the core does some of the work natively, and those that their functions call: all
# of jax's but those whose functions run in calls that are recorded.
NATIVE = ("jax._src", "jaxlib", "collections", "functools", "itertools", "operator")
RECORDED: tuple[str, ...] = ("jaxlib.mlir", "jaxlib.mosaic", "jaxlib.triton")
RECORDED += tuple(
    f"jax._src.{name}"
    for name in (
        *("cudnn", "custom_batching", "debugger", "debugging", "error_check", "export", "image"),
        *("internal_test_util", "lax", "lax_reference", "nn", "numpy", "ops", "pallas", "random"),
        *("scipy", "test_loader", "test_util", "test_warning_util", "third_party", "tpu"),
    )
)
# For jax's own tests: no module that traces or lowers imports them.
OF_TESTS = ("jax._src.test_util", "jax._src.test_loader", "jax._src.test_warning_util")
# Modules without which programs are printed, but for those that have functions for printing.
SILENT_MODULES = (
    *("jax.numpy", "jax.lax", "jax.nn", "jax.scipy", "jax.random"),
    *("jax._src.numpy", "jax._src.lax", "jax._src.nn", "jax._src.scipy", "jax._src.random"),
    *OF_TESTS,
    "jax.experimental.array_serialization",
)
# Nothing that is lowered asks them: nor do tables of interpreters, which rewrite functions first.
NOT_FOR_LOWERING = (
    *OF_TESTS,
    "jax._src.checkify.error_checks",
    "jax.experimental.jet.jet_rules",
    "jax.experimental.sparse.transform.sparse_rules_bcoo",
    "jax.experimental.sparse.transform.sparse_rules_bcsr",
)
# Asked by no trace and nothing that is lowered: how trees are written to files and read, and what
# equations cost.
UNASKED = (
    "jax._src.export._export.serialization_registry",
    "jax._src.export._export.deserialization_registry",
    "jax.experimental.roofline.roofline._rooflines",
)
# What jax prints primitives by.
PRINTING = "jax._src.core.pp_"
# What stages an equation remembers what the rules of these modules have said.
REMEMBERED = "jax._src.interpreters.partial_eval."
# Modules whose registries say how programs are lowered, and what runs them: no trace asks.
LOWERING = tuple(
    f"{package}.{name}"
    for package in ("jax._src.interpreters", "jax.interpreters")
    for name in ("mlir", "pxla")
)
LOWERING += ("jax._src.dispatch",)
# Rules that only hand on matter to nobody who lowers a program here.
TRANSPOSES = ".primitive_transposes"
# In every module, and none of its definitions.
OF_MODULES = frozenset(
    ("__builtins__", "__warningregistry__", "__annotations__", "__cached__", "_")
)
OF_MODULES |= {"__spec__", "__loader__", "__doc__", "__file__", "__package__"}
# Put there by pytest, which rewrites the assertions of jax's modules for tests.
OF_MODULES |= {"@py_builtins", "@pytest_ar"}
# For people at a prompt: notebooks replace some of them, and no function of jax calls them.
INTERACTIVE = frozenset(("copyright", "credits", "display", "exit", "get_ipython", "help", "input"))
INTERACTIVE |= {"license", "quit"}
# The debugger of notebooks and IDEs adds these.
INTERACTIVE |= {"execfile", "runfile"}
# Builtins that instructions call, which do not name them.
BY_INSTRUCTIONS = {"__import__": "IMPORT_NAME", "__build_class__": "LOAD_BUILD_CLASS"}
