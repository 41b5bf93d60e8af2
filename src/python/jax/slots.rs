//! Offsets of members of jax's slotted classes, which are read and written natively.

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::native::Slot;

/// Offsets of members of jax's slotted classes.
pub struct Slots {
    pub tracer_trace: Slot,
    pub tracer_aval: Slot,
    pub tracer_line_info: Slot,
    pub tracer_val: Slot,
    pub tracer_parent: Slot,
    pub tracer_debug_info: Slot,
    /// Absent from jax 0.11 on.
    pub tracer_mutable_qdd: Option<Slot>,
    pub trace_frame: Slot,
    pub trace_parent_trace: Slot,
    pub trace_invalidated: Slot,
    pub trace_weakref: Slot,
    pub trace_requires_low: Slot,
    pub jaxpr_eqns: Slot,
    pub jaxpr_invars: Inputs,
    /// The values of the first of all inputs, from jax 0.11 on.
    pub jaxpr_consts: Option<Slot>,
    /// How many of all inputs are constvars: in jax 0.11.0 alone.
    pub jaxpr_num_consts: Option<Slot>,
    pub jaxpr_outvars: Slot,
    pub source_traceback: Slot,
    pub source_name_stack: Slot,
    /// The scopes of a `NameStack`.
    pub name_stack_scopes: Option<Slot>,
    pub index_update_ref: [Slot; 2],
    /// `primal` and `tangent` of a `LinearizeTracer`.
    pub linearize_tracer: [Slot; 2],
    pub jvp_tracer: [Slot; 2],
    pub batch_tracer: [Slot; 2],
    pub batch_tracer_source: Slot,
    pub var_aval: Slot,
    /// Variables are counted by jax's constructor, before jax 0.10.2.
    pub var_has_count: bool,
    /// `initial_qdd` and `final_qdd`; absent from jax 0.11 on.
    pub var_qdds: Option<[Slot; 2]>,
    pub zero_aval: Slot,
    /// `dtype` and `aval` of a `TypedFloat`.
    pub typed_float: Option<[Slot; 2]>,
    /// Of a `TypedNdArray`; jax before 0.10 has neither of both.
    pub typed_array_aval: Option<Slot>,
    pub literal_val: Slot,
    pub literal_aval: Slot,
    pub eqn_invars: Slot,
    pub eqn_outvars: Slot,
    pub eqn_primitive: Slot,
    pub eqn_params: Slot,
    pub eqn_effects: Slot,
    pub eqn_source_info: Slot,
    pub eqn_ctx: Slot,
    /// All of a `ShapeDtypeStruct`, and those that it is compared by.
    pub shape_dtype_struct: Vec<Slot>,
    pub compared_of_struct: [Slot; 7],
}

