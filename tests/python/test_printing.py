"""Jaxprs as Rust prints them, against jax's own text; see also `test_corpus.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from jax._src import core
from jax.extend.core import Primitive

import jaxide
from alone import run_alone
from jaxide._compat.printing import printing


def test_text_needs_no_equations() -> None:
    jaxpr = jaxide.make_jaxpr(lambda x: jnp.sin(x) + 1.0)(1.0)
    text = "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = add b 1.0:f32[] in (c,) }"
    assert str(jaxpr) == repr(jaxpr) == jaxpr.pretty_print() == text
    assert jaxpr.jaxpr.pretty_print(print_shapes=False) == (
        "{ lambda ; a. let b = sin a; c = add b 1.0:f32[] in (c,) }"
    )
    # A jaxpr that has been read is exactly of jax's class.
    assert type(jaxpr.jaxpr) is not core.Jaxpr


def test_a_function_for_printing_that_somebody_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = jaxide.make_jaxpr(lambda x: jnp.sin(x) + 1.0)(1.0)
    monkeypatch.setattr(core, "pp_toplevel_jaxpr", lambda *_, **__: core.pp.text("mine"))
    assert str(jaxpr) == "mine"


def test_what_is_printed_first_while_jax_is_changed() -> None:
    """That says nothing of what jax prints later."""
    run_alone("""
        from unittest import mock
        import jax, jax.numpy as jnp, jaxide
        from jax._src import core
        from jaxide._compat.printing import printing

        jaxpr = jaxide.make_jaxpr(jnp.sin)(1.0)
        with mock.patch.object(core, "pp_toplevel_jaxpr", lambda *_, **__: core.pp.text("mine")):
            assert str(jaxpr) == "mine"
        assert printing().text(jaxpr) == str(jax.make_jaxpr(jnp.sin)(1.0))
    """)


def test_unknown_setting() -> None:
    jaxpr = jaxide.make_jaxpr(jnp.sin)(1.0)
    with pytest.raises(TypeError) as ours:
        jaxpr.pretty_print(colour=True)
    with pytest.raises(TypeError) as stock:
        jax.make_jaxpr(jnp.sin)(1.0).pretty_print(colour=True)
    assert str(ours.value) == str(stock.value)


def test_settings_of_jax_that_are_left_to_jax() -> None:
    """Where parts of the text come from, and HTML."""
    ours, stock = (make(jnp.sin)(1.0) for make in (jaxide.make_jaxpr, jax.make_jaxpr))
    expected: list[Any] = []
    made: list[Any] = []
    assert ours.pretty_print(source_map=made) == stock.pretty_print(source_map=expected)
    assert [len(line) for line in made] == [len(line) for line in expected]


# ---- rules ------------------------------------------------------------------------------------


def jaxpr_with(primitive: Primitive) -> Any:
    primitive.def_abstract_eval(lambda x, **_: x)
    return jax.make_jaxpr(lambda x: primitive.bind(x, first=1, second=(2.0, "two")))(1.0)


SHOWN = "first"


def shown(eqn: Any, context: Any, settings: Any, *, names: Any = (), **_: Any) -> Any:
    return core._pp_eqn(eqn, context, settings, params=[*names, SHOWN])


def test_rules_of_the_users_are_left_to_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may read anything, which may change between two texts."""
    primitive = Primitive("mine")
    monkeypatch.setitem(core.pp_eqn_rules, primitive, shown)
    jaxpr = jaxpr_with(primitive)
    program = jaxide.from_jaxpr(jaxpr)
    assert str(program) == str(jaxpr)
    assert "mine[first=1]" in str(jaxpr)
    monkeypatch.setitem(globals(), "SHOWN", "second")
    assert str(program) == str(jaxpr)
    assert "mine[second=(2.0, 'two')]" in str(jaxpr)
    monkeypatch.setattr(shown, "__kwdefaults__", {"names": ("first",)})
    assert str(program) == str(jaxpr)
    assert printing().text(jaxpr) is None
    plain = {"custom_pp_eqn_rules": False}
    assert printing().text(jaxpr, **plain) == jaxpr.pretty_print(**plain)


