//! Where two programs differ: which equations were added, removed, changed or moved.
//!
//! Two programs are *aligned*: equations of the one are matched with equations of the other, as are
//! inputs and results. Then each pair is compared, by the comparison that equality is made of
//! ([`structure`](crate::structure)): variables are taken for one where what defines them is matched.
//! So names count for nothing, and an equation that was inserted makes no difference to those after it.
//! Equal programs are aligned as they are, and nothing else is compared as equal: there is no
//! difference exactly where the programs are equal.
//!
//! # Alignment
//!
//! An equation has a *digest* (`digest`): 64 bits of what it says by itself, which is all but its
//! operands that are variables. Equations are matched in rounds (`align`), each in the gaps that the
//! rounds before have left, by what is the same in both: the digest and those of what defines the
//! operands; the digest; the primitive and its operands; the primitive and the types of its results;
//! the primitive; the operands. What is matched in the last four rounds was changed. Each round is an
//! alignment of two sequences of numbers by Myers' algorithm (the crate imara-diff), which may take the
//! square of their lengths. So those that are long are divided first, where something occurs once in
//! both, as in patience diff, and are then followed in windows, each from where the alignment in the one
//! before ends. Programs that are entirely different take a few times as long as those that are close;
//! what they have in common is then not the most that could be found, and the rest is reported as
//! removed and added.
//!
//! Of several equal equations, those are matched whose users are (`align::settle`).
//! What is left over on both sides, and is equal with the same operands, was moved.
//!
//! # Nested programs
//!
//! Those of matched equations are compared in the same way, each pair once, by a work list.

mod align;
mod common;
mod digest;
mod matches;

use rustc_hash::FxHashSet;

use crate::ir::{Eqn, Program};
use crate::structure::{Nested, Objects, Pair, Place, Purpose, Within};

use align::{Alignment, align};
use digest::Digests;

/// How two programs differ: those given, and their nested programs.
pub struct Diff<O> {
    /// Those that differ by themselves; whichever is met first comes first.
    pub programs: Vec<ProgramDiff<O>>,
}

/// How two programs differ, nested ones not looked at.
pub struct ProgramDiff<O> {
    /// The program and the other one.
    pub programs: [Nested<O>; 2],
    /// The equations that they are within, from the outermost on.
    pub path: Vec<Step>,
    /// The programs that each of these equations is in.
    pub around: Vec<[Nested<O>; 2]>,
    /// Constants and inputs.
    pub inputs: Vec<Ends>,
    /// The equations of both.
    pub rows: Vec<Row>,
    /// Results.
    pub results: Vec<Ends>,
    /// Whether the effects of the programs are others.
    pub effects: bool,
}

impl<O> ProgramDiff<O> {
    /// How many differences there are.
    pub fn count(&self) -> usize {
        // What was moved has a row at both places.
        let rows = self.rows.iter().filter(|row| row.differs() && !matches!(row, Row::MovedTo(..)));
        self.inputs.len() + rows.count() + self.results.len() + usize::from(self.effects)
    }
}

/// Where a program is: an equation of each of two programs, and the param.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The equations.
    pub eqns: [Eqn; 2],
    /// The name of their primitive, which is the same.
    pub primitive: Box<str>,
    /// The name of the param.
    pub param: Box<str>,
}

/// What differs at the ends of two programs: places among the constants and inputs, or the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Only the first program has it.
    Removed(usize),
    /// Only the other program has it.
    Added(usize),
    /// An input of another type, or another result.
    Changed(usize, usize),
    /// A constant of another value.
    Value(usize, usize),
}

/// Equations side by side, in the order of both programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// They are the same.
    Same(Eqn, Eqn),
    /// Only the first program has it.
    Removed(Eqn),
    /// Only the other program has it.
    Added(Eqn),
    /// They differ in something.
    Changed(Eqn, Eqn, Vec<Place>),
    /// It is the same as one at another place of the other program.
    MovedTo(Eqn, Eqn),
    /// It is the same as one at another place of the first program.
    MovedFrom(Eqn, Eqn),
}

impl Row {
    /// Whether it says that the programs differ.
    pub fn differs(&self) -> bool {
        !matches!(self, Self::Same(..))
    }
}

/// Where two programs differ.
///
/// # Errors
/// Objects cannot be compared or described.
pub fn diff<O: Objects + Clone>(
    one: Nested<O>,
    another: Nested<O>,
    purpose: Purpose,
) -> Result<Diff<O>, O::Error> {
    let mut digests = Digests::default();
    let roots = (one.key, another.key);
    for program in [&one, &another] {
        digests.read(program.clone(), purpose)?;
    }
    let mut met = FxHashSet::default();
    let mut steps = Steps(Vec::new());
    let mut pending = vec![([one, another], None)];
    let mut programs = Vec::new();
    while let Some((pair, within)) = pending.pop() {
        let keys = (pair[0].key, pair[1].key);
        if keys.0 == keys.1 || !met.insert(keys) {
            continue;
        }
        let (found, inner) = compare(&pair, purpose, keys == roots, &digests)?;
        // The first is looked at first.
        for (eqns, Within { programs, param }) in inner.into_iter().rev() {
            let of = &pair[1].program;
            let primitive = of.primitive(of.eqn(eqns[1]).primitive).name.clone();
            let step = Step { eqns, primitive, param };
            pending.push((programs, Some(steps.push(step, &pair, within))));
        }
        if let Some(Differences { inputs, rows, results, effects }) = found {
            let (path, around) = steps.path(within).into_iter().unzip();
            let differing =
                ProgramDiff { programs: pair, path, around, inputs, rows, results, effects };
            programs.push(differing);
        }
    }
    Ok(Diff { programs })
}

