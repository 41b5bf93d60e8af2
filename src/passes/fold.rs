//! Equations on nothing but literals.
//!
//! An equation is replaced by its result where that is the same number on every device: integer
//! arithmetic, comparisons, what moves elements, and floating-point operations that IEEE 754 has
//! rounded correctly. What only makes an array of a number (`broadcast_in_dim`, `iota`) stays, since
//! the array is no less; it is evaluated where an equation on it is.

use cranelift_entity::{EntitySet, SecondaryMap};

use crate::ir::{ArrayType, Atom, AtomKind, DType, Dim, Eqn, Program, Var};

use super::rewrite::Edits;
use super::{Embedding, Unit, array};

/// An equation on literals and others such.
struct Known<V> {
    eqn: Eqn,
    /// None until somebody asks, where the equation stays.
    value: Option<V>,
    stays: bool,
}

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let edits = Edits::of(program);
    let mut known: SecondaryMap<Var, Option<u32>> = SecondaryMap::new();
    let mut found: Vec<Known<E::Value>> = Vec::new();
    for eqn in program.eqns() {
        let name = unit.name(program, eqn);
        let is_known = |atom: &Atom| atom.as_var().is_none_or(|var| known[var].is_some());
        if !program.eqn_invars(eqn).iter().all(is_known) {
            continue;
        }
        let Some(stays) = foldable(unit, program, eqn, name).filter(|_| edits.is_free(eqn)) else {
            continue;
        };
        let value = if stays {
            None
        } else {
            match evaluate(unit, program, eqn, &known, &mut found)? {
                None => continue,
                some => some,
            }
        };
        if let (Some(out), Ok(place)) =
            (program.eqn_outvars(eqn).next(), u32::try_from(found.len()))
        {
            known[out] = Some(place);
            found.push(Known { eqn, value, stays });
        }
    }
    if found.iter().all(|known| known.stays) {
        return Ok(None);
    }
    replace(unit, program, edits, &found)
}

/// Puts values in the place of equations, the last ones first: those that only such equations use
/// are dropped with them.
fn replace<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    mut edits: Edits<'_>,
    found: &[Known<E::Value>],
) -> Result<Option<Program>, E::Error> {
    let mut gone: EntitySet<Eqn> = EntitySet::with_capacity(program.num_eqns());
    for known in found.iter().filter(|known| !known.stays) {
        gone.insert(known.eqn);
    }
    let mut used: EntitySet<Var> = EntitySet::with_capacity(program.num_vars());
    let use_all = |used: &mut EntitySet<Var>, atoms: &[Atom]| {
        used.extend(atoms.iter().filter_map(|atom| atom.as_var()));
    };
    use_all(&mut used, program.outvars());
    for eqn in program.eqns().filter(|&eqn| !gone.contains(eqn)) {
        use_all(&mut used, program.eqn_invars(eqn));
    }
    for known in found.iter().rev().filter(|known| !known.stays) {
        let (Some(value), Some(out)) = (&known.value, program.eqn_outvars(known.eqn).next()) else {
            continue;
        };
        if used.contains(out) {
            let Some(atom) = atom(unit, program, &mut edits, value, out)? else {
                use_all(&mut used, program.eqn_invars(known.eqn));
                continue;
            };
            edits.instead_of(out, atom);
        }
        edits.remove(known.eqn);
    }
    Ok(edits.finish()?)
}

/// A value as an operand: a literal, or a constant where it is an array.
fn atom<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    edits: &mut Edits<'_>,
    value: &E::Value,
    var: Var,
) -> Result<Option<Atom>, E::Error> {
    let ty = program.var_type(var);
    let objects = &mut unit.objects;
    if array(program, ty).is_some_and(|array| array.shape.is_empty()) {
        let literal = unit.embedding.literal(objects, edits.builder(), value, ty)?;
        return Ok(literal.map(Atom::literal));
    }
    if !unit.is_outermost {
        return Ok(None);
    }
    let Some(constant) = unit.embedding.constant(objects, value, ty)? else { return Ok(None) };
    let builder = edits.builder();
    let var = builder.constvar(ty, constant)?;
    builder.retain(var);
    Ok(Some(Atom::var(var)))
}

