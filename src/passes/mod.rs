//! Passes: programs that compute the same in fewer equations.
//!
//! A pass reads a resolved [`Program`], whose params are spelled out, and writes it once more, each
//! equation as it was, with other operands, or not at all ([`rewrite`]). No pass moves an equation:
//! what is left is in the order in which it was. The tables of the new program begin with those of
//! the old one and variables keep their numbers, so what an embedding knows of the one holds for
//! the other.
//!
//! | | |
//! | :-- | :-- |
//! | [`inline`] | the program of a plain `jit` in place of its call |
//! | [`copies`] | equations that return an operand as it is |
//! | [`algebra`] | identities that hold for every input, bit for bit |
//! | [`fold`] | equations on nothing but literals |
//! | [`cse`] | equations that compute what an earlier one has computed |
//! | [`dce`] | equations and constants that nothing depends on |
//!
//! `docs/passes.md` justifies the rules. What they have in common:
//!
//! - **Effects.** An equation with effects stays, and so does one that handles anything but arrays
//!   (Refs, tokens): what such a variable stands for may change between two reads of it.
//! - **Names are not enough.** An embedding may have a primitive of its own called `mul`. A rule
//!   applies where the embedding says that the primitive is the one known by that name.
//! - **Types are compared by id**, which is equality of all that jax tracks: dtype, shape, weak type,
//!   sharding, memory space. A variable is replaced by one of its own type only.
//! - **Nested programs** are rewritten before the programs that run them, each once, however many
//!   equations run it; those that run the same one go on running the same one. The work list is
//!   on the heap, so programs may be nested as deep as they like. Only programs of primitives in
//!   [`ENTERED`] are looked at. A kernel is none of them: what it costs is not counted in equations.
//! - **To a fixpoint.** Passes run in turn until none finds anything. Each shortens the program or
//!   the chains of equations in it, so that ends; what they made is then [verified](crate::ir::verify()).
//!
//! What needs the objects behind the numbers is asked of the embedding ([`Embedding`]): the params
//! of an equation that runs another program, the value of an equation on literals.

mod algebra;
mod copies;
mod cse;
mod dce;
mod embedding;
mod fold;
mod inline;
mod nested;
mod plain;
mod results;
mod rewrite;

use std::sync::Arc;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::ir::{ArrayType, Eqn, PrimitiveId, Program, Type, TypeId, Violation, verify};

pub use embedding::{Embedding, Scalar, Trimmed};
pub use plain::Plain;

/// Primitives whose programs are rewritten.
pub const ENTERED: [&str; 11] = [
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "scan",
    "while",
    "cond",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
    "shard_map",
];

/// A pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Plain calls of programs.
    Inline,
    /// Equations that return an operand.
    Copies,
    /// Identities.
    Algebra,
    /// Equations on literals.
    Fold,
    /// Common subexpressions.
    Cse,
    /// Dead code.
    Dce,
}

impl Pass {
    /// All of them, in an order in which each finds what those before it have left.
    pub const ALL: [Self; 6] =
        [Self::Inline, Self::Copies, Self::Algebra, Self::Fold, Self::Cse, Self::Dce];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Copies => "copies",
            Self::Algebra => "algebra",
            Self::Fold => "fold",
            Self::Cse => "cse",
            Self::Dce => "dce",
        }
    }

    /// The one that is called so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pass| pass.name() == name)
    }
}

/// What is done to a program.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is done in turn, until none of it finds anything.
    pub passes: Vec<Pass>,
    /// Whether results may be rounded otherwise than before.
    pub reassociate: bool,
    /// How many elements the result of an equation may have that is replaced by it.
    pub max_folded: u64,
    /// The names of the jits that are inlined; all where there are none given.
    pub inlined: Option<Vec<Box<str>>>,
    /// How many equations a program may have that is inlined where several equations run it.
    pub max_inlined: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            passes: Pass::ALL.to_vec(),
            reassociate: false,
            max_folded: 16,
            inlined: None,
            max_inlined: 8,
        }
    }
}

/// A pass made something that is no program: a mistake of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a pass made an invalid program: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Invalid(pub Vec<Violation>);

/// The program rewritten; the program itself where there was nothing to do.
///
/// # Errors
/// What the embedding says, or the result would be too large.
pub fn optimize<E: Embedding>(
    root: &Arc<Program>,
    options: &Options,
    embedding: &mut E,
) -> Result<Arc<Program>, E::Error> {
    let mut result = root.clone();
    loop {
        let (calls, done) = (FxHashMap::default(), Done::default());
        let mut passes = Passes { embedding: &mut *embedding, options, calls, done };
        passes.run(&result)?;
        let next = passes.done.last_of(&result);
        let is_last = Arc::ptr_eq(&next, &result);
        result = next;
        // A program that several equations ran may now be run by one, and is inlined then.
        if is_last || !options.passes.contains(&Pass::Inline) {
            break;
        }
    }
    if !Arc::ptr_eq(&result, root) {
        verify(&result).map_err(Invalid)?;
    }
    Ok(result)
}

/// What became of programs, by their address.
#[derive(Default)]
struct Done {
    became: FxHashMap<usize, Arc<Program>>,
    /// No address is used twice.
    kept: Vec<Arc<Program>>,
}

impl Done {
    fn contains(&self, program: &Arc<Program>) -> bool {
        self.became.contains_key(&address(program))
    }

    fn insert(&mut self, was: Arc<Program>, now: Arc<Program>) {
        self.became.insert(address(&was), now);
        self.kept.push(was);
    }

