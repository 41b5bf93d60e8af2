"""Traces in many threads at once, and stock and jaxide traces inside one another."""

import faulthandler
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide

ROUNDS = 25
TIMEOUT = 180  # seconds; all rounds take a few

VECTOR = np.arange(1.0, 4.0, dtype=np.float32)


# ---- programs, each made anew for every trace -------------------------------------------------


def chain() -> Callable:
    def f(x):
        for i in range(60):
            x = jnp.sin(x) * i + x
        return x

    return f


def attention() -> Callable:
    def f(x):
        q = x[:, None] * jnp.ones((3, 4))
        return jax.nn.softmax(q @ q.T) @ jnp.where(q > 1, q, 0.0)

    return f


def loops() -> Callable:
    def body(carry, step):
        carry = lax.cond(carry[0] > step, jnp.sin, lambda v: v * 2, carry)
        return carry, jnp.sum(carry)

    return lambda x: lax.scan(body, lax.fori_loop(0, 3, lambda i, v: v + i, x), jnp.arange(4.0))


def gradient() -> Callable:
    return jax.grad(lambda x: jnp.sum(jnp.tanh(x @ jnp.ones((3, 3))) ** 2))


def second_order() -> Callable:
    return jax.hessian(lambda x: jnp.sum(jnp.log1p(x**2)))


def mapped() -> Callable:
    inner = jax.jit(lambda v: lax.psum(jnp.cos(v), "i"))
    return jax.vmap(lambda v: inner(v) * v, axis_name="i")


def custom_rules() -> Callable:
    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (square(x), x), lambda x, ct: (2 * x * ct,))
    return jax.value_and_grad(lambda x: jnp.sum(jax.nn.relu(square(x))))


def constants() -> Callable:
    table = jnp.arange(12.0).reshape(3, 4)

    def f(x):
        return jnp.einsum("i,ij->j", x, table) + np.arange(4, dtype=np.int16)

    return f


def checkpointed() -> Callable:
    layer = jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)))
    return jax.grad(lambda x: jnp.sum(layer(layer(x))))


def references() -> Callable:
    def f(x):
        ref = jax.new_ref(x)
        ref[0] += 2.0
        return jax.freeze(ref)

    return f


PROGRAMS = [
    chain,
    attention,
    loops,
    gradient,
    second_order,
    mapped,
    custom_rules,
    constants,
    checkpointed,
    references,
]


