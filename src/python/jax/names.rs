//! The objects of the installed jax that the trace talks to.
//!
//! `jaxide._compat` looks each of them up, checks it, and hands over one namespace; nothing here
//! imports a private jax module by name.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyString, PyTuple, PyType};

use crate::python::cpython::native::{Slot, allocate, is_exactly};
use crate::python::cpython::shared::Once;
use crate::python::jax::slots::Slots;

/// Declares `Jax` with one field per object of jax, each read from the namespace by field name.
macro_rules! jax_objects {
    ($( $(#[$doc:meta])* $name:ident : $ty:ident ),* $(,)?) => {
        /// Objects of the installed jax, resolved once at import.
        pub struct Jax {
            $( $(#[$doc])* pub $name: Py<$ty>, )*
            /// Offsets of the `__slots__` members that are read and written natively.
            pub slots: Slots,
        }

        /// The fields of a namespace, and the class that each has to be of.
        pub const FIELDS: &[(&str, &str)] = &[$( (stringify!($name), stringify!($ty)) ),*];

        impl Jax {
            /// Reads every object from `namespace`.
            ///
            /// # Errors
            /// An attribute is missing or has an unexpected type.
            pub fn from_namespace(namespace: &Bound<'_, PyAny>) -> PyResult<Self> {
                const NAMES: &str = concat!($( stringify!($name), " " ),*);
                const CLASSES: [Class; [$( stringify!($name) ),*].len()] = [$( Class::$ty ),*];
                let objects = objects_of(namespace, NAMES, CLASSES)?;
                let slots = Slots::of(namespace)?;
                let [$( $name ),*] = objects;
                // SAFETY: `objects_of` checked that each is of its class.
                Ok(unsafe { Self { $( $name: of_class($name), )* slots } })
            }
        }
    };
}

/// The class that an object of the namespace has to be of.
#[derive(Clone, Copy)]
#[allow(clippy::enum_variant_names)] // as pyo3 names them
enum Class {
    PyAny,
    PyDict,
    PySet,
    PyString,
    PyTuple,
    PyType,
}

/// The objects with these names, each of its class. There are more than a hundred: to read them in a
/// loop takes far fewer instructions.
fn objects_of<const N: usize>(
    namespace: &Bound<'_, PyAny>,
    names: &str,
    classes: [Class; N],
) -> PyResult<[Py<PyAny>; N]> {
    let mut objects = Vec::with_capacity(N);
    for (name, class) in names.split_ascii_whitespace().zip(classes) {
        let object = namespace.getattr(name)?;
        let object = match class {
            Class::PyAny => object,
            Class::PyDict => object.cast_into::<PyDict>()?.into_any(),
            Class::PySet => object.cast_into::<PySet>()?.into_any(),
            Class::PyString => object.cast_into::<PyString>()?.into_any(),
            Class::PyTuple => object.cast_into::<PyTuple>()?.into_any(),
            Class::PyType => object.cast_into::<PyType>()?.into_any(),
        };
        objects.push(object.unbind());
    }
    objects.try_into().map_err(|_| PyRuntimeError::new_err("jaxide: an object of jax is missing"))
}

/// An object as one of its class.
///
/// # Safety
/// It is an instance of `T`.
unsafe fn of_class<T>(object: Py<PyAny>) -> Py<T> {
    // SAFETY: a reference is the same whatever the class; of this one the object is, as promised.
    unsafe { std::mem::transmute::<Py<PyAny>, Py<T>>(object) }
}

jax_objects! {
    /// `partial_eval.DynamicJaxprTracer`.
    tracer_type: PyType,
    /// `partial_eval.DynamicJaxprTrace`.
    trace_type: PyType,
    /// `core.Tracer`.
    any_tracer_type: PyType,
    jaxpr_type: PyType,
    closed_jaxpr_type: PyType,
    var_type: PyType,
    /// `core.DropVar`: an output whose tracer was gone when the equation was made.
    drop_var_type: PyType,
    literal_type: PyType,
    eqn_type: PyType,
    tracing_eqn_type: PyType,
    /// `core.AbstractValue`.
    abstract_value_type: PyType,
    shaped_array_type: PyType,
    /// Whether equal types of arrays are one object, as from jax 0.10 on.
    interns_types: PyAny,
    /// `layout.AutoLayout`: that of a `ShapedArray` by default, where it has one.
    auto_layout: PyAny,
    /// Classes of trees among params, and the names of their fields.
    tree_fields: PyDict,
    source_info_type: PyType,
    input_effect_type: PyType,
    typed_array_type: PyType,
    typed_float_type: PyType,
    typed_scalar_types: PySet,
    /// `copy.copy`.
    copy_function: PyAny,
    linearize_trace_type: PyType,
    linearize_tracer_type: PyType,
    jvp_trace_type: PyType,
    jvp_tracer_type: PyType,
    batch_trace_type: PyType,
    batch_tracer_type: PyType,
    /// The name of an axis that has none.
    no_axis_name: PyAny,
    /// What `x.at[i]` is.
    index_update_ref_type: PyType,
    /// The type of what `jax.jit` returns.
    jit_type: PyType,
    /// `core.AvalQDD` where jax still has quasi-dynamic data, else `None`.
    aval_qdd_type: PyAny,
    mutable_qdd_type: PyAny,

    /// Whether calls may be remembered.
    replays: PyAny,
    /// The tracing trace of this thread, as `.value`.
    trace_state: PyAny,
    /// The weak reference to it that is part of jax's cache keys.
    weak_trace_state: PyAny,
    /// `core.trace_ctx.set_trace`.
    set_trace: PyAny,
    /// What `Primitive.bind` makes current while a rule runs (`core.eval_trace` or `None`).
    binding_trace: PyAny,
    /// `core.eval_trace`.
    eval_trace: PyAny,
    /// `source_info_util._source_info_context`, a thread-local.
    source_info_context: PyAny,
    get_traceback: PyAny,
    traceback_type: PyType,
    /// The frames of a traceback that are of the user's code: addresses of codes, and places.
    user_frames: PyAny,
    /// A traceback without frames.
    no_frames: PyAny,
    empty_name_stack: PyAny,
    /// `config.trace_context`.
    trace_context: PyAny,
    /// The mesh that is set, of which `config.trace_context` has the abstract one; and the one where none is.
    concrete_mesh: PyAny,
    empty_mesh: PyAny,
    /// `config.eager_constant_folding`.
    eager_constant_folding: PyAny,
    /// Executes operations on flags without XLA; None where this jax is not known.
    flags: PyAny,
    current_eqn_context: PyAny,

    /// Names of the methods of arrays that append equations.
    array_methods: PyTuple,
    /// A function with the code that another has now.
    copy_code: PyAny,
    /// All settings by name: what has the value of each.
    all_settings: PyDict,
    /// The context variable of numpy's error state, or `None`, and what says what that is: `None`
    /// where numpy tells somebody of errors.
    numpy_errors: PyAny,
    numpy_error_state: PyAny,
    /// The class of settings whose assignment is noticed.
    setting_type: PyType,
    check_tracer_leaks: PyAny,
    no_tracing: PyAny,
    disable_jit: PyAny,
    enable_checks: PyAny,
    /// The module `warnings`.
    warnings: PyAny,

    canonicalize_value: PyAny,
    typeof_fn: PyAny,
    is_literalable: PyAny,
    /// The scalar types that are always literals.
    literalable_scalar_types: PySet,
    /// `jax.Array`.
    jax_array_type: PyAny,
    /// `ArrayImpl`, and its property `_value`.
    array_type: PyType,
    stock_value: PyAny,
    /// Types of concrete values that are constants and need no further look (`ArrayImpl`, ...).
    plain_const_types: PySet,
    /// `jit_p`.
    jit_primitive: PyAny,
    /// The primitive of jits in linear programs, from jax 0.12 on, else None.
    jit_node: PyAny,
    /// Primitives of jax's with programs among their params, whose rules look into no array.
    control_primitives: PySet,
    /// Those whose linearization makes equations in their programs, at the line of the call.
    located_primitives: PySet,
    /// Classes that are called for what they are: numbers, texts and containers of Python's, scalars of
    /// numpy's.
    fixed_types: PySet,
    /// How classes are registered as trees.
    tree_registry: PyDict,
    /// Types of objects that never change, of which equal ones are the same.
    immutable_types: PySet,
    /// Classes of objects among params that are what their fields are, with the names of these.
    records: PyDict,
    /// Whether a class is one that is not among them yet: its fields, or None.
    find_record: PyAny,
    /// The names of those params of a primitive's equations that have programs which its rules make
    /// anew at each call, and whether nothing else makes any of them.
    made_anew: PyAny,
    /// `AbstractRef`, the type of a Ref.
    ref_type: PyType,
    /// Classes of what equations do to Refs: those with an input, and those of Refs within.
    ref_effects: PySet,
    cur_qdd: PyAny,
    full_lower: PyAny,
    get_referent: PyAny,

    abstract_eval_cached: PyAny,
    unpack_pair: PyAny,
    safe_zip: PyAny,
    verify_params_are_hashable: PyAny,
    resolve_input_effects: PyAny,
    make_jaxpr_effects: PyAny,
    no_effects: PyAny,
    custom_staging_rules: PyDict,
    const_fold_rules: PyDict,
    forwarding_rules: PyDict,
    /// Staging rules that do nothing but rebuild the params dict in a fixed order: rule -> names.
    param_order_rules: PyDict,
    /// Forwarding rules that read only avals and params.
    pure_forwarding_rules: PySet,
    /// Forwarding rules that never forward.
    no_forwarding_rules: PySet,
    /// `bind_with_trace` overrides that equal the base class's while `sharding` is None.
    sharding_bind_rules: PySet,
    /// Names of primitives whose abstract evaluation jax never caches.
    uncached_primitives: PySet,
    /// `Primitive.bind`, as a function object of its own.
    stock_bind: PyAny,
    /// Rules for dead code by primitive, and a function that applies the one of an equation.
    dce_rules: PyDict,
    trim: PyAny,
    /// Whether these rules keep programs in which nothing is dead.
    trim_keeps_programs: PyAny,
    /// Whether the program that the rule of a loop makes is the one that jax has made for the same
    /// outputs, wherever that was.
    trim_shares_programs: PyAny,
    stock_dce: PyAny,
    /// `ad._dce_consts`; None where jax has none.
    stock_dce_consts: PyAny,
    /// `core.eval_jaxpr` as a function of `(jaxpr, consts, args, propagate_source_info)`.
    stock_eval_jaxpr: PyAny,
    /// Binds one of its equations: `(primitive, operands, params, traceback, name_stack)`;
    /// and raises what that has raised natively: `(error, traceback, name_stack)`.
    bind_equation: PyAny,
    raise_within: PyAny,
    /// The code of that, and of what it calls for each equation.
    evaluation_codes: PyTuple,
    /// `foreach` of two lists, of which nothing comes but what it raises.
    foreach_pair: PyAny,
    /// `custom_jvp`, the class.
    custom_jvp_type: PyType,
    custom_vjp_type: PyType,
    named_sharding_type: PyType,
    /// `ShapeDtypeStruct`, which cannot be changed.
    shape_dtype_struct_type: PyType,
    /// Its `__eq__` and `__hash__`; None where they go by something else.
    stock_struct_eq: PyAny,
    stock_struct_hash: PyAny,
    partition_spec_type: PyType,
    /// `(aval) -> ShapeDtypeStruct`, what `eval_shape` returns for a result.
    result_struct: PyAny,
    /// `(value) -> shapes`, what `eval_shape` says of a function that returns a value it has captured;
    /// None where that is left to jax.
    captured_shapes: PyAny,
    /// `custom_jvp_call`, and how its function that traces the rule is made anew: `(function)`
    /// returns what returns one; None where there is none.
    custom_jvp_primitive: PyAny,
    /// A set: those with functions of derivative rules among their params.
    rule_primitives: PyAny,
    renewal: PyAny,
    /// Notes what in a derivative rule stands for what in another.
    pair_rules: PyAny,
    /// What a derivative rule says, and what it refers to besides; None where jax's are others.
    rule_words: PyAny,
    /// Whether a tracer can be reached from that.
    may_hold_tracers: PyAny,
    /// Whether two derivative rules are equal, whatever they have stored.
    rules_alike: PyAny,
    /// `linear_util.WrappedFun`.
    wrapped_function_type: PyType,
    check_arg: PyAny,
    float0: PyAny,
    /// The codes of functions that `vjp` and `linearize` make at each call; None where they are not
    /// what they were.
    canonical_input_code: PyAny,
    linear_input_code: PyAny,
    stock_check_input_type: PyAny,
    /// `debug_info`, remembering; None where jax's is another.
    debug_info_hook: PyAny,
    /// What the function that `make_jaxpr` returns does, without a jit; None where jax's is another.
    make_jaxpr_hook: PyAny,
    /// `_vjp3_callable`, its accumulators made at once; None where jax's is another.
    vjp_hook: PyAny,
    /// `resolve_kwargs`, without a signature where there is nothing to resolve; None where jax's is
    /// another.
    resolve_kwargs_hook: PyAny,
    /// What the objects in programs are.
    objects: PyAny,
    /// The texts of objects that programs are printed with.
    printing: PyAny,
    /// The params of primitives that have no part in the execution.
    unexecuted_params: PyDict,
    /// What stands in for functions that make something of a program, by name.
    derivation_hooks: PyDict,
    /// `include_filename`, remembering.
    include_filename_hook: PyAny,
    /// `_clean_keystr_arg_names`, without a regular expression.
    clean_path_hook: PyAny,
    /// `DebugInfo.set_result_paths`, remembering.
    result_paths_hook: PyAny,
    /// Paths that the caller of a trace will replace.
    postponed_paths: PyType,
    /// Whether the program of a jit for a call refers to traced values that are no arguments.
    jit_captures: PyAny,
    /// By which calls of its jits jax has made programs.
    requests: PyAny,
    /// Whether a jit was made to forget its program since the last call.
    jits_forgot: PyAny,
    /// What `clear_cache` of a jit is, likewise.
    stock_evict: PyAny,
    /// The attribute of a `FlatTree` that has its leaves, and `(tree, leaves) -> tree` with others.
    flat_tree_leaves: PyString,
    flat_tree_with_leaves: PyAny,
    stock_flat_tree_map: PyAny,
    /// The class of such trees.
    flat_tree_type: PyType,
    /// `FlatTree.map2`, from jax 0.12 on; None where `linearize` has no use for it.
    stock_flat_tree_map2: PyAny,
    stock_check_returned_types: PyAny,
    stock_check_returned_refs: PyAny,
    partial_type: PyType,
    /// One step of `ad.backward_pass3`, and the context of its loop.
    transposition_step: PyAny,
    transposition_loop: PyAny,
    /// What the cotangents of an equation's result are added to that makes a Ref; None where they are
    /// as others; and one step of the pass for such an equation.
    ref_accumulator: PyAny,
    ref_transposition_step: PyAny,
    /// Binds an equation of a linear program that is not linear: `(equation, operands)`.
    evaluation_step: PyAny,
    /// Merges what the rule of an equation logs into what others have, from jax 0.12 on, else None.
    merge_rule_logs: PyAny,
    /// `ad.VJPNode`, likewise.
    vjp_node_type: PyAny,
    zero_type: PyType,
    grad_accum_type: PyType,
    val_accum_type: PyType,
    /// `partial_eval.inline_jaxpr_into_trace`, likewise.
    stock_inline: PyAny,
    primitive_bind_with_trace: PyAny,
    primitive_is_high: PyAny,
    primitive_bind: PyAny,
    primitive_bind_params: PyAny,
    /// Callable `(closed_jaxpr) -> (jaxpr, consts)`.
    open_jaxpr: PyAny,
}

impl Jax {
    /// `core.Var(aval)`.
    pub fn new_var<'py>(&self, aval: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = aval.py();
        if self.slots.var_has_count {
            return self.var_type.bind(py).call1((aval,));
        }
        let var = allocate(self.var_type.bind(py))?;
        // SAFETY: the slots are of this very class, and empty.
        unsafe {
            self.slots.var_aval.fill(var.as_ptr(), aval);
            for qdd in self.slots.var_qdds.into_iter().flatten() {
                qdd.fill(var.as_ptr(), py.None().into_bound(py));
            }
        }
        Ok(var)
    }

    /// `core.Literal(val, aval)`.
    pub fn new_literal<'py>(
        &self,
        val: &Bound<'py, PyAny>,
        aval: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let literal = allocate(self.literal_type.bind(val.py()))?;
        // SAFETY: the slots are of this very class, and empty.
        unsafe {
            self.slots.literal_val.fill(literal.as_ptr(), val.clone());
            self.slots.literal_aval.fill(literal.as_ptr(), aval.clone());
        }
        Ok(literal)
    }

    /// The value and the type of a jax `Literal`.
    ///
    /// # Errors
    /// It has none.
    pub fn parts_of_literal<'py>(
        &self,
        literal: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        if !literal.get_type().is(&self.literal_type) {
            return Err(PyTypeError::new_err("an object that is no literal"));
        }
        // SAFETY: the exact type was checked.
        let parts =
            unsafe { (self.slots.literal_val.get(literal), self.slots.literal_aval.get(literal)) };
        let (Some(value), Some(aval)) = parts else {
            return Err(PyTypeError::new_err("a literal without a value"));
        };
        Ok((value, aval))
    }

    /// A literal equal to one, with a value of its own, as jax makes them: it tells both apart by
    /// identity.
    pub fn copy_literal<'py>(&self, literal: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = literal.py();
        // SAFETY: a jax `Literal`.
        let (value, aval) =
            unsafe { (self.slots.literal_val.get(literal), self.slots.literal_aval.get(literal)) };
        let (Some(value), Some(aval)) = (value, aval) else { return Ok(literal.clone()) };
        let class = value.get_type();
        let value = if class.is(&self.typed_array_type) {
            let copied = value.call_method0(intern!(py, "copy"))?;
            // The type that it has: numpy's copy does not know it.
            // SAFETY: the slot is of this very class.
            unsafe {
                if let Some(slot) = self.slots.typed_array_aval
                    && let Some(aval) = slot.get(&value)
                {
                    slot.set(copied.as_ptr(), aval);
                }
            }
            copied
        } else if class.is(&self.typed_float_type)
            && let Some(slots) = self.slots.typed_float
        {
            self.copy_typed_float(&value, slots)?
        } else if self.typed_scalar_types.bind(py).contains(&class)? {
            class.call1((&value, value.getattr(intern!(py, "dtype"))?))?
        } else if value.is_instance(self.jax_array_type.bind(py))? {
            // An array is a literal under a setting of jax, the same object wherever it occurs; and
            // jax traces what copies one.
            value
        } else {
            // Numbers of numpy and of Python; the latter are as they are.
            self.copy_function.bind(py).call1((value,))?
        };
        self.new_literal(&value, &aval)
    }

    /// `TypedFloat(value, value.dtype)`.
    fn copy_typed_float<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        slots: [Slot; 2],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let class = self.typed_float_type.bind(py);
        let args = PyTuple::new(py, [value])?;
        // SAFETY: a subclass of float; `float.__new__` makes an instance of any of them. The slots
        // are of this very class.
        unsafe {
            let made = ffi::PyFloat_Type
                .tp_new
                .map(|new| new(class.as_type_ptr(), args.as_ptr(), std::ptr::null_mut()));
            let made = Bound::from_owned_ptr_or_err(py, made.unwrap_or(std::ptr::null_mut()))?;
            for slot in slots {
                if let Some(part) = slot.get(value) {
                    slot.set(made.as_ptr(), part);
                }
            }
            Ok(made)
        }
    }

    /// `SourceInfo(traceback, name_stack)`.
    pub fn new_source_info<'py>(
        &self,
        traceback: Option<Bound<'py, PyAny>>,
        name_stack: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = name_stack.py();
        let source_info = allocate(self.source_info_type.bind(py))?;
        // SAFETY: the slots are of this very class, and empty.
        unsafe {
            let traceback = traceback.unwrap_or_else(|| py.None().into_bound(py));
            self.slots.source_traceback.fill(source_info.as_ptr(), traceback);
            self.slots.source_name_stack.fill(source_info.as_ptr(), name_stack);
        }
        Ok(source_info)
    }

    /// `JaxprEqn(...)`.
    pub fn new_eqn<'py>(&self, py: Python<'py>, eqn: EqnParts<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = allocate(self.eqn_type.bind(py))?;
        let slots = &self.slots;
        // SAFETY: the slots are of this very class, and empty.
        unsafe {
            let raw = object.as_ptr();
            slots.eqn_invars.fill(raw, eqn.invars.into_any());
            slots.eqn_outvars.fill(raw, eqn.outvars.into_any());
            slots.eqn_primitive.fill(raw, eqn.primitive);
            slots.eqn_params.fill(raw, eqn.params.into_any());
            slots.eqn_effects.fill(raw, eqn.effects);
            slots.eqn_source_info.fill(raw, eqn.source_info);
            slots.eqn_ctx.fill(raw, eqn.ctx);
        }
        Ok(object)
    }
}

