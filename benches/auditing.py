"""What auditing costs while programs are traced: a warm retrace with and without it.

The two take turns in one process. Times are those of the processor, and are summed: an audit is
rare, and a median would not see it. An execution is not measured: of a shared executable what is
audited is a lowering, once in so many functions that are made anew.
"""

import gc
import time

import jaxide
import report
import workloads
from jaxide._reports.audit import audit_every

EVERY = 1000


def processor_seconds(fun, args, every: int, repeats: int) -> float:
    """What retraces take, of every so many replays one being audited."""
    audit_every(every)
    gc.collect()
    start = time.process_time()
    for _ in range(repeats):
        jaxide.make_jaxpr(lambda *a: fun(*a))(*args)
    taken = time.process_time() - start
    audit_every(0)
    return taken


def measure(workload: str, rounds: int) -> list[str]:
    """The row of a workload."""
    fun, args = workloads.ALL[workload]()
    for _ in range(4):
        jaxide.make_jaxpr(lambda *a: fun(*a))(*args)
    gc.collect()
    gc.freeze()
    # About half a second a turn, so that the clock is fine enough.
    repeats = max(1, round(0.5 / max(1e-4, processor_seconds(fun, args, 0, 3) / 3)))
    jaxide.clear_audit()
    off = on = 0.0
    for turn in range(rounds):
        for every in (0, EVERY) if turn % 2 else (EVERY, 0):
            taken = processor_seconds(fun, args, every, repeats)
            off, on = (off + taken, on) if every == 0 else (off, on + taken)
    found = jaxide.audit_report()
    gc.unfreeze()
    traces = rounds * repeats
    return [
        workload,
        f"{found.replays / traces:,.0f}",
        f"{found.replays_audited / traces:.2f}",
        f"{off / traces * 1e3:.2f}",
        f"{on / traces * 1e3:.2f}",
        f"{(on / off - 1) * 100:+.1f}%",
        str(len(found.differences)),
    ]


def main() -> None:
    """Makes the table, and puts it into docs/performance.md."""
    rows, options = report.of_workloads(__doc__, measure, "turns of each, about half a second long")
    if not options.only:
        header = [
            "workload",
            "replays a trace",
            "audited",
            "without, ms",
            f"with `audit={EVERY}`, ms",
            "cost",
            "differences",
        ]
        report.record("auditing", header, rows)


if __name__ == "__main__":
    main()
