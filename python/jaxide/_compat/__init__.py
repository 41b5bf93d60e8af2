"""Everything that depends on jax's version: the only folder that branches on it.

jaxide leans on private parts of jax. Each of them is looked up and checked before it is used
(``symbols.py``); what is not as it was is a ``Mismatch``. Where jaxide does the work of a function
of jax, the function's source has to be one that is known (``sources.py``). What is not known
switches off the capability that rests on it (``capabilities.py``): jaxide says so once, and jax
does the work.

=====================  =========================================================================
``symbols``            looking up and checking private parts of jax
``capabilities``       what jaxide can do with this jax, and what of jax that rests on
``namespace``          the objects of jax that the core talks to
``hooks``              the functions of jax that the core steps into
``sources``            what functions of jax say, as digests, and which of them are known
``derivative_rules``   functions that equations with derivative rules have among their params
``lowering_rules``     which rules lower primitives, and whether they are jax's own
``stand_ins``          Python functions in the place of jax's
``interposing``        which functions are interposed
``pointwise``          which functions and primitives compute element by element
``caches``             caches and types that jax is told of
``flags``              operations on flags that jax executes while it traces
``tracing``            starting and finishing a trace
``trace_calls``        traces without a jit
``jaxprs``             jaxprs, open and closed
``objects``            classes of objects in programs
``passes``             what passes over programs ask of jax
``printing``           how jaxprs are printed
``program_files``      what files of programs have besides
``storage``            what objects in programs are in a file
``stored_trees``       tree structures in a file
``stored_structures``  those of arguments and results
``stored_tracebacks``  tracebacks in a file
``warm``               what of jax the store needs
``whole_programs``     what of jax whole traces need
``monitoring``         what jax says while it traces, lowers and compiles
``transposition``      the steps of the backward pass
``jits``               tracing, lowering and execution of jits, and how they are intercepted
``lowerings``          what lowering and compiling a program comes to in the next process
=====================  =========================================================================
"""

from __future__ import annotations

import functools
import warnings

import jax

from jaxide import _core, _settings
from jaxide._compat import capabilities as capabilities
from jaxide._compat.caches import clear_with_jax as clear_with_jax
from jaxide._compat.caches import register_jaxpr_type, register_trace_types
from jaxide._compat.hooks import trampoline
from jaxide._compat.interposing import interpose_functions
from jaxide._compat.jaxprs import close as close
from jaxide._compat.jaxprs import closed_form as closed_form
from jaxide._compat.jaxprs import closed_jaxpr as closed_jaxpr
from jaxide._compat.jaxprs import constant_types as constant_types
from jaxide._compat.jaxprs import consts_as_invars as consts_as_invars
from jaxide._compat.jaxprs import evaluate as evaluate
from jaxide._compat.jaxprs import hoisting_primitives as hoisting_primitives
from jaxide._compat.jaxprs import is_inlined as is_inlined
from jaxide._compat.jaxprs import is_jaxpr as is_jaxpr
from jaxide._compat.jaxprs import jaxprs_in as jaxprs_in
from jaxide._compat.jaxprs import literal_type as literal_type
from jaxide._compat.jaxprs import new_var as new_var
from jaxide._compat.jaxprs import open_part as open_part
from jaxide._compat.jaxprs import program as program
from jaxide._compat.jaxprs import scan_counts as scan_counts
from jaxide._compat.jaxprs import with_names as with_names
from jaxide._compat.jaxprs import with_operands as with_operands
from jaxide._compat.jaxprs import with_parts as with_parts
from jaxide._compat.jaxprs import with_values as with_values
from jaxide._compat.jits import JitCall as JitCall
from jaxide._compat.jits import call_site as call_site
from jaxide._compat.jits import catch_misses as catch_misses
from jaxide._compat.jits import coordination_client as coordination_client
from jaxide._compat.jits import execution as execution
from jaxide._compat.jits import function_place as function_place
from jaxide._compat.jits import intercept_jits as intercept_jits
from jaxide._compat.jits import is_default_layout as is_default_layout
from jaxide._compat.jits import is_place_of_jax as is_place_of_jax
from jaxide._compat.jits import jit_tracing as jit_tracing
from jaxide._compat.jits import leave_jits as leave_jits
from jaxide._compat.jits import lower_of as lower_of
from jaxide._compat.jits import own_line as own_line
from jaxide._compat.jits import program_place as program_place
from jaxide._compat.jits import transformations as transformations
from jaxide._compat.jits import user_frames as user_frames
from jaxide._compat.jits import user_line as user_line
from jaxide._compat.jits import user_stack as user_stack
from jaxide._compat.lowering_rules import is_file_of_jax as is_file_of_jax
from jaxide._compat.lowering_rules import is_internal_file as is_internal_file
from jaxide._compat.lowering_rules import lowering_rules as lowering_rules
from jaxide._compat.lowerings import Lowered as Lowered
from jaxide._compat.lowerings import lowerings as lowerings
from jaxide._compat.monitoring import known_devices as known_devices
from jaxide._compat.namespace import load_namespace
from jaxide._compat.namespace import numpy_error_state as numpy_error_state
from jaxide._compat.objects import flat_trees as flat_trees
from jaxide._compat.objects import objects as objects
from jaxide._compat.pointwise import tell_pointwise
from jaxide._compat.printing import print_in_rust
from jaxide._compat.printing import printing as printing
from jaxide._compat.program_files import program_files as program_files
from jaxide._compat.storage import dtypes as dtypes
from jaxide._compat.storage import primitive_or_none as primitive_or_none
from jaxide._compat.storage import storage as storage
from jaxide._compat.stored_structures import is_structure as is_structure
from jaxide._compat.stored_structures import results as results
from jaxide._compat.symbols import SUPPORTED as SUPPORTED
from jaxide._compat.symbols import JaxideFallbackWarning as JaxideFallbackWarning
from jaxide._compat.symbols import Mismatch as Mismatch
from jaxide._compat.tracing import api_boundary as api_boundary
from jaxide._compat.tracing import check_captured as check_captured
from jaxide._compat.tracing import extend_axis_env as extend_axis_env
from jaxide._compat.tracing import flatten_arguments as flatten_arguments
from jaxide._compat.tracing import note_quasi_dynamic_state as note_quasi_dynamic_state
from jaxide._compat.tracing import private as private
from jaxide._compat.tracing import quasi_dynamic_state as quasi_dynamic_state
from jaxide._compat.tracing import wraps as wraps
from jaxide._compat.warm import compilation_cache_dir as compilation_cache_dir
from jaxide._compat.warm import entry_objects as entry_objects
from jaxide._compat.warm import installation as installation
from jaxide._compat.warm import portable_names as portable_names
from jaxide._compat.warm import portable_objects as portable_objects
from jaxide._compat.whole_programs import use_whole_traces as use_whole_traces
from jaxide._compat.whole_programs import whole_traces as whole_traces


