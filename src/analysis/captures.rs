//! Constants that programs have captured, and effects that equations have.

use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::ir::{Eqn, TypeId, Var};

use super::nest::{Nest, Site};
use super::slices::Constant;
use super::values::bytes;

/// A constant and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The constant.
    pub constant: Constant,
    /// Its type.
    pub ty: TypeId,
    /// Its bytes.
    pub bytes: u128,
    /// The first equation of its program that has it as an operand.
    pub first_use: Option<Eqn>,
}

/// The constants of a nest that take at least so many bytes, the largest first.
pub fn large_constants(nest: &Nest, least: u128) -> Vec<Capture> {
    let mut found = Vec::new();
    for (place, program) in nest.programs().rev() {
        if program.constvars().is_empty() {
            continue;
        }
        let mut first: SecondaryMap<Var, Option<Eqn>> =
            SecondaryMap::with_capacity(program.num_vars());
        for eqn in program.eqns() {
            for var in program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()) {
                first[var].get_or_insert(eqn);
            }
        }
        for (position, &(var, value)) in program.constvars().iter().enumerate() {
            let ty = program.var_type(var);
            let constant = Constant { place, position, value };
            let bytes = bytes(program.ty(ty));
            if bytes >= least {
                found.push(Capture { constant, ty, bytes, first_use: first[var] });
            }
        }
    }
    found.sort_by_key(|capture| std::cmp::Reverse(capture.bytes));
    found
}

/// The kinds of effects, as the embedding calls them, and the equations that have each.
pub fn effects(nest: &Nest) -> Vec<(Box<str>, Vec<Site>)> {
    let mut found: IndexMap<Box<str>, Vec<Site>, FxBuildHasher> = IndexMap::default();
    for (place, program) in nest.programs().rev() {
        for eqn in program.eqns() {
            let site = Site { place, eqn };
            for effect in program.effect_list(program.eqn(eqn).effects) {
                if !found.contains_key(&effect.name) {
                    found.insert(effect.name.clone(), Vec::new());
                }
                if let Some(sites) = found.get_mut(&effect.name)
                    && sites.last() != Some(&site)
                {
                    sites.push(site);
                }
            }
        }
    }
    found.into_iter().collect()
}
