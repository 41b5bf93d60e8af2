"""Pairs that are known to differ, by kind and schedule; one that does not any more fails."""

import sys

_NATIVE = "the core does natively what a class of jax is given within a trace"
_PRIMITIVE = "a program has the names that primitives had when it was traced"
_OF_PRIMITIVES = "attributes of primitives are compared when a trace begins, on CPython 3.11"
_FALLBACK = "jaxide leaves all to jax, which it calls otherwise"

# Each with a program that shows it, and the reason.
KNOWN: dict[tuple[str, str], tuple[str, str]] = {
    ("method_of_tracers_itself", "within"): ("direct", _NATIVE),
    ("staging_of_traces", "within"): ("direct", _NATIVE),
    ("name_of_a_primitive", "looked at later"): ("direct", _PRIMITIVE),
    ("class_of_primitives", "before the import"): ("direct", _FALLBACK),
}
if sys.version_info < (3, 12):
    KNOWN["bind_of_sin", "within"] = "called_twice", _OF_PRIMITIVES

# Pairs of a kind and a program for which stock jax dies, without an exception, at times.
KILLS_JAX: dict[tuple[str, str], str] = {
    ("captured_array_is_deleted", "jit_of_gradient"): "jaxlib reads the buffer that was freed",
}
