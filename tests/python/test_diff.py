"""Where two programs differ: nothing exactly where they are equal, an edit where there was one."""

from __future__ import annotations

import functools
import gc
import html.parser
import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src import core
from rich.console import Console

import jaxide
from jaxide._cli.demo import gpt

X = np.linspace(0.25, 1, 4, dtype=np.float32)


def program_of(function: Callable[..., Any], *args: Any) -> jaxide.Program:
    return jaxide.trace(lambda *a: function(*a))(*args)


def edits(diff: jaxide.Diff) -> list[tuple[str, int | None, int | None]]:
    """The kind of each equation that differs, and its places in both programs."""
    place = lambda equation: None if equation is None else equation.path[-1]
    return [(row.kind, place(row.old), place(row.new)) for row in diff.changes]


SWAPPED = {"added": "removed", "removed": "added"}


def assert_consistent(old: jaxide.Program, new: jaxide.Program) -> jaxide.Diff:
    """What has to hold of any two programs."""
    diff, back = old.diff(new), new.diff(old)
    assert bool(diff) == (old != new) and bool(back) == bool(diff)
    swapped = [(SWAPPED.get(kind, kind), new, old) for kind, old, new in edits(back)]
    assert sorted(edits(diff), key=str) == sorted(swapped, key=str)
    # Equations read as they do in the whole programs.
    for program, side in ((old, "old"), (new, "new")):
        text = program.pretty(width=10**6)
        for row in diff.changes:
            equation = getattr(row, side)
            if equation is not None and "{ ..." not in equation.text:
                assert equation.text in text
    return diff


def replaced(jaxpr: Any, eqns: list[Any]) -> jaxide.Program:
    return jaxide.from_jaxpr(jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(eqns=eqns)))


# ---- one edit ----


def layered(w: Any, x: Any) -> Any:
    for _ in range(2):
        x = jnp.tanh(x @ w) * 2.0 + jnp.sin(x)
    return lax.scan(lambda c, y: (c * 3.0 + y, jnp.cos(c)), x.sum(), x)


@functools.cache
def layers() -> Any:
    return jax.make_jaxpr(lambda *a: layered(*a))(jnp.eye(4), X)


def test_every_kind_of_edit_everywhere() -> None:
    jaxpr = layers()
    program = jaxide.from_jaxpr(jaxpr)
    eqns = jaxpr.eqns
    dead = jax.make_jaxpr(lambda x: lax.erf_inv(x))(X).eqns[0]
    new = dead.replace(invars=[core.Literal(np.float32(7), core.typeof(np.float32(7)))])
    for index, eqn in enumerate(eqns):
        inserted = assert_consistent(program, replaced(jaxpr, [*eqns[:index], new, *eqns[index:]]))
        assert edits(inserted) == [("added", None, index)]
        doubled = assert_consistent(program, replaced(jaxpr, [*eqns[:index], eqn, *eqns[index:]]))
        assert [kind for kind, *_ in edits(doubled)] == ["added"]
        changed = eqn.replace(params={**eqn.params, "another": 1})
        others = [*eqns[:index], changed, *eqns[index + 1 :]]
        diff = assert_consistent(program, replaced(jaxpr, others))
        assert edits(diff) == [("changed", index, index)]
        (difference,) = diff.differences
        assert (difference.kind, difference.name) == ("param", "another")
        assert (difference.old, difference.new) == ("none", "1")
        other = core.Primitive("other")
        other.multiple_results = eqn.primitive.multiple_results
        others = [*eqns[:index], eqn.replace(primitive=other), *eqns[index + 1 :]]
        diff = assert_consistent(program, replaced(jaxpr, others))
        assert edits(diff) == [("changed", index, index)]
        assert [d.kind for d in diff.differences] == ["primitive"]


def test_an_equation_is_deleted() -> None:
    """And its users have what it had."""
    jaxpr = layers()
    for index, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name not in ("sin", "tanh"):
            continue
        instead = {eqn.outvars[0]: eqn.invars[0]}
        rest = [
            other.replace(
                invars=[instead.get(v, v) if isinstance(v, core.Var) else v for v in other.invars]
            )
            for other in jaxpr.eqns
            if other is not eqn
        ]
        diff = assert_consistent(jaxide.from_jaxpr(jaxpr), replaced(jaxpr, rest))
        assert edits(diff)[0] == ("removed", index, None)
        assert all(kind == "changed" for kind, *_ in edits(diff)[1:])
        assert {d.kind for d in diff.differences} == {"removed", "operand"}


