//! What equations do to buffers.

use crate::ir::{Eqn, ParamValue, Program};

use super::super::cost::rules::is_per_element;
use super::super::values::{ints, items};

/// What an equation that runs no program does to the buffers of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each result is the operand at the same position, read in another way: no new bytes.
    View,
    /// The first result is the first operand, changed in place where nobody else needs it.
    Update,
    /// Each element of the results is made of the same element of operands: it may be written over
    /// one that nobody else needs.
    PerElement,
    /// What a result is made of is read as it is, without arithmetic.
    Spread,
    /// It reads its operands once, each element after another.
    Reduction,
    /// What it writes to is there already: no new bytes.
    RefWrite,
    /// A kernel, which may say itself what it writes over.
    Kernel,
    /// What runs on each device: arrays have other sizes there.
    Partition,
    /// Anything else: results of their own.
    Other,
}

pub(super) fn kind(primitive: &str) -> Kind {
    match primitive {
        // XLA makes bitcasts of reshapes, and nothing at all of the others.
        "reshape"
        | "squeeze"
        | "expand_dims"
        | "bitcast_convert_type"
        | "stop_gradient"
        | "optimization_barrier"
        | "name"
        | "sharding_constraint"
        | "layout_constraint"
        | "reshard"
        | "device_put"
        | "pvary"
        | "pbroadcast"
        | "random_wrap"
        | "random_unwrap"
        | "freeze"
        | "tie" => Kind::View,
        "dynamic_update_slice"
        | "scatter"
        | "scatter-add"
        | "scatter-mul"
        | "scatter-min"
        | "scatter-max"
        | "scatter-sub"
        | "new_ref"
        | "mutable_array" => Kind::Update,
        "broadcast_in_dim" | "broadcast_to" | "iota" | "rev" | "transpose" | "slice" | "pad"
        | "concatenate" => Kind::Spread,
        "reduce_sum" | "reduce_prod" | "reduce_max" | "reduce_min" | "reduce_and" | "reduce_or"
        | "reduce_xor" | "argmax" | "argmin" => Kind::Reduction,
        "swap" | "addupdate" => Kind::RefWrite,
        "pallas_call" => Kind::Kernel,
        "shard_map" | "xla_pmap" => Kind::Partition,
        _ if is_per_element(primitive) => Kind::PerElement,
        _ => Kind::Other,
    }
}

/// Whether computing an element again costs little, as XLA sees it
/// (`InstructionFusion::IsExpensive`).
pub(super) fn is_cheap(primitive: &str) -> bool {
    !matches!(
        primitive,
        "div"
            | "rem"
            | "pow"
            | "sqrt"
            | "rsqrt"
            | "cbrt"
            | "exp"
            | "exp2"
            | "expm1"
            | "log"
            | "log1p"
            | "logistic"
            | "tanh"
            | "sin"
            | "cos"
            | "tan"
            | "sinh"
            | "cosh"
            | "asin"
            | "acos"
            | "atan"
            | "atan2"
            | "asinh"
            | "acosh"
            | "atanh"
            | "erf"
            | "erfc"
            | "erf_inv"
            | "lgamma"
            | "digamma"
            | "igamma"
            | "igammac"
            | "integer_pow"
    )
}

/// Pairs of an operand and the result that a kernel writes over it.
pub(super) fn aliases(program: &Program, eqn: Eqn) -> Vec<(usize, usize)> {
    let params = program.params(program.eqn(eqn).params);
    let pair = |value: &ParamValue| {
        let [operand, result] = ints(value)?[..] else { return None };
        Some((usize::try_from(operand).ok()?, usize::try_from(result).ok()?))
    };
    let pairs = params.get("input_output_aliases").and_then(items).unwrap_or_default();
    pairs.iter().filter_map(pair).collect()
}
