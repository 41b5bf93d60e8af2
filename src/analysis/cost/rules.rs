//! What one equation costs, by its primitive.
//!
//! Formulas count the arithmetic of the operation as jax defines it, not of what a compiler makes of
//! it. Where XLA's `HloCostAnalysis` counts the same operation, the formula is XLA's
//! (`xla/service/hlo_cost_analysis.cc`): one flop an element for arithmetic, comparison and
//! conversion; transcendental functions apart; two flops a multiplication with addition in
//! contractions; for reductions one operation an element that goes away. Factorizations are counted
//! as in Golub and Van Loan, *Matrix Computations*, 4th edition, the fast Fourier transform as
//! `5 n log2 n` (Van Loan, *Computational Frameworks for the FFT*).

use crate::ir::{ArrayType, Eqn, ParamValue, Params, Program, Type};

use super::super::values::{array, bytes, elements, int, ints, items, product, sizes};
use super::super::wiring::{callee, solver};
use super::Cost;

/// What an equation is to its cost.
pub(in crate::analysis) enum Kind<'p> {
    /// It costs this.
    Leaf(Cost),
    /// It runs programs so often each.
    Calls(Vec<(&'p ParamValue, u128)>),
    /// It runs one of these.
    Branches(Vec<&'p ParamValue>),
    /// It runs the body as often as nobody knows, and the condition one time more.
    Loop { condition: Option<&'p ParamValue>, body: &'p ParamValue },
    /// Nothing is known.
    Unknown,
}

/// One run of the cipher Threefry-2x32: 20 rounds of an addition, a rotation (two shifts, an or) and
/// an xor, and 5 injections of keys, of three additions each (Salmon et al. 2011, "Parallel random
/// numbers: as easy as 1, 2, 3").
const THREEFRY: u128 = 20 * 5 + 5 * 3;

/// Arithmetic of an element: flops and transcendental functions.
type PerElement = (u128, u128);

/// What happens to each element of the result.
#[allow(clippy::too_many_lines)] // a table
fn per_element(primitive: &str, params: &Params) -> Option<PerElement> {
    Some(match primitive {
        "abs"
        | "add"
        | "add_any"
        | "and"
        | "bitcast_convert_type"
        | "ceil"
        | "clz"
        | "conj"
        | "convert_element_type"
        | "div"
        | "eq"
        | "eq_to"
        | "floor"
        | "ge"
        | "gt"
        | "is_finite"
        | "le"
        | "le_to"
        | "lt"
        | "lt_to"
        | "max"
        | "min"
        | "mul"
        | "mulhi"
        | "ne"
        | "neg"
        | "nextafter"
        | "not"
        | "or"
        | "population_count"
        | "reciprocal"
        | "reduce_precision"
        | "rem"
        | "round"
        | "select_n"
        | "shift_left"
        | "shift_right_arithmetic"
        | "shift_right_logical"
        | "sign"
        | "square"
        | "sub"
        | "xor" => (1, 0),
        "clamp" => (2, 0),
        // (1 + x) * (1 - x)
        "one_minus_square" => (3, 0),
        "acos"
        | "acosh"
        | "asin"
        | "asinh"
        | "atan"
        | "atan2"
        | "atanh"
        | "bessel_i0e"
        | "bessel_i1e"
        | "cbrt"
        | "cos"
        | "cosh"
        | "digamma"
        | "erf"
        | "erf_inv"
        | "erfc"
        | "exp"
        | "exp2"
        | "expm1"
        | "igamma"
        | "igamma_grad_a"
        | "igammac"
        | "lgamma"
        | "log"
        | "log1p"
        | "log2"
        | "polygamma"
        | "pow"
        | "random_gamma_grad"
        | "regularized_incomplete_beta"
        | "rsqrt"
        | "sin"
        | "sinh"
        | "sqrt"
        | "tan"
        | "tanh"
        | "zeta" => (0, 1),
        // 1 / (1 + exp(-x))
        "logistic" => (3, 1),
        "integer_pow" => (powers(int(params, "y")?), 0),
        _ => return None,
    })
}

/// Whether an element of the result is made of the same element of each operand.
pub(in crate::analysis) fn is_per_element(primitive: &str) -> bool {
    primitive == "integer_pow" || per_element(primitive, &Params::default()).is_some()
}

/// Multiplications (and a division) for a power, by squaring.
fn powers(exponent: i64) -> u128 {
    let magnitude = exponent.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let squarings = u128::from(magnitude.ilog2());
    squarings + u128::from(magnitude.count_ones()) - 1 + u128::from(exponent < 0)
}

/// Primitives that move data or only say something of it.
fn only_moves(primitive: &str) -> bool {
    matches!(
        primitive,
        "broadcast_in_dim"
            | "broadcast_to"
            | "complex"
            | "concatenate"
            | "copy"
            | "copy_p"
            | "device_put"
            | "empty"
            | "empty2"
            | "from_edtype"
            | "imag"
            | "iota"
            | "pad"
            | "real"
            | "reshape"
            | "rev"
            | "split"
            | "squeeze"
            | "stack"
            | "tile"
            | "to_edtype"
            | "transpose"
            | "unstack"
            | "zeros_like"
            | "lu_pivots_to_permutation"
            | "random_wrap"
            | "random_unwrap"
            | "random_clone"
    )
}

/// Primitives that are gone when the program runs.
fn is_free(primitive: &str) -> bool {
    matches!(
        primitive,
        "after_all"
            | "axis_index"
            | "create_token"
            | "dce_sink"
            | "dim_as_value"
            | "dimension_size"
            | "layout_constraint"
            | "mutable_array"
            | "name"
            | "new_ref"
            | "freeze"
            | "free_ref"
            | "optimization_barrier"
            | "pbroadcast"
            | "pvary"
            | "reshard"
            | "sharding_constraint"
            | "stop_gradient"
            | "platform_index"
            | "tie"
            | "with_memory_space_constraint"
            | "shape_assertion"
            | "program_id"
            | "num_programs"
            | "inspect_sharding"
            | "reduced_vary_cast_p"
            | "vary_unreduced_cast_p"
            | "preduced"
            | "multiple_of"
    )
}

pub(in crate::analysis) fn kind(program: &Program, eqn: Eqn) -> Kind<'_> {
    let data = program.eqn(eqn);
    let primitive = program.primitive(data.primitive).operation();
    let params = program.params(data.params);
    if let Some(nested) = nested(primitive, params) {
        return nested;
    }
    match leaf(program, eqn, primitive, params) {
        Some(cost) => Kind::Leaf(cost),
        None => Kind::Unknown,
    }
}

/// Which programs an equation runs.
fn nested<'p>(primitive: &str, params: &'p Params) -> Option<Kind<'p>> {
    match primitive {
        "scan" => {
            let body = params.get("jaxpr")?;
            Some(match int(params, "length") {
                Some(length) => Kind::Calls(vec![(body, u128::from(length.unsigned_abs()))]),
                // It has a symbolic length.
                None => Kind::Loop { condition: None, body },
            })
        }
        "while" => Some(Kind::Loop {
            condition: Some(params.get("cond_jaxpr")?),
            body: params.get("body_jaxpr")?,
        }),
        "cond" => Some(Kind::Branches(items(params.get("branches")?)?.iter().collect())),
        "run_state" | "core_map" | "run_scoped" => {
            Some(Kind::Calls(vec![(params.get("jaxpr")?, 1)]))
        }
        "custom_linear_solve" => Some(Kind::Calls(vec![(solver(params)?, 1)])),
        "xla_pmap" => {
            let devices = u128::from(int(params, "global_axis_size")?.unsigned_abs());
            Some(Kind::Calls(vec![(params.get("call_jaxpr")?, devices)]))
        }
        _ => Some(Kind::Calls(vec![(callee(primitive, params)?, 1)])),
    }
}

