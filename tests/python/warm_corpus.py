"""Programs of the corpus in one of two processes that have one store.

``python warm_corpus.py fill|compare STEP FIRST``: traces each STEP-th program from FIRST on. The
second process compares what it traces with stock jax, by the oracle.
"""

from __future__ import annotations

import sys

import jax

import corpus
import jaxide
import oracle


def main(what: str, step: int, first: int) -> None:
    failed = []
    hits = 0
    for case in corpus.CASES[first::step]:
        with case.entered():
            if what == "fill":
                oracle.trace_with([jaxide.make_jaxpr], case, cold=True)
                continue
            makers = [jax.make_jaxpr, jaxide.make_jaxpr]
            stock, ours = oracle.trace_with(makers, case, cold=True)
            try:
                oracle.assert_same(case, stock, ours, cold=True)
            except AssertionError as error:
                failed.append(f"{case}: {error}")
    # Forgetting what was learnt writes it.
    jaxide.clear_caches()
    store = jaxide.cache_info().store
    assert store is not None
    hits = store.hits
    assert not failed, failed
    print(hits)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
