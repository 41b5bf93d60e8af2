"""The programs of the benchmarks: jaxide's are stock's."""

from __future__ import annotations

import jax
import pytest

import covering
import jaxide
import models
import oracle
import workloads
from corpus import Case
from expansion import assert_same_when_warm


@pytest.mark.covering
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("name", workloads.ALL)
def test_workload(name: str, cold: bool) -> None:
    function, args = workloads.ALL[name]()
    case = Case(name, lambda: lambda *operands: function(*operands), args)
    stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], case, cold=cold)
    oracle.assert_same(case, stock, ours, cold=cold, every_setting=not covering.is_short)
    again = oracle.Traced(jaxide.from_jaxpr(stock.jaxpr).jaxpr, stock.function)
    assert again.telling_texts == stock.telling_texts
    assert covering.is_short or again.texts == stock.texts


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("name", models.ALL)
def test_model(name: str) -> None:
    step, args = models.ALL[name]()
    assert_same_when_warm((step, *args), rounds=2)
