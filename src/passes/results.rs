//! Results of the outermost program that have become literals are made constants: whoever executes
//! an equation gets an array of the embedding's, and is to get one still.

use crate::ir::{Atom, AtomKind, LiteralId, Program};
use rustc_hash::FxHashMap;

use super::rewrite::Rewrite;
use super::{Embedding, Unit};

/// The program, what it returns being arrays where `was` returned variables.
pub(super) fn as_arrays<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    was: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut made: FxHashMap<LiteralId, Option<Atom>> = FxHashMap::default();
    let mut rewrite: Option<Rewrite<'_>> = None;
    let mut outvars = program.outvars().to_vec();
    for (atom, before) in outvars.iter_mut().zip(was.outvars()) {
        let (AtomKind::Literal(id), AtomKind::Var(_)) = (atom.kind(), before.kind()) else {
            continue;
        };
        let array = if let Some(known) = made.get(&id) {
            *known
        } else {
            let literal = program.literal(id);
            let value = unit.embedding.value(&unit.objects, literal.object);
            let constant = unit.embedding.constant(&mut unit.objects, &value, literal.ty)?;
            let array = match constant {
                None => None,
                Some(constant) => {
                    let rewrite = rewrite.get_or_insert_with(|| Rewrite::new(program));
                    Some(Atom::var(rewrite.constant(literal.ty, constant)?))
                }
            };
            made.insert(id, array);
            array
        };
        *atom = array.unwrap_or(*atom);
    }
    let Some(mut rewrite) = rewrite else { return Ok(None) };
    for eqn in program.eqns() {
        rewrite.keep(eqn)?;
    }
    Ok(Some(rewrite.finish_with(&outvars, |_| true)?))
}
