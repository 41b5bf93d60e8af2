"""Chunks of the interpreter's stack are kept for the next call that needs one."""

from alone import run_alone

SCRIPT = """
import ctypes

import jax
import jax.numpy as jnp

import jaxide


class Allocator(ctypes.Structure):
    _fields_ = [
        ("ctx", ctypes.c_void_p),
        ("alloc", ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("free", ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    ]


def are_kept(count, size):
    '''Whether what was written into memory is there when as much is allocated once more.'''
    allocator = Allocator()
    ctypes.pythonapi.PyObject_GetArenaAllocator(ctypes.byref(allocator))
    blocks = [allocator.alloc(allocator.ctx, size) for _ in range(count)]
    assert len(set(blocks)) == count and None not in blocks
    for block in blocks:
        ctypes.memset(block, 7, size)
    for block in blocks:
        allocator.free(allocator.ctx, block, size)
    again = [allocator.alloc(allocator.ctx, size) for _ in range(count)]
    written = [ctypes.string_at(block, 64) == bytes([7]) * 64 for block in again]
    for block in again:
        allocator.free(allocator.ctx, block, size)
    return sorted(written)


CHUNK = 16 << 10  # DATA_STACK_CHUNK_SIZE of CPython
assert are_kept(6, CHUNK) == [False] * 6
for _ in range(2):
    jaxide.make_jaxpr(jnp.sin)(1.0)
    assert are_kept(6, CHUNK) == [False] * 2 + [True] * 4  # a few, not all
    assert are_kept(2, 2 * CHUNK) == [False] * 2
    assert are_kept(1, 1 << 20) == [False]


def deep(depth):
    return deep(depth - 1) if depth else sum(leaf(i) for i in range(9))


def leaf(number):
    return number


# Across the ends of chunks, also of those of another size.
assert {deep(depth) for depth in range(900)} == {36}
wide = eval("lambda: max(" + "leaf(1), " * 5000 + "leaf(2))")
assert [wide() for _ in range(3)] == [2, 2, 2]
"""


def test_chunks_are_kept() -> None:
    run_alone(SCRIPT)