/// Steps into nested programs, each known by its number, with the programs that it leads from and the
/// step before.
struct Steps<O>(Vec<(Step, [Nested<O>; 2], Option<usize>)>);

impl<O: Clone> Steps<O> {
    fn push(&mut self, step: Step, from: &[Nested<O>; 2], before: Option<usize>) -> usize {
        self.0.push((step, from.clone(), before));
        self.0.len() - 1
    }

    fn path(&self, mut last: Option<usize>) -> Vec<(Step, [Nested<O>; 2])> {
        let mut path = Vec::new();
        while let Some((step, from, before)) = last.and_then(|last| self.0.get(last)) {
            path.push((step.clone(), from.clone()));
            last = *before;
        }
        path.reverse();
        path
    }
}

struct Differences {
    inputs: Vec<Ends>,
    rows: Vec<Row>,
    results: Vec<Ends>,
    effects: bool,
}

/// Nested programs, and the equations that they are in.
type Inner<O> = Vec<([Eqn; 2], Within<O>)>;

/// How two programs differ, where they do, and the nested programs of their equations that are matched.
fn compare<O: Objects>(
    [one, another]: &[Nested<O>; 2],
    purpose: Purpose,
    is_root: bool,
    digests: &Digests,
) -> Result<(Option<Differences>, Inner<O>), O::Error> {
    let mut pair = Pair::new(one, another, purpose, is_root);
    let sides = [one, another].map(|of| (&*of.program, digests.of(of.key)));
    let aligned = align(sides, pair.constants_are_inputs);
    let inputs = inputs(&mut pair, one, another, &aligned)?;
    for (eqn, other) in aligned.eqns() {
        pair.unify_outputs(eqn, other);
    }
    let mut within = Vec::new();
    let mut is_same = inputs.is_empty();
    let mut rows = Vec::with_capacity(one.program.num_eqns().max(another.program.num_eqns()));
    aligned.rows(|row| {
        let row = match row {
            Row::Same(eqn, other) => {
                let mut places = Vec::new();
                pair.eqn(eqn, other, &mut |place| places.push(place))?;
                within.extend(pair.within.drain(..).map(|within| ([eqn, other], within)));
                if places.is_empty() { row } else { Row::Changed(eqn, other, places) }
            }
            row => row,
        };
        is_same &= matches!(row, Row::Same(..));
        rows.push(row);
        Ok(())
    })?;
    let results = results(&mut pair, &one.program, &another.program, &aligned)?;
    let effects = !pair.effects(one.program.effects(), another.program.effects())?;
    if is_same && results.is_empty() && !effects {
        return Ok((None, within));
    }
    Ok((Some(Differences { inputs, rows, results, effects }), within))
}

/// What differs of constants and inputs, which are unified.
fn inputs<O: Objects>(
    pair: &mut Pair<'_, O>,
    one: &Nested<O>,
    another: &Nested<O>,
    aligned: &Alignment,
) -> Result<Vec<Ends>, O::Error> {
    let vars = |of: &Nested<O>| crate::structure::inputs(&of.program).collect::<Vec<_>>();
    let (own, others) = (vars(one), vars(another));
    let num_constants = |of: &Nested<O>| {
        if pair.constants_are_inputs { 0 } else { of.program.constvars().len() }
    };
    let (constants, other_constants) = (num_constants(one), num_constants(another));
    let mut ends = Vec::new();
    let mut next = 0;
    for (index, matched) in aligned.inputs().enumerate() {
        let Some(other) = matched else {
            ends.push(Ends::Removed(index));
            continue;
        };
        ends.extend((next..other).map(Ends::Added));
        next = other + 1;
        pair.unify(own[index], others[other]);
        let [ty, its] =
            [(one, own[index]), (another, others[other])].map(|(of, var)| of.program.var_type(var));
        if !pair.same_type(ty, its)? {
            ends.push(Ends::Changed(index, other));
        }
        if index < constants && other < other_constants && !pair.same_constant(index, other)? {
            ends.push(Ends::Value(index, other));
        }
    }
    ends.extend((next..others.len()).map(Ends::Added));
    Ok(ends)
}

/// What differs of results.
fn results<O: Objects>(
    pair: &mut Pair<'_, O>,
    one: &Program,
    another: &Program,
    aligned: &Alignment,
) -> Result<Vec<Ends>, O::Error> {
    let mut ends = Vec::new();
    let mut next = 0;
    for (index, matched) in aligned.results().enumerate() {
        let Some(other) = matched else {
            ends.push(Ends::Removed(index));
            continue;
        };
        ends.extend((next..other).map(Ends::Added));
        next = other + 1;
        if !pair.atom(one.outvars()[index].kind(), another.outvars()[other].kind())? {
            ends.push(Ends::Changed(index, other));
        }
    }
    ends.extend((next..another.outvars().len()).map(Ends::Added));
    Ok(ends)
}