def test_types_of_results_are_told_by_place() -> None:
    one, another = (
        jaxide.trace(lambda x, y: lax.sort((x, y), num_keys=1))(X, X.astype(dtype))
        for dtype in (np.float32, np.int32)
    )
    found = [(d.kind, d.name, d.old, d.new) for d in one.diff(another).differences]
    assert ("type of output", "1", f"f32[{X.size}]", f"i32[{X.size}]") in found


def test_an_equation_within_is_changed() -> None:
    def looped(by: float) -> Callable[..., Any]:
        return lambda x: lax.scan(lambda c, y: (jax.jit(lambda v: v * by)(c) + y, None), 0.0, x)

    old, new = program_of(looped(2.0), X), program_of(looped(4.0), X)
    diff = assert_consistent(old, new)
    (program,) = diff.programs
    assert program.within == ("scan[jaxpr]", "jit[jaxpr]")
    assert (program.old_path, program.new_path) == ((0, 0), (0, 0))
    (difference,) = diff.differences
    assert (difference.kind, difference.old, difference.new) == (
        "literal",
        "2.0:f32[]",
        "4.0:f32[]",
    )
    assert difference.path == (0, 0) and difference.source is not None
    assert __file__ in difference.source
    (row,) = diff.changes
    assert row.old is not None and row.old.path == (0, 0, 0) and row.old.primitive == "mul"


def test_a_moved_equation() -> None:
    def swapped(is_new: bool) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            if is_new:
                b, a = jnp.cos(x), jnp.sin(x)
            else:
                a, b = jnp.sin(x), jnp.cos(x)
            return a - b

        return f

    diff = assert_consistent(program_of(swapped(False), X), program_of(swapped(True), X))
    ((kind, old, new),) = edits(diff)
    assert kind == "moved from" and old != new
    assert [program.moved for program in diff.programs] == [1]
    assert "moved to equation" in str(diff) and "moved from equation" in str(diff)


def test_inputs_results_and_constants() -> None:
    one, two = jnp.ones(4), jnp.ones(4) * 2
    plain = program_of(lambda x, y: (x * one, y), X, X)
    kinds = lambda new: [d.kind for d in assert_consistent(plain, new).differences]
    assert kinds(program_of(lambda x, y: (x * two, y), X, X)) == ["constant"]
    assert kinds(program_of(lambda x, y, z: (x * one, y), X, X, 1)) == ["added input"]
    assert kinds(program_of(lambda x, y: x * one, X, X)) == ["removed result"]
    assert kinds(program_of(lambda x, y: (x * one, x), X, X)) == ["result"]
    assert kinds(program_of(lambda x, y: (x * one, y), X, X[:2])) == ["type of input"]
    weak = program_of(lambda x, y: (x * one, y), X, 1.0)
    strong = program_of(lambda x, y: (x * one, y), X, jnp.float32(1))
    (difference,) = assert_consistent(weak, strong).differences
    assert "weak_type=True" in difference.old and "weak_type=False" in difference.new
    effect = program_of(lambda x, y: (x * one, jax.debug.print("{}", y), y)[::2], X, X)
    assert kinds(effect) == ["added"]


# ---- any two programs ----

OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a * 2.0,
    lambda a, b: a * 3.0,
    lambda a, b: jnp.sin(a),
    lambda a, b: lax.scan(lambda c, _: (c * b.sum(), None), a, None, length=2)[0],
    lambda a, b: jax.jit(lambda u, v: u - v)(a, b),
    lambda a, b: jnp.where(a > b, a, b),
]
choices = st.lists(
    st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 9), st.integers(0, 9)), max_size=8
)


def made_of(steps: list[tuple[int, int, int]]) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        values = [x]
        for operation, a, b in steps:
            values.append(OPERATIONS[operation](values[a % len(values)], values[b % len(values)]))
        return values[-1]

    return f


@settings(max_examples=15, deadline=None)
@given(choices, choices, st.integers(0, 8))
def test_random_programs(steps: Any, others: Any, place: int) -> None:
    one = program_of(made_of(steps), X)
    assert not assert_consistent(one, program_of(made_of(steps), X))
    assert_consistent(one, program_of(made_of(others), X))
    assert_consistent(one, program_of(made_of([*steps[:place], *others[:1], *steps[place:]]), X))


# ---- real programs ----


