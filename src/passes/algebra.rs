//! Identities that hold for every input, bit for bit, and where it is asked for those that do but for
//! rounding. `docs/passes.md` lists them and says why each holds.

use smallvec::SmallVec;

use crate::ir::{Atom, AtomKind, DType, Eqn, ParamValue, Program, TypeId};

use super::rewrite::Edits;
use super::{Embedding, Scalar, Unit, array, is_pure};

/// What an equation comes to.
enum Simpler<V> {
    /// An operand of it, or of an equation before it.
    Same(Atom),
    /// The same primitive and params on other operands.
    On(SmallVec<[Atom; 4]>),
    /// The same primitive on an operand and a new literal of this type.
    WithLiteral(Atom, V, TypeId),
    /// A multiplication by a new literal of this type.
    Times(Atom, V, TypeId),
}

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut edits = Edits::of(program);
    for eqn in program.eqns() {
        let name = unit.name(program, eqn);
        let mut outvars = program.eqn_outvars(eqn);
        let (Some(out), None) = (outvars.next(), outvars.next()) else { continue };
        if name.is_empty() || !edits.is_free(eqn) {
            continue;
        }
        let Some(simpler) = simpler(unit, program, eqn, name, &edits)? else { continue };
        let data = program.eqn(eqn);
        match simpler {
            Simpler::Same(atom) => {
                edits.instead_of(out, atom);
                edits.remove(eqn);
            }
            Simpler::On(operands) => edits.apply(eqn, data.primitive, data.params, &operands),
            Simpler::WithLiteral(operand, value, ty) => {
                let objects = &mut unit.objects;
                let literal = unit.embedding.literal(objects, edits.builder(), &value, ty)?;
                if let Some(literal) = literal {
                    let operands = [operand, literal.into()];
                    edits.apply(eqn, data.primitive, data.params, &operands);
                }
            }
            Simpler::Times(operand, value, ty) => {
                let objects = &mut unit.objects;
                let mul = unit.embedding.multiplication(objects, edits.builder())?;
                let literal = unit.embedding.literal(objects, edits.builder(), &value, ty)?;
                if let (Some((mul, params)), Some(literal)) = (mul, literal) {
                    edits.apply(eqn, mul, params, &[operand, literal.into()]);
                }
            }
        }
    }
    Ok(edits.finish()?)
}

