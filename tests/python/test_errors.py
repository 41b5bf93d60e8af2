"""What jax raises, jaxide raises, and afterwards nothing is left behind."""

import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import config, core, source_info_util

import jaxide
from errors import BAD_USES, BadUse

HERE = str(Path(__file__).parent)
# Addresses in hexadecimal, and in decimal where a leak check prints `id(object)`.
ADDRESS = re.compile(r"0x[0-9a-f]+|\b\d{12,}\b")


@dataclass
class Raised:
    """All that a user can tell about an exception."""

    type: type[BaseException]
    text: str
    notes: list[str]
    frames: list[tuple[str, int]]
    suppress_context: bool
    cause: "Raised | None"
    context: "Raised | None"


def leaks(text: str) -> str:
    """The report of a leak check: the tracers that the user's objects hold, and what holds them.

    Further down, the chains of referrers tell how `make_jaxpr` and the trace are built, and
    which tracers only their equations keep.
    """
    headline, *tracers = text.strip().split("\n\n")
    tracers = [tracer for tracer in tracers if "TracingEqn" not in tracer]
    referrer = re.compile(r"^(<.*> is referred to by .*)\n(?:<.*> is referred to by .*\n?)*", re.M)
    return "\n\n".join([headline, *sorted(referrer.sub(r"\1", tracer) for tracer in tracers)])


def text_of(error: BaseException) -> str:
    text = ADDRESS.sub("0x", str(error))
    return leaks(text) if text.startswith("Leaked ") else text


def describe(error: BaseException | None) -> Raised | None:
    if error is None:
        return None
    return Raised(
        type=type(error),
        text=text_of(error),
        notes=list(getattr(error, "__notes__", ())),
        frames=[
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.startswith(HERE) and frame.filename != __file__
        ],
        suppress_context=error.__suppress_context__,
        cause=describe(error.__cause__),
        context=describe(error.__context__),
    )


def outcome(use: BadUse, make_jaxpr: Callable, *, cold: bool = True) -> Raised | None:
    if cold:
        jax.clear_caches()
    try:
        use(make_jaxpr)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are among the bad uses
        return describe(error)
    return None


def surroundings() -> tuple:
    """The state of this thread that a trace changes and has to restore."""
    return (
        core.trace_state_clean(),
        core.trace_ctx.trace,
        dict(core.trace_ctx.axis_env.axis_sizes),
        str(source_info_util.current_name_stack()),
        config.trace_context(),
    )


def good_program() -> tuple[Callable, tuple]:
    captured = jnp.arange(3.0)

    def f(params, x):
        hidden = jnp.tanh(x @ params["w"] + captured)
        total, _ = jax.lax.scan(lambda c, h: (c + jnp.sum(h), None), 0.0, hidden)
        return jax.lax.cond(total > 0, jnp.sin, jax.jit(jnp.cos), total)

    return jax.value_and_grad(f), ({"w": np.ones((4, 3), np.float32)}, np.ones((2, 4), np.float32))


def good_text(make_jaxpr: Callable) -> str:
    function, args = good_program()
    return str(make_jaxpr(function)(*args))


@pytest.fixture(scope="module")
def good_reference() -> Iterator[str]:
    yield good_text(jax.make_jaxpr)


def cases(without: str = "nothing") -> list:
    uses = BAD_USES.items()
    return [pytest.param(use, id=name) for name, use in uses if not name.startswith(without)]


def topic(name: str) -> list[str]:
    """The module that a bad use is in."""
    return [BAD_USES[name].__module__]


each_topic = pytest.mark.covering(kinds=topic)


def assert_raises_as_stock(use: BadUse, good_reference: str) -> Raised:
    """Fails unless jaxide raises what stock raises, and leaves nothing behind; what was raised."""
    before = surroundings()
    expected = outcome(use, jax.make_jaxpr)
    assert expected is not None, "jax allows this use"
    assert outcome(use, jaxide.make_jaxpr) == expected
    assert surroundings() == before
    assert good_text(jaxide.make_jaxpr) == good_reference
    assert good_text(jax.make_jaxpr) == good_reference
    return expected


@pytest.mark.covering(kinds=topic, times=2, each_value=False)
@pytest.mark.parametrize("use", cases())
def test_raises_as_stock(use: BadUse, good_reference: str) -> None:
    expected = assert_raises_as_stock(use, good_reference)
    assert outcome(use, jax.make_jaxpr) == expected


@each_topic
@pytest.mark.parametrize("use", cases(without="leak_check"))
def test_raises_again(use: BadUse) -> None:
    """When the calls before the error are replayed, the error is still the same.

    While jax checks for leaks, which takes long, nothing is replayed.
    """

    def outcomes(make_jaxpr: Callable) -> list[Raised | None]:
        jax.clear_caches()
        return [outcome(use, make_jaxpr, cold=False) for _ in range(3)]

    assert outcomes(jaxide.make_jaxpr) == outcomes(jax.make_jaxpr)


@each_topic
@pytest.mark.parametrize("use", cases())
def test_caught_inside_a_trace(use: BadUse) -> None:
    """The enclosing trace goes on as if nothing had happened.

    Some uses are no error here: the results of a leaked tracer become constants, for example.
    """

    def trace(make_jaxpr: Callable) -> tuple[str, list[Raised | None]]:
        raised = []

        def f(x):
            y = jnp.sin(x)
            raised.append(outcome(use, make_jaxpr))
            return y * 2 + jnp.cos(x)

        return str(make_jaxpr(f)(1.0)), raised

    expected = trace(jax.make_jaxpr)
    assert trace(jaxide.make_jaxpr) == expected


def test_there_are_enough_bad_uses() -> None:
    assert len(BAD_USES) >= 300


def test_comparison_sees_a_difference() -> None:
    """A changed type, text, cause, note or line must not pass as equal."""

    def raised(error: Exception, cause: Exception | None = None, note: str = "") -> Raised:
        if note:
            error.add_note(note)
        try:
            raise error from cause
        except Exception as caught:
            return describe(caught)

    reference = raised(ValueError("text"))
    assert reference == raised(ValueError("text"))
    assert reference != raised(TypeError("text"))
    assert reference != raised(ValueError("other text"))
    assert reference != raised(ValueError("text"), KeyError("cause"))
    assert reference != raised(ValueError("text"), note="note")
    assert raised(ValueError("at 0x7f01")) == raised(ValueError("at 0x7f02"))


def test_leak_report_names_the_leaked_tracer() -> None:
    """What is compared of a leak check still tells which tracer leaked, and through what."""
    report = outcome(BAD_USES["leak_check_of_an_attribute"], jaxide.make_jaxpr).text
    assert report.startswith("Leaked trace DynamicJaxprTrace. Leaked tracer(s):")
    assert "JitTracer(~float32[])" in report
    assert "function f at" in report
    assert report.endswith("<DynamicJaxprTracer 0x> is referred to by <Layer 0x>.activation")