@pytest.fixture(scope="module")
def stock_texts() -> dict[Callable, str]:
    return {program: str(jax.make_jaxpr(program())(VECTOR)) for program in PROGRAMS}


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Makes CPython switch threads every few bytecodes, and ends a process that is stuck.

    A thread that waits for a lock while it holds the GIL stops the timeouts below as well.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    faulthandler.dump_traceback_later(2 * TIMEOUT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(interval)


def run_together(jobs: list[Callable[[], object]]) -> list[object]:
    """Runs every job in its own thread, all starting at once; fails if one is stuck."""
    barrier = threading.Barrier(len(jobs))
    results: list[object] = [None] * len(jobs)

    def run(index: int, job: Callable[[], object]) -> None:
        try:
            barrier.wait(TIMEOUT)
            results[index] = job()
        except BaseException as error:
            results[index] = error

    threads = [
        threading.Thread(target=run, args=(i, job), daemon=True) for i, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "a thread is stuck"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def repeatedly(make_jaxpr: Callable, program: Callable) -> Callable[[], set[str]]:
    """A job that traces the program again and again and gives the texts it saw."""

    def job() -> set[str]:
        return {str(make_jaxpr(program())(VECTOR)) for _ in range(ROUNDS)}

    return job


def test_eight_threads(stock_texts: dict) -> None:
    programs = PROGRAMS[:8]
    seen = run_together([repeatedly(jaxide.make_jaxpr, p) for p in programs])
    assert seen == [{stock_texts[p]} for p in programs]


def test_eight_threads_among_stock_threads(stock_texts: dict) -> None:
    programs = [*PROGRAMS[:8], *PROGRAMS[:8]]
    makers = [jaxide.make_jaxpr] * 8 + [jax.make_jaxpr] * 8
    seen = run_together([repeatedly(m, p) for m, p in zip(makers, programs, strict=True)])
    assert seen == [{stock_texts[p]} for p in programs]


def test_makers_alternate_in_each_thread(stock_texts: dict) -> None:
    def alternate(program: Callable) -> Callable[[], set[str]]:
        def job() -> set[str]:
            makers = (jax.make_jaxpr, jaxide.make_jaxpr)
            return {str(makers[i % 2](program())(VECTOR)) for i in range(ROUNDS)}

        return job

    seen = run_together([alternate(p) for p in PROGRAMS])
    assert seen == [{stock_texts[p]} for p in PROGRAMS]


def test_every_thread_traces_every_program(stock_texts: dict) -> None:
    def rotate(start: int) -> Callable[[], list[bool]]:
        order = PROGRAMS[start:] + PROGRAMS[:start]
        return lambda: [
            str(jaxide.make_jaxpr(p())(VECTOR)) == stock_texts[p]
            for _ in range(ROUNDS // 5)
            for p in order
        ]

    assert all(all(seen) for seen in run_together([rotate(i) for i in range(8)]))


def test_one_function_in_all_threads() -> None:
    """Threads that trace the same function object share what jax caches for it."""
    function = loops()
    expected = str(jax.make_jaxpr(loops())(VECTOR))
    jobs = [lambda: {str(jaxide.make_jaxpr(function)(VECTOR)) for _ in range(ROUNDS)}] * 8
    assert run_together(jobs) == [{expected}] * 8


def test_programs_in_all_threads() -> None:
    """`trace`, `from_jaxpr` and execution, on one program shared by the threads."""
    shared = jaxide.trace(gradient())(VECTOR)
    expected = np.asarray(jax.jit(gradient())(VECTOR))
    text = str(shared)

    def job() -> bool:
        for _ in range(ROUNDS // 5):
            own = jaxide.trace(gradient())(VECTOR)
            copied = jaxide.from_jaxpr(shared.jaxpr)
            assert str(own) == str(copied) == str(shared) == text
            assert len(own) == len(shared)
            np.testing.assert_allclose(own(VECTOR), expected, rtol=1e-6)
            np.testing.assert_allclose(shared(VECTOR), expected, rtol=1e-6)
        return True

    assert run_together([job] * 8) == [True] * 8


def test_errors_in_some_threads(stock_texts: dict) -> None:
    def failing() -> set[str]:
        texts = set()
        for _ in range(ROUNDS):
            with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
                jaxide.make_jaxpr(lambda x: jax.jit(lambda y: y if y else -y)(x))(1.0)
            texts.add(str(caught.value))
        return texts

    jobs = [failing] * 4 + [repeatedly(jaxide.make_jaxpr, p) for p in PROGRAMS[:4]]
    *errors, a, b, c, d = run_together(jobs)
    assert [a, b, c, d] == [{stock_texts[p]} for p in PROGRAMS[:4]]
    assert len(set.union(*errors)) == 1


def test_configuration_and_names_stay_in_their_thread() -> None:
    def wide() -> set[str]:
        with jax.enable_x64(True):
            return {str(jaxide.make_jaxpr(lambda x: x * 2.5)(1.0)) for _ in range(ROUNDS)}

    def narrow() -> set[str]:
        return {str(jaxide.make_jaxpr(lambda x: x * 2.5)(1.0)) for _ in range(ROUNDS)}

    def scoped() -> set[str]:
        def f(x):
            with jax.named_scope("only_here"):
                return jnp.sin(x)

        return {
            jaxide.make_jaxpr(lambda x: f(x))(1.0).pretty_print(name_stack=True)
            for _ in range(ROUNDS)
        }

    def unscoped() -> set[str]:
        return {
            jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0).pretty_print(name_stack=True)
            for _ in range(ROUNDS)
        }

    def axis() -> set[str]:
        make = jaxide.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 3)])
        return {str(make(1.0)) for _ in range(ROUNDS)}

    def no_axis() -> set[str]:
        texts = set()
        for _ in range(ROUNDS):
            with pytest.raises(NameError) as caught:
                jaxide.make_jaxpr(lambda x: lax.psum(x, "i"))(1.0)
            texts.add(str(caught.value))
        return texts

    jobs = [wide, narrow, scoped, unscoped, axis, no_axis]
    seen = run_together(jobs)
    assert [len(texts) for texts in seen] == [1] * len(jobs)
    texts = [next(iter(s)) for s in seen]
    assert "f64[]" in texts[0] and "f64" not in texts[1]
    assert "only_here" in texts[2] and "only_here" not in texts[3]
    assert "psum" in texts[4]


