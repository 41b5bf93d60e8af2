//! A program again, with what its tables refer to said in other numbers.

use cranelift_entity::{SecondaryMap, packed_option::PackedOption};

use crate::ir::{
    Atom, AtomKind, BuildError, Builder, ConstId, ContextId, DeadCode, DebugInfo, Effect,
    EffectsId, LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var,
};

/// What stands for the rows of a program in a copy of it. Each is asked for once, in the order in
/// which the copy needs them.
pub trait Rows {
    /// Why something has no counterpart.
    type Error: From<BuildError>;

    /// The type of variables or literals.
    ///
    /// # Errors
    /// It has no counterpart; so for all others.
    fn ty(&mut self, builder: &mut Builder, id: TypeId) -> Result<TypeId, Self::Error>;

    /// A primitive.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn primitive(
        &mut self,
        builder: &mut Builder,
        id: PrimitiveId,
    ) -> Result<PrimitiveId, Self::Error>;

    /// Params.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn params(&mut self, builder: &mut Builder, id: ParamsId) -> Result<ParamsId, Self::Error>;

    /// Effects, which have the variables of the copy.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn effects(
        &mut self,
        builder: &mut Builder,
        list: Vec<Effect>,
    ) -> Result<EffectsId, Self::Error>;

    /// A source.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn source(&mut self, builder: &mut Builder, id: SourceId) -> Result<SourceId, Self::Error>;

    /// A context.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn context(&mut self, builder: &mut Builder, id: ContextId) -> Result<ContextId, Self::Error>;

    /// A literal, whose type in the copy is given.
    ///
    /// # Errors
    /// As [`Rows::ty`].
    fn literal(
        &mut self,
        builder: &mut Builder,
        id: LiteralId,
        ty: TypeId,
    ) -> Result<LiteralId, Self::Error>;
}

/// A copy before it is finished.
#[derive(Debug)]
pub struct Copied {
    /// What has its equations.
    pub builder: Builder,
    /// What stands for each variable: none for those that are not used or were removed.
    pub vars: CopiedVars,
    /// Its outputs.
    pub outvars: Vec<Atom>,
    /// The effects of the whole.
    pub effects: EffectsId,
}

/// What stands for the variables of a program in a copy.
#[derive(Clone, Debug)]
pub enum CopiedVars {
    /// They have the same numbers.
    Same,
    /// Those that there are.
    Map(SecondaryMap<Var, PackedOption<Var>>),
}

impl CopiedVars {
    /// What stands for a variable.
    pub fn get(&self, var: Var) -> Option<Var> {
        match self {
            Self::Same => Some(var),
            Self::Map(vars) => vars.get(var).and_then(|copy| copy.expand()),
        }
    }
}

impl Copied {
    /// The copy, with these names.
    ///
    /// # Errors
    /// As [`Builder::finish`].
    pub fn finish(self, names: DebugInfo) -> Result<Program, BuildError> {
        self.builder.finish(&self.outvars, names, self.effects)
    }
}

/// A copy of a program whose variables are numbered in their order (constants, inputs, outputs of
/// equations), and of whose tables no more is there than it uses, in the order of first use.
///
/// # Errors
/// What `rows` says, or an operand is not defined.
pub fn copy<R: Rows>(program: &Program, rows: &mut R) -> Result<Copied, R::Error> {
    Copying::new(program, rows).finish()
}

/// As [`copy`], of a program that is such a copy itself: one that was read. All rows of its tables are
/// asked for. Where they come to have the same numbers again, so do variables and equations, which are
/// taken over at once.
///
/// # Errors
/// As [`copy`].
pub fn take_over<R: Rows>(program: &Program, rows: &mut R) -> Result<Copied, R::Error> {
    let mut copying = Copying::new(program, rows);
    // Effects may be on variables, which there are none of yet.
    if program.effect_lists().len() > 1 || !copying.has_same_rows()? || !program.is_in_order() {
        return copying.finish();
    }
    let Copying { mut builder, .. } = copying;
    builder.adopt(program);
    let outvars = program.outvars().to_vec();
    Ok(Copied { builder, vars: CopiedVars::Same, outvars, effects: EffectsId::NONE })
}

struct Copying<'p, R> {
    program: &'p Program,
    rows: &'p mut R,
    builder: Builder,
    vars: SecondaryMap<Var, PackedOption<Var>>,
    types: SecondaryMap<TypeId, PackedOption<TypeId>>,
    primitives: SecondaryMap<PrimitiveId, PackedOption<PrimitiveId>>,
    params: SecondaryMap<ParamsId, PackedOption<ParamsId>>,
    sources: SecondaryMap<SourceId, PackedOption<SourceId>>,
    contexts: SecondaryMap<ContextId, PackedOption<ContextId>>,
    literals: SecondaryMap<LiteralId, PackedOption<LiteralId>>,
}

/// The counterpart of a row, asked for where it is not known.
macro_rules! known {
    ($table:expr, $id:expr, $ask:expr) => {
        match $table[$id].expand() {
            Some(known) => known,
            None => {
                let new = $ask?;
                $table[$id] = new.into();
                new
            }
        }
    };
}

