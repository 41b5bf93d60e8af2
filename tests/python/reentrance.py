"""Whoever comes in between: profilers, the collector, finalizers, signal handlers and other threads
use jaxide at every moment at which Python code can run.

    python reentrance.py SCENARIO SECONDS SEED

Ends with status 0 where all results were stock jax's, nothing died and nothing hung.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core

import jaxide
from alarms import end_alarms

X = jnp.ones(3)


def chain(x: Any) -> Any:
    for i in range(4):
        x = jnp.sin(x) * i + x.sum()
    return x


def loops(x: Any) -> Any:
    inner = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.cos(c), x))
    return lax.cond(x[0] > 0, inner, lambda x: x * 2.0, x) + inner(x)


def differentiated(x: Any) -> Any:
    return jax.grad(lambda y: (jnp.tanh(y) * jax.nn.relu(y)).sum())(x)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, y: (c + jnp.exp(y), c), x.sum(), x)


def batched(x: Any) -> Any:
    return jax.vmap(lambda y: jnp.where(y > 0, y, lax.stop_gradient(y)) ** 2)(x)


def captured(x: Any) -> Any:
    weights = np.arange(3.0, dtype=np.float32)
    return jnp.dot(x, weights) + jnp.zeros(3).at[0].set(1.0)


def leaking(x: Any) -> Any:
    """Others look at its tracers while it is traced."""
    y = jnp.sin(x)
    TRACERS[:] = [x, y]
    Dying().cycle = TRACERS[-1]
    z = y * 2 + x
    return z + jnp.cos(y).sum()


PROGRAMS: tuple[Callable[..., Any], ...] = (
    chain, loops, differentiated, scanned, batched, captured, leaking
)  # fmt: skip
TEXTS: dict[Callable[..., Any], str] = {}
HASHES: dict[Callable[..., Any], Any] = {}
TRACERS: list[Any] = []
# Programs that somebody has traced and that others look at.
POOL: list[tuple[Callable[..., Any], Any, str]] = []
FAILED: list[str] = []
COUNTS: dict[str, int] = {}
RANDOM = random.Random(0)


def fresh(program: Callable[..., Any]) -> Callable[..., Any]:
    """A function that jax has not traced."""
    return types.FunctionType(program.__code__, program.__globals__, program.__name__)


def check(program: Callable[..., Any], what: str, got: Any, want: Any) -> None:
    if any(isinstance(text, str) and ("(...)" in text or "...:" in text) for text in (got, want)):
        # Whoever comes in while Python writes a tree, or numpy a number, gets dots for it, from
        # stock jax too. From numpy (`_recursive_guard`) also who comes after an exception.
        return
    if got != want:
        FAILED.append(f"{what} of {program.__name__}:\n{got}\nstock:\n{want}")


def keep(program: Callable[..., Any], made: Any) -> None:
    POOL.append((program, made, str(made)))
    del POOL[:-8]


def check_text(program: Callable[..., Any], what: str, made: Any) -> None:
    if program is loops:
        # Whether programs within are one and the same depends on when somebody clears jax's caches.
        check(program, f"hash instead of {what}", jaxide.structural_hash(made), HASHES[program])
    else:
        check(program, what, str(made), TEXTS[program])


def trace() -> None:
    program = choose()
    made = jaxide.make_jaxpr(fresh(program))(X)
    keep(program, made)
    check_text(program, "text", made)


def trace_by_jit() -> None:
    program = choose()
    made = jax.jit(fresh(program)).trace(X).jaxpr
    check_text(program, "text of the jit", made)


def look(use: Callable[[Callable[..., Any], Any], None]) -> Callable[[], None]:
    def act() -> None:
        if known := list(POOL):
            program, made, text = RANDOM.choice(known)
            use(program, made)
            check(program, "text", str(made), text)

    act.__name__ = use.__name__
    return act


@look
def show(program: Callable[..., Any], made: Any) -> None:
    str(made)


@look
def show_with_sources(program: Callable[..., Any], made: Any) -> None:
    made.pretty_print(source_info=True, name_stack=True)


@look
def hash_it(program: Callable[..., Any], made: Any) -> None:
    check(program, "hash", jaxide.structural_hash(made), HASHES[program])


@look
def read(program: Callable[..., Any], made: Any) -> None:
    eqns, defined = made.eqns, set(map(id, [*made.jaxpr.invars, *made.jaxpr.constvars]))
    for eqn in eqns:
        for atom in eqn.invars:
            if not hasattr(atom, "val") and id(atom) not in defined:
                FAILED.append(f"a variable of {program.__name__} that nothing defines")
        defined.update(map(id, eqn.outvars))
    if made.eqns is not eqns:
        FAILED.append("two lists of equations")


@look
def compare(program: Callable[..., Any], made: Any) -> None:
    one, other = jaxide.from_jaxpr(made), jaxide.from_jaxpr(jax.make_jaxpr(fresh(program))(X))
    if one != other or one.diff(other):
        FAILED.append(f"{program.__name__} differs:\n{one.diff(other)}\n{one == other}")


@look
def evaluate(program: Callable[..., Any], made: Any) -> None:
    # Otherwise it becomes part of the trace that is under way, as with stock jax.
    with core.set_current_trace(core.eval_trace):
        jax.core.eval_jaxpr(made.jaxpr, made.consts, X)


def look_at_tracers() -> None:
    for tracer in list(TRACERS):
        repr(tracer), tracer.aval, tracer.shape
        frame = getattr(tracer._trace, "frame", None)
        if frame is not None and hasattr(frame, "get_eqns"):
            frame.get_eqns(), frame.debug_info
        getattr(tracer, "parent", None), getattr(tracer, "_line_info", None)


def install() -> None:
    jaxide.install()


def uninstall() -> None:
    jaxide.uninstall()


def clear() -> None:
    RANDOM.choice((jaxide.clear_caches, jax.clear_caches))()


def info() -> None:
    jaxide.cache_info(), jaxide.retraces()


ACTIONS: tuple[Callable[[], None], ...] = (
    trace, trace, trace_by_jit, show, show, show_with_sources, hash_it, hash_it, read, compare,
    evaluate, look_at_tracers, install, uninstall, clear, info,
)  # fmt: skip


# What is done, and traced, by those who come in between.
BETWEEN: list[Any] = [ACTIONS, PROGRAMS]


class Busy(threading.local):
    within = 0


BUSY = Busy()


# Whether a signal handler may raise.
ARMED: list[bool] = []


class Interrupted(BaseException):
    """Raised by a signal handler, at any moment."""


def come_in_between(probability: float) -> None:
    """Does something, as a profiler or a finalizer might; not within itself."""
    if BUSY.within or RANDOM.random() > probability or holds_a_lock():
        return
    BUSY.within = 1
    try:
        act(BETWEEN[0])
    finally:
        BUSY.within = 0


def holds_a_lock() -> bool:
    """Whether this thread is within a lock, so that who comes in waits for ever, with stock jax
    0.10.2 and 0.12.0 alone: jaxlib's, held while a jit is made and ``__hash__`` of its settings is
    called; and the one of ``functools.cached_property`` (Python 3.11), for which another thread
    waits in the middle of compiling, where what it compiles is executed within the property."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_cpp_pjit" or code is CACHED_PROPERTY:
            return True
        frame = frame.f_back
    return False