    /// What became of a program in the end.
    fn last_of(&self, program: &Arc<Program>) -> Arc<Program> {
        let mut last = program;
        while let Some(next) = self.became.get(&address(last))
            && !Arc::ptr_eq(next, last)
        {
            last = next;
        }
        last.clone()
    }
}

struct Passes<'a, E: Embedding> {
    embedding: &'a mut E,
    options: &'a Options,
    /// How many equations run a program, by its address.
    calls: FxHashMap<usize, usize>,
    done: Done,
}

/// Programs that wait for their nested programs.
enum Step<O> {
    Open(Arc<Program>),
    Close(Arc<Program>, O),
}

impl<E: Embedding> Passes<'_, E> {
    fn run(&mut self, root: &Arc<Program>) -> Result<(), E::Error> {
        let mut pending = vec![Step::Open(root.clone())];
        while let Some(step) = pending.pop() {
            match step {
                Step::Open(program) => {
                    if self.done.contains(&program) {
                        continue;
                    }
                    let objects = self.embedding.open(&program)?;
                    let within = nested::programs(&program, self.embedding, &objects);
                    pending.push(Step::Close(program, objects));
                    for nested in within {
                        *self.calls.entry(address(&nested)).or_default() += 1;
                        if !self.done.contains(&nested) {
                            pending.push(Step::Open(nested));
                        }
                    }
                }
                Step::Close(program, objects) => {
                    if self.done.contains(&program) {
                        continue;
                    }
                    let is_root = pending.is_empty();
                    let now = self.rewritten(&program, objects, is_root)?;
                    if !Arc::ptr_eq(&now, &program) {
                        let calls = self.calls.get(&address(&program)).copied();
                        self.calls.insert(address(&now), calls.unwrap_or_default());
                        // A pass may have brought programs with it.
                        let objects = self.embedding.open(&now)?;
                        let mut within = nested::programs(&now, self.embedding, &objects);
                        if within.all(|nested| self.done.contains(&nested)) {
                            self.done.insert(now.clone(), now.clone());
                        } else {
                            pending.push(Step::Open(now.clone()));
                        }
                    }
                    self.done.insert(program, now);
                }
            }
        }
        Ok(())
    }

    /// A program whose nested programs are done.
    fn rewritten(
        &mut self,
        program: &Arc<Program>,
        objects: E::Objects,
        is_outermost: bool,
    ) -> Result<Arc<Program>, E::Error> {
        let mut unit = Unit {
            embedding: &mut *self.embedding,
            objects,
            options: self.options,
            is_outermost,
            calls: &self.calls,
            known: SecondaryMap::new(),
        };
        let mut current = program.clone();
        if let Some(next) = nested::replace(&mut unit, &current, &self.done)? {
            current = Arc::new(next);
        }
        loop {
            let before = current.clone();
            for pass in &self.options.passes {
                let next = match pass {
                    Pass::Inline => inline::run(&mut unit, &current)?,
                    Pass::Copies => copies::run(&mut unit, &current)?,
                    Pass::Algebra => algebra::run(&mut unit, &current)?,
                    Pass::Fold => fold::run(&mut unit, &current)?,
                    Pass::Cse => cse::run(&mut unit, &current)?,
                    Pass::Dce => dce::run(&mut unit, &current)?,
                };
                if let Some(next) = next {
                    current = Arc::new(next);
                }
            }
            if Arc::ptr_eq(&before, &current) {
                break;
            }
        }
        if is_outermost && let Some(next) = results::as_arrays(&mut unit, &current, program)? {
            current = Arc::new(next);
        }
        if !Arc::ptr_eq(&current, program) {
            let objects = unit.objects;
            self.embedding.close(program, &current, objects)?;
        }
        Ok(current)
    }
}

/// One program that is being rewritten.
struct Unit<'a, E: Embedding> {
    embedding: &'a mut E,
    objects: E::Objects,
    options: &'a Options,
    /// Whether it may be given constants: one that is run by another may not.
    is_outermost: bool,
    calls: &'a FxHashMap<usize, usize>,
    /// Whether a primitive is the one that is known by its name.
    known: SecondaryMap<PrimitiveId, Option<bool>>,
}

impl<E: Embedding> Unit<'_, E> {
    /// The name of a primitive that is known; of others, nothing.
    fn name<'p>(&mut self, program: &'p Program, eqn: Eqn) -> &'p str {
        let id = program.eqn(eqn).primitive;
        let primitive = program.primitive(id);
        let is_known = if let Some(is_known) = self.known[id] {
            is_known
        } else {
            let is_known = self.embedding.is_known(&self.objects, primitive.object);
            self.known[id] = Some(is_known);
            is_known
        };
        if is_known { &primitive.name } else { "" }
    }
}

fn address(program: &Arc<Program>) -> usize {
    Arc::as_ptr(program) as usize
}

/// The type of an array.
fn array(program: &Program, ty: TypeId) -> Option<&ArrayType> {
    match program.ty(ty) {
        Type::Array(array) => Some(array),
        Type::Ref { .. } | Type::Token | Type::Opaque { .. } => None,
    }
}

/// Whether an equation has no effects, and reads and makes nothing but arrays.
fn is_pure(program: &Program, eqn: Eqn) -> bool {
    let data = program.eqn(eqn);
    let is_array = |ty| array(program, ty).is_some();
    data.effects == crate::ir::EffectsId::NONE
        && program.eqn_invars(eqn).iter().all(|&atom| is_array(program.atom_type(atom)))
        && data.outvars().all(|var| is_array(program.var_type(var)))
}
