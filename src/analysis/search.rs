//! Finding equations, and counting them.

use cranelift_entity::EntityRef;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::ir::{DType, Dim, PrimitiveId, SourceId, Type, TypeId};

use super::nest::{Nest, Site};
use super::values::array;

/// What is asked of an equation: all that is given.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The name of its primitive.
    pub primitive: Option<Box<str>>,
    /// The dtype of one of its results.
    pub dtype: Option<DType>,
    /// The shape of the same result.
    pub shape: Option<Box<[Dim]>>,
}

impl Filter {
    fn has_type(&self, ty: &Type) -> bool {
        let Some(array) = array(ty) else { return false };
        self.dtype.as_ref().is_none_or(|dtype| *dtype == array.dtype)
            && self.shape.as_ref().is_none_or(|shape| **shape == *array.shape)
    }
}

/// The equations of a nest that pass a filter and whose source is accepted, those of the outermost
/// program first, each once.
///
/// # Errors
/// What `accepts` fails with.
pub fn find<E>(
    nest: &Nest,
    filter: &Filter,
    mut accepts: impl FnMut(usize, SourceId) -> Result<bool, E>,
) -> Result<Vec<Site>, E> {
    let asks_type = filter.dtype.is_some() || filter.shape.is_some();
    let mut found = Vec::new();
    for (place, program) in nest.programs().rev() {
        let mut types: Vec<Option<bool>> = Vec::new();
        let mut has_type = |ty: TypeId| {
            if types.len() <= ty.index() {
                types.resize(ty.index() + 1, None);
            }
            *types[ty.index()].get_or_insert_with(|| filter.has_type(program.ty(ty)))
        };
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let is_named = |name: &str| *program.primitive(data.primitive).name == *name;
            if filter.primitive.as_deref().is_none_or(is_named)
                && (!asks_type || data.outvars().any(|var| has_type(program.var_type(var))))
                && accepts(place, data.source)?
            {
                found.push(Site { place, eqn });
            }
        }
    }
    Ok(found)
}

/// How nested equations count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Those of the outermost program only.
    Outermost,
    /// Each equation once, however many equations run its program.
    Once,
    /// As often as equations run their program, each of which counts once: a loop runs its body once.
    EachCall,
}

/// How many equations of each primitive there are, the most frequent first.
pub fn histogram(nest: &Nest, counting: Counting) -> Vec<(Box<str>, u128)> {
    let times = match counting {
        Counting::EachCall => nest.times(),
        Counting::Once | Counting::Outermost => vec![1; nest.len()],
    };
    let mut counts: IndexMap<Box<str>, u128, FxBuildHasher> = IndexMap::default();
    for (place, program) in nest.programs().rev() {
        if counting == Counting::Outermost && place != nest.root() {
            continue;
        }
        let mut by_primitive: Vec<u128> = Vec::new();
        for eqn in program.eqns() {
            let primitive = program.eqn(eqn).primitive.index();
            if by_primitive.len() <= primitive {
                by_primitive.resize(primitive + 1, 0);
            }
            by_primitive[primitive] += 1;
        }
        for (primitive, count) in by_primitive.into_iter().enumerate().filter(|&(_, n)| n > 0) {
            let name = &program.primitive(PrimitiveId::new(primitive)).name;
            let total = counts.entry(name.clone()).or_default();
            *total = total.saturating_add(count.saturating_mul(times[place]));
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    counts
}