impl Jax {
    /// Whether jax checks the jaxprs that it makes.
    ///
    /// # Errors
    /// The setting cannot be read.
    pub fn checks_jaxprs(&self, py: Python<'_>) -> PyResult<bool> {
        self.enable_checks.bind(py).getattr(intern!(py, "value"))?.is_truthy()
    }

    /// Whether open and closed jaxprs are one class, as from jax 0.11 on.
    pub fn has_one_jaxpr_type(&self) -> bool {
        self.closed_jaxpr_type.is(&self.jaxpr_type)
    }

    /// Whether the rules of a primitive, in linear programs too, look at no value of an operand.
    pub fn passes_arrays(&self, primitive: &Bound<'_, PyAny>) -> bool {
        let py = primitive.py();
        let is_control = |primitive: &Bound<'_, PyAny>| {
            self.control_primitives.bind(py).contains(primitive).unwrap_or(false)
        };
        is_control(primitive) || self.stands_for(primitive).is_some_and(|of| is_control(&of))
    }

    /// What a primitive stands for in the linear program of a pullback (`vjp_node[...]`, from jax 0.12 on).
    pub fn stands_for<'py>(&self, primitive: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let is_node = primitive.get_type().is(&self.vjp_node_type);
        if is_node { primitive.getattr(intern!(primitive.py(), "prim")).ok() } else { None }
    }

    /// Whether a primitive is that of jits, in linear programs too.
    pub fn is_jit(&self, primitive: &Bound<'_, PyAny>) -> bool {
        primitive.is(&self.jit_primitive) || primitive.is(&self.jit_node)
    }

    /// Whether an atom is a `Literal`.
    pub fn is_literal(&self, atom: *mut ffi::PyObject) -> bool {
        !atom.is_null() && is_exactly(atom, self.literal_type.as_ptr().cast())
    }

    /// The two items that a rule answers.
    ///
    /// # Errors
    /// Python's, where it answers something else.
    pub fn unpack_pair<'py>(
        &self,
        answer: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        match answer.extract() {
            Ok(pair) => Ok(pair),
            Err(_) => self.unpack_pair.bind(answer.py()).call1((answer,))?.extract(),
        }
    }

    /// An equation like another, with params and lists of its own.
    pub fn with_params<'py>(
        &self,
        eqn: &Bound<'py, PyAny>,
        params: Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = eqn.py();
        let copy = |name| -> PyResult<Bound<'py, PyList>> {
            let list = eqn.getattr(name)?.cast_into::<PyList>()?;
            Ok(list.get_slice(0, list.len()))
        };
        self.new_eqn(
            py,
            EqnParts {
                invars: copy(intern!(py, "invars"))?,
                outvars: copy(intern!(py, "outvars"))?,
                primitive: eqn.getattr(intern!(py, "primitive"))?,
                params,
                effects: eqn.getattr(intern!(py, "effects"))?,
                source_info: eqn.getattr(intern!(py, "source_info"))?,
                ctx: eqn.getattr(intern!(py, "ctx"))?,
            },
        )
    }
}

