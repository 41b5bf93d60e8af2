"""Tracebacks of a stored program: their frames, and tracebacks that have such frames."""

from __future__ import annotations

import _thread
import collections
import contextlib
import functools
import operator
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from jaxide._compat.symbols import optional_symbol, symbol
from jaxide._native.storage import StorageError


def frame(code: Any, place: int) -> tuple[str, str, tuple[int, int, int, int]]:
    location = symbol("source_info_util:Traceback").code_addr2location(code, place)
    line, column, last, end = (max(number, 0) for number in location)
    return code.co_filename, code.co_qualname, (line, column, last, end)


# A function that is one call, for frames to be made of.
_CALL = (lambda run, calls: run(calls)).__code__
# How many of its instructions each entry of its location table is about, and their first bytes.
_NUM_INSTRUCTIONS = len(_CALL.co_code) // 2
_COUNTS = [min(8, _NUM_INSTRUCTIONS - start) for start in range(0, _NUM_INSTRUCTIONS, 8)]
_ENTRIES = [bytes((0x80 | 14 << 3 | (count - 1),)) for count in _COUNTS]
# Deeper stacks than this are made in a thread that has nothing on its own.
_MAX_DEPTH = 64


def _frame_function(file: str, name: str, location: Any) -> Callable[..., Any]:
    """A function whose only call is at a place."""
    line, column, last, end = location
    numbers = (0, max(last - line, 0), column + 1, end + 1)
    place = bytes(numbers) if max(numbers) <= 0x3F else b"".join(map(_number, numbers))
    code = _CALL.replace(
        co_filename=file,
        co_name=name.rpartition(".")[2],
        co_qualname=name,
        co_firstlineno=line,
        # The long form of CPython's location table: lines and columns of up to 8 instructions.
        co_linetable=b"".join([entry + place for entry in _ENTRIES]),
    )
    return types.FunctionType(code, {})


def _number(number: int) -> bytes:
    """A number of CPython's location table."""
    place = bytearray()
    while number > 0x3F:
        place.append(0x40 | (number & 0x3F))
        number >>= 6
    place.append(number)
    return bytes(place)


class _Roots(list[Any]):
    """Can be referred to weakly."""


def tracebacks(frames: Sequence[Any], stacks: Sequence[Any]) -> list[Any]:
    """A traceback for each stack of frames, as if its functions called each other.

    A stack is a place among the frames and that of the stack around it, or None for no frames.
    The functions do call each other, and the innermost ones capture the tracebacks. Between them
    are only functions in C, which have no frames.
    """
    depths = [0]
    for stack in stacks:
        caller = None if stack is None else stack[0]
        depths.append(1 + (0 if caller is None else depths[caller + 1]))
    scope = optional_symbol("interpreters.partial_eval:TracebackScope")
    if scope is not None and max(depths) <= _MAX_DEPTH:
        # Tracebacks end where the scope was entered. There may be no room left for calls.
        with contextlib.suppress(RecursionError):
            captured, roots = _calls(frames, stacks)
            with scope():
                collections.deque(map(operator.call, roots), maxlen=0)
            return [results[0] for results in captured]
    captured, roots = _calls(frames, stacks)
    # In a thread of its own nothing is around them.
    ended = threading.Lock()
    ended.acquire()
    reference = weakref.ref(roots, lambda _: ended.release())
    run = functools.partial(collections.deque(maxlen=0).extend, map(operator.call, roots))
    del roots
    _thread.start_new_thread(run, ())
    del run
    ended.acquire()
    del reference
    if not all(captured):
        raise StorageError("the stacks of the file are too deep for Python's recursion limit")
    return [results[0] for results in captured]


def _calls(frames: Sequence[Any], stacks: Sequence[Any]) -> tuple[list[list[Any]], _Roots]:
    """Where the traceback of each stack goes, and the outermost calls."""
    functions = [_frame_function(*frame) for frame in frames]
    captured: list[list[Any]] = [[] for _ in stacks]
    capture = symbol("source_info_util:Traceback").get_traceback
    calls: list[list[Any]] = [[capture] for _ in stacks]
    roots = _Roots()
    for place, stack in enumerate(stacks):
        within = map(operator.call, calls[place])
        run = captured[place].extend
        if stack is None:
            roots.append(functools.partial(run, within))
        else:
            caller, frame = stack
            call = functools.partial(functions[frame], run, within)
            (roots if caller is None else calls[caller]).append(call)
    return captured, roots


@functools.cache
def no_frames() -> Any:
    """A traceback without frames: what jax captures where nothing in Python has called it."""
    if (scope := optional_symbol("interpreters.partial_eval:TracebackScope")) is not None:
        # Tracebacks end where the scope was entered: here.
        with scope():
            return symbol("source_info_util:Traceback").get_traceback()
    (traceback,) = tracebacks((), (None,))
    return traceback