/// What an equation with one output comes to, if it is something simpler.
#[allow(clippy::too_many_lines)] // one case for each rule
fn simpler<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    name: &str,
    edits: &Edits<'_>,
) -> Result<Option<Simpler<E::Value>>, E::Error> {
    let Some(out) = program.eqn_outvars(eqn).next().map(|var| program.var_type(var)) else {
        return Ok(None);
    };
    let Some(dtype) = array(program, out).map(|array| &array.dtype) else { return Ok(None) };
    let operands = edits.operands(eqn);
    let is_out = |atom: Atom| type_of(program, edits, atom) == Some(out);
    let same = |atom: Atom| is_out(atom).then_some(Simpler::Same(atom));
    Ok(match (name, &*operands) {
        (
            "add"
            | "sub"
            | "mul"
            | "div"
            | "and"
            | "or"
            | "xor"
            | "shift_left"
            | "shift_right_logical"
            | "shift_right_arithmetic",
            &[one, other],
        ) => return binary(unit, program, eqn, name, edits, [one, other]),
        ("max" | "min", &[one, other]) if one == other && dtype.is_integral() => same(one),
        ("integer_pow", &[operand]) => {
            let params = program.params(program.eqn(eqn).params);
            if params.get("y") == Some(&ParamValue::Int(1)) { same(operand) } else { None }
        }
        ("neg" | "not", &[operand]) => {
            before(unit, program, edits, operand, name).and_then(|inner| match inner.operands[..] {
                [within] => same(within),
                _ => None,
            })
        }
        ("abs" | "floor" | "ceil" | "sign", &[operand])
            if dtype.is_float() || dtype.is_integer() =>
        {
            let is_idempotent = name != "sign" || dtype.is_integer();
            let known = before(unit, program, edits, operand, name);
            known.filter(|_| is_idempotent).and_then(|_| same(operand))
        }
        ("rev" | "transpose", &[operand]) => {
            let inner = before(unit, program, edits, operand, name);
            inner.and_then(|inner| match inner.operands[..] {
                [within] if is_inverse(program, name, inner.eqn, eqn) => same(within),
                _ => None,
            })
        }
        ("real" | "imag", &[operand]) => {
            let inner = before(unit, program, edits, operand, "complex");
            let place = usize::from(name == "imag");
            inner.and_then(|inner| inner.operands.get(place).copied()).and_then(same)
        }
        ("reshape", &[operand]) => {
            let inner = before(unit, program, edits, operand, "reshape");
            let is_plain = |eqn: Eqn| {
                let params = program.params(program.eqn(eqn).params);
                ["dimensions", "sharding"]
                    .iter()
                    .all(|name| matches!(params.get(name), None | Some(ParamValue::None)))
            };
            inner.and_then(|inner| match inner.operands[..] {
                [within] if is_plain(inner.eqn) && is_plain(eqn) => {
                    same(within).or_else(|| Some(Simpler::On(inner.operands.clone())))
                }
                _ => None,
            })
        }
        ("convert_element_type", &[operand]) => {
            let inner = before(unit, program, edits, operand, name);
            inner.and_then(|inner| match inner.operands[..] {
                [within] if widens(program, edits, within, operand) => same(within),
                _ => None,
            })
        }
        ("select_n", &[which, ref cases @ ..]) => match cases {
            [first, rest @ ..] if rest.iter().all(|case| case == first) => same(*first),
            _ => {
                let place = match number(unit, program, edits, which) {
                    Some(Scalar::Bool(is_second)) => Some(usize::from(is_second)),
                    Some(Scalar::Int(place)) => usize::try_from(place).ok(),
                    _ => None,
                };
                place.and_then(|place| cases.get(place).copied()).and_then(same)
            }
        },
        ("dynamic_update_slice", &[_, update, ..]) => same(update),
        _ => None,
    })
}

/// As `simpler`, of an operation on two operands.
fn binary<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    name: &str,
    edits: &Edits<'_>,
    [one, other]: [Atom; 2],
) -> Result<Option<Simpler<E::Value>>, E::Error> {
    let Some(out) = program.eqn_outvars(eqn).next().map(|var| program.var_type(var)) else {
        return Ok(None);
    };
    let Some(dtype) = array(program, out).map(|array| &array.dtype) else { return Ok(None) };
    let is_out = |atom: Atom| type_of(program, edits, atom) == Some(out);
    let commutes = matches!(name, "add" | "mul" | "and" | "or" | "xor");
    let reassociate = unit.options.reassociate;
    for (operand, literal, is_second) in [(one, other, true), (other, one, false)] {
        let Some(number) = number(unit, program, edits, literal) else { continue };
        if (is_second || commutes)
            && is_neutral(name, dtype, number, reassociate)
            && is_out(operand)
        {
            return Ok(Some(Simpler::Same(operand)));
        }
        if is_absorbing(name, dtype, number) && is_out(literal) {
            return Ok(Some(Simpler::Same(literal)));
        }
    }
    if matches!(name, "and" | "or") && one == other && dtype.is_integral() {
        return Ok(is_out(one).then_some(Simpler::Same(one)));
    }
    if name == "div" {
        return Ok(reciprocal(unit, program, eqn, edits, dtype, one, other));
    }
    chain(unit, program, eqn, name, edits, dtype, one, other)
}

/// The type of an operand; none of a variable that was added.
fn type_of(program: &Program, edits: &Edits<'_>, atom: Atom) -> Option<TypeId> {
    match atom.kind() {
        AtomKind::Var(var) if (var.as_u32() as usize) < program.num_vars() => {
            Some(program.var_type(var))
        }
        AtomKind::Literal(id) => Some(edits.literal(id).ty),
        AtomKind::Var(_) => None,
    }
}