CACHED_PROPERTY = functools.cached_property.__get__.__code__


def choose() -> Callable[..., Any]:
    return RANDOM.choice(BETWEEN[1] if BUSY.within else PROGRAMS)


def act(actions: tuple[Callable[[], None], ...] = ACTIONS) -> None:
    action = RANDOM.choice(actions)
    COUNTS[action.__name__] = COUNTS.get(action.__name__, 0) + 1
    try:
        action()
    except Interrupted:
        raise
    except BaseException as error:
        if is_of_jax(error):
            return
        FAILED.append(f"{action.__name__}: {''.join(traceback.format_exception(error))[-6000:]}")


def is_of_jax(error: BaseException) -> bool:
    """What stock jax raises too where somebody comes in between."""
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return True  # somebody looked at a tracer whose trace is over
    if isinstance(error, RecursionError):
        # jax's caches refuse a call within a call of the same function on the same arguments.
        return str(error).startswith("Recursively calling")
    if isinstance(error, ValueError) and "Interrupted" in str(error):
        # A cache of jaxlib makes its own error of whatever is raised in a comparison of keys.
        return str(error).startswith("Cache keys should be comparable")
    # jax goes through its caches while another thread makes one.
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, RuntimeError) and "clear_all_caches" in names


class Dying:
    """An object whose death is noticed by the collector."""

    def __init__(self) -> None:
        self.itself = self
        self.cycle: Any = None

    def __del__(self) -> None:
        come_in_between(0.3)