struct Operands<'p> {
    invars: Vec<&'p Type>,
    outvars: Vec<&'p Type>,
}

impl<'p> Operands<'p> {
    fn of(program: &'p Program, eqn: Eqn) -> Self {
        let ty = |id| program.ty(id);
        Self {
            invars: program.eqn_invars(eqn).iter().map(|&a| ty(program.atom_type(a))).collect(),
            outvars: program.eqn_outvars(eqn).map(|var| ty(program.var_type(var))).collect(),
        }
    }

    fn input(&self, index: usize) -> Option<&'p ArrayType> {
        array(self.invars.get(index)?)
    }

    fn output(&self, index: usize) -> Option<&'p ArrayType> {
        array(self.outvars.get(index)?)
    }

    fn read(&self) -> u128 {
        self.invars.iter().map(|ty| bytes(ty)).sum()
    }

    fn written(&self) -> u128 {
        self.outvars.iter().map(|ty| bytes(ty)).sum()
    }

    fn cost(&self, (flops, transcendentals): PerElement) -> Cost {
        Cost { flops, transcendentals, bytes_read: self.read(), bytes_written: self.written() }
    }
}

#[allow(clippy::too_many_lines)] // a table
fn leaf(program: &Program, eqn: Eqn, primitive: &str, params: &Params) -> Option<Cost> {
    if is_free(primitive) {
        return Some(Cost::default());
    }
    let types = Operands::of(program, eqn);
    if let Some((flops, transcendentals)) = per_element(primitive, params) {
        let count = elements(types.output(0)?);
        // A product of complex numbers is four multiplications and two additions.
        let complex = types.output(0)?.dtype.is_complex();
        let each = match primitive {
            "add" | "sub" | "add_any" | "neg" if complex => 2 * flops,
            "mul" | "square" | "div" | "integer_pow" if complex => 6 * flops,
            "one_minus_square" if complex => 10,
            _ => flops,
        };
        return Some(types.cost((product(&[each, count]), product(&[transcendentals, count]))));
    }
    if only_moves(primitive) {
        return Some(types.cost((0, 0)));
    }
    Some(match primitive {
        // By Horner's rule: a loop begins with zero, the unrolled form with the last coefficient.
        "polynomial" => {
            let out = types.output(0)?;
            let coefficients = types.invars.len().checked_sub(1)? as u128;
            let unrolled =
                int(params, "unroll").map_or(8, |unroll| u128::from(unroll.unsigned_abs()));
            let steps = coefficients.saturating_sub(u128::from(coefficients <= unrolled));
            let each = if out.dtype.is_complex() { 8 } else { 2 };
            types.cost((product(&[steps, each, elements(out)]), 0))
        }
        "slice" | "dynamic_slice" | "gather" => {
            // Only what is taken is read, and where it is.
            let places: u128 = types.invars.iter().skip(1).map(|ty| bytes(ty)).sum();
            let taken = types.written();
            Cost { bytes_read: taken + places, bytes_written: taken, ..Cost::default() }
        }
        "dynamic_update_slice" => {
            let read: u128 = types.invars.iter().skip(1).map(|ty| bytes(ty)).sum();
            let written = bytes(types.invars.get(1)?);
            Cost { bytes_read: read, bytes_written: written, ..Cost::default() }
        }
        "scatter" | "scatter-add" | "scatter-mul" | "scatter-min" | "scatter-max"
        | "scatter-sub" => {
            let updates = types.input(2)?;
            let size = bytes(types.invars[2]);
            let combines = primitive != "scatter";
            Cost {
                flops: if combines { elements(updates) } else { 0 },
                transcendentals: 0,
                bytes_read: bytes(types.invars[1]) + size * if combines { 2 } else { 1 },
                bytes_written: size,
            }
        }
        "dot_general" => types.cost((dot_general(&types, params)?, 0)),
        "ragged_dot_general" | "ragged_dot" => {
            let (lhs, out) = (types.input(0)?, types.output(0)?);
            let inner = sizes(lhs).last().copied()?;
            types.cost((product(&[2, elements(out), inner]), 0))
        }
        "conv_general_dilated" => types.cost((convolution(&types, params)?, 0)),
        "reduce_sum" | "reduce_prod" | "reduce_max" | "reduce_min" | "reduce_and" | "reduce_or"
        | "reduce_xor" | "argmax" | "argmin" => {
            let (before, after) = (elements(types.input(0)?), elements(types.output(0)?));
            types.cost((before.saturating_sub(after), 0))
        }
        "cumsum" | "cumprod" | "cummax" | "cummin" | "cumlogsumexp" => {
            let axis = usize::try_from(int(params, "axis")?).ok()?;
            let whole = elements(types.input(0)?);
            let length = sizes(types.input(0)?).get(axis).copied()?;
            let steps = whole - whole.checked_div(length).unwrap_or(0);
            let is_logarithmic = primitive == "cumlogsumexp";
            types.cost(if is_logarithmic { (4 * steps, 2 * steps) } else { (steps, 0) })
        }
        "reduce_window_sum" | "reduce_window_max" | "reduce_window_min" => {
            let window = product(&ints(params.get("window_dimensions")?)?);
            types.cost((product(&[elements(types.output(0)?), window.saturating_sub(1)]), 0))
        }
        "reduce" => {
            let (before, after) = (elements(types.input(0)?), elements(types.output(0)?));
            types.cost((product(&[before.saturating_sub(after), combination(program, params)?]), 0))
        }
        "reduce_window" => {
            let window = product(&ints(params.get("window_dimensions")?)?);
            let steps = product(&[elements(types.output(0)?), window.saturating_sub(1)]);
            types.cost((product(&[steps, combination(program, params)?]), 0))
        }
        "select_and_scatter_add" | "select_and_gather_add" => {
            let window = product(&ints(params.get("window_dimensions")?)?);
            types.cost((product(&[elements(types.input(0)?), window]), 0))
        }
        "sort" => {
            let axis = usize::try_from(int(params, "dimension")?).ok()?;
            let length = sizes(types.input(0)?).get(axis).copied()?;
            types.cost((product(&[elements(types.input(0)?), log2(length)]), 0))
        }
        "top_k" | "approx_top_k" => {
            let length = sizes(types.input(0)?).last().copied()?;
            types.cost((product(&[elements(types.input(0)?), log2(length)]), 0))
        }
        "fft" => {
            let lengths = ints(params.get("fft_lengths")?)?;
            let points = product(&lengths);
            let larger = elements(types.input(0)?).max(elements(types.output(0)?));
            types.cost((product(&[5, larger, log2(points)]), 0))
        }
        "threefry2x32" => types.cost((product(&[elements(types.output(0)?), THREEFRY]), 0)),
        "random_bits" | "rng_bit_generator" => {
            // Two words of 32 bits come of one run of the cipher.
            let bits = bytes(types.outvars.last()?);
            types.cost(((bits / 4).max(1).div_ceil(2) * THREEFRY, 0))
        }
        "random_seed" | "random_split" | "random_fold_in" => {
            types.cost((product(&[elements(types.output(0)?), THREEFRY]), 0))
        }
        "cholesky" => types.cost((batched(types.input(0)?, |n, _| n * n * n / 3)?, 0)),
        "lu" => {
            let flops = |m: u128, n: u128| {
                let least = m.min(n);
                2 * m * n * least / 2 - least * least * least / 3
            };
            types.cost((batched(types.input(0)?, flops)?, 0))
        }
        "geqrf" | "qr" => {
            let flops = |m: u128, n: u128| {
                let (tall, short) = (m.max(n), m.min(n));
                2 * short * short * tall - 2 * short * short * short / 3
            };
            types.cost((batched(types.input(0)?, flops)?, 0))
        }
        "householder_product" => {
            let flops = |m: u128, n: u128| 4 * m * m * n.min(m) / 3;
            types.cost((batched(types.input(0)?, flops)?, 0))
        }
        "triangular_solve" => {
            // The triangle is n by n, on the left or the right of m vectors.
            let right = elements(types.input(1)?);
            let order = sizes(types.input(0)?).last().copied()?;
            types.cost((product(&[right, order]), 0))
        }
        "hessenberg" => types.cost((batched(types.input(0)?, |n, _| 10 * n * n * n / 3)?, 0)),
        "schur" => types.cost((batched(types.input(0)?, |n, _| 25 * n * n * n)?, 0)),
        "tridiagonal_solve" => types.cost((product(&[8, elements(types.output(0)?)]), 0)),
        "symmetric_product" => {
            let (a, out) = (types.input(0)?, types.output(0)?);
            types.cost((product(&[elements(out), sizes(a).last()?.saturating_add(2)]), 0))
        }
        "eigh" => types.cost((batched(types.input(0)?, |n, _| 9 * n * n * n)?, 0)),
        "eig" => types.cost((batched(types.input(0)?, |n, _| 25 * n * n * n)?, 0)),
        "svd" => {
            let flops = |m: u128, n: u128| 4 * m * m * n + 8 * m * n * n + 9 * n * n * n;
            let tall = |m: u128, n: u128| flops(m.max(n), m.min(n));
            types.cost((batched(types.input(0)?, tall)?, 0))
        }
        "psum" | "pmax" | "pmin" | "psum_invariant" | "unreduced_psum" => {
            // What each device adds; what goes between devices is no memory.
            let count: u128 = types.invars.iter().filter_map(|ty| array(ty)).map(elements).sum();
            types.cost((count, 0))
        }
        "all_gather" | "all_gather_invariant" | "all_to_all" | "ppermute" | "pgather" => {
            types.cost((0, 0))
        }
        "reduce_scatter" => types.cost((elements(types.input(0)?), 0)),
        "get" => {
            Cost { bytes_read: types.written(), bytes_written: types.written(), ..Cost::default() }
        }
        "swap" | "addupdate" => {
            let value = types.invars.get(1).copied()?;
            let size = bytes(value);
            let adds = primitive == "addupdate";
            Cost {
                flops: if adds { elements(array(value)?) } else { 0 },
                transcendentals: 0,
                bytes_read: size + if adds { size } else { types.written() },
                bytes_written: size + types.written(),
            }
        }
        _ => return None,
    })
}