/// The number that all elements of an operand are.
fn number<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    edits: &Edits<'_>,
    atom: Atom,
) -> Option<Scalar> {
    let literal = match atom.kind() {
        AtomKind::Literal(literal) => literal,
        AtomKind::Var(_) => {
            let made = before(unit, program, edits, atom, "broadcast_in_dim")?;
            made.operands.first().and_then(|operand| match operand.kind() {
                AtomKind::Literal(literal) => Some(literal),
                AtomKind::Var(_) => None,
            })?
        }
    };
    unit.embedding.scalar(&unit.objects, edits.literal(literal).object)
}

/// An equation whose output is an operand.
struct Before {
    eqn: Eqn,
    operands: SmallVec<[Atom; 4]>,
}

/// The equation of an operand, where it is one of that name.
fn before<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    edits: &Edits<'_>,
    atom: Atom,
    name: &str,
) -> Option<Before> {
    let eqn = edits.def(atom)?;
    let is_found = unit.name(program, eqn) == name && is_pure(program, eqn);
    is_found.then(|| Before { eqn, operands: edits.operands(eqn) })
}

/// Whether an operation with this number as its second operand returns the first.
fn is_neutral(name: &str, dtype: &DType, number: Scalar, reassociate: bool) -> bool {
    match name {
        _ if dtype.is_float() => match name {
            // The sum of -0.0 and 0.0 is 0.0, and that of x and -0.0 is x.
            "add" => number.is_float(-0.0) || reassociate && number.is_float(0.0),
            "sub" => number.is_float(0.0) || reassociate && number.is_float(-0.0),
            "mul" | "div" => number.is_float(1.0),
            _ => false,
        },
        "add" | "sub" if dtype.is_integer() => number.is_int(0),
        "mul" | "div" if dtype.is_integer() => number.is_int(1),
        "shift_left" | "shift_right_logical" | "shift_right_arithmetic" => {
            dtype.is_integer() && number.is_int(0)
        }
        "or" | "xor" => number.is_int(0) || number == Scalar::Bool(false),
        "and" => number == Scalar::Bool(true) || dtype.is_integer() && is_ones(dtype, number),
        "mul" => number == Scalar::Bool(true),
        _ => false,
    }
}

/// Whether an operation with this number as an operand returns it.
fn is_absorbing(name: &str, dtype: &DType, number: Scalar) -> bool {
    match name {
        "mul" => dtype.is_integer() && number.is_int(0),
        "and" => number.is_int(0) || number == Scalar::Bool(false),
        "or" => number == Scalar::Bool(true) || dtype.is_integer() && is_ones(dtype, number),
        _ => false,
    }
}

/// Whether all bits of an integer are set.
fn is_ones(dtype: &DType, number: Scalar) -> bool {
    let is_signed = dtype.name().starts_with("int");
    let largest = 1_i128.checked_shl(u32::try_from(dtype.bits()).unwrap_or(127));
    number.is_int(if is_signed { -1 } else { largest.map_or(-1, |bits| bits - 1) })
}

/// Whether one of two equations of the same name undoes the other.
fn is_inverse(program: &Program, name: &str, first: Eqn, second: Eqn) -> bool {
    let param = |eqn: Eqn, name| program.params(program.eqn(eqn).params).get(name);
    if name == "rev" {
        return param(first, "dimensions").is_some()
            && param(first, "dimensions") == param(second, "dimensions");
    }
    let (Some(ParamValue::Tuple(first)), Some(ParamValue::Tuple(second))) =
        (param(first, "permutation"), param(second, "permutation"))
    else {
        return false;
    };
    second.iter().zip(0..).all(|(axis, place)| match axis {
        ParamValue::Int(axis) => {
            let axis = usize::try_from(*axis).ok().and_then(|axis| first.get(axis));
            axis == Some(&ParamValue::Int(place))
        }
        _ => false,
    })
}