def learn() -> None:
    """What stock jax makes of the programs."""
    for program in PROGRAMS:
        TEXTS[program] = str(jax.make_jaxpr(fresh(program))(X))
        HASHES[program] = jaxide.structural_hash(jax.make_jaxpr(fresh(program))(X))
        keep(program, jaxide.make_jaxpr(fresh(program))(X))


def keep_codes() -> None:
    """Keeps the code of all functions for good.

    jaxlib takes a traceback into a buffer of the thread, and a finalizer that takes one meanwhile
    writes to it too: the codes of frames are counted wrongly then (stock jax 0.10.2, Python 3.11).
    """
    functions = (f for f in gc.get_objects() if isinstance(f, types.FunctionType))
    codes: list[Any] = [f.__code__ for f in functions]
    seen: set[int] = set()
    while codes:
        code = codes.pop()
        if id(code) not in seen:
            seen.add(id(code))
            ctypes.c_ssize_t.from_address(id(code)).value += 1 << 30
            codes.extend(c for c in code.co_consts if isinstance(c, types.CodeType))


def until(seconds: float) -> Iterator[int]:
    end = time.monotonic() + seconds
    for count in itertools.count():
        if time.monotonic() > end or FAILED:
            return
        yield count


def profiled(seconds: float) -> None:
    """A profiler and a debugger, which are called at each call and at each line."""

    def profile(*_: Any) -> None:
        come_in_between(0.002)

    def debug(frame: Any, event: str, _: Any) -> Any:
        come_in_between(0.0005)
        frame.f_trace_opcodes = event == "call"
        return debug

    for count in until(seconds):
        sys.setprofile(profile)
        sys.settrace(debug if count % 4 == 0 else None)
        try:
            act()
        finally:
            sys.settrace(None)
            sys.setprofile(None)


def collected(seconds: float) -> None:
    """A collector that runs at every allocation, and finalizers."""

    def callback(phase: str, _: Any) -> None:
        if phase == "stop":
            come_in_between(0.002)

    # jaxlib holds a lock while it makes a jit: nobody who makes one may come in between.
    within = tuple(a for a in ACTIONS if a not in (trace_by_jit, compare, evaluate, clear))
    BETWEEN[:] = [within, tuple(p for p in PROGRAMS if p is not loops)]
    gc.collect()
    gc.freeze()
    gc.callbacks.append(callback)
    gc.set_threshold(1, 1000, 1000)
    try:
        for _ in until(seconds):
            Dying().cycle = Dying()
            act()
    finally:
        gc.set_threshold(700, 10, 10)
        gc.callbacks.remove(callback)
        gc.unfreeze()


def interrupted(seconds: float, raises: bool = False) -> None:
    """Signal handlers at random moments, but for those at which the collector runs: jaxlib may be
    taking a traceback then, which none of its own must interrupt (see `keep_codes`)."""
    collecting: list[bool] = []
    # Before and after the collector's callbacks of jax, in which signals arrive.
    gc.callbacks.insert(0, lambda phase, _: collecting.append(True))
    gc.callbacks.append(lambda phase, _: phase == "stop" and collecting.clear())

    def handler(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, RANDOM.expovariate(1 / 0.004) + 1e-5)
        if collecting:
            return
        COUNTS["interrupts"] = COUNTS.get("interrupts", 0) + 1
        if raises and ARMED and not BUSY.within and RANDOM.random() < 0.5:
            raise Interrupted
        come_in_between(0.5)

    signal.signal(signal.SIGALRM, handler)
    for _ in until(seconds):
        signal.setitimer(signal.ITIMER_REAL, RANDOM.expovariate(1 / 0.01) + 1e-5)
        try:
            ARMED.append(True)
            act()
            ARMED.clear()
        except Interrupted:
            ARMED.clear()
            forget_what_jax_left()
    end_alarms()


