//! Where programs change the precision of numbers.

use rustc_hash::FxHashMap;

use crate::ir::{DType, Program, Type};

use super::nest::{Nest, Site};
use super::values::{array, bytes, int};

/// The numbers that a dtype can hold: `m * 2**e` for integers `m` of at most some bits and exponents
/// `e` of at least some size, up to the largest one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    /// Bits of `m`.
    bits: u32,
    /// The least `e`.
    exponent: i32,
    largest: f64,
    has_negative: bool,
    has_zero: bool,
    is_complex: bool,
}

impl Numbers {
    fn float(bits: u32, least_normal: i32, largest: f64) -> Self {
        let exponent = least_normal + 1 - i32::try_from(bits).unwrap_or(0);
        let (has_negative, has_zero, is_complex) = (true, true, false);
        Self { bits, exponent, largest, has_negative, has_zero, is_complex }
    }

    fn integer(bits: u32, has_negative: bool) -> Self {
        let bits = if has_negative { bits - 1 } else { bits };
        let largest = if has_negative {
            2_f64.powi(bits.cast_signed())
        } else {
            2_f64.powi(bits.cast_signed()) - 1.0
        };
        let (exponent, has_zero, is_complex) = (0, true, false);
        Self { bits, exponent, largest, has_negative, has_zero, is_complex }
    }

    fn complex(self) -> Self {
        Self { is_complex: true, ..self }
    }

    /// The finite numbers of a dtype; None where it holds none.
    fn of(dtype: &DType) -> Option<Self> {
        let single = Self::float(24, -126, f64::from(f32::MAX));
        let double = Self::float(53, -1022, f64::MAX);
        Some(match dtype {
            // One bit, which is the sign.
            DType::Int1 => Self::integer(1, true),
            DType::Int2 => Self::integer(2, true),
            DType::Int4 => Self::integer(4, true),
            DType::Int8 => Self::integer(8, true),
            DType::Int16 => Self::integer(16, true),
            DType::Int32 => Self::integer(32, true),
            DType::Int64 => Self::integer(64, true),
            DType::Bool | DType::UInt1 => Self::integer(1, false),
            DType::UInt2 => Self::integer(2, false),
            DType::UInt4 => Self::integer(4, false),
            DType::UInt8 => Self::integer(8, false),
            DType::UInt16 => Self::integer(16, false),
            DType::UInt32 => Self::integer(32, false),
            DType::UInt64 => Self::integer(64, false),
            DType::Float4E2M1Fn => Self::float(2, 0, 6.0),
            DType::Float6E2M3Fn => Self::float(4, 0, 7.5),
            DType::Float6E3M2Fn => Self::float(3, -2, 28.0),
            DType::Float8E3M4 => Self::float(5, -2, 15.5),
            DType::Float8E4M3 => Self::float(4, -6, 240.0),
            DType::Float8E4M3B11Fnuz => Self::float(4, -10, 30.0),
            DType::Float8E4M3Fn => Self::float(4, -6, 448.0),
            DType::Float8E4M3Fnuz => Self::float(4, -7, 240.0),
            DType::Float8E5M2 => Self::float(3, -14, 57344.0),
            DType::Float8E5M2Fnuz => Self::float(3, -15, 57344.0),
            DType::Float8E8M0Fnu => Self {
                has_negative: false,
                has_zero: false,
                ..Self::float(1, -127, 2_f64.powi(127))
            },
            DType::BFloat16 => Self::float(8, -126, (2.0 - 2_f64.powi(-7)) * 2_f64.powi(127)),
            DType::Float16 => Self::float(11, -14, 65504.0),
            DType::Float32 => single,
            DType::Float64 => double,
            DType::Complex64 => single.complex(),
            DType::Complex128 => double.complex(),
            DType::Float0 | DType::String | DType::Extended(_) => return None,
        })
    }

    fn is_part_of(&self, other: &Self) -> bool {
        self.bits <= other.bits
            && self.exponent >= other.exponent
            && self.largest <= other.largest
            && (other.has_negative || !self.has_negative)
            && (other.has_zero || !self.has_zero)
            && (other.is_complex || !self.is_complex)
    }
}