def test_collector_runs_in_another_thread(stock_texts: dict) -> None:
    """The cyclic collector may run at any moment, in any thread."""
    done = threading.Event()

    def collect() -> None:
        while not done.is_set():
            gc.collect()

    # What is alive already stays out of it: a full collection of a large heap starves the tracing.
    gc.freeze()

    def trace() -> bool:
        try:
            return all({stock_texts[p]} == repeatedly(jaxide.make_jaxpr, p)() for p in PROGRAMS[:4])
        finally:
            done.set()

    try:
        assert run_together([trace, collect])[0] is True
    finally:
        gc.unfreeze()


# ---- threads started and used inside a trace --------------------------------------------------


def both(function: Callable[[Callable], object]) -> object:
    """Runs `function` with each maker; returns the common result."""
    results = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        results.append(function(make))
    assert results[0] == results[1]
    return results[1]


def test_thread_started_inside_a_trace() -> None:
    """A new thread is outside the trace, and what it traces does not end up there."""

    def nested(make: Callable) -> tuple[str, list[str]]:
        texts = []

        def f(x):
            y = jnp.sin(x)
            with ThreadPoolExecutor(2) as pool:
                futures = [pool.submit(lambda p=p: str(make(p())(VECTOR))) for p in (chain, loops)]
                texts.extend(future.result(TIMEOUT) for future in futures)
                executed = pool.submit(lambda: jnp.sum(jnp.ones(3))).result(TIMEOUT)
            return y * executed

        return str(make(f)(1.0)), texts

    both(nested)


def test_tracer_used_in_another_thread() -> None:
    def use(make: Callable) -> tuple[str, list[str]]:
        outcomes = []

        def attempt(function: Callable) -> str:
            try:
                return repr(function())
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        def f(x):
            with ThreadPoolExecutor(1) as pool:
                for job in (lambda: x + 1, lambda: jnp.sin(x), lambda: x.shape, lambda: bool(x)):
                    outcomes.append(pool.submit(attempt, job).result(TIMEOUT))
            return x

        return str(make(f)(1.0)), outcomes

    both(use)


def test_main_thread_goes_on_while_others_trace(stock_texts: dict) -> None:
    """A trace that waits for other threads' traces does not block them."""

    def f(x):
        seen = run_together([repeatedly(jaxide.make_jaxpr, p) for p in PROGRAMS[:3]])
        assert seen == [{stock_texts[p]} for p in PROGRAMS[:3]]
        return jnp.cos(x)

    assert str(jaxide.make_jaxpr(f)(1.0)) == str(jax.make_jaxpr(lambda x: jnp.cos(x))(1.0))


# ---- one inside the other ---------------------------------------------------------------------


