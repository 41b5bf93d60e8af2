"""Source code that `Program.to_python` writes, executed: it must give the same jaxpr."""

from __future__ import annotations

import re
import zlib
from typing import Any

import jax

import jaxide
import oracle

# Why programs of the corpus cannot be written: what is in them is of this process only.
REASONS = {
    "callbacks": r"_FlatCallback|_flat_callback|a ShapedArray has no",
    "trees of callbacks, Refs and kernels": r"a PyTreeDef has no",
    "meshes and devices": r"a Mesh has no|has a mesh of this process|a Device has no|ArrayCopySem",
    "symbolic sizes": r"_DimExpr has no|symbolic size",
    "rules of the user's": r"<locals>|a WrappedFun has no|memoized",
    "records and policies without a public name": (
        r"_LinearSolveTuple|RaggedDotDimensionNumbers|a Primitive has no|SaveOnly|SaveAny"
    ),
    "operations without a public name": (
        r"(Nonzero|SearchSorted|Einsum|Ldexp|Frexp|CustomRoot|_RootLinearMap) has no public name"
    ),
    "primitives that no public module has": r"cannot be found by its name",
    "Refs": r"but a Ref|is that of no array",
    "values of float0": r"float0",
}
REFUSED = re.compile("|".join(REASONS.values()))

# What jax stages otherwise when it is called from outside.
OTHERWISE = {
    "constants-constant_jax_scalar",
    "constants-constant_in_custom_vjp",
    "random-random_loggamma_grad",
    "scipy-special_fresnel",
    "scipy-special_hyp2f1",
}


def rebuilt(text: str) -> tuple[Any, Any]:
    """The function and the arguments of source code."""
    scope: dict[str, Any] = {}
    exec(compile(text, "<rebuilt>", "exec"), scope)
    name = re.search(r"jax\.make_jaxpr\((\w+)\)", text)[1]
    return scope[name], scope["ARGUMENTS"]


def assert_rebuilt(program: jaxide.Program, **axes: Any) -> None:
    """The source code of a program gives its jaxpr again; large constants are given to it."""
    text = program.to_python(drop_rules=True)
    function, arguments = rebuilt(text)
    large = [c for c in program.jaxpr.consts if getattr(c, "size", 0) > 64]
    if large:
        inner = function
        function = lambda *args: inner(*args, consts=large)
    with jax.enable_x64("jax.enable_x64(True):  # and" in text or jax.config.jax_enable_x64):
        made = jax.make_jaxpr(function, **axes)(*arguments)
    assert oracle.scrub(str(made)) == oracle.scrub(str(program))
    own = [(aval.shape, aval.dtype, aval.weak_type) for aval in made.out_avals]
    assert own == [(aval.shape, aval.dtype, aval.weak_type) for aval in program.out_avals]


def check_case(case: Any, program: jaxide.Program) -> None:
    """A case of the corpus is rebuilt, or refused for a reason that is known.

    One of two is, all of them in a long run: calls are tried by tracing them.
    """
    if not oracle.IS_LONG and zlib.crc32(case.name.encode()) % 2:
        return
    axes = {"axis_env": case.options["axis_env"]} if "axis_env" in case.options else {}
    try:
        assert_rebuilt(program, **axes)
    except NotImplementedError as refusal:
        assert REFUSED.search(str(refusal)), refusal
    except AssertionError:
        assert str(case) in OTHERWISE