/// Whether every finite number of a dtype is one of another; None where one holds no numbers.
fn is_widening(from: &DType, to: &DType) -> Option<bool> {
    Some(Numbers::of(from)?.is_part_of(&Numbers::of(to)?))
}

/// A change of precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The equation.
    pub site: Site,
    /// The dtype of the operand.
    pub from: Box<str>,
    /// That of the result.
    pub to: Box<str>,
    /// Whether the result can hold every number that the operand can.
    pub widens: bool,
    /// Whether it is what the equation is for, not something that it does besides.
    pub is_explicit: bool,
    /// Bytes of what is converted.
    pub bytes_before: u128,
    /// Bytes of the result.
    pub bytes_after: u128,
}

/// Primitives whose results may be of another precision than their operands by a param.
fn accumulates(primitive: &str) -> bool {
    matches!(
        primitive,
        "dot_general" | "conv_general_dilated" | "ragged_dot" | "ragged_dot_general"
    )
}

/// What is done to the precision of numbers, in the outermost program first.
pub fn precision(nest: &Nest) -> Vec<Conversion> {
    let mut found = Vec::new();
    for (place, program) in nest.programs().rev() {
        let mut is_relevant: FxHashMap<_, bool> = FxHashMap::default();
        for eqn in program.eqns() {
            let primitive = program.eqn(eqn).primitive;
            let converts = *is_relevant.entry(primitive).or_insert_with(|| {
                let name = &*program.primitive(primitive).name;
                accumulates(name) || matches!(name, "convert_element_type" | "reduce_precision")
            });
            if converts {
                of_equation(program, Site { place, eqn }, &mut found);
            }
        }
    }
    found
}

fn of_equation(program: &Program, site: Site, found: &mut Vec<Conversion>) {
    let data = program.eqn(site.eqn);
    let name = &*program.primitive(data.primitive).name;
    let Some(result) = data.outvars().next().map(|var| program.ty(program.var_type(var))) else {
        return;
    };
    let Some(to) = array(result).map(|array| &array.dtype) else { return };
    let operands: Vec<&Type> = program
        .eqn_invars(site.eqn)
        .iter()
        .map(|&atom| program.ty(program.atom_type(atom)))
        .collect();
    if name == "reduce_precision" {
        found.extend(reduction(program, site, operands.first().copied(), result));
        return;
    }
    let is_explicit = !accumulates(name);
    let mut seen: Vec<&DType> = Vec::new();
    for operand in operands.into_iter().take(if is_explicit { 1 } else { 2 }) {
        let Some(from) = array(operand).map(|array| &array.dtype) else { continue };
        if from == to || seen.contains(&from) {
            continue;
        }
        seen.push(from);
        let Some(widens) = is_widening(from, to) else { continue };
        found.push(Conversion {
            site,
            from: from.name().into(),
            to: to.name().into(),
            widens,
            is_explicit,
            bytes_before: bytes(operand),
            bytes_after: bytes(result),
        });
    }
}

/// What `reduce_precision` does: the type stays, but fewer bits of it are used.
fn reduction(program: &Program, site: Site, from: Option<&Type>, to: &Type) -> Option<Conversion> {
    let params = program.params(program.eqn(site.eqn).params);
    let dtype = &array(from?)?.dtype;
    let (exponent, mantissa) = (int(params, "exponent_bits")?, int(params, "mantissa_bits")?);
    let own = Numbers::of(dtype)?;
    // A float with so many bits of exponent, of which one stands for infinity and one for zero.
    let bits = u32::try_from(mantissa).ok()? + 1;
    let top = 2_f64.powi(i32::try_from(exponent).ok()? - 1);
    let keeps = bits >= own.bits && 2_f64.powf(top) > own.largest;
    Some(Conversion {
        site,
        from: dtype.name().into(),
        to: format!("{} of e{exponent}m{mantissa}", dtype.name()).into(),
        widens: keeps,
        is_explicit: true,
        bytes_before: bytes(from?),
        bytes_after: bytes(to),
    })
}