def test_documents_that_somebody_formats_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax has a class of jaxlib's in the place of its own."""
    jaxpr = jaxide.make_jaxpr(jnp.sin)(1.0)
    expected = str(jax.make_jaxpr(jnp.sin)(1.0))
    assert str(jaxide.make_jaxpr(jnp.sin)(1.0)) == expected
    with monkeypatch.context() as patch:
        patch.setattr(core.pp.Doc, "format", lambda *_, **__: "mine")
        assert str(jaxpr) == "mine"
    assert printing().text(jaxpr) == expected


@pytest.mark.parametrize("looks_at", ["invars", "outvars", "source_info"])
def test_rule_that_looks_at_more(monkeypatch: pytest.MonkeyPatch, looks_at: str) -> None:
    primitive = Primitive("mine")

    def rule(eqn: Any, context: Any, settings: Any) -> Any:
        return core.pp.text(type(getattr(eqn, looks_at)).__name__)

    monkeypatch.setitem(core.pp_eqn_rules, primitive, rule)
    jaxpr = jaxpr_with(primitive)
    assert printing().text(jaxpr) is None
    program = jaxide.from_jaxpr(jaxpr)
    assert str(program) == program.pretty() == str(jaxpr)
    with pytest.raises(NotImplementedError, match="sees more than its params"):
        program.pretty(max_eqns=1)


# ---- limits -----------------------------------------------------------------------------------


def nested(x: Array) -> Array:
    inner = jax.jit(lambda y: jnp.sin(y) * 2.0)

    def body(carry: Array, _: None) -> tuple[Array, None]:
        return inner(carry) + 1.0, None

    return jax.lax.scan(body, x, length=3)[0] - inner(x)


PROGRAM = jaxide.trace(nested)(jnp.ones(3))


def test_no_limits() -> None:
    assert PROGRAM.pretty() == str(PROGRAM) == str(PROGRAM.jaxpr)
    assert PROGRAM.pretty(width=40) == PROGRAM.jaxpr.pretty_print(width=40)


def test_depth() -> None:
    text = PROGRAM.pretty(max_depth=0)
    assert "jaxpr={ ... 2 equations ... }" in text
    assert "sin" not in text
    assert PROGRAM.pretty(max_depth=1).count("sin") == str(PROGRAM).count("sin")
    assert PROGRAM.pretty(max_depth=9) == str(PROGRAM)


def test_number_of_equations() -> None:
    def chain(x: Array) -> Array:
        for i in range(10):
            x = x + float(i)
        return x

    program = jaxide.trace(chain)(1.0)
    lines = str(program).splitlines()
    shown = program.pretty(max_eqns=3).splitlines()
    assert shown == [*lines[:3], "    ... 7 equations ...", *lines[10:]]
    assert program.pretty(max_eqns=10) == str(program)
    nothing = program.pretty(max_eqns=0)
    assert nothing == "{ lambda ; a:f32[]. let ... 10 equations ... in (k,) }"


def test_collapsed() -> None:
    text = PROGRAM.pretty(collapse=["scan"])
    assert "jaxpr={ ... 2 equations ... }" in text
    assert PROGRAM.pretty(collapse=["mul"]) == str(PROGRAM)


@pytest.mark.parametrize("limit", ["max_depth", "max_eqns"])
def test_negative_limit(limit: str) -> None:
    with pytest.raises(ValueError, match=f"{limit} must not be negative, got -1"):
        PROGRAM.pretty(**{limit: -1})


def test_deeply_nested_programs() -> None:
    """Left to jax, which refuses them or not."""

    jaxpr = jax.make_jaxpr(lambda x: x + 1.0)(1.0)
    for depth in range(310):
        if depth in (30, 60):
            assert printing().text(jaxpr) == str(jaxpr)
        jaxpr = jax.make_jaxpr(jax.jit(core.jaxpr_as_fun(jaxpr)))(1.0)
    assert printing().text(jaxpr) is None
