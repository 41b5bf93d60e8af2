"""Every program of the corpus, traced by jaxide in each way there is, against stock jax."""

import collections
from typing import Any

import jax
import pytest

import corpus
import dependence
import jaxide
import oracle
import passes
import rebuilding
import storing
from jaxide._compat.printing import printing

FAMILIES = {
    "checkpoint",
    "collectives",
    "constants",
    "control_flow",
    "custom_rules",
    "docs_examples",
    "dtypes",
    "effects",
    "empty",
    "fft",
    "image",
    "jit",
    "lax_ops",
    "linalg",
    "names",
    "nn",
    "numpy_elementwise",
    "numpy_index",
    "numpy_reduce",
    "numpy_shape",
    "pallas",
    "programs",
    "pytrees",
    "random",
    "refs",
    "scipy",
    "sharding",
    "symbolic",
    "transforms",
    "x64",
}

# Primitives whose equations jax prints by functions that see more than params.
PRINTED_BY_JAX = {"refs", "pallas"}
# The same of primitives of high-level types, which jax.numpy has from jax 0.11 on.
HIGH = "call_hi_primitive"

every_case = pytest.mark.parametrize("case", corpus.CASES, ids=str)


def family(case: str) -> list[str]:
    return [case.partition("-")[0]]


each_family = pytest.mark.covering(kinds=family)


@each_family
@every_case
def test_make_jaxpr_cold(case: corpus.Case) -> None:
    with case.entered():
        stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], case, cold=True)
        oracle.assert_same(case, stock, ours, cold=True, every_setting=True)
        # What stock has traced, printed by Rust.
        for setting, options in oracle.PRINT_SETTINGS.items():
            text = printing().text(stock.jaxpr, **options)
            if text is None:
                is_left = case.family in PRINTED_BY_JAX or HIGH in stock.texts["no_custom_rules"]
                assert is_left, f"{setting} is left to jax"
            elif setting in oracle.WITH_EFFECTS:
                assert oracle.sort_effects(text) == stock.texts[setting]
            else:
                assert text == stock.texts[setting]


@each_family
@every_case
def test_make_jaxpr_warm(case: corpus.Case) -> None:
    """Traces that find sub-traces left by stock and by jaxide, and replay what they can."""
    with case.entered():
        jax.clear_caches()
        makers = [jax.make_jaxpr, jaxide.make_jaxpr, jax.make_jaxpr, *[jaxide.make_jaxpr] * 2]
        _, first, stock, second, third = oracle.trace_with(makers, case, cold=False)
        for ours in (first, second, third):
            oracle.assert_same(case, stock, ours, cold=False)


@each_family
@every_case
def test_trace(case: corpus.Case) -> None:
    with case.entered():
        stock, ours = oracle.trace_with(
            [jax.make_jaxpr, jaxide.trace], case, cold=True, return_shape=False
        )
        program = ours.result
        assert isinstance(program, jaxide.Program)
        # Before `program.jaxpr` is asked for, which may fill in what these read.
        assert len(program) == len(stock.jaxpr.eqns)
        oracle.assert_equal(
            oracle.describe_value([list(stock.jaxpr.in_avals), list(stock.jaxpr.out_avals)]),
            oracle.describe_value([program.in_avals, program.out_avals]),
        )
        assert oracle.scrub(str(program)) == oracle.scrub(str(stock.jaxpr))
        oracle.assert_same(case, stock, ours, cold=True)


@each_family
@every_case
def test_from_jaxpr(case: corpus.Case) -> None:
    with case.entered():
        (stock,) = oracle.trace_with([jax.make_jaxpr], case, cold=False)
        program = jaxide.from_jaxpr(stock.jaxpr)
        assert str(program) == str(stock.jaxpr)
        assert len(program) == len(stock.jaxpr.eqns)
        dependence.assert_slices(stock.jaxpr, program)
        liveness = program.liveness(fused=True)
        assert liveness.peak == sum(value.bytes for value in liveness.alive)
        again = oracle.Traced(program, stock.function)
        oracle.assert_same(case, oracle.Traced(stock.jaxpr, stock.function), again, cold=False)
        storing.assert_survives(program)
        rebuilding.check_case(case, program)


def has_branches(jaxpr: Any) -> bool:
    text = str(jaxpr)
    return "cond[" in text or "while[" in text


@pytest.mark.covering(kinds=family, each_value=False)
@pytest.mark.parametrize("case", [c for c in corpus.CASES if c.unevaluated is None], ids=str)
def test_values(case: corpus.Case) -> None:
    """What stock's jaxpr computes, every form of jaxide's computes."""
    with case.entered():
        stock, ours, traced = oracle.trace_with(
            [jax.make_jaxpr, jaxide.make_jaxpr, jaxide.trace], case, cold=False, return_shape=False
        )
        again = jaxide.from_jaxpr(stock.jaxpr)
        assert bool(traced.result.diff(again)) == (traced.result != again)
        # What a program without branches computes of some arguments, it computes of others.
        for seed in (1, 2) if oracle.IS_LONG or has_branches(stock.jaxpr) else (1,):
            expected = oracle.evaluate(stock.jaxpr, case, seed)
            for jaxpr in (ours.jaxpr, traced.jaxpr, again.jaxpr):
                actual = oracle.evaluate(jaxpr, case, seed)
                oracle.assert_equal(oracle.describe_value(expected), oracle.describe_value(actual))
        passes.assert_computes_the_same(case, stock.jaxpr, again)
        # Last, because it may donate what it is given.
        args, kwargs = oracle.dynamic_arguments(case, seed)
        results = traced.result(*args, **kwargs)
        oracle.assert_close(expected, jax.tree.leaves(results), case.tolerance)
        flat = jax.tree.leaves(oracle.dynamic_arguments(case, seed))
        oracle.assert_close(expected, jax.tree.leaves(again(*flat)), case.tolerance)


def test_corpus_is_complete() -> None:
    names = [case.name for case in corpus.CASES]
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    assert repeated == []
    assert len(names) >= 450
    assert {case.family for case in corpus.CASES} == FAMILIES
