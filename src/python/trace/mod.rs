//! The trace that records, and its tracers.
//!
//! ```text
//! jaxpr_trace.rs     the trace type: jax's DynamicJaxprTrace
//! tracer.rs          the tracer type: jax's DynamicJaxprTracer with its attributes filled on demand
//! frame/             `Frame`: one program under construction, in the role of jax's JaxprStackFrame
//! stage.rs           staging one primitive: abstract evaluation, folding, forwarding, appending
//! abstract_eval.rs   abstract evaluation, remembered by primitive, avals, params and configuration
//! inline.rs          inlining a jaxpr, which is what most of jax.numpy does
//! session.rs         which traces are recording, within which activations
//! audit_schedule.rs  which remembered answers are audited
//! flags.rs           operations on flags that jax executes meanwhile
//! arguments.rs       arguments, results and accumulators, all at once
//! ```

pub mod abstract_eval;
pub mod arguments;
pub mod audit_schedule;
pub mod flags;
pub mod frame;
pub mod inline;
pub mod jaxpr_trace;
pub mod session;
pub mod stage;
pub mod tracer;
