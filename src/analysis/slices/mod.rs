//! What depends on what: backward and forward slices, through nested programs.
//!
//! A slice of the outermost program asks for slices of the programs that its equations run, for the
//! outputs of these that are needed there, or the inputs that are concerned; a loop asks until what
//! comes back around adds nothing. What was asked of a program is remembered. Slices of several
//! outputs together are the slices of each, put together: a program that is asked for more different
//! sets of outputs than it has outputs is asked for each on its own from then on, so that there are
//! never more slices of a program than twice its outputs (the summaries of Horwitz, Reps and Binkley
//! 1990, "Interprocedural slicing using dependence graphs", made when they are asked for).
//!
//! A Ref is what it holds: an equation that reads it depends on all that have written to it before,
//! and on what it held at first. Equations with ordered effects depend on those before them with the
//! same effect.

mod backward;
mod forward;

use std::hash::Hash;

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;

use crate::ir::{ConstId, Eqn, Var};

use super::nest::{Nest, Site};
use super::wiring::{Wiring, wiring};

pub use backward::{dead, depends_on, unused_inputs};
pub use forward::used_by;

/// Positions, in order.
type Positions = Box<[u32]>;

#[allow(clippy::cast_possible_truncation)] // a program has fewer variables than that
fn positions(flags: impl IntoIterator<Item = bool>) -> Positions {
    (0..).zip(flags).filter(|&(_, is_set)| is_set).map(|(position, _)| position).collect()
}

/// Positions of the first and the second, in order.
fn merged(a: &[u32], b: &[u32]) -> Positions {
    let mut all: Vec<u32> = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// A question about one program, and its answer.
trait Question: Clone + Eq + Hash {
    type Answer: Clone + Default;

    /// The program.
    fn place(&self) -> usize;

    /// The question in parts whose answers, put together, are its answer.
    fn parts(&self) -> Vec<Self>;

    /// Puts another answer to this one.
    fn add(answer: &mut Self::Answer, more: &Self::Answer);
}

/// The answers so far.
struct Answers<Q: Question> {
    known: FxHashMap<Q, Q::Answer>,
    /// How many different questions there were about each program.
    asked: Vec<usize>,
}

impl<Q: Question> Answers<Q> {
    fn new(nest: &Nest) -> Self {
        Self { known: FxHashMap::default(), asked: vec![0; nest.len()] }
    }

    /// The answer.
    ///
    /// # Errors
    /// A question that has to be answered first.
    fn get(&self, question: &Q) -> Result<Q::Answer, Q> {
        if let Some(known) = self.known.get(question) {
            return Ok(known.clone());
        }
        let parts = question.parts();
        if parts.len() < 2 || self.asked[question.place()] <= parts.len() {
            return Err(question.clone());
        }
        let mut answer = Q::Answer::default();
        for part in &parts {
            Q::add(&mut answer, self.known.get(part).ok_or_else(|| part.clone())?);
        }
        Ok(answer)
    }

    fn insert(&mut self, question: Q, answer: Q::Answer) {
        self.asked[question.place()] += 1;
        self.known.insert(question, answer);
    }
}

/// How questions of a kind are answered.
trait Walk {
    type Question: Question;
    type Frame;

    /// Begins with a question.
    fn open(&self, question: &Self::Question) -> Self::Frame;

    /// Goes on until it is answered, or another question has to be answered first.
    fn advance(
        &mut self,
        frame: &mut Self::Frame,
        answers: &Answers<Self::Question>,
    ) -> Result<<Self::Question as Question>::Answer, Self::Question>;
}

/// The answer to a question; those that come up on the way wait on a stack of their own.
fn solve<W: Walk>(
    walk: &mut W,
    nest: &Nest,
    root: W::Question,
) -> <W::Question as Question>::Answer {
    let mut answers = Answers::new(nest);
    let mut pending = vec![(walk.open(&root), root)];
    let mut last = Default::default();
    while let Some((frame, _)) = pending.last_mut() {
        match walk.advance(frame, &answers) {
            Err(question) => pending.push((walk.open(&question), question)),
            Ok(answer) => {
                if let Some((_, question)) = pending.pop() {
                    answers.insert(question, answer.clone());
                }
                last = answer;
            }
        }
    }
    last
}

/// A nest, what a slice has of it so far, and how equations meet the programs that they run.
struct Visits<'n> {
    nest: &'n Nest,
    marks: Marks,
    wirings: FxHashMap<Site, Option<Wiring>>,
}

impl<'n> Visits<'n> {
    fn new(nest: &'n Nest) -> Self {
        Self { nest, marks: Marks::new(nest), wirings: FxHashMap::default() }
    }

    /// Looks at a program for the first time.
    fn enter(&mut self, place: usize) {
        if !std::mem::replace(&mut self.marks.is_read[place], true) {
            for call in self.nest.calls(place) {
                let site = Site { place, eqn: call.eqn };
                self.wirings.entry(site).or_insert_with(|| wiring(self.nest, place, call.eqn));
            }
        }
    }

    /// How an equation meets the programs that it runs; None where it runs none, or nobody knows.
    fn wiring(&self, site: Site) -> Option<&Wiring> {
        self.wirings.get(&site)?.as_ref()
    }
}

/// The equations and constants of the programs of a nest that a slice has.
struct Marks {
    eqns: Vec<EntitySet<Eqn>>,
    constvars: Vec<EntitySet<Var>>,
    /// Programs that were looked at.
    is_read: Vec<bool>,
}

impl Marks {
    fn new(nest: &Nest) -> Self {
        Self {
            eqns: vec![EntitySet::new(); nest.len()],
            constvars: vec![EntitySet::new(); nest.len()],
            is_read: vec![false; nest.len()],
        }
    }

    /// The marked equations, those of the outermost program first.
    fn sites(&self, nest: &Nest) -> Vec<Site> {
        let mut sites = Vec::new();
        for (place, program) in nest.programs().rev() {
            let marked = program.eqns().filter(|&eqn| self.eqns[place].contains(eqn));
            sites.extend(marked.map(|eqn| Site { place, eqn }));
        }
        sites
    }

    fn constants(&self, nest: &Nest) -> Vec<Constant> {
        let mut constants = Vec::new();
        for (place, program) in nest.programs().rev() {
            for (position, &(var, value)) in program.constvars().iter().enumerate() {
                if self.constvars[place].contains(var) {
                    constants.push(Constant { place, position, value });
                }
            }
        }
        constants
    }
}

/// A constant of one of the programs of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The place of the program.
    pub place: usize,
    /// The position among the program's constants.
    pub position: usize,
    /// The embedding's number for its value.
    pub value: ConstId,
}

/// What an output is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    /// The positions of inputs.
    pub inputs: Vec<u32>,
    /// Constants.
    pub constants: Vec<Constant>,
    /// Equations, those of the outermost program first.
    pub eqns: Vec<Site>,
}

/// What an input is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The positions of outputs.
    pub outputs: Vec<u32>,
    /// Equations, those of the outermost program first.
    pub eqns: Vec<Site>,
}
