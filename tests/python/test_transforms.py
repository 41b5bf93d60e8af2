"""Every program of the corpus under jax's transformations, against stock jax.

A pair of a case and a transformation that stock jax traces, jaxide must trace to the same program,
cold and warm; where stock raises, jaxide must raise the same. By default every case is taken under
a few of the transformations, so that each family meets all of them, and the short run takes as many
cases as that needs; `HYPOTHESIS_PROFILE=long` takes all pairs.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import corpus
import covering
import jaxide
import oracle
import transforms
from corpus import Case
from test_errors import Raised, describe
from test_generated import Program, arguments, programs, run
from transforms import TRANSFORMATIONS, Transformation

ONE_IN = 1 if oracle.IS_LONG else 6
# Evaluating compiles each operation that is met for the first time.
EVALUATED_ONE_IN = 1 if oracle.IS_LONG else 24

Maker = Callable[..., Any]


def outcomes(makers: list[Maker], case: Case, *, cold: bool) -> list[oracle.Traced | Raised]:
    """What each maker makes of the case, or what it raises, all from one line."""
    found: list[oracle.Traced | Raised] = []
    for maker in makers:
        try:
            (traced,) = oracle.trace_with([maker], case, cold=cold)
            # Captured constants are named by the function of the corpus.
            traced.function = transforms.unwrapped(traced.function)
            found.append(traced)
        except Exception as error:
            found.append(describe(error))
    return found


def assert_same(
    case: Case,
    expected: oracle.Traced | Raised,
    actual: oracle.Traced | Raised,
    *,
    cold: bool,
) -> None:
    if isinstance(expected, Raised) or isinstance(actual, Raised):
        assert actual == expected, "raised otherwise"
    else:
        oracle.assert_same(case, expected, actual, cold=cold)


def is_evaluated(case: Case) -> bool:
    return case.unevaluated is None and zlib.crc32(case.name.encode()) % EVALUATED_ONE_IN == 0


def values(traced: oracle.Traced, case: Case) -> Any:
    """The results bit for bit, or the error of an operation that does not run by itself."""
    try:
        return oracle.describe_value(oracle.evaluate(traced.jaxpr, case, seed=1))
    except Exception as error:
        return type(error), oracle.scrub(str(error))


def compare_makers(case: Case, ours: Maker | None = None) -> bool:
    """Fails if jaxide differs from stock on the case; whether stock traces it."""
    ours = ours or jaxide.make_jaxpr
    stock, first = outcomes([jax.make_jaxpr, ours], case, cold=True)
    assert_same(case, stock, first, cold=True)
    # These find what jaxide's trace left in jax's caches, and replay what they can.
    warm, second, third = outcomes([jax.make_jaxpr, ours, ours], case, cold=False)
    for again in (second, third):
        assert_same(case, warm, again, cold=False)
    if isinstance(stock, Raised):
        return False
    if is_evaluated(case):
        oracle.assert_equal(values(stock, case), values(first, case))
    return True


def compare(case: Case, transformation: Transformation, ours: Maker | None = None) -> bool:
    with case.entered():
        return compare_makers(transformation.of(case), ours)


def named(pairs: list[tuple[str, Exception]]) -> str:
    return "\n\n".join(f"{pair}: {type(error).__name__}: {error}" for pair, error in pairs)


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, shared by all processes of this run, for what stock jax makes of each case."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "transforms"
    folder.mkdir(exist_ok=True)
    return folder


def met(case: str) -> list[str]:
    """The transformations of a case, as its family meets them."""
    found = CASES_BY_ID[case]
    return [f"{found.family} {t}" for t in transforms.of_case(found, ONE_IN)]


CASES_BY_ID = {str(case): case for case in corpus.CASES}


@pytest.mark.covering(kinds=met, each_value=False)
@pytest.mark.parametrize("case", corpus.CASES, ids=str)
def test_case_under_transformations(case: Case, counts: Path) -> None:
    failures = []
    traced = raised = 0
    for transformation in transforms.of_case(case, ONE_IN):
        try:
            is_traced = compare(case, transformation)
            traced += is_traced
            raised += not is_traced
        except Exception as error:  # the other pairs are compared all the same
            failures.append((f"{transformation}({case})", error))
    assert not failures, named(failures)
    written = counts / f"{case}.unfinished"
    written.write_text(f"{traced} {raised}")
    written.rename(counts / str(case))


def counted(case: Case, counts: Path) -> tuple[int, int]:
    """How many compared pairs of the case stock jax traces and refuses, by its test or by stock."""
    with contextlib.suppress(FileNotFoundError):
        traced, raised = (counts / str(case)).read_text().split()
        return int(traced), int(raised)
    with case.entered():
        made = [
            outcomes([jax.make_jaxpr], transformation.of(case), cold=False)[0]
            for transformation in transforms.of_case(case, ONE_IN)
        ]
    traced = sum(isinstance(m, oracle.Traced) for m in made)
    return traced, len(made) - traced


@pytest.mark.last
def test_there_are_enough_pairs(
    request: pytest.FixtureRequest, counts: Path, record_property: Callable[[str, object], None]
) -> None:
    """Counted by what stock jax traces; where it raises, the errors are compared."""
    is_of_pairs = lambda item: (
        getattr(item, "originalname", "") == "test_case_under_transformations"
    )
    run = [item.callspec.params["case"] for item in request.session.items if is_of_pairs(item)]
    cases = run if covering.is_short and run else corpus.CASES
    found = [counted(case, counts) for case in cases]
    traced, raised = map(sum, zip(*found, strict=True))
    record_property("pairs that stock jax traces", traced)
    record_property("pairs that stock jax refuses", raised)
    assert traced >= (2 * len(cases) if cases is run else 4_000)
    assert raised < traced / 4


def test_every_family_meets_every_transformation() -> None:
    pairs = {(c.family, t.name) for c in corpus.CASES for t in transforms.of_case(c, ONE_IN)}
    large = {t.name for t in TRANSFORMATIONS if not t.small}
    missing = {(c.family, name) for c in corpus.CASES for name in large} - pairs
    assert not missing


# ---- random nests -----------------------------------------------------------------------------

BY_NAME = {str(transformation): transformation for transformation in TRANSFORMATIONS}
nests = st.lists(st.sampled_from(list(BY_NAME)), min_size=1, max_size=3)


def under(names: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under transformations, the last of them innermost."""
    for name in reversed(names):
        function = BY_NAME[name].nested(function)
    return function


