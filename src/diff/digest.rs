//! Numbers that stand for what equations say by themselves.

use std::hash::Hasher;

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHasher};

use crate::ir::{AtomKind, EqnData, LiteralData};
use crate::structure::{
    Fingerprint, Nested, Objects, Purpose, Reading, Rows, StableHasher, each_once,
};

/// What stands for an equation, whatever its operands are.
#[derive(Clone, Copy)]
pub(super) struct EqnDigest {
    /// All that it says, but for its operands that are variables.
    pub(super) own: u64,
    /// The primitive and the types of the results.
    pub(super) typed: u64,
    /// The primitive.
    pub(super) primitive: u64,
}

/// What stands for the parts of a program.
pub(super) struct Digest {
    /// All of it. Of equal programs it is the same.
    pub(super) whole: Fingerprint,
    /// The types of constants and inputs.
    pub(super) inputs: Vec<u64>,
    pub(super) eqns: Vec<EqnDigest>,
    /// The results that are literals.
    pub(super) literals: FxHashMap<usize, u64>,
}

/// The digests of programs, by key.
#[derive(Default)]
pub(super) struct Digests {
    known: FxHashMap<usize, Fingerprint>,
    digests: FxHashMap<usize, Digest>,
}

impl Digests {
    /// Reads a program and its nested programs.
    pub(super) fn read<O: Objects>(
        &mut self,
        program: Nested<O>,
        purpose: Purpose,
    ) -> Result<(), O::Error> {
        if self.known.contains_key(&program.key) {
            return Ok(());
        }
        let Self { known, digests } = self;
        each_once(program, known, purpose, |reading| {
            let digest = read(&reading)?;
            let whole = digest.whole;
            digests.insert(reading.key(), digest);
            Ok(whole)
        })
    }

    /// That of a program that was read, or that is within one.
    pub(super) fn of(&self, key: usize) -> &Digest {
        &self.digests[&key]
    }
}

/// As much of a fingerprint as is needed to find what is the same.
#[allow(clippy::cast_possible_truncation)] // half of it is enough
fn short(fingerprint: Fingerprint) -> u64 {
    fingerprint.0 as u64
}

fn read<O: Objects>(reading: &Reading<'_, O>) -> Result<Digest, O::Error> {
    let program = reading.program();
    let mut rows = Rows::default();
    let mut whole = StableHasher::new();
    let mut inputs = Vec::new();
    // The place of each variable in the order of definition.
    let mut places = SecondaryMap::with_default(u64::MAX);
    places.resize(program.num_vars());
    let mut next = 0..;
    whole.number(program.constvars().len() as u64);
    for var in crate::structure::inputs(program) {
        let ty = short(reading.type_fingerprint(&mut rows, program.var_type(var))?);
        whole.number(ty);
        inputs.push(ty);
        places[var] = next.next().unwrap_or_default();
    }
    let literal = |rows: &mut Rows, id| -> Result<u64, O::Error> {
        let LiteralData { ty, object } = *program.literal(id);
        let mut hasher = FxHasher::default();
        hasher.write_u64(short(reading.type_fingerprint(rows, ty)?));
        hasher.write_u64(short(reading.objects().describe(object)?));
        Ok(hasher.finish())
    };
    let mut eqns = Vec::with_capacity(program.num_eqns());
    for eqn in program.eqns() {
        // A new field has to be decided on here.
        let EqnData {
            primitive,
            params,
            effects,
            source: _,
            context,
            invars: _,
            first_outvar: _,
            num_outvars: _,
        } = *program.eqn(eqn);
        let primitive_digest = short(reading.primitive(&mut rows, primitive)?);
        let mut typed = FxHasher::default();
        typed.write_u64(primitive_digest);
        for var in program.eqn_outvars(eqn) {
            typed.write_u64(short(reading.type_fingerprint(&mut rows, program.var_type(var))?));
            places[var] = next.next().unwrap_or_default();
        }
        let typed = typed.finish();
        let mut own = FxHasher::default();
        own.write_u64(typed);
        own.write_u64(short(reading.params(&mut rows, primitive, params)?));
        own.write_u64(short(reading.context(&mut rows, context)?));
        for operand in program.eqn_invars(eqn) {
            match operand.kind() {
                AtomKind::Var(var) => {
                    own.write_u64(0);
                    whole.number(places[var]);
                }
                AtomKind::Literal(id) => own.write_u64(literal(&mut rows, id)?),
            }
        }
        // Their order is that of the table.
        let mut sum = 0_u64;
        for effect in program.effect_list(effects) {
            sum = sum.wrapping_add(short(reading.objects().describe(effect.object)?));
        }
        own.write_u64(sum);
        let own = own.finish();
        whole.number(own);
        eqns.push(EqnDigest { own, typed, primitive: primitive_digest });
    }
    let mut literals = FxHashMap::default();
    for (index, atom) in program.outvars().iter().enumerate() {
        match atom.kind() {
            AtomKind::Var(var) => whole.number(places[var]),
            AtomKind::Literal(id) => {
                let own = literal(&mut rows, id)?;
                whole.number(own);
                literals.insert(index, own);
            }
        }
    }
    Ok(Digest { whole: whole.finish(), inputs, eqns, literals })
}