def interrupted_for_good(seconds: float) -> None:
    """Signal handlers that raise."""
    interrupted(seconds, raises=True)


def copied(made: Any) -> Any:
    """A program that nobody has read."""
    if hasattr(core, "ClosedJaxpr"):  # until jax 0.11
        return made.replace(jaxpr=made.jaxpr.replace())
    return made.replace()


def interrupted_reading(seconds: float) -> None:
    """Signal handlers that raise, at short intervals, while programs of jax's are read anew."""
    programs = [(p, jax.make_jaxpr(fresh(p))(X)) for p in PROGRAMS]
    texts = {p: str(jaxide.from_jaxpr(made)) for p, made in programs}
    other = jaxide.from_jaxpr(programs[-1][1])
    differences = {p: str(jaxide.from_jaxpr(made).diff(other)) for p, made in programs}

    def handler(*_: Any) -> None:
        if ARMED:
            COUNTS["interrupts"] = COUNTS.get("interrupts", 0) + 1
            raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    for _ in until(seconds):
        program, made = RANDOM.choice(programs)
        number, text, difference = HASHES[program], texts[program], differences[program]
        signal.setitimer(signal.ITIMER_REAL, RANDOM.expovariate(1 / 0.0004) + 1e-5)
        try:
            ARMED.append(True)
            copy = copied(made)
            number = jaxide.structural_hash(copy)
            read = jaxide.from_jaxpr(copy)
            text = str(read)
            difference = str(read.diff(other))
        except Interrupted:
            pass
        ARMED.clear()
        check(program, "hash", number, HASHES[program])
        check(program, "text", text, texts[program])
        check(program, "differences", difference, differences[program])
    end_alarms()


def codes_of_jax() -> list[tuple[str, Any, Any]]:
    """The functions of jax, with their own code."""
    from jax._src import pjit
    from jax._src.interpreters import partial_eval

    found = []
    for module in (jnp, lax, core, core.Primitive, pjit, partial_eval, jax.nn):
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                found.append((name, value, value.__code__))
    return found


def forget_what_jax_left() -> None:
    """jax's contexts are Python: an exception between their bytecodes leaves them as they are."""
    from jax._src import source_info_util

    core.trace_ctx.set_trace(core.eval_trace)
    source_info_util._source_info_context.context = source_info_util.new_source_info()
    TRACERS.clear()


def threaded(seconds: float) -> None:
    """Sixteen threads."""
    sys.setswitchinterval(1e-6)

    def run() -> None:
        for _ in until(seconds):
            act()

    threads = [threading.Thread(target=run) for _ in range(16)]
    threading.excepthook = lambda args: FAILED.append(f"a thread died: {args.exc_value!r}")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


SCENARIOS = {
    f.__name__: f
    for f in (profiled, collected, interrupted, interrupted_for_good, interrupted_reading, threaded)
}


def main(scenario: str, seconds: float, seed: int) -> int:
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + 240, exit=True)
    RANDOM.seed(seed)
    codes = codes_of_jax()
    learn()
    if scenario != "profiled":
        keep_codes()
    SCENARIOS[scenario](seconds)
    BUSY.within = 1  # nobody comes in between any more
    gc.collect()
    jaxide.uninstall()
    for name, function, code in codes:
        if function.__code__ is not code:
            FAILED.append(f"the code of {name} was not put back")
    # An exception within a cache of jaxlib leaves an entry that refuses all calls: stock jax 0.10.2
    # alone, where `explain` of `util.weakref_lru_cache` is called.
    jax.clear_caches()
    for program in PROGRAMS:
        check_text(program, "stock text", jax.make_jaxpr(fresh(program))(X))
        check_text(program, "text", jaxide.make_jaxpr(fresh(program))(X))
    print(COUNTS)
    for failed in FAILED[:3]:
        print(failed)
    return len(FAILED) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