@settings(max_examples=5_000 if oracle.IS_LONG else covering.examples(20, 100))
@example(["hessian", "vmap", "checkpoint"], Program((), (0,)), [2.5])
@given(nests, programs(depth=1, most_steps=4), st.lists(arguments, min_size=1, max_size=3))
def test_generated_under_a_nest(names: list[str], program: Program, args: list[Any]) -> None:
    case = Case(
        "generated", lambda: under(names, lambda *values: run(program, values)), tuple(args)
    )
    compare_makers(case)


# ---- the comparison sees a difference ---------------------------------------------------------

(ORDINARY,) = (c for c in corpus.CASES if c.name == "vmap_matmul")


def changed_result(function: Callable[..., Any], **options: Any) -> Any:
    return jax.make_jaxpr(lambda *args: jax.tree.map(lambda x: -x, function(*args)), **options)


def refused(function: Callable[..., Any], **options: Any) -> Any:
    raise TypeError("refused")


def test_stock_is_the_same_as_itself() -> None:
    assert all(compare(ORDINARY, t, jax.make_jaxpr) for t in TRANSFORMATIONS)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS, ids=str)
def test_changed_result_is_seen(transformation: Transformation) -> None:
    with pytest.raises(AssertionError, match="printed with setting 'str'"):
        compare(ORDINARY, transformation, changed_result)


@pytest.mark.parametrize("wrong_call", [2, 3])
def test_difference_of_a_warm_trace_is_seen(wrong_call: int) -> None:
    calls = iter(range(1, 4))
    maker = lambda f, **o: (changed_result if next(calls) == wrong_call else jax.make_jaxpr)(f, **o)
    with pytest.raises(AssertionError, match="printed with setting 'str'"):
        compare(ORDINARY, BY_NAME["grad"], maker)
    assert next(calls, None) is None or wrong_call == 2


def test_error_of_one_alone_is_seen() -> None:
    with pytest.raises(AssertionError, match="raised otherwise"):
        compare(ORDINARY, BY_NAME["grad"], refused)
    (integers,) = (c for c in corpus.CASES if c.name == "symbolic_integers")
    assert not compare(integers, BY_NAME["grad"], jax.make_jaxpr)
    with pytest.raises(AssertionError, match="raised otherwise"):
        compare(integers, BY_NAME["grad"], refused)
    allowed = lambda f, **options: jax.make_jaxpr(lambda x: x)
    with pytest.raises(AssertionError, match="raised otherwise"):
        compare(integers, BY_NAME["grad"], allowed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("grad", "jit_of_grad"),
        ("grad", "grad_of_checkpoint"),
        ("jvp", "linearize"),
        ("jacfwd", "jacrev"),
        ("vmap", "vmap_axis_1"),
        ("vmap_of_grad", "grad_of_vmap"),
    ],
)
def test_another_transformation_is_seen(one: str, other: str) -> None:
    (stock,) = outcomes([jax.make_jaxpr], BY_NAME[one].of(ORDINARY), cold=True)
    (ours,) = outcomes([jaxide.make_jaxpr], BY_NAME[other].of(ORDINARY), cold=True)
    with pytest.raises(AssertionError):
        assert_same(BY_NAME[one].of(ORDINARY), stock, ours, cold=True)


def test_failure_names_the_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jaxide, "make_jaxpr", changed_result)
    with pytest.raises(AssertionError, match=rf"\w+\({ORDINARY}\): AssertionError: printed"):
        test_case_under_transformations(ORDINARY, tmp_path)