def gpt_step(rate: float = 1e-3, layers: int = 1, dtype: Any = jnp.float32) -> jaxide.Program:
    import optax

    params, loss, ids = gpt(layers, width=8, tokens=4)
    params = jax.tree.map(lambda p: p.astype(dtype), params)
    tx = optax.adamw(rate)

    def step(p: Any, s: Any, ids: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, ids)
        updates, s = tx.update(grads, s, p)
        return optax.apply_updates(p, updates), s, value

    return jaxide.trace(step)(params, tx.init(params), ids)


def test_workloads() -> None:
    plain = gpt_step()
    assert not plain.diff(gpt_step())
    # Another learning rate: one literal for each array of parameters.
    rate = assert_consistent(plain, gpt_step(rate=2e-3))
    assert {d.kind for d in rate.differences} == {"literal"}
    assert {(d.old, d.new) for d in rate.differences} == {("-0.001:f32[]", "-0.002:f32[]")}
    # Another layer: nothing is removed, and what is changed has what is new as an operand. A jit of
    # the optimizer's may be given all parameters.
    deeper = assert_consistent(plain, gpt_step(layers=2))
    assert all(program.removed == 0 for program in deeper.programs)
    assert {d.kind for d in deeper.differences if d.primitive != "jit"} <= {
        "added",
        "operand",
        "added input",
        "added result",
        "moved",
    }
    # Another dtype: equations are changed, not replaced.
    half = assert_consistent(plain, gpt_step(dtype=jnp.bfloat16))
    totals = [sum(getattr(p, k) for p in half.programs) for k in ("changed", "added", "removed")]
    assert totals[0] > 10 * totals[2]


def test_deep_programs() -> None:
    """Programs nested too deeply to be printed are compared, their equations put in words."""

    def deep(by: float) -> jaxide.Program:
        jaxpr = jax.make_jaxpr(lambda x: x * by)(X)
        outer = jax.make_jaxpr(lambda x: jax.jit(lambda v: v)(x))(X)
        (call,) = outer.eqns
        for _ in range(400):
            jaxpr = outer.replace(
                jaxpr=outer.jaxpr.replace(
                    eqns=[call.replace(params={**call.params, "jaxpr": jaxpr})]
                )
            )
        return jaxide.from_jaxpr(jaxpr)

    old, new = deep(2.0), deep(3.0)
    diff = old.diff(new)
    (difference,) = diff.differences
    assert difference.kind == "literal" and len(difference.path) == 400
    assert "more" in str(difference) and "more" in diff.programs[0].where
    (row,) = diff.changes
    assert row.new is not None and "a value f32[4], 3.0:f32[]" in row.new.text
    assert not old.diff(deep(2.0))


# ---- how it reads ----


def test_text() -> None:
    old = program_of(lambda x: jnp.sin(x) * 2.0, X)
    new = program_of(lambda x: jnp.sin(x) * 3.0, X)
    diff = old.diff(new)
    lines = str(diff).splitlines()
    assert lines[:3] == [
        "equations: 1 changed",
        "=== the program",
        "@@ equations 0 to 1 | 0 to 1 @@",
    ]
    assert [line[0] for line in lines[3:]] == [" ", "-", "+", "~"]
    assert lines[4].startswith("- c:f32[4] = mul b 2.0:f32[]  # ")
    assert os.path.basename(__file__) in lines[4]
    assert lines[6] == "~   literal 1: 2.0:f32[] -> 3.0:f32[]"
    assert repr(diff) == "<jaxide.Diff: equations: 1 changed>"
    assert str(old.diff(old)) == "no differences"
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200).print(diff)
    assert "\x1b[32m+ c:f32" in out.getvalue()


def of_width(width: int, activation: Callable[..., Any] = jnp.tanh) -> jaxide.Program:
    def model(x: Any, w: Any) -> Any:
        for layer in range(8):
            with jax.named_scope(f"layer_{layer}"):
                x = activation(x @ w)
        return x.sum()

    return program_of(jax.jit(jax.grad(model)), jnp.ones((2, width)), jnp.ones((width, width)))


def test_equations_that_differ_alike_are_there_once() -> None:
    diff = of_width(4).diff(of_width(6))
    lines, whole = str(diff).splitlines(), diff.pretty(repeats=True).splitlines()
    assert len(lines) < 70 < len(whole)
    assert whole[0] == lines[0] == diff.summary
    added = [line for line in lines if line.startswith("+ ")]
    assert 0 < len(added) < 20
    (said,) = {line for line in lines if line.startswith("... and ")}
    left_out = int(said.split()[2])
    counts = [int(line.split()[2]) for line in lines if "equations alike: " in line]
    assert left_out == sum(counts)
    assert left_out + len(added) == len(diff.changes)
    assert len([line for line in whole if line.startswith("+ ")]) == len(diff.changes)


