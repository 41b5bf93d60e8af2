"""Executables by what programs say: a new function with a known program is not compiled again.

jax finds an executable by the identity of the traced jaxpr, so a step function that is made anew is
lowered and compiled anew. Here an executable is found by the program itself: its hash for execution
finds candidates, and equality decides; then by the items of a key
(:mod:`jaxide._jit.executable_key`). What was lowered for one program then runs for each that says
the same.

The constants of a program (arrays that the function captured) are built into its first executable,
as stock jax does it. A function that captures equal values runs that. For one that captures others
an executable is made with the constants as arguments, and from then on each program brings its own:
what its preparation (:mod:`jaxide._jit.split`) makes of them, once for each closure.

Nothing of a program is kept but what comparing it needs: neither its jaxpr, nor what its function
refers to, nor its constants.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxide import _compat, _core
from jaxide._jit import captured_arrays, lowering_warnings
from jaxide._jit.deduplicate import deduplicate
from jaxide._jit.executable_key import Call, Key, key_of
from jaxide._jit.hoist_constants import hoist_constants
from jaxide._jit.split import split
from jaxide._jit.stored_lowerings import StoredLowering, names_of, numpy_has_warned
from jaxide._native.bounded import touch, trim
from jaxide._native.content import Unsettled, noting_rules
from jaxide._reports import audit

# Programs that were executed once, and those that another function had again, each in the order of
# their last use.
MAX_NEW = 256
MAX_PROVEN = 1024
# What was lowered for one program: for different shardings, layouts, donations and configurations.
MAX_LOWERINGS = 32
# Bytes of executables, with the arrays that are built into them. Those that take more than a
# quarter go with the functions that they were made for.
MAX_BYTES = 1 << 30
# What an executable takes at least, with its module: backends do not say all of it, that of the CPU
# nothing. Measured there: 1.5 MB for ten equations.
MIN_BYTES = 3 << 19


class Outcome(NamedTuple):
    """What became of a program that was to be executed, with seconds.

    ``reason`` says why its executable is not shared; ``known`` whether an earlier program said the
    same; ``stored`` whether its executable was found through the store.
    """

    known: bool
    lowered: bool
    hoisted: int
    reason: str | None
    lowering: float
    compiling: float
    program: Any
    stored: bool = False


class Executable:
    """What a program was lowered and compiled to."""

    def __init__(
        self,
        key: Key,
        lowering: Any,
        warnings: lowering_warnings.Warned,
        preparation: Any = None,
        built_in: int = 0,
        entry: str | None = None,
        names: tuple[Any, ...] = (),
    ):
        self.key = key
        # The key of jax's persistent compilation cache, where the module is known by it only, and
        # the names of arguments and results that are in the module.
        self.entry, self.names = entry, names
        # jax's own object, which has the module and the executable.
        self.lowering = lowering
        # What was warned of when it was made.
        self.warnings = warnings
        # What makes its first arguments of captured arrays; None where these are built in.
        self.preparation = preparation
        compiled = lowering.compile()
        # An array that is built in is in the module and in the machine code.
        self.num_bytes = 2 * built_in + max(MIN_BYTES, _code_bytes(compiled))
        # Whether functions made anew may run it.
        self.is_shared = warnings.are_all


def _code_bytes(compiled: Any) -> int:
    try:
        size = compiled.runtime_executable().size_of_generated_code_in_bytes()
    except Exception:  # a backend does not say
        return 0
    return int(size)


class _Program:
    """What is known of programs that are structurally equal."""

    def __init__(self, graph: _core.Graph, key: int, rules: dict[int, Any]):
        self.graph = graph
        self.key = key
        # The rules that lower its primitives.
        self.rules = rules
        self.executables: dict[Key, weakref.ref[Executable]] = {}
        # What was captured where an executable was first made, by the key without it.
        self.first: dict[Key, tuple[Any, ...]] = {}
        # Why it is not executed with constants as arguments, on one device or on several.
        self.refused: dict[tuple[Key, bool], str] = {}

    def executable(self, key: Key) -> Executable | None:
        found = self.executables.get(key)
        if found is None:
            return None
        touch(self.executables, key)
        return found()

    def add(self, executable: Executable) -> list[Executable]:
        """Adds an executable; returns those for which there is no room any more."""
        if self.executable(executable.key) is executable:
            return []
        before = list(self.executables.items())
        self.executables[executable.key] = weakref.ref(executable)
        trim(self.executables, MAX_LOWERINGS)
        gone = [ref() for key, ref in before if self.executables.get(key) is not ref]
        return [executable for executable in gone if executable is not None]

    def first_captured(self, key: Key, captured: tuple[Any, ...]) -> tuple[Any, ...]:
        """What was captured by the first function with this key; now this, where it is the
        first."""
        first = self.first.setdefault(key, captured)
        trim(self.first, MAX_LOWERINGS)
        return first


class _Run(NamedTuple):
    """What a jaxpr runs for some shardings and settings."""

    executable: Executable
    # What comes before the arguments.
    prepared: tuple[Any, ...]
    # The constants as they were, where some of them may change.
    frozen: tuple[Any, ...] | None


class _Plan:
    """How a jaxpr is executed: with what is known of its program, or as stock jax does it."""

    def __init__(
        self,
        jaxpr: weakref.ref[Any],
        program: _Program | None = None,
        known: bool = False,
        reason: str | None = None,
        consts: tuple[Any, ...] = (),
        const_avals: tuple[Any, ...] = (),
    ):
        self.jaxpr = jaxpr
        self.program = program
        # Whether an earlier program said the same.
        self.known = known
        self.reason = reason
        # The constants, those of nested programs as well, which the jaxpr keeps anyway.
        self.consts = consts
        self.const_avals = const_avals
        # By what jax itself tells lowerings of one jaxpr apart.
        self.runs: dict[Any, _Run] = {}
        self.may_change = any(map(captured_arrays.may_change, consts))

    def is_of(self, jaxpr: Any) -> bool:
        """Whether the plan is a jaxpr's, not of one that had its address."""
        return self.jaxpr() is jaxpr


