//! What types and params say: sizes, numbers, lists.

use crate::ir::{ArrayType, Dim, ParamValue, Params, Type};

/// The type of the array that a value is, or that a Ref holds.
pub(super) fn array(ty: &Type) -> Option<&ArrayType> {
    match ty {
        Type::Array(array) => Some(array),
        Type::Ref { inner, .. } => array(inner),
        Type::Token | Type::Opaque { .. } => None,
    }
}

/// The sizes of the dimensions; symbolic ones count as one.
pub(super) fn sizes(ty: &ArrayType) -> Vec<u128> {
    let known = |dim: &Dim| match dim {
        // With more no matrix could be factorized, and its cube could not be counted.
        Dim::Static(size) => u128::from(*size).min(1 << 40),
        Dim::Symbolic(_) => 1,
    };
    ty.shape.iter().map(known).collect()
}

/// How many elements an array has.
pub(super) fn elements(ty: &ArrayType) -> u128 {
    // Sums of such numbers can be counted.
    product(&sizes(ty)).min(1 << 96)
}

/// What is too much to count is the most there is.
pub(super) fn product(factors: &[u128]) -> u128 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor))
}

/// How many bytes a value takes.
pub(super) fn bytes(ty: &Type) -> u128 {
    array(ty).map_or(0, |ty| product(&[elements(ty), ty.dtype.bits()]).div_ceil(8))
}

/// A param that is a number.
pub(super) fn int(params: &Params, name: &str) -> Option<i64> {
    match params.get(name)? {
        ParamValue::Int(value) => Some(*value),
        _ => None,
    }
}

/// The items of a tuple or a list.
pub(super) fn items(value: &ParamValue) -> Option<&[ParamValue]> {
    match value {
        ParamValue::Tuple(items) | ParamValue::List(items) => Some(items),
        _ => None,
    }
}

/// Numbers that are not negative.
pub(super) fn ints(value: &ParamValue) -> Option<Vec<u128>> {
    let known = |value: &ParamValue| match value {
        ParamValue::Int(value) => u128::try_from(*value).ok(),
        _ => None,
    };
    items(value)?.iter().map(known).collect()
}
