//! Equations that return an operand as it is.

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;

use crate::ir::{Atom, Eqn, ParamValue, Program, Var};

use super::rewrite::Edits;
use super::{Embedding, Unit};

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut edits = Edits::of(program);
    let mut used = None;
    for eqn in program.eqns() {
        match unit.name(program, eqn) {
            _ if !edits.is_free(eqn) => {}
            "jit" => {
                let used = used.get_or_insert_with(|| used_vars(program));
                forward(unit, program, eqn, used, &mut edits);
            }
            name => {
                let mut outvars = program.eqn_outvars(eqn);
                if let (Some(out), None) = (outvars.next(), outvars.next())
                    && let Some(same) = identity(program, eqn, name)
                {
                    edits.instead_of(out, edits.atom(same));
                    edits.remove(eqn);
                }
            }
        }
    }
    Ok(edits.finish()?)
}

/// The operand that is the only output of an equation.
fn identity(program: &Program, eqn: Eqn, name: &str) -> Option<Atom> {
    let &[operand, ..] = program.eqn_invars(eqn) else { return None };
    let params = program.params(program.eqn(eqn).params);
    let is_none = |name| matches!(params.get(name), None | Some(ParamValue::None));
    let is_empty = |name| match params.get(name) {
        Some(ParamValue::Tuple(items)) => items.is_empty(),
        _ => false,
    };
    let is_same = match name {
        // The same shape leaves nothing to do: what they take out of it is all of it, in its order.
        "convert_element_type" | "reshape" | "broadcast_in_dim" => {
            is_none("sharding") && is_none("dimensions")
        }
        "squeeze" | "slice" | "dynamic_slice" => true,
        "concatenate" => program.eqn_invars(eqn).len() == 1,
        "transpose" => match params.get("permutation") {
            Some(ParamValue::Tuple(axes)) => {
                let places = (0..).map(ParamValue::Int);
                axes.iter().zip(places).all(|(axis, place)| *axis == place)
            }
            _ => false,
        },
        "rev" => is_empty("dimensions"),
        "pad" => match params.get("padding_config") {
            Some(ParamValue::Tuple(axes)) => axes.iter().all(|axis| match axis {
                ParamValue::Tuple(widths) => widths.iter().all(|w| *w == ParamValue::Int(0)),
                _ => false,
            }),
            _ => false,
        },
        "reduce_sum" | "reduce_prod" | "reduce_max" | "reduce_min" | "reduce_and" | "reduce_or"
        | "reduce_xor" => is_empty("axes") && is_none("out_sharding"),
        _ => false,
    };
    let out = program.eqn_outvars(eqn).next()?;
    (is_same && program.atom_type(operand) == program.var_type(out)).then_some(operand)
}

/// What a jit returns of its operands need not come from it.
fn forward<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    used: &EntitySet<Var>,
    edits: &mut Edits<'_>,
) {
    let data = program.eqn(eqn);
    let Some(ParamValue::Program(body)) = program.params(data.params).get("jaxpr") else { return };
    let Some(body) = &program.subprogram(*body).program else { return };
    let places: FxHashMap<Var, usize> =
        body.invars().iter().enumerate().map(|(place, &var)| (var, place)).collect();
    let returned: Vec<_> = program
        .eqn_outvars(eqn)
        .zip(body.outvars())
        .filter_map(|(out, atom)| {
            let place = *places.get(&atom.as_var()?)?;
            let operand = *program.eqn_invars(eqn).get(place)?;
            let ty = program.var_type(out);
            (program.atom_type(operand) == ty && used.contains(out)).then_some((out, operand))
        })
        .collect();
    if !returned.is_empty() && unit.embedding.is_plain_call(&unit.objects, program, data.params) {
        for (out, operand) in returned {
            edits.instead_of(out, edits.atom(operand));
        }
    }
}

/// The variables that equations or the program itself refer to.
pub(super) fn used_vars(program: &Program) -> EntitySet<Var> {
    let mut used = EntitySet::with_capacity(program.num_vars());
    for eqn in program.eqns() {
        for var in program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()) {
            used.insert(var);
        }
    }
    for var in program.outvars().iter().filter_map(|atom| atom.as_var()) {
        used.insert(var);
    }
    used
}