NESTINGS: dict[str, Callable[[Callable, Callable], object]] = {
    "inner_text": lambda outer, inner: str(
        outer(lambda x: jnp.sin(x) * len(str(inner(loops())(VECTOR))))(1.0)
    ),
    "inner_captures_outer_tracer": lambda outer, inner: str(
        outer(lambda x: len(inner(lambda y: y * x)(2.0).eqns) + jnp.cos(x))(1.0)
    ),
    "inner_argument_is_outer_tracer": lambda outer, inner: str(
        outer(lambda x: x * len(inner(jnp.sin)(x).eqns))(1.0)
    ),
    "inner_evaluated_in_outer": lambda outer, inner: str(
        outer(lambda x: jax.core.eval_jaxpr(*closed(inner(loops())(VECTOR)), x))(VECTOR)
    ),
    "inside_jit": lambda outer, inner: str(
        outer(jax.jit(lambda x: x + len(inner(jax.jit(jnp.sin))(1.0).eqns)))(1.0)
    ),
    "inside_scan": lambda outer, inner: str(
        outer(
            lambda xs: lax.scan(
                lambda c, x: (c + len(inner(lambda y: y + x)(1.0).eqns), x), 0.0, xs
            )
        )(VECTOR)
    ),
    "inside_grad": lambda outer, inner: str(
        outer(jax.grad(lambda x: x * len(inner(jnp.tanh)(1.0).eqns) * jnp.sin(x)))(1.0)
    ),
    "inside_vmap": lambda outer, inner: str(
        outer(jax.vmap(lambda x: x * len(inner(lambda y: jnp.sin(y))(x).eqns)))(VECTOR)
    ),
    "jit_called_inside": lambda outer, inner: str(
        outer(lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(2.0))(1.0)
    ),
    "array_made_inside": lambda outer, inner: str(
        outer(lambda x: x * jnp.asarray(VECTOR) + inner(jnp.sin)(1.0).out_avals[0].ndim)(1.0)
    ),
    "three_levels": lambda outer, inner: str(
        outer(
            lambda x: (
                len(
                    inner(lambda y: jnp.sin(y) + len(outer(lambda z: z * y * x)(1.0).eqns))(
                        2.0
                    ).eqns
                )
                * x
            )
        )(1.0)
    ),
}


def closed(jaxpr: object) -> tuple:
    """The arguments that `eval_jaxpr` takes for a closed jaxpr."""
    return (jaxpr.jaxpr, jaxpr.consts)


@pytest.mark.parametrize("name", NESTINGS)
def test_one_inside_the_other(name: str) -> None:
    nesting = NESTINGS[name]
    makers = (jax.make_jaxpr, jaxide.make_jaxpr)
    texts = set()
    for outer in makers:
        for inner in makers:
            jax.clear_caches()
            texts.add(nesting(outer, inner))
    assert len(texts) == 1


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap, jax.checkpoint, jax.eval_shape])
def test_inside_an_executing_transformation(transform: Callable) -> None:
    """jaxide traces while jax itself traces or executes something else."""
    texts = []

    def f(x):
        for make in (jax.make_jaxpr, jaxide.make_jaxpr):
            jaxpr = make(lambda y: jnp.sin(y) * x)(2.0)
            texts.append(str(jaxpr))
        return jnp.sum(x * 2)

    if transform is jax.eval_shape:
        jax.eval_shape(f, 1.0)
    else:
        transform(f)(VECTOR if transform is jax.vmap else 1.0)
    stock, ours = texts
    assert stock == ours


def test_inside_a_callback() -> None:
    """A callback runs in another thread while the compiled program waits for it."""
    expected = str(jax.make_jaxpr(loops())(VECTOR))
    texts = []

    def callback(x):
        texts.append(str(jaxide.make_jaxpr(loops())(VECTOR)))
        return x

    @jax.jit
    def f(x):
        return jax.pure_callback(callback, jax.ShapeDtypeStruct((), np.float32), x)

    f(np.float32(1)).block_until_ready()
    assert set(texts) == {expected}
