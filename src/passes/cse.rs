//! Equations that compute what an earlier one has computed: value numbering, where the number of a
//! value is the variable that has it first.

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{
    Atom, AtomKind, ContextId, Eqn, LiteralId, ParamsId, PrimitiveId, Program, TypeId,
};

use super::rewrite::Edits;
use super::{ENTERED, Embedding, Scalar, Unit, array};

/// Equations of these are what they are because they are apart from others, or may compute something
/// else each time.
const APART: [&str; 8] = [
    "copy",
    "custom_jvp_call",
    "custom_vjp_call",
    "empty",
    "empty2",
    "optimization_barrier",
    "remat2",
    "rng_uniform",
];

/// What an equation computes.
#[derive(PartialEq, Eq, Hash)]
struct Value {
    primitive: PrimitiveId,
    params: ParamsId,
    context: ContextId,
    operands: SmallVec<[Atom; 3]>,
    out_types: SmallVec<[TypeId; 1]>,
}

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut edits = Edits::of(program);
    let mut literals = Literals { first: SecondaryMap::new(), known: FxHashMap::default() };
    let mut values: FxHashMap<Value, Eqn> =
        FxHashMap::with_capacity_and_hasher(program.num_eqns(), rustc_hash::FxBuildHasher);
    for eqn in program.eqns() {
        let name = unit.name(program, eqn);
        let data = program.eqn(eqn);
        if name.is_empty() || APART.contains(&name) || !edits.is_free(eqn) {
            continue;
        }
        if runs_another(unit, program, eqn, name) {
            continue;
        }
        let mut operands: SmallVec<[Atom; 3]> = SmallVec::new();
        for &atom in program.eqn_invars(eqn) {
            operands.push(match edits.atom(atom).kind() {
                AtomKind::Literal(id) => Atom::literal(literals.first(unit, program, id)),
                AtomKind::Var(var) => Atom::var(var),
            });
        }
        if commutes(program, eqn, name) {
            operands.sort_unstable();
        }
        let value = Value {
            primitive: data.primitive,
            params: data.params,
            context: data.context,
            operands,
            out_types: data.outvars().map(|var| program.var_type(var)).collect(),
        };
        match values.entry(value) {
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(eqn);
            }
            std::collections::hash_map::Entry::Occupied(known) => {
                for (out, same) in data.outvars().zip(program.eqn_outvars(*known.get())) {
                    edits.instead_of(out, Atom::var(same));
                }
                edits.remove(eqn);
            }
        }
    }
    Ok(edits.finish()?)
}

/// Whether an equation runs programs in a way that is more than what they compute.
fn runs_another<E: Embedding>(unit: &Unit<'_, E>, program: &Program, eqn: Eqn, name: &str) -> bool {
    let params = program.eqn(eqn).params;
    match name {
        "scan" | "while" | "cond" => false,
        "jit" => !unit.embedding.is_plain_call(&unit.objects, program, params),
        _ => ENTERED.contains(&name) || !program.params(params).subprograms().is_empty(),
    }
}

/// Whether the order of two operands of the same type does not count. Which of two NaNs a float
/// operation returns may depend on it.
fn commutes(program: &Program, eqn: Eqn, name: &str) -> bool {
    let &[one, other] = program.eqn_invars(eqn) else { return false };
    let ty = program.atom_type(one);
    let Some(array) = array(program, ty) else { return false };
    ty == program.atom_type(other)
        && match name {
            "eq" | "ne" => true,
            "add" | "mul" | "and" | "or" | "xor" | "max" | "min" => array.dtype.is_integral(),
            _ => false,
        }
}

/// The first of literals that are the same number.
struct Literals {
    first: SecondaryMap<LiteralId, Option<LiteralId>>,
    known: FxHashMap<(TypeId, Scalar), LiteralId>,
}

impl Literals {
    fn first<E: Embedding>(
        &mut self,
        unit: &Unit<'_, E>,
        program: &Program,
        id: LiteralId,
    ) -> LiteralId {
        if let Some(first) = self.first[id] {
            return first;
        }
        let data = program.literal(id);
        let first = match unit.embedding.scalar(&unit.objects, data.object) {
            Some(number) => *self.known.entry((data.ty, number)).or_insert(id),
            None => id,
        };
        self.first[id] = Some(first);
        first
    }
}
