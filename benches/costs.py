"""What programs cost: `Program.cost` against XLA's own count of the program as it is lowered.

    python benches/costs.py [--only WORKLOAD ...]

Where the two differ, each equation is lowered by itself and counted by both: the primitives that
differ most are named, with what each adds to the difference. What is left is XLA's doing between
equations.
"""

import collections
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core

import jaxide
import report
import workloads

# What is worth an explanation, as a share of what XLA counts.
TOLERANCE = 0.05

QUANTITIES = {
    "flops": "flops",
    "transcendentals": "transcendentals",
    "bytes_accessed": "bytes accessed",
}

Counts = collections.Counter[str]


def counts(function: Callable[..., Any], *args: Any) -> tuple[Counts, Counts]:
    """What jaxide and XLA count."""
    total = jaxide.trace(function)(*args).cost().total
    found = jax.jit(function).lower(*args).cost_analysis() or {}
    return (
        collections.Counter({name: getattr(total, name) for name in QUANTITIES}),
        collections.Counter({name: int(found.get(key, 0)) for name, key in QUANTITIES.items()}),
    )


def leaves(jaxpr: Any) -> Iterator[Any]:
    """The equations that run no program, of nested programs as well."""
    for eqn in jaxpr.eqns:
        nested = list(core.jaxprs_in_params(eqn.params))
        yield from ([eqn] if not nested else (e for within in nested for e in leaves(within)))


def by_itself(eqn: Any) -> tuple[Counts, Counts]:
    """What both count of one equation, of literals its own, as the program of nothing else."""

    def alone(*args: Any) -> Any:
        given = iter(args)
        invars = [v.val if isinstance(v, core.Literal) else next(given) for v in eqn.invars]
        return eqn.primitive.bind(*invars, **eqn.params)

    avals = [v.aval for v in eqn.invars if not isinstance(v, core.Literal)]
    return counts(alone, *avals)


def differences(jaxpr: Any) -> dict[str, Counts]:
    """By primitive: how much more jaxide counts than XLA, of its equations by themselves."""
    known: dict[Any, tuple[Counts, Counts]] = {}
    found: dict[str, Counts] = collections.defaultdict(collections.Counter)
    for eqn in leaves(jaxpr):
        operands = tuple(
            str(v.val) if isinstance(v, core.Literal) else v.aval.str_short() for v in eqn.invars
        )
        key = eqn.primitive, str(eqn.params), operands
        if key not in known:
            known[key] = by_itself(eqn)
        ours, xla = known[key]
        found[eqn.primitive.name].update(ours)
        found[eqn.primitive.name].subtract(xla)
    return found


def explained(quantity: str, more: int, xla: int, by_primitive: dict[str, Counts]) -> str:
    """The primitives that make most of a difference."""
    shares = sorted(
        ((counted[quantity], name) for name, counted in by_primitive.items()),
        key=lambda share: -abs(share[0]),
    )
    said = [f"{name} {share / xla:+.1%}" for share, name in shares if abs(share) > xla / 100]
    rest = more - sum(share for share, _ in shares)
    if abs(rest) > xla / 100:
        said.append(f"between equations {rest / xla:+.1%}")
    return f"{quantity.partition('_')[0]}: " + ", ".join(said)


def measure(workload: str) -> list[str]:
    program, args = workloads.ALL[workload]()
    ours, xla = counts(program, *args)
    row = [workload]
    far = []
    for name in QUANTITIES:
        ratio = ours[name] / xla[name] if xla[name] else 1.0 if not ours[name] else float("inf")
        row += [f"{xla[name]:,}", f"{ours[name]:,}", f"{ratio:.3f}"]
        if abs(ratio - 1) > TOLERANCE:
            far.append(name)
    by_primitive = differences(jax.make_jaxpr(program)(*args).jaxpr) if far else {}
    said = [explained(n, ours[n] - xla[n], xla[n], by_primitive) for n in far]
    return [*row, "; ".join(said)]


HEADER = ["workload"]
for _name in ("flops", "transcendentals", "bytes"):
    HEADER += [f"{_name}: XLA", "jaxide", "ratio"]
HEADER.append("what makes the difference, in parts of XLA's count")


def main() -> int:
    """Prints the table and puts it into the document."""
    rows, options = report.of_workloads(__doc__, measure)
    if not options.only:
        report.record("costs", HEADER, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
