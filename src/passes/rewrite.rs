//! A program written once more: the one place where passes append.

use cranelift_entity::{EntitySet, SecondaryMap, packed_option::PackedOption};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::is_pure;
use crate::ir::{
    Atom, AtomKind, BuildError, Builder, ConstId, Def, EffectsId, Eqn, EqnData, LiteralData,
    LiteralId, ParamsId, PrimitiveId, Program, TypeId, Var,
};

/// A program that is being written once more, equation by equation.
pub(super) struct Rewrite<'p> {
    from: &'p Program,
    pub(super) builder: Builder,
    instead: SecondaryMap<Var, PackedOption<Atom>>,
}

impl<'p> Rewrite<'p> {
    pub(super) fn new(from: &'p Program) -> Self {
        Self { from, builder: from.rebuild(), instead: SecondaryMap::new() }
    }

    /// What an operand is now.
    pub(super) fn atom(&self, atom: Atom) -> Atom {
        resolved(&self.instead, atom)
    }

    /// Whatever uses `var` uses something else from now on, which is as it is now.
    pub(super) fn instead_of(&mut self, var: Var, atom: Atom) {
        self.instead[var] = atom.into();
    }

    /// The operands of an equation as they are now.
    pub(super) fn operands(&self, eqn: Eqn) -> SmallVec<[Atom; 4]> {
        self.from.eqn_invars(eqn).iter().map(|&atom| self.atom(atom)).collect()
    }

    /// Appends an equation as it was, on what its operands are now.
    pub(super) fn keep(&mut self, eqn: Eqn) -> Result<(), BuildError> {
        self.keep_as(self.from.eqn(eqn), &self.operands(eqn))
    }

    /// Appends an equation with other fields; its outputs are the same variables.
    pub(super) fn keep_as(&mut self, data: &EqnData, operands: &[Atom]) -> Result<(), BuildError> {
        self.builder.append_again(data, operands).map(drop)
    }

    /// Adds a constant, which stays.
    pub(super) fn constant(&mut self, ty: TypeId, value: ConstId) -> Result<Var, BuildError> {
        let var = self.builder.constvar(ty, value)?;
        self.builder.retain(var);
        Ok(var)
    }

    /// The whole program, with the constants that `is_kept`.
    pub(super) fn finish(self, is_kept: impl Fn(Var) -> bool) -> Result<Program, BuildError> {
        let outvars: Vec<Atom> = self.from.outvars().iter().map(|&atom| self.atom(atom)).collect();
        self.finish_with(&outvars, is_kept)
    }

    /// As `finish`, with other results.
    pub(super) fn finish_with(
        self,
        outvars: &[Atom],
        is_kept: impl Fn(Var) -> bool,
    ) -> Result<Program, BuildError> {
        let mut builder = self.builder;
        let mut dropped = Vec::new();
        for &(var, _) in self.from.constvars() {
            if !is_kept(var) {
                builder.release(var, &mut dropped);
            }
        }
        builder.forget_unused_programs();
        builder.finish(outvars, self.from.debug_info().clone(), self.from.effects())
    }
}

fn resolved(instead: &SecondaryMap<Var, PackedOption<Atom>>, atom: Atom) -> Atom {
    match atom.kind() {
        AtomKind::Var(var) => instead[var].expand().unwrap_or(atom),
        AtomKind::Literal(_) => atom,
    }
}

/// Variables that effects act on: they stay what they are.
pub(super) fn acted_on(program: &Program) -> EntitySet<Var> {
    let eqns = program.eqns().map(|eqn| program.eqn(eqn).effects);
    let lists = eqns.chain([program.effects()]).filter(|&effects| effects != EffectsId::NONE);
    let mut found = EntitySet::new();
    found.extend(lists.flat_map(|list| program.effect_list(list)).filter_map(|e| e.input));
    found
}

/// An equation that applies something else to something else.
struct Other {
    primitive: PrimitiveId,
    params: ParamsId,
    operands: SmallVec<[Atom; 4]>,
}