def test_differences_by_scope() -> None:
    diff = of_width(4).diff(of_width(6))
    scopes = {scope.scope: scope for scope in diff.by_scope}
    assert {f"layer_{layer}" for layer in range(8)} <= set(scopes)
    assert sum(scope.count for scope in scopes.values()) == len(diff.changes)
    assert scopes["layer_3"].changed == scopes["layer_3"].count > 1
    most = diff.repeated[0]
    assert (most.what, most.old, most.new) == ("type of output", "f32[2,4]", "f32[2,6]")
    assert most.count == sum(
        (each.kind, each.old, each.new) == ("type of output", most.old, most.new)
        for each in diff.differences
    )
    stat = diff.stat()
    assert str(stat).startswith(diff.summary) and "layer_3" in str(stat)
    assert "type of output: f32[2,4] -> f32[2,6]" in str(stat)
    assert "layer_3" in stat._repr_html_()
    assert str(of_width(4).diff(of_width(4)).stat()).strip() == "no differences"


def test_an_operation_is_not_taken_for_a_call() -> None:
    diff = of_width(4, jax.nn.gelu).diff(of_width(4, jax.nn.relu))
    for row in diff.changes:
        if row.kind == "changed":
            assert not any(each.kind == "primitive" for each in row.differences)
    scopes = {scope.scope: scope for scope in diff.by_scope}
    assert scopes["layer_3"].added and scopes["layer_3"].removed
    # Of each layer the same was removed.
    assert len(str(diff).splitlines()) < 120


def test_equations_that_take_other_operands_are_not_alike() -> None:
    """In all blocks but one the last operation takes the one before instead of the first."""

    def blocks(is_new: bool) -> jaxide.Program:
        def model(x: Any) -> Any:
            firsts, results = [], []
            for block in range(6):
                firsts.append(jnp.sin(x * (block + 2)))
                last = jnp.sin(x + (block + 2))
                operand = last if block < 5 else firsts[0]
                results.append(jnp.tanh(operand if is_new else firsts[-1]))
            return results

        return program_of(model, X)

    diff = blocks(False).diff(blocks(True))
    lines = str(diff).splitlines()
    assert sum(line.startswith("+ ") and " tanh " in line for line in lines) == 2
    assert "  ... and 4 equations alike: 4 tanh" in lines


def test_primitives_of_equations_that_differ_alike_are_named() -> None:
    def model(x: Any) -> Any:
        for fun in (jnp.sin, jnp.exp, jnp.tanh, jnp.exp, jnp.sin, jnp.cos):
            x = fun(x)
        return x

    lines = str(program_of(model, jnp.ones(3)).diff(program_of(model, jnp.ones(4)))).splitlines()
    (said,) = {line for line in lines if line.startswith("  ... and 5 equations alike: 2 exp, ")}
    assert set(said.partition("alike: ")[2].split(", ")) == {"2 exp", "1 tanh", "1 sin", "1 cos"}


def test_programs_that_differ_as_others_are_named() -> None:
    def scans(number: float) -> jaxide.Program:
        def model(x: Any) -> Any:
            for _ in range(6):
                x = jax.lax.scan(lambda c, _: (c * number, None), x, None, length=2)[0]
            return x

        return program_of(model, X)

    lines = str(scans(2.0).diff(scans(3.0))).splitlines()
    assert sum(line.startswith("=== within scan") for line in lines) == 6
    assert sum(line == "  ... differs as those above" for line in lines) == 5


def test_equations_that_moved_are_all_there() -> None:
    def moving(late: bool) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> Any:
            own = [jnp.sin(x * k) for k in range(8)] if not late else []
            other = [jnp.cos(y * k) for k in range(8)]
            own = own or [jnp.sin(x * k) for k in range(8)]
            return own, other

        return run

    old, new = (program_of(moving(late), X, X + 1) for late in (False, True))
    lines = str(old.diff(new)).splitlines()
    places = [sum(where in line for line in lines) for where in ("moved to", "moved from")]
    assert places[0] == places[1] > 0