/// Whether a conversion of integers keeps them all apart, so that the way back is exact.
fn widens(program: &Program, edits: &Edits<'_>, from: Atom, to: Atom) -> bool {
    let dtype = |atom| array(program, type_of(program, edits, atom)?).map(|array| &array.dtype);
    let (Some(from), Some(to)) = (dtype(from), dtype(to)) else { return false };
    match from {
        DType::Bool => to.is_integer() || to.is_float(),
        _ => from.is_integer() && to.is_integer() && from.bits() <= to.bits(),
    }
}

/// A division by a number as a multiplication: exact where the number is a power of two and neither
/// it nor its reciprocal is subnormal, since both round the same quotient.
fn reciprocal<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    edits: &Edits<'_>,
    dtype: &DType,
    dividend: Atom,
    divisor: Atom,
) -> Option<Simpler<E::Value>> {
    let AtomKind::Literal(literal) = divisor.kind() else { return None };
    let Some(Scalar::Float(bits)) = number(unit, program, edits, divisor) else { return None };
    let divisor = f64::from_bits(bits);
    let inverse = divisor.recip();
    // The smallest and the largest exponents of normal numbers.
    let exponents = match dtype {
        DType::Float16 => -14..=15,
        DType::BFloat16 | DType::Float32 => -126..=127,
        DType::Float64 => -1022..=1023,
        _ => return None,
    };
    let exponent = |value: f64| i64::try_from(value.to_bits() >> 52 & 0x7ff).ok().map(|e| e - 1023);
    let is_normal = |value: f64| exponent(value).is_some_and(|e| exponents.contains(&e));
    let is_power = bits & ((1 << 52) - 1) == 0;
    let is_exact = is_power || unit.options.reassociate;
    let has_params = !program.params(program.eqn(eqn).params).is_empty();
    if !is_exact || has_params || !is_normal(divisor) || !is_normal(inverse) {
        return None;
    }
    let ty = edits.literal(literal).ty;
    let value = unit.embedding.number(&unit.objects, Scalar::Float(inverse.to_bits()), ty)?;
    Some(Simpler::Times(dividend, value, ty))
}

/// Two operations of a kind with literals as one: `(x + 1) + 2` is `x + 3`. Integers wrap, so the
/// order does not count; that of floats does.
#[expect(clippy::too_many_arguments, reason = "the parts of an equation")]
fn chain<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    name: &str,
    edits: &Edits<'_>,
    dtype: &DType,
    one: Atom,
    other: Atom,
) -> Result<Option<Simpler<E::Value>>, E::Error> {
    let is_associative = match name {
        "add" | "mul" => dtype.is_integer() || unit.options.reassociate && dtype.is_float(),
        "and" | "or" | "xor" => dtype.is_integral(),
        _ => false,
    };
    if !is_associative {
        return Ok(None);
    }
    let literal = |atoms: &[Atom]| match *atoms {
        [x, c] | [c, x] if x.as_var().is_some() => match c.kind() {
            AtomKind::Literal(literal) => Some((x, literal)),
            AtomKind::Var(_) => None,
        },
        _ => None,
    };
    let Some((operand, outer)) = literal(&[one, other]) else { return Ok(None) };
    let Some(inner) = before(unit, program, edits, operand, name) else { return Ok(None) };
    if program.eqn(inner.eqn).params != program.eqn(eqn).params {
        return Ok(None);
    }
    let Some((x, inner)) = literal(&inner.operands) else { return Ok(None) };
    let (outer, inner) = (edits.literal(outer), edits.literal(inner));
    if outer.ty != inner.ty || type_of(program, edits, x) != type_of(program, edits, operand) {
        return Ok(None);
    }
    let values = [inner, outer].map(|literal| unit.embedding.value(&unit.objects, literal.object));
    let ty = outer.ty;
    let value = unit.embedding.evaluate(&unit.objects, program, eqn, &values, ty)?;
    Ok(value.map(|value| Simpler::WithLiteral(x, value, ty)))
}
