//! Equations that compute the same thing: value numbering.
//!
//! Variables that hold the same value have the same number: an equation whose primitive, params,
//! context, operands (by number) and types of results are those of an earlier one has its numbers
//! (Cocke and Schwartz 1970). It says nothing of equations in different programs.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::ir::{
    AtomKind, ContextId, EffectsId, Eqn, LiteralId, ParamsId, PrimitiveId, Program, Type, TypeId,
    Var,
};

use super::nest::{Nest, Site};

/// The number of a value.
type Number = u32;

/// What an equation computes.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    primitive: PrimitiveId,
    params: ParamsId,
    context: ContextId,
    operands: SmallVec<[Number; 4]>,
    results: SmallVec<[TypeId; 2]>,
}

/// Draws from a generator that XLA hides.
const DRAWS: &str = "rng_uniform";

/// Whether a second run of an equation could compute something else, or must be a run of its own.
fn is_own(program: &Program, eqn: Eqn) -> bool {
    let data = program.eqn(eqn);
    let effects = program.effect_list(data.effects);
    let is_ref = |ty| !matches!(program.ty(ty), Type::Array(_));
    // What the others make is to be apart.
    matches!(
        &*program.primitive(data.primitive).name,
        DRAWS | "optimization_barrier" | "copy" | "copy_p" | "create_token" | "empty"
    ) || (data.effects != EffectsId::NONE
        && effects.iter().any(|effect| &*effect.name != "NamedAxisEffect"))
        || program.eqn_invars(eqn).iter().any(|&atom| is_ref(program.atom_type(atom)))
        || data.outvars().any(|var| is_ref(program.var_type(var)))
}

/// The groups of equations that compute the same thing, in the order of the first of each; those of
/// the outermost program first. `literal` says what tells a literal from others of its type.
///
/// # Errors
/// What `literal` fails with.
pub fn duplicates<E>(
    nest: &Nest,
    mut literal: impl FnMut(usize, LiteralId) -> Result<u128, E>,
) -> Result<Vec<Vec<Site>>, E> {
    // Whether a program draws, itself or within.
    let mut draws = vec![false; nest.len()];
    for (place, program) in nest.programs() {
        let named = |eqn| &*program.primitive(program.eqn(eqn).primitive).name == DRAWS;
        let within = nest.calls(place).iter().any(|call| draws[call.callee]);
        draws[place] = within || program.eqns().any(named);
    }
    let mut groups = Vec::new();
    for (place, program) in nest.programs().rev() {
        let drawing = nest.calls(place).iter().filter(|call| draws[call.callee]);
        let drawing: FxHashSet<Eqn> = drawing.map(|call| call.eqn).collect();
        let own = of_program(program, &drawing, |id| literal(place, id))?;
        let site = |eqn| Site { place, eqn };
        groups.extend(own.into_iter().map(|group| group.into_iter().map(site).collect()));
    }
    Ok(groups)
}

fn of_program<E>(
    program: &Program,
    drawing: &FxHashSet<Eqn>,
    mut literal: impl FnMut(LiteralId) -> Result<u128, E>,
) -> Result<Vec<Vec<Eqn>>, E> {
    // A variable has its own number unless it is known to hold the value of an earlier one.
    let mut numbers: SecondaryMap<Var, Option<Var>> =
        SecondaryMap::with_capacity(program.num_vars());
    let mut literals: FxHashMap<(TypeId, u128), Number> = FxHashMap::default();
    let mut of_literal: FxHashMap<LiteralId, Number> = FxHashMap::default();
    let mut known: FxHashMap<Key, (Eqn, Option<usize>)> = FxHashMap::default();
    known.reserve(program.num_eqns());
    let mut groups: Vec<Vec<Eqn>> = Vec::new();
    for eqn in program.eqns() {
        if drawing.contains(&eqn) || is_own(program, eqn) {
            continue;
        }
        let data = program.eqn(eqn);
        let mut operands = SmallVec::new();
        for atom in program.eqn_invars(eqn) {
            operands.push(match atom.kind() {
                AtomKind::Var(var) => numbers[var].unwrap_or(var).as_u32(),
                AtomKind::Literal(id) => {
                    if let Some(&number) = of_literal.get(&id) {
                        number
                    } else {
                        let key = (program.literal(id).ty, literal(id)?);
                        // Counted down from the top, so that none is that of a variable.
                        let next = Number::MAX - u32::try_from(literals.len()).unwrap_or(0);
                        let number = *literals.entry(key).or_insert(next);
                        of_literal.insert(id, number);
                        number
                    }
                }
            });
        }
        let key = Key {
            primitive: data.primitive,
            params: data.params,
            context: data.context,
            operands,
            results: data.outvars().map(|var| program.var_type(var)).collect(),
        };
        match known.entry(key) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert((eqn, None));
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let (first, group) = entry.get_mut();
                for (var, same) in data.outvars().zip(program.eqn_outvars(*first)) {
                    numbers[var] = Some(same);
                }
                let group = *group.get_or_insert_with(|| {
                    groups.push(vec![*first]);
                    groups.len() - 1
                });
                groups[group].push(eqn);
            }
        }
    }
    groups.sort_by_key(|group| group[0]);
    Ok(groups)
}
