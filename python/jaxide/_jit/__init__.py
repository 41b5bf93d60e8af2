"""``jaxide.jit``: executables by what programs say, and why jits are traced again.

======================  ================================================================
``jit``                 the function ``jaxide.jit``
``intercept``           what a jit of jax does where it is traced or executed
``executables``         executables, found by program and key
``executable_key``      what an executable depends on besides the program
``stored_lowerings``    what programs were compiled to, in the store
``captured_arrays``     the values of captured arrays
``hoist_constants``     constants of nested programs become the program's own
``hoist_computations``  what depends on captured arrays alone leaves nested programs
``split``               what depends on captured arrays alone is computed once
``deduplicate``         structurally equal nested programs become one object
``lowering_warnings``   warnings of a lowering, for all that share the executable
``retraces``            the retrace log
``explanation``         answers of the retrace log
``run_log``             what was traced, lowered and compiled in this run
======================  ================================================================
"""