/// Operations of the function that combines two elements: its equations.
fn combination(program: &Program, params: &Params) -> Option<u128> {
    let mut equations = None;
    for id in params.subprograms() {
        let within = program.subprogram(id).program.as_ref()?;
        equations = Some(u128::try_from(within.num_eqns()).ok()?);
    }
    equations
}

/// Twice the elements of the result times the elements that are contracted for each.
fn dot_general(types: &Operands<'_>, params: &Params) -> Option<u128> {
    let [contracting, _batch] = items(params.get("dimension_numbers")?)? else { return None };
    let [of_lhs, _of_rhs] = items(contracting)? else { return None };
    let shape = sizes(types.input(0)?);
    let mut inner = 1;
    for axis in ints(of_lhs)? {
        inner = product(&[inner, *shape.get(usize::try_from(axis).ok()?)?]);
    }
    let complex = if types.output(0)?.dtype.is_complex() { 4 } else { 1 };
    Some(product(&[2, complex, elements(types.output(0)?), inner]))
}

/// Twice the pairs of an input and a weight that meet, padding left out.
fn convolution(types: &Operands<'_>, params: &Params) -> Option<u128> {
    let ParamValue::Named { fields, .. } = params.get("dimension_numbers")? else { return None };
    let spec = |name: &str| {
        let (_, value) = fields.iter().find(|(own, _)| &**own == name)?;
        let axes: Option<Vec<usize>> =
            ints(value)?.into_iter().map(|axis| usize::try_from(axis).ok()).collect();
        axes
    };
    let (lhs_spec, rhs_spec, out_spec) = (spec("lhs_spec")?, spec("rhs_spec")?, spec("out_spec")?);
    let (lhs, rhs, out) = (sizes(types.input(0)?), sizes(types.input(1)?), sizes(types.output(0)?));
    let per_axis = |name: &str| ints(params.get(name)?);
    let strides = per_axis("window_strides")?;
    let (lhs_dilation, rhs_dilation) = (per_axis("lhs_dilation")?, per_axis("rhs_dilation")?);
    let padding = items(params.get("padding")?)?;
    let groups = u128::from(int(params, "batch_group_count")?.unsigned_abs()).max(1);
    let mut met = 1;
    for (place, &input) in lhs_spec.get(2..)?.iter().enumerate() {
        let axis = place + 2;
        let [low, _high] = items(padding.get(place)?)? else { return None };
        let ParamValue::Int(low) = low else { return None };
        let window = Window {
            input: *lhs.get(input)?,
            kernel: *rhs.get(*rhs_spec.get(axis)?)?,
            output: *out.get(*out_spec.get(axis)?)?,
            stride: *strides.get(place)?,
            input_dilation: *lhs_dilation.get(place)?,
            kernel_dilation: *rhs_dilation.get(place)?,
            low: i128::from(*low),
        };
        met = product(&[met, window.pairs()?]);
    }
    let features = *rhs.get(*rhs_spec.first()?)?;
    let inner = *rhs.get(*rhs_spec.get(1)?)?;
    let batch = *lhs.get(*lhs_spec.first()?)? / groups;
    let complex = if types.output(0)?.dtype.is_complex() { 4 } else { 1 };
    Some(product(&[2, complex, batch, features, inner, met]))
}

