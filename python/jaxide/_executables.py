"""Executables by what programs say: a new function with a known program is not compiled again.

jax finds an executable by the identity of the traced jaxpr, so a step function that is made anew is
lowered and compiled anew. Here an executable is found by the program itself: its hash for execution
finds candidates, and equality decides. What was lowered for one program then runs for each that
says the same.

The constants of a program (arrays that the function captured) are built into an executable. Where
another function captures others, the executable is made once more with the constants as arguments,
and from then on each program brings its own.

Nothing of a program is kept but what comparing it needs: neither its jaxpr, nor what its function
refers to, nor its constants.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxide import _compat, _core
from jaxide._consing import cons
from jaxide._lifting import lift_constants
from jaxide._content import Unsettled

# Programs that were executed once, and those that another function had again, each in the order of
# their last use.
MAX_NEW = 256
MAX_PROVEN = 1024
# What was lowered for one program: for different shardings, layouts, donations and configurations.
MAX_LOWERINGS = 32


class Outcome(NamedTuple):
    """What became of a program that was to be executed, with seconds.

    ``reason`` says why its executable is not shared; ``known`` whether an earlier program said the
    same.
    """

    known: bool
    lowered: bool
    lifted: int
    reason: str | None
    lowering: float
    compiling: float
    program: Any


class _Program:
    """What is known of programs that say the same."""

    def __init__(self, graph: _core.Graph, key: int):
        self.graph = graph
        self.lowerings: OrderedDict[Any, Any] = OrderedDict()
        self.key = key

    def lowering(self, key: Any) -> Any:
        found = self.lowerings.get(key)
        if found is not None:
            self.lowerings.move_to_end(key)
        return found

    def add_lowering(self, key: Any, lowering: Any) -> None:
        self.lowerings[key] = lowering
        while len(self.lowerings) > MAX_LOWERINGS:
            self.lowerings.popitem(last=False)


class _Plan(NamedTuple):
    """How a jaxpr is executed: with what is known of its program, or as stock jax does it."""

    jaxpr: weakref.ref[Any]
    program: _Program | None = None
    # Whether it runs what was made for other jaxprs of the program.
    is_shared: bool = False
    # The constants, those of programs within as well: the values, as they were when it was first
    # executed, and the types.
    consts: tuple[Any, ...] = ()
    const_avals: tuple[Any, ...] = ()
    # Whether an earlier program said the same.
    known: bool = False
    reason: str | None = None


class Executables:
    """The programs that were executed, and what they were lowered to."""

    def __init__(self, hash_bits: int = 128) -> None:
        """``hash_bits``: how much of a hash is looked at; fewer make collisions, for tests."""
        self._mask = (1 << hash_bits) - 1
        self._lock = threading.Lock()
        self._programs: dict[int, list[_Program]] = {}
        self._new: OrderedDict[_Program, None] = OrderedDict()
        self._proven: OrderedDict[_Program, None] = OrderedDict()
        self._plans: dict[int, _Plan] = {}
        # Programs whose objects somebody may want to be rid of go with the first jaxpr that said
        # this; noted here where a collection finds it while the lock is held.
        self._gone: deque[weakref.ref[_Program]] = deque()
        self._guards: dict[weakref.ref[Any], weakref.ref[_Program]] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._new) + len(self._proven)

    def cache_clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._programs.clear()
            self._new.clear()
            self._proven.clear()
            self._plans.clear()
            self._guards.clear()

    def execute(
        self, args: Sequence[Any], params: dict[str, Any], lift_at_once: bool
    ) -> tuple[Any, Outcome]:
        """Does what jax's ``_pjit_call_impl_python`` does, with an executable that is known.

        Args:
          args: the arguments, flat.
          params: those of the jit.
          lift_at_once: whether constants are arguments from the first time on.
        """
        jax_ = _compat.execution()
        if not jax_.is_plain():
            return self._stock(args, params, "profiling or debugging of jax is on")
        plan = self._plan(params["jaxpr"], lift_at_once)
        stock = functools.partial(self._stock, args, params, known=plan.known, program=plan.program)
        if not plan.is_shared:
            return stock(plan.reason)
        if plan.consts and any(params["donated_invars"]) and _are_given(plan.consts, args):
            return stock("a captured array is donated")
        with contextlib.suppress(_Unlifted):
            return self._execute(jax_, plan, args, params)
        return stock("it cannot be lowered with captured arrays as arguments")

    def _stock(
        self,
        args: Sequence[Any],
        params: dict[str, Any],
        reason: str | None,
        known: bool = False,
        program: _Program | None = None,
    ) -> tuple[Any, Outcome]:
        jax_ = _compat.execution()
        begin = time.perf_counter()
        result = jax_.stock(*args, **params)
        taken = time.perf_counter() - begin
        return result, Outcome(known, True, 0, reason, 0.0, taken, program)

    def _execute(
        self, jax_: Any, plan: _Plan, args: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, Outcome]:
        program = plan.program
        assert program is not None
        jax_.test_event("jit_cpp_cache_miss")
        num_consts = len(plan.consts)
        resolved = jax_.resolve(plan.const_avals, args, params)
        key = (resolved, jax_.configuration())
        lowering = program.lowering(key)
        begin = middle = end = time.perf_counter()
        if is_new := lowering is None:
            try:
                jaxpr = params["jaxpr"]
                jaxpr = _compat.lift(lift_constants(jaxpr)[0]) if num_consts else jaxpr
                lowering = jax_.lower(cons(jaxpr), resolved)
                middle = time.perf_counter()
                lowering.compile()
                end = time.perf_counter()
            except Exception as error:
                if num_consts:
                    raise _Unlifted from error
                raise
            program.add_lowering(key, lowering)
        compiled = lowering.compile()
        given = [
            value for index, value in enumerate(plan.consts) if index in compiled._kept_var_idx
        ]
        sharded = iter(compiled.shard_const_args(given))
        consts = [
            next(sharded) if index in compiled._kept_var_idx else value
            for index, value in enumerate(plan.consts)
        ]
        outcome = Outcome(
            plan.known, is_new, num_consts, None, middle - begin, end - middle, program
        )
        return (compiled.unsafe_call(*consts, *args), compiled, None, consts), outcome

    def _plan(self, jaxpr: Any, lift_at_once: bool) -> _Plan:
        plan = self._plans.get(id(jaxpr))
        if plan is None or plan.jaxpr() is not jaxpr:
            plan = self._new_plan(jaxpr, lift_at_once)
            self._plans[id(jaxpr)] = plan
        return plan

    def _new_plan(self, jaxpr: Any, lift_at_once: bool) -> _Plan:
        place, plans = id(jaxpr), self._plans
        ref = weakref.ref(jaxpr, lambda _: plans.pop(place, None))
        try:
            lifted, graph = lift_constants(jaxpr)
            const_avals = tuple(_compat.constant_types(lifted))
            consts = _snapshot(lifted.consts, const_avals)
            if consts is None:
                return _Plan(ref, reason="it captures what is no plain array")
            key = graph.fingerprint("execution") & self._mask
            program = self._find(graph, key)
            known = program is not None
            if program is None:
                program = self._add(jaxpr, graph, key)
        except (Unsettled, RecursionError) as error:
            return _Plan(ref, reason=f"nothing shows that it stays the same: {error}")
        if consts and not known and not lift_at_once:
            # Its own executable, as stock jax makes it, has the constants built in.
            return _Plan(ref, program)
        return _Plan(ref, program, True, consts, const_avals, known)

    def _find(self, graph: _core.Graph, key: int) -> _Program | None:
        with self._lock:
            self._forget_gone()
            candidates = list(self._programs.get(key, ()))
        # Without the lock, since comparing may run anything.
        found = next((p for p in candidates if p.graph.equals(graph, "execution")), None)
        if found is not None:
            with self._lock:
                self._prove(found)
        return found

    def _add(self, jaxpr: Any, graph: _core.Graph, key: int) -> _Program:
        abridged, kept = graph.abridged()
        program = _Program(abridged, key)
        outlives = all(map(_compat.objects().outlives, kept))
        with self._lock:
            if not outlives:
                self._guard(jaxpr, program)
            self._programs.setdefault(key, []).append(program)
            self._new[program] = None
            while len(self._new) > MAX_NEW:
                self._drop(next(iter(self._new)))
        return program

    def _guard(self, jaxpr: Any, program: _Program) -> None:
        """Lets a program go with a jaxpr."""
        self._guards[weakref.ref(jaxpr, self._jaxpr_is_gone)] = weakref.ref(program)

    def _jaxpr_is_gone(self, jaxpr: weakref.ref[Any]) -> None:
        program = self._guards.pop(jaxpr, None)
        if program is not None:
            self._gone.append(program)
            if self._lock.acquire(blocking=False):
                try:
                    self._forget_gone()
                finally:
                    self._lock.release()

    def _forget_gone(self) -> None:
        while self._gone:
            program = self._gone.popleft()()
            if program is not None:
                self._drop(program)

    def _prove(self, program: _Program) -> None:
        """Another function had the program: it is kept longer."""
        if program in self._new:
            del self._new[program]
            self._proven[program] = None
        elif program in self._proven:
            self._proven.move_to_end(program)
        while len(self._proven) > MAX_PROVEN:
            self._drop(next(iter(self._proven)))

    def _drop(self, program: _Program) -> None:
        self._new.pop(program, None)
        self._proven.pop(program, None)
        same = self._programs.get(program.key, [])
        if program in same:
            same.remove(program)
        if not same:
            self._programs.pop(program.key, None)


class _Unlifted(Exception):
    """A program cannot be lowered with its constants as arguments."""


def _snapshot(constants: Sequence[Any], avals: Sequence[Any]) -> tuple[Any, ...] | None:
    """The constants as arrays that nobody can change; None where one cannot be an argument."""
    consts = []
    for const, aval in zip(constants, avals, strict=True):
        value = _compat.objects().captured(const)
        if value is None or not getattr(value, "is_fully_addressable", True):
            return None
        if value.dtype != aval.dtype or value.shape != aval.shape:
            return None
        consts.append(value)
    return tuple(consts)


def _are_given(consts: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether a constant is also an argument."""
    given = {id(arg) for arg in args}
    return any(id(const) in given for const in consts)


EXECUTABLES = Executables()