/// What is to be changed in a program, found while it is read in order.
pub(super) struct Edits<'p> {
    program: &'p Program,
    /// Made where something is added to the tables.
    builder: Option<Builder>,
    instead: SecondaryMap<Var, PackedOption<Atom>>,
    removed: EntitySet<Eqn>,
    others: FxHashMap<Eqn, Other>,
    acted_on: EntitySet<Var>,
    any: bool,
}

impl<'p> Edits<'p> {
    pub(super) fn of(program: &'p Program) -> Self {
        Self {
            program,
            builder: None,
            instead: SecondaryMap::new(),
            removed: EntitySet::new(),
            others: FxHashMap::default(),
            acted_on: acted_on(program),
            any: false,
        }
    }

    /// Whether an equation does and makes nothing but arrays, of which no effect acts on one.
    pub(super) fn is_free(&self, eqn: Eqn) -> bool {
        let mut outvars = self.program.eqn_outvars(eqn);
        is_pure(self.program, eqn) && !outvars.any(|var| self.acted_on.contains(var))
    }

    /// What takes additions to the tables.
    pub(super) fn builder(&mut self) -> &mut Builder {
        self.builder.get_or_insert_with(|| self.program.rebuild())
    }

    /// What an operand will be.
    pub(super) fn atom(&self, atom: Atom) -> Atom {
        resolved(&self.instead, atom)
    }

    /// What the operands of an equation will be.
    pub(super) fn operands(&self, eqn: Eqn) -> SmallVec<[Atom; 4]> {
        match self.others.get(&eqn) {
            Some(other) => other.operands.clone(),
            None => self.program.eqn_invars(eqn).iter().map(|&atom| self.atom(atom)).collect(),
        }
    }

    /// The equation of a variable, where it will still apply the same primitive.
    pub(super) fn def(&self, atom: Atom) -> Option<Eqn> {
        let var = atom.as_var().filter(|var| (var.as_u32() as usize) < self.program.num_vars())?;
        match self.program.var(var).def {
            Def::Eqn(eqn) => {
                let is_same = |other: &Other| other.primitive == self.program.eqn(eqn).primitive;
                self.others.get(&eqn).is_none_or(is_same).then_some(eqn)
            }
            _ => None,
        }
    }

    /// A literal, one that was added included.
    pub(super) fn literal(&self, id: LiteralId) -> LiteralData {
        match &self.builder {
            Some(builder) => *builder.literal_data(id),
            None => *self.program.literal(id),
        }
    }

    /// Whatever uses `var` is to use something else, defined before it, which is as it will be.
    pub(super) fn instead_of(&mut self, var: Var, atom: Atom) {
        self.instead[var] = atom.into();
        self.any = true;
    }

    pub(super) fn remove(&mut self, eqn: Eqn) {
        self.removed.insert(eqn);
        self.any = true;
    }

    /// An equation without effects is to apply something else; its outputs stay.
    pub(super) fn apply(
        &mut self,
        eqn: Eqn,
        primitive: PrimitiveId,
        params: ParamsId,
        operands: &[Atom],
    ) {
        self.others.insert(eqn, Other { primitive, params, operands: operands.into() });
        self.any = true;
    }

    /// The changed program; none where nothing is to be changed.
    pub(super) fn finish(self) -> Result<Option<Program>, BuildError> {
        if !self.any {
            return Ok(None);
        }
        let program = self.program;
        let builder = self.builder.unwrap_or_else(|| program.rebuild());
        let mut rewrite = Rewrite { from: program, builder, instead: self.instead };
        for eqn in program.eqns().filter(|&eqn| !self.removed.contains(eqn)) {
            match self.others.get(&eqn) {
                None => rewrite.keep(eqn)?,
                Some(other) => {
                    let (primitive, params) = (other.primitive, other.params);
                    let data = EqnData { primitive, params, ..program.eqn(eqn).clone() };
                    rewrite.keep_as(&data, &other.operands)?;
                }
            }
        }
        rewrite.finish(|_| true).map(Some)
    }
}