impl Slots {
    #[allow(clippy::too_many_lines)] // a table
    pub fn of(namespace: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = |name: &str| -> PyResult<Bound<'_, PyType>> {
            namespace.getattr(name)?.cast_into::<PyType>().map_err(PyErr::from)
        };
        let (tracer, trace) = (&class("tracer_type")?, &class("trace_type")?);
        let (jaxpr, eqn) = (&class("jaxpr_type")?, &class("eqn_type")?);
        let (var, literal) = (&class("var_type")?, &class("literal_type")?);
        let source_info = &class("source_info_type")?;
        let index_update_ref = &class("index_update_ref_type")?;
        let linearize_tracer = &class("linearize_tracer_type")?;
        let jvp_tracer = &class("jvp_tracer_type")?;
        let batch_tracer = &class("batch_tracer_type")?;
        // The first error is what the caller is told.
        let mut error = None;
        let mut slot = |class: &Bound<'_, PyType>, name: &str| {
            Slot::of(class, name).unwrap_or_else(|failure| {
                error.get_or_insert(failure);
                Slot::at(0)
            })
        };
        let qdds = (Slot::of(var, "initial_qdd"), Slot::of(var, "final_qdd"));
        let slots = Self {
            var_aval: slot(var, "aval"),
            var_has_count: Slot::of(var, "count").is_ok(),
            var_qdds: match qdds {
                (Ok(initial), Ok(last)) => Some([initial, last]),
                _ => None,
            },
            index_update_ref: [slot(index_update_ref, "array"), slot(index_update_ref, "index")],
            linearize_tracer: [slot(linearize_tracer, "primal"), slot(linearize_tracer, "tangent")],
            jvp_tracer: [slot(jvp_tracer, "primal"), slot(jvp_tracer, "tangent")],
            batch_tracer: [slot(batch_tracer, "val"), slot(batch_tracer, "batch_dim")],
            batch_tracer_source: slot(batch_tracer, "source_info"),
            typed_array_aval: Slot::of(&class("typed_array_type")?, "_aval").ok(),
            typed_float: {
                let class = class("typed_float_type")?;
                match (Slot::of(&class, "dtype"), Slot::of(&class, "aval")) {
                    (Ok(dtype), Ok(aval)) => Some([dtype, aval]),
                    _ => None,
                }
            },
            zero_aval: slot(&class("zero_type")?, "aval"),
            literal_val: slot(literal, "val"),
            literal_aval: slot(literal, "aval"),
            eqn_invars: slot(eqn, "invars"),
            eqn_outvars: slot(eqn, "outvars"),
            eqn_primitive: slot(eqn, "primitive"),
            eqn_params: slot(eqn, "params"),
            eqn_effects: slot(eqn, "effects"),
            eqn_source_info: slot(eqn, "source_info"),
            eqn_ctx: slot(eqn, "ctx"),
            compared_of_struct: {
                let class = class("shape_dtype_struct_type")?;
                let [shape, dtype, sharding] = ["shape", "dtype", "_sharding"];
                let [layout, weak, axes] = ["_dll", "weak_type", "manual_axis_type"];
                let names = [shape, dtype, sharding, layout, weak, axes, "is_ref"];
                let mut slots = [Slot::at(0); 7];
                for (own, name) in slots.iter_mut().zip(names) {
                    *own = slot(&class, name);
                }
                slots
            },
            shape_dtype_struct: {
                let class = class("shape_dtype_struct_type")?;
                let names: Vec<String> = class.getattr("__slots__")?.extract()?;
                names.iter().map(|name| slot(&class, name)).collect()
            },
            tracer_trace: slot(tracer, "_trace"),
            tracer_aval: slot(tracer, "aval"),
            tracer_line_info: slot(tracer, "_line_info"),
            tracer_val: slot(tracer, "val"),
            tracer_parent: slot(tracer, "parent"),
            tracer_debug_info: slot(tracer, "_debug_info"),
            tracer_mutable_qdd: Slot::of(tracer, "mutable_qdd").ok(),
            trace_frame: slot(trace, "frame"),
            trace_parent_trace: slot(trace, "parent_trace"),
            trace_invalidated: slot(trace, "_invalidated"),
            trace_weakref: slot(trace, "_weakref"),
            trace_requires_low: slot(trace, "requires_low"),
            jaxpr_eqns: slot(jaxpr, "_eqns"),
            jaxpr_invars: match Slot::of(jaxpr, "_all_invars") {
                Ok(all) => Inputs::All(all),
                Err(_) => Inputs::Own(slot(jaxpr, "_invars")),
            },
            jaxpr_consts: Slot::of(jaxpr, "_consts").ok(),
            jaxpr_num_consts: Slot::of(jaxpr, "_num_consts").ok(),
            jaxpr_outvars: slot(jaxpr, "_outvars"),
            source_traceback: slot(source_info, "traceback"),
            source_name_stack: slot(source_info, "name_stack"),
            name_stack_scopes: Slot::of(
                &namespace.getattr("empty_name_stack")?.get_type(),
                "stack",
            )
            .ok(),
        };
        match error {
            Some(error) => Err(error),
            None => Ok(slots),
        }
    }
}

/// Where a jaxpr keeps its inputs.
#[derive(Clone, Copy)]
pub enum Inputs {
    /// Without the constvars, which have a list of their own.
    Own(Slot),
    /// After the constvars, from jax 0.11 on.
    All(Slot),
}

impl Inputs {
    pub fn slot(self) -> Slot {
        match self {
            Self::Own(slot) | Self::All(slot) => slot,
        }
    }
}
