//! The program of a plain `jit` in place of its call.
//!
//! Sources are those of the equations themselves, below the name scopes of the call. What has effects
//! is left alone. So that programs which call others several times do not grow beyond all measure,
//! only small ones come to several places.

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

use crate::ir::{
    Atom, AtomKind, ConstId, ContextId, EffectsId, Eqn, EqnShape, LiteralId, ParamValue, ParamsId,
    PrimitiveId, Program, SourceId, TypeId, Var,
};

use super::rewrite::{Rewrite, acted_on};
use super::{Embedding, Unit, address};

pub(super) fn run<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
) -> Result<Option<Program>, E::Error> {
    let mut found: FxHashMap<Eqn, Arc<Program>> = FxHashMap::default();
    if program.subprograms().len() > 0 {
        let acted_on = acted_on(program);
        for eqn in program.eqns() {
            if program.eqn_outvars(eqn).any(|var| acted_on.contains(var)) {
                continue;
            }
            if let Some(body) = inlined(unit, program, eqn) {
                found.insert(eqn, body);
            }
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    let mut rewrite = Rewrite::new(program);
    let mut rows: FxHashMap<usize, Rows> = FxHashMap::default();
    for eqn in program.eqns() {
        match found.get(&eqn) {
            None => rewrite.keep(eqn)?,
            Some(body) => {
                let rows = rows.entry(address(body)).or_default();
                Inlining { unit, rewrite: &mut rewrite, rows, body }.append(program, eqn)?;
            }
        }
    }
    Ok(Some(rewrite.finish(|_| true)?))
}

/// The program that stands in place of an equation.
fn inlined<E: Embedding>(
    unit: &mut Unit<'_, E>,
    program: &Program,
    eqn: Eqn,
) -> Option<Arc<Program>> {
    if unit.name(program, eqn) != "jit" {
        return None;
    }
    let data = program.eqn(eqn);
    let params = program.params(data.params);
    let ParamValue::Program(id) = params.get("jaxpr")? else { return None };
    let body = program.subprogram(*id).program.clone()?;
    let is_small = body.num_eqns() <= unit.options.max_inlined
        || unit.calls.get(&address(&body)).is_none_or(|&calls| calls <= 1);
    let is_asked_for = unit.options.inlined.as_ref().is_none_or(
        |names| matches!(params.get("name"), Some(ParamValue::Str(name)) if names.contains(name)),
    );
    let fits = body.invars().len() == program.eqn_invars(eqn).len()
        && (unit.is_outermost || body.constvars().is_empty())
        && data.effects == EffectsId::NONE
        && body.eqns().all(|eqn| body.eqn(eqn).effects == EffectsId::NONE);
    let is_inlined = is_small
        && is_asked_for
        && fits
        && unit.embedding.is_plain_call(&unit.objects, program, data.params);
    is_inlined.then_some(body)
}

/// What an equation consists of besides its operands and its source.
type ShapeKey = (PrimitiveId, ParamsId, ContextId, SmallVec<[TypeId; 2]>);

/// Rows of a program that runs another, by those of the other.
#[derive(Default)]
struct Rows {
    shapes: FxHashMap<ShapeKey, EqnShape>,
    literals: SecondaryMap<LiteralId, Option<LiteralId>>,
    sources: FxHashMap<(SourceId, SourceId), SourceId>,
    constants: FxHashMap<ConstId, Var>,
}

struct Inlining<'a, 'u, 'p, E: Embedding> {
    unit: &'a mut Unit<'u, E>,
    rewrite: &'a mut Rewrite<'p>,
    rows: &'a mut Rows,
    body: &'a Program,
}

impl<E: Embedding> Inlining<'_, '_, '_, E> {
    fn append(mut self, program: &Program, call: Eqn) -> Result<(), E::Error> {
        let body = self.body;
        let mut env: SecondaryMap<Var, Option<Atom>> = SecondaryMap::with_capacity(body.num_vars());
        for (&var, atom) in body.invars().iter().zip(self.rewrite.operands(call)) {
            env[var] = Some(atom);
        }
        for &(var, value) in body.constvars() {
            env[var] = Some(Atom::var(self.constant(body.var_type(var), value)?));
        }
        let caller = program.eqn(call).source;
        for eqn in body.eqns() {
            let mut operands: SmallVec<[Atom; 4]> = SmallVec::new();
            for &atom in body.eqn_invars(eqn) {
                operands.push(self.atom(&env, atom)?);
            }
            let shape = self.shape(eqn)?;
            let source = self.source(body.eqn(eqn).source, caller)?;
            let made = self.rewrite.builder.eqn_of(&shape, &operands, source)?;
            let made = self.rewrite.builder.eqn_data(made).outvars();
            for (var, out) in body.eqn_outvars(eqn).zip(made) {
                env[var] = Some(Atom::var(out));
            }
        }
        for (out, &atom) in program.eqn_outvars(call).zip(body.outvars()) {
            let atom = self.atom(&env, atom)?;
            self.rewrite.instead_of(out, atom);
        }
        Ok(())
    }

    fn atom(
        &mut self,
        env: &SecondaryMap<Var, Option<Atom>>,
        atom: Atom,
    ) -> Result<Atom, E::Error> {
        match atom.kind() {
            // The body is a program: its variables are defined before they are used.
            AtomKind::Var(var) => Ok(env[var].unwrap_or(atom)),
            AtomKind::Literal(id) => {
                if let Some(known) = self.rows.literals[id] {
                    return Ok(known.into());
                }
                let builder = &mut self.rewrite.builder;
                let objects = &mut self.unit.objects;
                let literal =
                    self.unit.embedding.import_literal(objects, builder, self.body, id)?;
                self.rows.literals[id] = Some(literal);
                Ok(literal.into())
            }
        }
    }

    fn shape(&mut self, eqn: Eqn) -> Result<EqnShape, E::Error> {
        let data = self.body.eqn(eqn);
        let types = data.outvars().map(|var| self.body.var_type(var)).collect();
        let key = (data.primitive, data.params, data.context, types);
        if let Some(known) = self.rows.shapes.get(&key) {
            return Ok(known.clone());
        }
        let (builder, objects) = (&mut self.rewrite.builder, &mut self.unit.objects);
        let shape = self.unit.embedding.import_shape(objects, builder, self.body, eqn)?;
        self.rows.shapes.insert(key, shape.clone());
        Ok(shape)
    }

    fn source(&mut self, source: SourceId, caller: SourceId) -> Result<SourceId, E::Error> {
        if let Some(&known) = self.rows.sources.get(&(source, caller)) {
            return Ok(known);
        }
        let (builder, objects) = (&mut self.rewrite.builder, &mut self.unit.objects);
        let embedding = &mut *self.unit.embedding;
        let new = embedding.import_source(objects, builder, self.body, source, caller)?;
        self.rows.sources.insert((source, caller), new);
        Ok(new)
    }

    fn constant(&mut self, ty: TypeId, value: ConstId) -> Result<Var, E::Error> {
        if let Some(&known) = self.rows.constants.get(&value) {
            return Ok(known);
        }
        let objects = &mut self.unit.objects;
        let builder = &mut self.rewrite.builder;
        let embedding = &mut *self.unit.embedding;
        let (ty, value_here) =
            embedding.import_constant(objects, builder, self.body, (ty, value))?;
        let var = self.rewrite.constant(ty, value_here)?;
        self.rows.constants.insert(value, var);
        Ok(var)
    }
}