/// Windows that take more steps to count are unknown.
const MAX_STEPS: u128 = 1 << 24;

/// A convolution along one axis.
struct Window {
    input: u128,
    kernel: u128,
    output: u128,
    stride: u128,
    input_dilation: u128,
    kernel_dilation: u128,
    low: i128,
}

impl Window {
    /// How many pairs of an output and a weight have an input, as XLA's `HandleConvolution` counts
    /// them.
    fn pairs(&self) -> Option<u128> {
        let step = i128::try_from(self.input_dilation.max(1)).ok()?;
        let spread = (i128::try_from(self.input).ok()? - 1) * step + 1;
        let steps = if step == 1 { self.kernel } else { product(&[self.kernel, self.output]) };
        if steps > MAX_STEPS {
            return None;
        }
        let mut pairs = 0;
        for weight in 0..self.kernel {
            let offset = i128::try_from(weight * self.kernel_dilation).ok()? - self.low;
            if self.input == 0 {
                break;
            }
            if step == 1 {
                // Outputs whose input is at least the first and at most the last.
                let stride = i128::try_from(self.stride.max(1)).ok()?;
                let first = (-offset).max(0).div_euclid(stride)
                    + i128::from((-offset).max(0).rem_euclid(stride) != 0);
                let beyond = (spread - 1 - offset).div_euclid(stride) + 1;
                let last = beyond.min(i128::try_from(self.output).ok()?);
                pairs += u128::try_from((last - first).max(0)).ok()?;
                continue;
            }
            for place in 0..self.output {
                let at = i128::try_from(place * self.stride).ok()? + offset;
                pairs += u128::from(at >= 0 && at < spread && at % step == 0);
            }
        }
        Some(pairs)
    }
}

/// The flops of a factorization of each matrix.
fn batched(ty: &ArrayType, flops: impl Fn(u128, u128) -> u128) -> Option<u128> {
    let shape = sizes(ty);
    let [batch @ .., rows, columns] = &*shape else { return None };
    let complex = if ty.dtype.is_complex() { 4 } else { 1 };
    Some(product(&[complex, product(batch), flops(*rows, *columns)]))
}

fn log2(count: u128) -> u128 {
    if count < 2 { 0 } else { u128::from((count - 1).ilog2() + 1) }
}