/// The value of an equation on known operands.
fn evaluate<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    known: &SecondaryMap<Var, Option<u32>>,
    found: &mut [Known<E::Value>],
) -> Result<Option<E::Value>, E::Error> {
    let mut operands = Vec::new();
    for atom in program.eqn_invars(eqn) {
        let value = match atom.kind() {
            AtomKind::Literal(id) => {
                Some(unit.embedding.value(&unit.objects, program.literal(id).object))
            }
            AtomKind::Var(var) => match known[var] {
                None => None,
                Some(place) => {
                    let place = place as usize;
                    if found[place].value.is_none() {
                        // One that makes an array of a number, of no other array.
                        let made = found[place].eqn;
                        let numbers = program.eqn_invars(made).iter();
                        let numbers: Option<Vec<_>> = numbers
                            .map(|atom| match atom.kind() {
                                AtomKind::Literal(id) => {
                                    let object = program.literal(id).object;
                                    Some(unit.embedding.value(&unit.objects, object))
                                }
                                AtomKind::Var(var) => {
                                    known[var].and_then(|at| found[at as usize].value.clone())
                                }
                            })
                            .collect();
                        if let Some(numbers) = numbers {
                            let ty = program.var_type(var);
                            let (embedding, objects) = (&mut *unit.embedding, &unit.objects);
                            found[place].value =
                                embedding.evaluate(objects, program, made, &numbers, ty)?;
                        }
                    }
                    found[place].value.clone()
                }
            },
        };
        let Some(value) = value else { return Ok(None) };
        operands.push(value);
    }
    let ty = program.var_type(program.eqn(eqn).first_outvar);
    unit.embedding.evaluate(&unit.objects, program, eqn, &operands, ty)
}

/// Whether an equation on literals may be evaluated, and if so, whether it stays all the same.
fn foldable<E: Embedding>(
    unit: &Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    name: &str,
) -> Option<bool> {
    let mut outvars = program.eqn_outvars(eqn);
    let (Some(out), None) = (outvars.next(), outvars.next()) else { return None };
    let out = plain(program, program.var_type(out))?;
    let limit = unit.options.max_folded;
    if name.is_empty() || elements(out).is_none_or(|n| n > limit) {
        return None;
    }
    let operands: Option<Vec<&ArrayType>> = program
        .eqn_invars(eqn)
        .iter()
        .map(|&atom| plain(program, program.atom_type(atom)))
        .collect();
    let operands = operands?;
    let first = operands.first().map(|ty| &ty.dtype);
    let reassociate = unit.options.reassociate;
    let is_exact = match name {
        "iota" => return operands.is_empty().then_some(true),
        "broadcast_in_dim" => return Some(!out.shape.is_empty()),
        "neg"
        | "abs"
        | "sign"
        | "floor"
        | "ceil"
        | "is_finite"
        | "not"
        | "and"
        | "or"
        | "xor"
        | "eq"
        | "ne"
        | "lt"
        | "le"
        | "gt"
        | "ge"
        | "add"
        | "sub"
        | "mul"
        | "select_n"
        | "reshape"
        | "transpose"
        | "squeeze"
        | "rev"
        | "slice"
        | "concatenate"
        | "pad"
        | "shift_left"
        | "shift_right_logical"
        | "shift_right_arithmetic"
        | "real"
        | "imag"
        | "complex" => {
            !first.is_some_and(DType::is_complex) || !matches!(name, "mul" | "abs" | "sign")
        }
        // A division by zero is what the device makes of it.
        "div" => first.is_some_and(DType::is_float),
        // Which of two zeros it is, and which of two NaNs.
        "max" | "min" | "clamp" => first.is_some_and(DType::is_integral),
        "reduce_sum" | "reduce_prod" | "reduce_max" | "reduce_min" => {
            first.is_some_and(DType::is_integral)
        }
        "reduce_and" | "reduce_or" | "reduce_xor" => true,
        "integer_pow" => first.is_some_and(DType::is_integer),
        // A float out of range of the integers is what the device makes of it.
        "convert_element_type" => {
            first.is_some_and(DType::is_integral)
                || out.dtype.is_float() && first.is_some_and(DType::is_float)
        }
        "exp" | "exp2" | "expm1" | "log" | "log1p" | "sin" | "cos" | "tan" | "tanh" | "sinh"
        | "cosh" | "logistic" | "sqrt" | "rsqrt" | "cbrt" | "pow" | "erf" | "atan2" => reassociate,
        _ => false,
    };
    is_exact.then_some(false)
}

/// An array of a size that is known, of numbers of a common dtype, where jax puts it by default.
fn plain(program: &Program, ty: crate::ir::TypeId) -> Option<&ArrayType> {
    let found = array(program, ty)?;
    let ArrayType {
        dtype,
        shape: _,
        weak_type: _,
        sharding,
        manual_axis_type,
        memory_space,
        layout,
    } = found;
    let is_default =
        [sharding, manual_axis_type, memory_space, layout].into_iter().all(Option::is_none);
    (is_default && (dtype.is_integral() || dtype.is_float() || dtype.is_complex())).then_some(found)
}

fn elements(ty: &ArrayType) -> Option<u64> {
    ty.shape.iter().try_fold(1_u64, |product, dim| match dim {
        Dim::Static(size) => product.checked_mul(*size),
        Dim::Symbolic(_) => None,
    })
}
