//! A program again, with what its tables refer to said in other numbers.

use cranelift_entity::{SecondaryMap, packed_option::PackedOption};
use smallvec::SmallVec;

use crate::ir::{
    Atom, AtomKind, BuildError, Builder, ConstId, ContextId, DeadCode, DebugInfo, Effect,
    EffectsId, EqnData, LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var,
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
    pub vars: SecondaryMap<Var, PackedOption<Var>>,
    /// Its outputs.
    pub outvars: Vec<Atom>,
    /// The effects of the whole.
    pub effects: EffectsId,
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
    let is_in_order = program.is_in_order();
    let mut copying = Copying {
        program,
        rows,
        builder: if is_in_order {
            Builder::adopting(program)
        } else {
            Builder::new(DeadCode::Keep)
        },
        vars: SecondaryMap::with_capacity(program.num_vars()),
        types: SecondaryMap::new(),
        literals: SecondaryMap::new(),
    };
    copying.inputs()?;
    copying.eqns(is_in_order)?;
    let outvars = copying.atoms(program.outvars())?;
    let effects = copying.effects(program.effects())?;
    let Copying { builder, vars, .. } = copying;
    Ok(Copied { builder, vars, outvars, effects })
}

struct Copying<'p, R> {
    program: &'p Program,
    rows: &'p mut R,
    builder: Builder,
    vars: SecondaryMap<Var, PackedOption<Var>>,
    types: SecondaryMap<TypeId, PackedOption<TypeId>>,
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

impl<R: Rows> Copying<'_, R> {
    fn ty(&mut self, id: TypeId) -> Result<TypeId, R::Error> {
        Ok(known!(self.types, id, self.rows.ty(&mut self.builder, id)))
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

    fn eqns(&mut self, is_in_order: bool) -> Result<(), R::Error> {
        let program = self.program;
        let mut primitives: SecondaryMap<_, PackedOption<_>> = SecondaryMap::new();
        let mut params: SecondaryMap<_, PackedOption<_>> = SecondaryMap::new();
        let mut effects: SecondaryMap<EffectsId, PackedOption<EffectsId>> = SecondaryMap::new();
        let mut sources: SecondaryMap<_, PackedOption<_>> = SecondaryMap::new();
        let mut contexts: SecondaryMap<_, PackedOption<_>> = SecondaryMap::new();
        effects[EffectsId::NONE] = EffectsId::NONE.into();
        let mut types = Vec::new();
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let builder = &mut self.builder;
            let primitive =
                known!(primitives, data.primitive, self.rows.primitive(builder, data.primitive));
            let own_params = known!(params, data.params, self.rows.params(builder, data.params));
            let source = known!(sources, data.source, self.rows.source(builder, data.source));
            let context = known!(contexts, data.context, self.rows.context(builder, data.context));
            let own_effects = known!(effects, data.effects, self.effects(data.effects));
            if is_in_order {
                let own = EqnData {
                    primitive,
                    params: own_params,
                    effects: own_effects,
                    source,
                    context,
                    ..data.clone()
                };
                self.adopt(own)?;
                continue;
            }
            let operands = self.atoms(program.eqn_invars(eqn))?;
            types.clear();
            for var in data.outvars() {
                types.push(self.ty(program.var_type(var))?);
            }
            let copy = self.builder.eqn(
                primitive,
                own_params,
                &operands,
                &types,
                own_effects,
                source,
                context,
            )?;
            let outvars = self.builder.eqn_data(copy).outvars();
            for (var, copy) in data.outvars().zip(outvars) {
                self.vars[var] = copy.into();
            }
        }
        Ok(())
    }

    /// Appends an equation whose variables keep their ids.
    fn adopt(&mut self, data: EqnData) -> Result<(), R::Error> {
        let program = self.program;
        let Self { rows, builder, types, literals, .. } = self;
        let mut literal = |builder: &mut Builder, id| {
            let ty = program.literal(id).ty;
            let ty = known!(types, ty, rows.ty(builder, ty));
            Ok::<_, R::Error>(known!(literals, id, rows.literal(builder, id, ty)))
        };
        let outvars = data.outvars();
        builder.adopt_operands(&data, &mut literal)?;
        let mut own = SmallVec::<[TypeId; 4]>::new();
        for var in outvars.clone() {
            let ty = program.var_type(var);
            own.push(known!(types, ty, rows.ty(builder, ty)));
        }
        builder.adopt_eqn(data, &own);
        for var in outvars {
            self.vars[var] = var.into();
        }
        Ok(())
    }

    fn atoms(&mut self, atoms: &[Atom]) -> Result<Vec<Atom>, R::Error> {
        let mut copies = Vec::with_capacity(atoms.len());
        for atom in atoms {
            copies.push(match atom.kind() {
                AtomKind::Var(var) => Atom::var(self.var(var)?),
                AtomKind::Literal(literal) => {
                    let ty = self.ty(self.program.literal(literal).ty)?;
                    let new = known!(
                        self.literals,
                        literal,
                        self.rows.literal(&mut self.builder, literal, ty)
                    );
                    Atom::literal(new)
                }
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
