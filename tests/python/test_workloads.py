"""The reference workloads of the benchmarks: jaxide's programs are stock's."""

from __future__ import annotations

import jax
import pytest

import jaxide
import oracle
import workloads
from corpus import Case


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("name", workloads.ALL)
def test_workload(name: str, cold: bool) -> None:
    function, args = workloads.ALL[name]()
    case = Case(name, lambda: lambda *operands: function(*operands), args)
    stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], case, cold=cold)
    oracle.assert_same(case, stock, ours, cold=cold, every_setting=True)


@pytest.mark.parametrize("name", workloads.ALL)
def test_workload_round_trip(name: str) -> None:
    function, args = workloads.ALL[name]()
    jaxpr = jax.make_jaxpr(function)(*args)
    assert oracle.texts(jaxide.from_jaxpr(jaxpr).jaxpr) == oracle.texts(jaxpr)