class Executables:
    """The programs that were executed, and what they were lowered to."""

    def __init__(self, hash_bits: int = 128, left_out: frozenset[str] = frozenset()) -> None:
        """For tests: ``hash_bits``, how much of a hash is looked at (fewer make collisions), and
        ``left_out``, items that the key does not have."""
        self._mask = (1 << hash_bits) - 1
        # The same thread may take it again: a signal handler or a finalizer may run a jit. So
        # what is done with it holds whatever comes in between.
        self._lock = threading.RLock()
        self._left_out = left_out
        self._programs: dict[int, list[_Program]] = {}
        self._new: dict[_Program, None] = {}
        self._proven: dict[_Program, None] = {}
        self._plans: dict[int, _Plan] = {}
        # Jaxprs that were lowered before they were executed, and for what.
        self._lowered: dict[int, tuple[weakref.ref[Any], set[Any]]] = {}
        # Those used last, as many as fit.
        self._kept: dict[Executable, None] = {}
        self._num_bytes = 0
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
            self._kept.clear()
            self._num_bytes = 0
            self._guards.clear()

    @property
    def num_bytes(self) -> int:
        """Bytes of what is kept: programs, executables and the arrays that are built into them."""
        with self._lock:
            graphs = (p.graph.memory_bytes() for p in (*self._new, *self._proven))
            return self._num_bytes + sum(graphs)

    def execute(
        self, args: Sequence[Any], params: dict[str, Any], captured: str
    ) -> tuple[Any, Outcome]:
        """Does what jax's ``_pjit_call_impl_python`` does, with an executable that is known.

        Args:
          args: the arguments, flat.
          params: those of the jit.
          captured: how captured arrays are given to it, as the setting says.
        """
        jax_ = _compat.execution()
        if not jax_.is_plain():
            return self._stock(args, params, "profiling or debugging of jax is on")
        if audit.is_barred(params):
            return self._stock(args, params, audit.BARRED)
        plan = self._plan(params["jaxpr"])
        program = plan.program
        if program is None:
            return self._stock(args, params, plan.reason)
        resolved = jax_.resolve(args, params)
        context = jax_.trace_context()
        run = plan.runs.get((resolved, context))
        if run is not None:
            outcome = Outcome(plan.known, False, 0, None, 0.0, 0.0, program)
            return self._run(run, args), outcome
        if self._was_lowered(params["jaxpr"], (resolved, context)):
            # jax has warned then, and has arrays as they were.
            return self._stock(args, params, "it was lowered before it was called", plan.known)
        stock = functools.partial(self._stock, args, params, known=plan.known, program=program)
        if _compat.stores_executables():
            _compat.lowerings().begin()
        assigned = _core.num_settings_assigned()
        try:
            disturbed = _core.lowers_as_ever()
            call = Call(resolved, context, jax_.settings(), plan.const_avals, disturbed)
            key = key_of(call, self._left_out)
            values = captured_arrays.values(plan.consts)
        except Unsettled as error:
            return stock(str(error))
        made = _Making(jax_, plan, program, params, call, key, values, assigned)
        try:
            run, executable_is_new = self._make(made, captured)
        except (Unsettled, _NotHoisted) as error:
            return stock(str(error))
        executable = run.executable
        is_given = plan.known if not executable_is_new else executable.entry is not None
        if is_given and audit.is_executable_due():
            lower = functools.partial(made.lowered_alone, executable)
            if not audit.executable_holds(params, executable.lowering, lower, executable.entry):
                with self._lock:
                    self._drop(program)
                return stock(audit.BARRED)
        if not executable_is_new:
            lowering_warnings.say_again(executable.warnings)
        jax_.test_event("jit_cpp_cache_miss")
        if executable.is_shared or made.is_settled():
            plan.runs[resolved, context] = run
        outcome = Outcome(
            plan.known,
            executable_is_new,
            len(plan.consts) if executable.preparation is not None else 0,
            None,
            made.lowering,
            made.compiling,
            program,
            executable_is_new and executable.entry is not None,
        )
        return self._run(run, args), outcome

    def _note_lowered(self, jaxpr: Any, wanted: Any) -> None:
        place, noted = id(jaxpr), self._lowered
        found = noted.get(place)
        if found is None or found[0]() is not jaxpr:
            ref = weakref.ref(jaxpr, functools.partial(_forget, noted, place))
            found = noted[place] = ref, set()
        found[1].add(wanted)

    def _was_lowered(self, jaxpr: Any, wanted: Any) -> bool:
        found = self._lowered.get(id(jaxpr))
        return found is not None and found[0]() is jaxpr and wanted in found[1]

    def _make(self, made: _Making, captured: str) -> tuple[_Run, bool]:
        """What a jaxpr runs, and whether it had to be compiled."""
        program, key = made.program, made.key
        is_chosen = captured == "arguments"
        if not made.values:
            captured = "constants"
        if captured == "auto":
            is_first = program.first_captured(key, made.values) == made.values
            captured = "constants" if is_first else "arguments"
        is_built_in = captured == "constants"
        wanted: Key = (*key, ("captured", made.built_in() if is_built_in else "arguments"))
        found = program.executable(wanted)
        if executable_is_new := found is None:
            if is_built_in:
                found = made.with_constants(wanted)
            else:
                found = self._with_arguments(made, wanted, one_device=not is_chosen)
            # Somebody changed something meanwhile: nobody else runs this.
            found.is_shared &= made.is_settled()
            if found.is_shared and made.stored is not None:
                made.stored.keep()
        assert found is not None
        prepared = made.prepared(found) if found.preparation is not None else ()
        if found.is_shared:
            self._keep(program, found)
        return _Run(found, prepared, made.frozen()), executable_is_new

    def _with_arguments(self, made: _Making, key: Key, one_device: bool) -> Executable:
        refused = made.program.refused
        if (key, one_device) in refused:
            raise _NotHoisted(refused[key, one_device])
        try:
            return made.with_arguments(key, one_device)
        except _NotHoisted as error:
            refused[key, one_device] = str(error)
            trim(refused, MAX_LOWERINGS)
            raise

    def _run(self, run: _Run, args: Sequence[Any]) -> Any:
        compiled = run.executable.lowering.compile()
        result = compiled.unsafe_call(*run.prepared, *args)
        return result, compiled, None, list(run.prepared)

    def _keep(self, program: _Program, executable: Executable) -> None:
        with self._lock:
            for gone in program.add(executable):
                self._release(gone)
            if executable in self._kept:
                touch(self._kept, executable)
            elif executable.num_bytes <= MAX_BYTES // 4:
                self._kept[executable] = None
                self._num_bytes += executable.num_bytes
                while self._num_bytes > MAX_BYTES:
                    self._release(next(iter(self._kept)))

    def _release(self, executable: Executable) -> None:
        if executable in self._kept:
            del self._kept[executable]
            self._num_bytes -= executable.num_bytes

    def lowered(self, jaxpr: Any, resolve: Callable[[], Any]) -> tuple[Any, bool]:
        """What is lowered in the place of a jaxpr outside of an execution, and whether it was
        executed with what it is lowered for.

        jax remembers what it lowered, with the elements that arrays had then. Where it was not
        lowered, since an executable was known, these elements are remembered here.
        """
        plan = self._plans.get(id(jaxpr))
        wanted = resolve(), _compat.execution().trace_context()
        run = plan.runs.get(wanted) if plan is not None and plan.is_of(jaxpr) else None
        if run is None:
            self._note_lowered(jaxpr, wanted)
            return jaxpr, False
        if run.frozen is None:
            return jaxpr, True
        has_all = len(jaxpr.consts) == len(run.frozen)
        whole = jaxpr if has_all else hoist_constants(jaxpr)[0]
        return _compat.with_values(whole, list(run.frozen)), True

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

    def _plan(self, jaxpr: Any) -> _Plan:
        plan = self._plans.get(id(jaxpr))
        if plan is None or not plan.is_of(jaxpr):
            plan = self._new_plan(jaxpr)
            self._plans[id(jaxpr)] = plan
        return plan

    def _new_plan(self, jaxpr: Any) -> _Plan:
        place, plans = id(jaxpr), self._plans

        def gone(ref: weakref.ref[Any]) -> None:
            if (plan := plans.get(place)) is not None and plan.jaxpr is ref:
                del plans[place]

        ref = weakref.ref(jaxpr, gone)
        try:
            hoisted, graph = hoist_constants(jaxpr)
            const_avals = tuple(_compat.constant_types(hoisted))
            consts = tuple(hoisted.consts)
            if not all(map(_is_captured, consts, const_avals)):
                return _Plan(ref, reason="it captures what is no plain array")
            with noting_rules() as rules:
                key = graph.fingerprint("execution") & self._mask
            program = self._find(graph, key, rules)
            known = program is not None
            if program is None:
                program = self._add(jaxpr, graph, key, rules)
        except (Unsettled, RecursionError) as error:
            return _Plan(ref, reason=f"nothing shows that it stays the same: {error}")
        return _Plan(ref, program, known, None, consts, const_avals)

    def _find(self, graph: _core.Graph, key: int, rules: dict[int, Any]) -> _Program | None:
        with self._lock:
            self._forget_gone()
            candidates = list(self._programs.get(key, ()))
        # Without the lock, since comparing may run anything.
        same = (p for p in candidates if p.graph.equals(graph, "execution") and p.rules == rules)
        found = next(same, None)
        if found is not None:
            with self._lock:
                self._prove(found)
        return found

    def _add(self, jaxpr: Any, graph: _core.Graph, key: int, rules: dict[int, Any]) -> _Program:
        skeleton, kept = graph.comparison_skeleton()
        program = _Program(skeleton, key, rules)
        outlives = all(map(_compat.objects().outlives, kept))
        with self._lock:
            if not outlives:
                self._guard(jaxpr, program)
            self._programs.setdefault(key, []).append(program)
            self._new[program] = None
            while len(self._new) > MAX_NEW:
                self._drop(next(iter(self._new), None))
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
            try:
                program = self._gone.popleft()()
            except IndexError:
                return
            if program is not None:
                self._drop(program)

    def _prove(self, program: _Program) -> None:
        """Another function had the program: it is kept longer."""
        is_known = self._new.pop(program, self) is None or self._proven.pop(program, self) is None
        if is_known:
            self._proven[program] = None
        while len(self._proven) > MAX_PROVEN:
            self._drop(next(iter(self._proven), None))

    def _drop(self, program: _Program | None) -> None:
        if program is None:
            return
        self._new.pop(program, None)
        self._proven.pop(program, None)
        same = self._programs.get(program.key, [])
        with contextlib.suppress(ValueError):
            same.remove(program)
        if not same:
            self._programs.pop(program.key, None)
        for ref in program.executables.values():
            if (executable := ref()) is not None:
                self._release(executable)


