//! What can be said of a program without its embedding.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::ir::{Eqn, ForeignId, LiteralId, ParamValue, ParamsId, Program, SourceId, TypeId, Var};

use super::jaxpr::{EqnText, Param, ParamText, Texts};
use super::names::Identity;

/// Programs are nested too deeply to be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("programs are nested too deeply to be printed")]
pub struct TooDeep;

/// A program whose objects are printed as their ids.
#[derive(Clone)]
pub struct Plain {
    program: Arc<Program>,
    params: Rc<RefCell<FxHashMap<ParamsId, Rc<EqnText<Self>>>>>,
    types: Rc<RefCell<FxHashMap<TypeId, Rc<str>>>>,
}

impl From<Arc<Program>> for Plain {
    fn from(program: Arc<Program>) -> Self {
        Self { program, params: Rc::default(), types: Rc::default() }
    }
}

impl Plain {
    fn param(&self, value: &ParamValue) -> ParamText<Self> {
        let within = |value: &ParamValue| match value {
            ParamValue::Program(id) => self.program.subprogram(*id).program.clone().map(Self::from),
            _ => None,
        };
        if let Some(program) = within(value) {
            return ParamText::Program(program);
        }
        if let ParamValue::Tuple(values) = value
            && let Some(programs) = values.iter().map(within).collect()
        {
            return ParamText::Programs(programs);
        }
        ParamText::Text(value.to_string().into())
    }
}

fn object_text(object: Option<ForeignId>) -> Rc<str> {
    object.map_or_else(String::new, |object| object.to_string()).into()
}

impl Texts for Plain {
    type Error = TooDeep;

    fn program(&self) -> &Program {
        &self.program
    }

    fn key(&self) -> usize {
        Arc::as_ptr(&self.program) as usize
    }

    fn scope(&self) -> usize {
        self.key()
    }

    fn identity(&self, _: Var) -> Identity {
        Identity::Own
    }

    fn type_text(&self, ty: TypeId) -> Result<Rc<str>, TooDeep> {
        let mut types = self.types.borrow_mut();
        let new = || format!(":{}", self.program.ty(ty)).into();
        Ok(types.entry(ty).or_insert_with(new).clone())
    }

    fn literal_text(&self, literal: LiteralId) -> Result<Rc<str>, TooDeep> {
        let data = self.program.literal(literal);
        Ok(format!("{}:{}", data.object, self.program.ty(data.ty)).into())
    }

    fn eqn_text(&self, eqn: Eqn) -> Result<Rc<EqnText<Self>>, TooDeep> {
        let id = self.program.eqn(eqn).params;
        if let Some(known) = self.params.borrow().get(&id) {
            return Ok(known.clone());
        }
        let params: Vec<_> = self.program.params(id).iter().collect();
        let name = params.iter().find_map(|(name, value)| match value {
            ParamValue::Str(text) if *name == "name" => Some(text.clone()),
            _ => None,
        });
        let params: Vec<_> = params
            .into_iter()
            .map(|(name, value)| Param { name: name.into(), value: self.param(value) })
            .collect();
        let mut programs = Vec::new();
        for param in &params {
            match &param.value {
                ParamText::Text(_) => {}
                ParamText::Program(program) => programs.push(program.clone()),
                ParamText::Programs(several) => programs.extend_from_slice(several),
            }
        }
        let text = Rc::new(EqnText { params, programs, name, is_call: false });
        self.params.borrow_mut().insert(id, text.clone());
        Ok(text)
    }

    fn source_text(&self, source: SourceId) -> Result<Rc<str>, TooDeep> {
        Ok(object_text(self.program.source(source).traceback))
    }

    fn name_stack_text(&self, source: SourceId) -> Result<Rc<str>, TooDeep> {
        Ok(format!("[{}]", object_text(self.program.source(source).name_stack)).into())
    }

    fn effect_texts(&self) -> Result<Vec<Rc<str>>, TooDeep> {
        let effects = self.program.effect_list(self.program.effects());
        Ok(effects.iter().map(|effect| (*effect.name).into()).collect())
    }

    fn too_deep(&self) -> TooDeep {
        TooDeep
    }
}
