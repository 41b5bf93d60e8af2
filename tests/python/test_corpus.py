"""Every program of the corpus, traced by jaxide in each way there is, against stock jax."""

import collections

import corpus
import jax
import jaxide
import oracle
import pytest

every_case = pytest.mark.parametrize("case", corpus.CASES, ids=str)


@every_case
def test_cold(case: corpus.Case) -> None:
    with case.entered():
        stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], case, cold=True)
        oracle.assert_same(case, stock, ours, cold=True)
        if case.unevaluated is None:
            oracle.assert_same_values(case, stock.jaxpr, ours.jaxpr)


@every_case
def test_warm(case: corpus.Case) -> None:
    """Traces that find sub-traces left by stock and by jaxide."""
    with case.entered():
        jax.clear_caches()
        _, first, stock, second = oracle.trace_with(
            [jax.make_jaxpr, jaxide.make_jaxpr, jax.make_jaxpr, jaxide.make_jaxpr], case, cold=False
        )
        oracle.assert_same(case, stock, first, cold=False)
        oracle.assert_same(case, stock, second, cold=False)


@every_case
def test_from_jaxpr(case: corpus.Case) -> None:
    with case.entered():
        jax.clear_caches()
        (stock,) = oracle.trace_with([jax.make_jaxpr], case, cold=False)
        program = jaxide.from_jaxpr(stock.jaxpr)
        assert str(program) == str(stock.jaxpr)
        assert len(program) == len(stock.jaxpr.eqns)
        assert oracle.texts(program.jaxpr) == oracle.texts(stock.jaxpr)
        oracle.assert_same_description(
            oracle.Traced(stock.jaxpr, stock.function), oracle.Traced(program.jaxpr, stock.function)
        )
        if case.unevaluated is None:
            expected = oracle.evaluate(stock.jaxpr, case, seed=3)
            actual = oracle.evaluate(program.jaxpr, case, seed=3)
            oracle.assert_equal(oracle.describe_value(expected), oracle.describe_value(actual))


@every_case
def test_trace(case: corpus.Case) -> None:
    with case.entered():
        stock, ours = oracle.trace_with(
            [jax.make_jaxpr, jaxide.trace], case, cold=True, return_shape=False
        )
        program = ours.result
        assert isinstance(program, jaxide.Program)
        assert len(program) == len(stock.jaxpr.eqns)
        oracle.assert_equal(
            oracle.describe_value([list(stock.jaxpr.in_avals), list(stock.jaxpr.out_avals)]),
            oracle.describe_value([program.in_avals, program.out_avals]),
        )
        oracle.assert_same(case, stock, ours, cold=True)
        # Last, so that what is printed is not what reading the jaxpr has filled in.
        assert oracle.scrub(str(program)) == oracle.scrub(str(stock.jaxpr))
        if case.unevaluated is None:
            expected = oracle.evaluate(stock.jaxpr, case, seed=4)
            args, kwargs = case.arguments(seed=4)
            oracle.assert_close(
                expected, jax.tree.leaves(program(*args, **kwargs)), case.tolerance
            )
            oracle.assert_close(
                expected,
                jax.tree.leaves(program(*oracle.flat_arguments(case, seed=4))),
                case.tolerance,
            )


def test_corpus_is_complete() -> None:
    names = [case.name for case in corpus.CASES]
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    assert repeated == []
    assert len(names) >= 450
    assert {case.family for case in corpus.CASES} == FAMILIES