def _forget(noted: dict[int, tuple[Any, set[Any]]], place: int, ref: weakref.ref[Any]) -> None:
    if (entry := noted.get(place)) is not None and entry[0] is ref:
        del noted[place]


class _NotHoisted(Exception):
    """A program is not executed with its constants as arguments."""


class _Making:
    """A jaxpr for which an executable is looked for, and made where there is none."""

    def __init__(
        self,
        jax_: Any,
        plan: _Plan,
        program: _Program,
        params: dict[str, Any],
        call: Call,
        key: Key,
        values: tuple[Any, ...],
        assigned: int,
    ):
        self.jax_ = jax_
        self.plan = plan
        self.program = program
        self.params = params
        self.call = call
        self.key = key
        # Those of the constants.
        self.values = values
        # How often settings had been assigned when the key was made.
        self.assigned = assigned
        # Seconds that were spent.
        self.lowering = self.compiling = 0.0
        # What the store shall have of it, once it is known that nothing else has changed.
        self.stored: StoredLowering | None = None

    def is_settled(self) -> bool:
        """Whether what is set, and jax, are what they were all the time."""
        jax_, call = self.jax_, self.call
        is_same = (jax_.trace_context(), jax_.settings()) == (call.context, call.settings)
        is_same = is_same and _core.num_settings_assigned() == self.assigned
        items, times = dict(self.key), _compat.transformations().times
        is_same = is_same and items.get("transformations", times) == times
        return is_same and ("jax" not in items or _core.lowers_as_ever() == call.disturbed)

    def built_in(self) -> Any:
        """What an executable that has the constants built in depends on of them."""
        return self.values, captured_arrays.places(self.plan.consts)

    def with_constants(self, key: Key) -> Executable:
        """The executable that jax makes, captured arrays built in; that which the store knows."""
        jaxpr, consts = self.params["jaxpr"], self.plan.consts
        stored = StoredLowering.sought(jaxpr, self.call, self.key, consts)
        lowering, entry = self._found(stored)
        with lowering_warnings.noting() as said:
            if lowering is None:
                compile_ = None if stored is None else stored.compile
                lowering = self._compiled(deduplicate(jaxpr), self.call.resolved, compile_)
        built_in = captured_arrays.num_bytes(consts)
        names = () if entry is None else names_of(jaxpr)
        made = Executable(key, lowering, said, built_in=built_in, entry=entry, names=names)
        is_kept = entry is not None or said or numpy_has_warned()
        self.stored = None if is_kept else stored
        # Somebody may have written to an array meanwhile: nobody else runs this.
        is_same = (
            not self.plan.may_change or captured_arrays.values(self.plan.consts) == self.values
        )
        made.is_shared &= is_same
        return made

    def _found(self, stored: StoredLowering | None) -> tuple[Any, str | None]:
        begin = time.perf_counter()
        found = None if stored is None else stored.found()
        self.compiling += time.perf_counter() - begin
        return found or (None, None)

    def with_arguments(self, key: Key, one_device: bool) -> Executable:
        """One whose first arguments are made of captured arrays."""
        try:
            return self._with_arguments(key, one_device)
        except _NotHoisted:
            raise
        except Exception as error:
            # Stock jax says what is wrong, if it is.
            message = "it cannot be lowered with captured arrays as arguments"
            raise _NotHoisted(message) from error

    def _with_arguments(self, key: Key, one_device: bool) -> Executable:
        jax_, avals = self.jax_, self.plan.const_avals
        hoisted, _ = hoist_constants(self.params["jaxpr"])
        parts = split(hoisted)
        with lowering_warnings.noting() as said:
            resolved = jax_.with_arguments(self.call.resolved, parts.prepared)
            devices = jax_.devices(rest := jax_.lower(deduplicate(parts.rest), resolved))
            if len(devices) != 1:
                if one_device:
                    # What several devices make of a constant and of an argument differs.
                    raise _NotHoisted("it runs on several devices and captures other arrays")
                return self._on_devices(key, hoisted, said)
            rest.compile()
        of_preparation = jax_.of_preparation(resolved, len(avals), len(parts.prepared), devices[0])
        preparation = self._compiled(parts.preparation, of_preparation)
        return Executable(key, rest, said, preparation)

    def _on_devices(self, key: Key, hoisted: Any, said: lowering_warnings.Warned) -> Executable:
        """One for several devices, to which the arrays go as they are."""
        resolved = self.jax_.with_arguments(self.call.resolved, self.plan.const_avals)
        lowering = self._compiled(deduplicate(_compat.consts_as_invars(hoisted)), resolved)
        return Executable(key, lowering, said, preparation=lowering)

    def lowered_alone(self, executable: Executable) -> Any:
        """What the jaxpr is lowered to by itself, in the way that an executable was."""
        if executable.entry is not None:
            # As it was lowered for the key.
            jaxpr = _compat.with_names(self.params["jaxpr"], *executable.names)
            return self.jax_.lower(deduplicate(jaxpr), self.call.resolved)
        if executable.preparation is None:
            return self.jax_.lower(self.params["jaxpr"], self.call.resolved)
        hoisted, _ = hoist_constants(self.params["jaxpr"])
        if executable.preparation is executable.lowering:
            resolved = self.jax_.with_arguments(self.call.resolved, self.plan.const_avals)
            return self.jax_.lower(_compat.consts_as_invars(hoisted), resolved)
        parts = split(hoisted)
        resolved = self.jax_.with_arguments(self.call.resolved, parts.prepared)
        return self.jax_.lower(parts.rest, resolved)

    def _compiled(
        self,
        jaxpr: Any,
        resolved: tuple[Any, ...],
        compile_: Callable[[Any], None] | None = None,
    ) -> Any:
        begin = time.perf_counter()
        lowering = self.jax_.lower(jaxpr, resolved)
        middle = time.perf_counter()
        if compile_ is not None:
            compile_(lowering)
        lowering.compile()
        self.lowering += middle - begin
        self.compiling += time.perf_counter() - middle
        return lowering

    def prepared(self, executable: Executable) -> tuple[Any, ...]:
        """The first arguments of an executable: nobody else has them."""
        compiled = executable.lowering.compile()
        if executable.preparation is executable.lowering:
            # Copies, since an argument may be the same array, and be donated.
            consts = list(map(_copied, self.plan.consts))
        else:
            plain = map(captured_arrays.plainly_laid_out, self.plan.consts)
            consts = executable.preparation.compile().unsafe_call(*plain)
            if not any(map(captured_arrays.is_key, consts)):
                # They are where the executable wants them.
                return tuple(consts)
        kept = [index for index in range(len(consts)) if index in compiled._kept_var_idx]
        placed = compiled.shard_const_args([consts[index] for index in kept])
        for index, value in zip(kept, placed, strict=True):
            consts[index] = value
        return tuple(consts)

    def frozen(self) -> tuple[Any, ...] | None:
        """The constants as they are now, where some of them may change."""
        if not self.plan.may_change:
            return None
        return tuple(map(_compat.objects().captured, self.plan.consts))


def _copied(constant: Any) -> Any:
    plain = captured_arrays.plainly_laid_out(constant)
    return np.array(plain) if captured_arrays.may_change(plain) else plain.copy()


def _is_captured(constant: Any, aval: Any) -> bool:
    """Whether a constant is an array of the type that the program has it with."""
    is_array = _compat.objects().is_array(constant)
    return is_array and constant.dtype == aval.dtype and constant.shape == aval.shape


EXECUTABLES = Executables()
