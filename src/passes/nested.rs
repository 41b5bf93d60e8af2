//! Nested programs of a program.

use std::sync::Arc;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashSet;

use crate::ir::{EqnData, ForeignId, ParamsId, Program};

use super::rewrite::Rewrite;
use super::{Done, ENTERED, Embedding, Unit};

/// The programs that the equations of a program run and that passes enter, once for each equation.
pub(super) fn programs<E: Embedding>(
    program: &Program,
    embedding: &E,
    objects: &E::Objects,
) -> impl Iterator<Item = Arc<Program>> + use<E> {
    let mut found = Vec::new();
    if program.subprograms().len() > 0 {
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let primitive = program.primitive(data.primitive);
            if ENTERED.contains(&&*primitive.name) && embedding.is_known(objects, primitive.object)
            {
                let within = program.params(data.params).subprograms().into_iter();
                found.extend(within.filter_map(|id| program.subprogram(id).program.clone()));
            }
        }
    }
    found.into_iter()
}

/// The program with what became of its nested programs.
pub(super) fn replace<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    done: &Done,
) -> Result<Option<Program>, E::Error> {
    let mut changed: Vec<(ForeignId, Arc<Program>)> = Vec::new();
    let mut ids = FxHashSet::default();
    for (id, within) in program.subprograms() {
        let Some(was) = &within.program else { continue };
        let now = done.last_of(was);
        if !Arc::ptr_eq(&now, was) {
            changed.push((within.object, now));
            ids.insert(id);
        }
    }
    if changed.is_empty() {
        return Ok(None);
    }
    let mut rewrite = Rewrite::new(program);
    let mut params: SecondaryMap<ParamsId, Option<ParamsId>> = SecondaryMap::new();
    for eqn in program.eqns() {
        let data = program.eqn(eqn);
        let runs = |id| program.params(id).subprograms().iter().any(|id| ids.contains(id));
        if !ENTERED.contains(&unit.name(program, eqn)) || !runs(data.params) {
            rewrite.keep(eqn)?;
            continue;
        }
        let new = if let Some(known) = params[data.params] {
            known
        } else {
            let builder = &mut rewrite.builder;
            let objects = &mut unit.objects;
            let new = unit.embedding.with_programs(objects, builder, data.params, &changed)?;
            params[data.params] = Some(new);
            new
        };
        let operands = rewrite.operands(eqn);
        rewrite.keep_as(&EqnData { params: new, ..data.clone() }, &operands)?;
    }
    Ok(Some(rewrite.finish(|_| true)?))
}
