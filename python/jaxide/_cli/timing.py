"""What tracing takes, of several tracers side by side."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def warm_retraces(
    tracers: Sequence[Callable[..., Any]],
    fun: Callable[..., Any],
    args: Sequence[Any],
    *,
    rounds: int,
    kwargs: Mapping[str, Any] | None = None,
    read: Callable[[Any], object] = lambda jaxpr: None,
) -> list[list[float]]:
    """Seconds that each tracer takes in each round to trace `fun` as a new function object.

    The tracers take turns within a round, and the order turns round by round, so that neither the
    machine's mood nor what the other one left behind favours either. What exists before the first
    round is kept out of the garbage collections between the traces, which would otherwise empty the
    machine's caches each time. `read` is applied to each jaxpr within the time taken.
    """
    kwargs = kwargs or {}
    seconds: list[list[float]] = [[] for _ in tracers]
    for tracer in tracers:  # fills the caches
        read(tracer(lambda *a, **k: fun(*a, **k))(*args, **kwargs))
    gc.collect()
    gc.freeze()
    try:
        for turn in range(rounds):
            for i in sorted(range(len(tracers)), reverse=turn % 2 == 1):
                gc.collect()
                start = time.perf_counter()
                jaxpr = tracers[i](lambda *a, **k: fun(*a, **k))(*args, **kwargs)
                read(jaxpr)
                seconds[i].append(time.perf_counter() - start)
                del jaxpr
    finally:
        gc.unfreeze()
    return seconds


def pairwise_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios of what was measured side by side."""
    return statistics.median(n / d for n, d in zip(numerators, denominators, strict=True))