/// The fields of a `JaxprEqn`.
pub struct EqnParts<'py> {
    pub invars: Bound<'py, PyList>,
    pub outvars: Bound<'py, PyList>,
    pub primitive: Bound<'py, PyAny>,
    pub params: Bound<'py, PyDict>,
    pub effects: Bound<'py, PyAny>,
    pub source_info: Bound<'py, PyAny>,
    pub ctx: Bound<'py, PyAny>,
}

impl<'py> EqnParts<'py> {
    /// None where the equation is none of jax's.
    pub fn of(jax: &Jax, eqn: &Bound<'py, PyAny>) -> Option<Self> {
        if !is_exactly(eqn.as_ptr(), jax.eqn_type.as_ptr().cast()) {
            return None;
        }
        let slots = &jax.slots;
        // SAFETY: the exact type was checked.
        unsafe {
            Some(Self {
                invars: slots.eqn_invars.get(eqn)?.cast_into().ok()?,
                outvars: slots.eqn_outvars.get(eqn)?.cast_into().ok()?,
                primitive: slots.eqn_primitive.get(eqn)?,
                params: slots.eqn_params.get(eqn)?.cast_into().ok()?,
                effects: slots.eqn_effects.get(eqn)?,
                source_info: slots.eqn_source_info.get(eqn)?,
                ctx: slots.eqn_ctx.get(eqn)?,
            })
        }
    }
}

/// The fields of the namespace that `initialize` reads, and the class that each has to be of.
#[pyfunction]
pub fn namespace_fields() -> Vec<(&'static str, &'static str)> {
    FIELDS.to_vec()
}

static JAX: Once<Jax> = Once::new();

/// Stores the resolved objects; a second call is ignored, as modules are imported once.
pub fn set_jax(py: Python<'_>, jax: Jax) {
    let _ = JAX.set(py, jax);
}

/// The resolved objects.
///
/// # Errors
/// `jaxide._core` was used without `jaxide`.
pub fn jax(py: Python<'_>) -> PyResult<&Jax> {
    JAX.get(py)
        .ok_or_else(|| PyRuntimeError::new_err("jaxide._core is not initialized: import jaxide"))
}
