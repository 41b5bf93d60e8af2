//! Equations and constants that nothing depends on.

use cranelift_entity::EntitySet;
use smallvec::SmallVec;

use crate::ir::{Atom, Eqn, EqnData, Program, Var};

use super::rewrite::{Rewrite, acted_on};
use super::{Embedding, Trimmed, Unit, is_pure};

/// Equations of these run programs that can be made to compute less.
const TRIMMED: [&str; 5] = ["jit", "closed_call", "scan", "cond", "remat2"];

/// Each equation of these takes the next numbers of a generator that no operand stands for.
const STATEFUL: &str = "rng_uniform";

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut live: EntitySet<Var> = EntitySet::with_capacity(program.num_vars());
    let mut dead: EntitySet<Eqn> = EntitySet::with_capacity(program.num_eqns());
    let mut candidates: EntitySet<Eqn> = EntitySet::new();
    let mut num_changes = 0_usize;
    let acted_on = acted_on(program);
    let mark = |live: &mut EntitySet<Var>, atoms: &[Atom]| {
        for var in atoms.iter().filter_map(|atom| atom.as_var()) {
            live.insert(var);
        }
    };
    mark(&mut live, program.outvars());
    for effect in program.effect_list(program.effects()) {
        live.extend(effect.input);
    }
    for eqn in program.eqns().rev() {
        let mut outvars = program.eqn_outvars(eqn);
        if !outvars.any(|var| live.contains(var))
            && is_pure(program, eqn)
            && unit.name(program, eqn) != STATEFUL
        {
            dead.insert(eqn);
            num_changes += 1;
            continue;
        }
        let mut outvars = program.eqn_outvars(eqn);
        if !outvars.any(|var| acted_on.contains(var)) && is_trimmable(unit, program, eqn, &live) {
            candidates.insert(eqn);
            num_changes += 1;
        }
        mark(&mut live, program.eqn_invars(eqn));
        for effect in program.effect_list(program.eqn(eqn).effects) {
            live.extend(effect.input);
        }
    }
    let constants = program.constvars();
    num_changes += constants.iter().filter(|&&(var, _)| !live.contains(var)).count();
    if num_changes == 0 {
        return Ok(None);
    }
    let mut rewrite = Rewrite::new(program);
    for eqn in program.eqns().filter(|&eqn| !dead.contains(eqn)) {
        if !candidates.contains(eqn) {
            rewrite.keep(eqn)?;
        } else if !trim(unit, program, eqn, &live, &mut rewrite)? {
            num_changes -= 1;
        }
    }
    if num_changes == 0 {
        return Ok(None);
    }
    Ok(Some(rewrite.finish(|var| live.contains(var))?))
}

/// Whether an equation runs programs of which something seems to be for nothing.
fn is_trimmable<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    live: &EntitySet<Var>,
) -> bool {
    if !TRIMMED.contains(&unit.name(program, eqn)) || !is_pure(program, eqn) {
        return false;
    }
    let data = program.eqn(eqn);
    if data.outvars().any(|var| !live.contains(var)) {
        return true;
    }
    let within = program.params(data.params).subprograms();
    let bodies: Vec<&Program> =
        within.iter().filter_map(|&id| program.subprogram(id).program.as_deref()).collect();
    let used: Vec<_> = bodies.iter().map(|body| super::copies::used_vars(body)).collect();
    let Some(first) = bodies.first() else { return false };
    // Where there are branches, an operand may be for one of them.
    (0..first.invars().len()).any(|place| {
        bodies
            .iter()
            .zip(&used)
            .all(|(body, used)| body.invars().get(place).is_some_and(|&var| !used.contains(var)))
    })
}

/// Appends an equation that computes what is live of its outputs; whether that is less.
fn trim<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
    live: &EntitySet<Var>,
    rewrite: &mut Rewrite<'_>,
) -> Result<bool, E::Error> {
    let used: SmallVec<[bool; 8]> =
        program.eqn_outvars(eqn).map(|var| live.contains(var)).collect();
    let builder = &mut rewrite.builder;
    match unit.embedding.trim(&mut unit.objects, builder, program, eqn, &used)? {
        Trimmed::Same => {
            rewrite.keep(eqn)?;
            Ok(false)
        }
        Trimmed::Gone => Ok(true),
        Trimmed::To { operands, outputs, params, effects } => {
            let data = EqnData { params, effects, ..program.eqn(eqn).clone() };
            let all = rewrite.operands(eqn);
            let left = |kept: &[bool], atoms: &[Atom]| -> SmallVec<[Atom; 4]> {
                atoms.iter().zip(kept).filter(|&(_, kept)| *kept).map(|(&atom, _)| atom).collect()
            };
            let new = left(&operands, &all);
            if outputs.iter().all(|&is_left| is_left) {
                rewrite.keep_as(&data, &new)?;
                return Ok(true);
            }
            // Outputs are consecutive, so that those that are left are other variables.
            let outs: SmallVec<[Var; 4]> = data
                .outvars()
                .zip(&outputs)
                .filter(|&(_, is_left)| *is_left)
                .map(|(var, _)| var)
                .collect();
            let types: SmallVec<[_; 4]> = outs.iter().map(|&var| program.var_type(var)).collect();
            let made = rewrite.builder.eqn(
                data.primitive,
                params,
                &new,
                &types,
                effects,
                data.source,
                data.context,
            )?;
            let made: SmallVec<[Var; 4]> = rewrite.builder.eqn_data(made).outvars().collect();
            for (&was, &now) in outs.iter().zip(&made) {
                rewrite.instead_of(was, Atom::var(now));
            }
            Ok(true)
        }
    }
}