impl<'p, R: Rows> Copying<'p, R> {
    fn new(program: &'p Program, rows: &'p mut R) -> Self {
        Self {
            program,
            rows,
            builder: Builder::new(DeadCode::Keep),
            vars: SecondaryMap::new(),
            types: SecondaryMap::new(),
            primitives: SecondaryMap::new(),
            params: SecondaryMap::new(),
            sources: SecondaryMap::new(),
            contexts: SecondaryMap::new(),
            literals: SecondaryMap::new(),
        }
    }

    fn finish(mut self) -> Result<Copied, R::Error> {
        self.inputs()?;
        self.eqns()?;
        let outvars = self.atoms(self.program.outvars())?;
        let effects = self.effects(self.program.effects())?;
        let Self { builder, vars, .. } = self;
        Ok(Copied { builder, vars: CopiedVars::Map(vars), outvars, effects })
    }

    /// Asks for all rows but effects; whether each has the number that it had.
    fn has_same_rows(&mut self) -> Result<bool, R::Error> {
        let program = self.program;
        let mut same = true;
        for (id, _) in program.types() {
            same &= self.ty(id)? == id;
        }
        for (id, _) in program.primitives() {
            same &= self.primitive(id)? == id;
        }
        for (id, _) in program.all_params() {
            same &= self.params(id)? == id;
        }
        for (id, _) in program.sources() {
            same &= self.source(id)? == id;
        }
        for (id, _) in program.contexts() {
            same &= self.context(id)? == id;
        }
        for id in program.literal_ids() {
            same &= self.literal(id)? == id;
        }
        Ok(same)
    }

    fn ty(&mut self, id: TypeId) -> Result<TypeId, R::Error> {
        Ok(known!(self.types, id, self.rows.ty(&mut self.builder, id)))
    }

    fn primitive(&mut self, id: PrimitiveId) -> Result<PrimitiveId, R::Error> {
        Ok(known!(self.primitives, id, self.rows.primitive(&mut self.builder, id)))
    }

    fn params(&mut self, id: ParamsId) -> Result<ParamsId, R::Error> {
        Ok(known!(self.params, id, self.rows.params(&mut self.builder, id)))
    }

    fn source(&mut self, id: SourceId) -> Result<SourceId, R::Error> {
        Ok(known!(self.sources, id, self.rows.source(&mut self.builder, id)))
    }

    fn context(&mut self, id: ContextId) -> Result<ContextId, R::Error> {
        Ok(known!(self.contexts, id, self.rows.context(&mut self.builder, id)))
    }

    fn literal(&mut self, id: LiteralId) -> Result<LiteralId, R::Error> {
        let ty = self.ty(self.program.literal(id).ty)?;
        Ok(known!(self.literals, id, self.rows.literal(&mut self.builder, id, ty)))
    }

    fn inputs(&mut self) -> Result<(), R::Error> {
        for (place, &(var, _)) in self.program.constvars().iter().enumerate() {
            let ty = self.ty(self.program.var_type(var))?;
            let value =
                u32::try_from(place).map_or(ConstId::from_u32(u32::MAX - 1), ConstId::from_u32);
            let copy = self.builder.constvar(ty, value)?;
            // Constants of a finished program stay.
            self.builder.retain(copy);
            self.vars[var] = copy.into();
        }
        for &var in self.program.invars() {
            let ty = self.ty(self.program.var_type(var))?;
            self.vars[var] = self.builder.invar(ty)?.into();
        }
        Ok(())
    }

    fn eqns(&mut self) -> Result<(), R::Error> {
        let program = self.program;
        let mut effects: SecondaryMap<EffectsId, PackedOption<EffectsId>> = SecondaryMap::new();
        effects[EffectsId::NONE] = EffectsId::NONE.into();
        let mut types = Vec::new();
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let primitive = self.primitive(data.primitive)?;
            let params = self.params(data.params)?;
            let source = self.source(data.source)?;
            let context = self.context(data.context)?;
            let own_effects = known!(effects, data.effects, self.effects(data.effects));
            let operands = self.atoms(program.eqn_invars(eqn))?;
            types.clear();
            for var in data.outvars() {
                types.push(self.ty(program.var_type(var))?);
            }
            let builder = &mut self.builder;
            let copy =
                builder.eqn(primitive, params, &operands, &types, own_effects, source, context)?;
            let outvars = builder.eqn_data(copy).outvars();
            for (var, copy) in data.outvars().zip(outvars) {
                self.vars[var] = copy.into();
            }
        }
        Ok(())
    }

    fn atoms(&mut self, atoms: &[Atom]) -> Result<Vec<Atom>, R::Error> {
        let mut copies = Vec::with_capacity(atoms.len());
        for atom in atoms {
            copies.push(match atom.kind() {
                AtomKind::Var(var) => Atom::var(self.var(var)?),
                AtomKind::Literal(literal) => Atom::literal(self.literal(literal)?),
            });
        }
        Ok(copies)
    }

    fn var(&self, var: Var) -> Result<Var, BuildError> {
        self.vars[var].expand().ok_or(BuildError::UnknownVar(var))
    }

    fn effects(&mut self, id: EffectsId) -> Result<EffectsId, R::Error> {
        let mut list = self.program.effect_list(id).to_vec();
        if list.is_empty() {
            return Ok(EffectsId::NONE);
        }
        for effect in &mut list {
            effect.input = effect.input.map(|input| self.var(input)).transpose()?;
        }
        self.rows.effects(&mut self.builder, list)
    }
}