def test_a_change_of_one_kind_in_few_places_is_whole() -> None:
    old = program_of(lambda x: jnp.sin(x) * 2.0 * 2.0, X)
    new = program_of(lambda x: jnp.sin(x) * 3.0 * 3.0, X)
    assert str(old.diff(new)) == old.diff(new).pretty(repeats=True)


def test_context() -> None:
    def f(by: float) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            for _ in range(10):
                x = jnp.sin(x)
            x = x * by
            for _ in range(10):
                x = jnp.cos(x)
            return x

        return run

    old, new = program_of(f(2.0), X), program_of(f(3.0), X)
    rows = lambda context: [
        len(h) for p in old.diff(new, context=context).programs for h in p.hunks
    ]
    assert [rows(0), rows(2), rows(10**30)] == [[1], [5], [21]]
    assert len(old.diff(new).programs[0].hunks[0]) == 7


def test_long_values_are_shortened() -> None:
    def f(word: str) -> Callable[..., Any]:
        return lambda x: jax.debug.print(word * 100 + " {}", x)

    diff = program_of(f("one"), X).diff(program_of(f("two"), X))
    assert "more characters" in str(diff)
    assert max(map(len, str(diff).splitlines())) < 1000


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html() -> None:
    def f(word: str) -> Callable[..., Any]:
        return lambda x: (jax.debug.print(f"<script>{word}&</script> {{}}", x), x * 2)[1]

    diff = program_of(f("one"), X).diff(program_of(f("two"), X))
    page = diff.html()
    parsed = Tags()
    parsed.feed(page)
    assert page.startswith("<!DOCTYPE html>") and "script" not in parsed.tags
    assert "<script>two&</script>" in parsed.text
    assert "http" not in page
    for equation in (diff.changes[0].old, diff.changes[0].new):
        assert equation is not None and equation.line in parsed.text


@pytest.mark.parametrize(
    ("other", "options", "error", "message"),
    [
        (3, {}, TypeError, "other must be a jaxide.Program, got int"),
        (None, {}, TypeError, "other must be a jaxide.Program, got NoneType"),
        ("self", {"context": -1}, ValueError, "context must not be negative, got -1"),
        ("self", {"context": 1.5}, TypeError, "context must be an int, got float"),
        ("self", {"context": True}, TypeError, "context must be an int, got bool"),
    ],
)
def test_wrong_arguments(other: Any, options: Any, error: type[Exception], message: str) -> None:
    program = program_of(jnp.sin, X)
    with pytest.raises(error, match=message):
        program.diff(program if other == "self" else other, **options)


# ---- rows that are made when they are looked at ----


def chain(x: Any) -> Any:
    for step in range(600):
        x = jnp.sin(x) * float(step)
    return x


def test_rows_are_sequences() -> None:
    old, new = program_of(chain, X[0]), program_of(chain, X[0].astype(jnp.bfloat16))
    diff = old.diff(new)
    (hunk,) = diff.programs[0].hunks
    rows = tuple(hunk)
    assert len(hunk) == len(rows) == 1200 == diff.programs[0].changed
    assert hunk == rows and hash(hunk) == hash(rows) and pickle.loads(pickle.dumps(hunk)) == rows
    assert hunk[-1] == rows[-1] == hunk[1199] and hunk[500:520:7] == rows[500:520:7]
    assert [row.new.path for row in rows if row.new] == [(at,) for at in range(1200)]
    for wrong in (1200, -1201):
        with pytest.raises(IndexError):
            hunk[wrong]


def test_rows_outlive_the_programs() -> None:
    def step(shift: float) -> jaxide.Program:
        run = lambda c, y: (jnp.sin(c) + y * shift, c)
        return program_of(lambda x: lax.scan(run, x.sum(), x), X)

    expected = str(step(1.0).diff(step(2.0)))
    diff = step(1.0).diff(step(2.0))
    gc.collect()
    assert diff.changes and str(diff) == expected


def test_a_text_that_fails_is_not_kept() -> None:
    class Moody:
        fails = True

        def __repr__(self) -> str:
            if self.fails:
                raise ValueError("not now")
            return "Moody"

    moody = Moody()
    mood_p = jax.extend.core.Primitive("mood")
    mood_p.def_abstract_eval(lambda x, **_: x)
    old = program_of(lambda x: mood_p.bind(x, mood=moody), X)
    new = program_of(lambda x: jnp.sin(mood_p.bind(x, mood=moody)), X)
    diff = old.diff(new)
    with pytest.raises(ValueError, match="not now"):
        str(diff)
    Moody.fails = False
    assert "mood[mood=Moody]" in str(diff)