def reads_programs() -> bool:
    """Whether jaxprs of the installed jax are read natively, whoever traced them."""
    return not _settings.is_disabled() and _can_read_programs()


@functools.cache
def _can_read_programs() -> bool:
    try:
        lazy_jaxpr = _core.initialize(load_namespace())
        register_jaxpr_type(lazy_jaxpr)
        print_in_rust(lazy_jaxpr)
    except (Mismatch, AttributeError, TypeError) as error:
        capabilities.lose("programs", str(error))
    return capabilities.has("programs")


def native() -> bool:
    """Whether traces are recorded natively; where anything is left to jax, one warning has said so,
    unless that was asked for (``JAXIDE_DISABLE``)."""
    return not _settings.is_disabled() and _is_native()


@functools.cache
def _is_native() -> bool:
    if reads_programs() and capabilities.has("traces"):
        try:
            private()
            if capabilities.has("replays of other sizes"):
                tell_pointwise()
            register_trace_types(*_core.initialize_traces(trampoline))
            interpose_functions()
        except (Mismatch, AttributeError, TypeError) as error:
            capabilities.lose("traces", str(error))
    if capabilities.has("executables"):
        try:
            execution()
            jit_tracing()
        except Mismatch as error:
            capabilities.lose("executables", str(error))
    if capabilities.has("stored executables"):
        try:
            lowerings()
        except Mismatch as error:
            capabilities.lose("stored executables", str(error))
    _warn_of(capabilities.off())
    return capabilities.has("traces")


def shares_executables() -> bool:
    """Whether functions with equal programs share executables."""
    return native() and capabilities.has("executables")


def stores_executables() -> bool:
    """Whether the store says to what programs were compiled."""
    return shares_executables() and capabilities.has("stored executables")


def _warn_of(off: list[str]) -> None:
    if off:
        warnings.warn(
            f"jax {jax.__version__} is not quite a jax that jaxide knows ({SUPPORTED}); left to "
            f"jax: {', '.join(off)}. `python -m jaxide doctor` says why.",
            JaxideFallbackWarning,
            stacklevel=4,
        )
