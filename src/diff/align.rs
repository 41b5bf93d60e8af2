//! Which parts of a program are which of another one.

use std::cell::OnceCell;
use std::hash::Hasher;

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHasher};

use crate::ir::{Atom, AtomKind, Def, Eqn, Program, Var};

use super::Row;
use super::digest::Digest;
use super::matches::{Index, Matches};

/// How many users of an equation are asked which of two equations they use.
const MAX_USERS: usize = 64;
/// How many equal equations are looked at to find one that was moved.
const MAX_CANDIDATES: usize = 8;
/// How often equations are matched by their operands, each time by more that are matched.
const MAX_ROUNDS: usize = 4;

/// Which parts of a program are which of another one.
pub(super) struct Alignment {
    inputs: Matches,
    eqns: Matches,
    results: Matches,
}

impl Alignment {
    /// The other program's input for each constant and input.
    pub(super) fn inputs(&self) -> impl Iterator<Item = Option<usize>> {
        self.inputs.all(0)
    }

    /// The other program's result for each result.
    pub(super) fn results(&self) -> impl Iterator<Item = Option<usize>> {
        self.results.all(0)
    }

    /// The equations that are matched.
    pub(super) fn eqns(&self) -> impl Iterator<Item = (Eqn, Eqn)> {
        let pairs = self.eqns.all(0).enumerate();
        pairs.filter_map(|(index, other)| Some((eqn(index), eqn(other?))))
    }

    /// Shows the equations of both programs, matched ones side by side.
    ///
    /// # Errors
    /// What `show` fails with.
    pub(super) fn rows<E>(&self, mut show: impl FnMut(Row) -> Result<(), E>) -> Result<(), E> {
        let added = |other: usize| match self.eqns.of(1, other) {
            Some(own) => Row::MovedFrom(eqn(own), eqn(other)),
            None => Row::Added(eqn(other)),
        };
        let mut next = 0;
        for (index, other) in self.eqns.all(0).enumerate() {
            match other {
                None => show(Row::Removed(eqn(index)))?,
                Some(other) if self.eqns.moved.contains(&index) => {
                    show(Row::MovedTo(eqn(index), eqn(other)))?;
                }
                Some(other) => {
                    (next..other).map(added).try_for_each(&mut show)?;
                    show(Row::Same(eqn(index), eqn(other)))?;
                    next = other + 1;
                }
            }
        }
        (next..self.eqns.len(1)).map(added).try_for_each(show)
    }

    fn transposed(self) -> Self {
        let Self { inputs, eqns, results } = self;
        Self { inputs: inputs.transposed(), eqns: eqns.transposed(), results: results.transposed() }
    }
}

fn eqn(index: usize) -> Eqn {
    // A program's equations are numbered by 32 bits.
    Eqn::from_u32(u32::try_from(index).unwrap_or(u32::MAX - 1))
}

/// Aligns two programs. What is found does not depend on which of them is the first.
pub(super) fn align(sides: [(&Program, &Digest); 2], constants_are_inputs: bool) -> Alignment {
    let [one, another] = sides.map(|(program, digest)| Side::new(program, digest));
    if one.digest.whole <= another.digest.whole {
        Aligning::new([one, another]).align(constants_are_inputs)
    } else {
        Aligning::new([another, one]).align(constants_are_inputs).transposed()
    }
}

/// A number that stands for several.
fn combined(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = FxHasher::default();
    for number in numbers {
        hasher.write_u64(number);
    }
    hasher.finish()
}

/// Where a variable is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Input(usize),
    /// An equation, and which of its outputs.
    Output(usize, u32),
}

/// One of the two programs.
struct Side<'a> {
    program: &'a Program,
    digest: &'a Digest,
    /// The places of constants and inputs.
    inputs: FxHashMap<Var, usize>,
}

impl<'a> Side<'a> {
    fn new(program: &'a Program, digest: &'a Digest) -> Self {
        let inputs = crate::structure::inputs(program).zip(0..).collect();
        Self { program, digest, inputs }
    }

    fn origin(&self, var: Var) -> Option<Origin> {
        match self.program.var(var).def {
            Def::Eqn(eqn) => {
                let output = var.as_u32() - self.program.eqn(eqn).first_outvar.as_u32();
                Some(Origin::Output(eqn.as_u32() as usize, output))
            }
            _ => self.inputs.get(&var).copied().map(Origin::Input),
        }
    }

    fn operands(&self, index: usize) -> &'a [Atom] {
        self.program.eqn_invars(eqn(index))
    }

    /// The name of an input; constants have none.
    fn name(&self, index: usize) -> Option<&'a str> {
        let input = index.checked_sub(self.program.constvars().len())?;
        let names = self.program.debug_info().arg_names.as_ref()?;
        names.get(input).map(|name| &**name).filter(|name| !name.is_empty())
    }
}

/// Two programs that are being aligned.
struct Aligning<'a> {
    sides: [Side<'a>; 2],
    inputs: Matches,
    eqns: Matches,
}

impl<'a> Aligning<'a> {
    fn new(sides: [Side<'a>; 2]) -> Self {
        let count = |count: fn(&Side<'a>) -> usize| [count(&sides[0]), count(&sides[1])];
        let inputs = Matches::new(count(|side| side.digest.inputs.len()));
        let eqns = Matches::new(count(|side| side.digest.eqns.len()));
        Self { sides, inputs, eqns }
    }

    fn align(mut self, constants_are_inputs: bool) -> Alignment {
        self.align_inputs(constants_are_inputs);
        self.align_eqns();
        let results = self.aligned_results();
        Alignment { inputs: self.inputs, eqns: self.eqns, results }
    }

    /// Inputs are told apart by their types. Only where there are others are names looked at, which
    /// say nothing but what was meant.
    fn align_inputs(&mut self, constants_are_inputs: bool) {
        let [one, another] = &self.sides;
        let constants = |side: &Side<'_>| side.program.constvars().len();
        if one.digest.inputs == another.digest.inputs
            && (constants_are_inputs || constants(one) == constants(another))
        {
            for index in 0..one.digest.inputs.len() {
                self.inputs.set(index, index);
            }
            return;
        }
        let sides = &self.sides;
        // Constants are matched with constants.
        let kind = |side: usize, index: usize| {
            u64::from(!constants_are_inputs && index < constants(&sides[side]))
        };
        let ty = |side: usize, index: usize| sides[side].digest.inputs[index];
        let name = |side: usize, index: usize| {
            let mut hasher = FxHasher::default();
            hasher.write(sides[side].name(index)?.as_bytes());
            Some(hasher.finish())
        };
        let all = |_: &Matches, side, index| {
            Some(combined([kind(side, index), ty(side, index), name(side, index)?]))
        };
        self.inputs.round(all);
        self.inputs.round(|_, side, index| Some(combined([kind(side, index), ty(side, index)])));
        self.inputs.round(|_, side, index| Some(combined([kind(side, index), name(side, index)?])));
        self.inputs.pair_up(|[own, others]| {
            let kinds = |side: usize, of: &[Index]| {
                of.iter().map(|index| kind(side, index.index())).collect::<Vec<_>>()
            };
            kinds(0, own) == kinds(1, others)
        });
    }

    /// What stands for an operand that is a variable, by what it is matched with; the same for both
    /// programs.
    fn image(&self, eqns: &Matches, side: usize, var: Var) -> Option<u64> {
        let first = |matches: &Matches, index: usize| match (side, matches.of(side, index)) {
            (_, None) => None,
            (0, _) => Some(index as u64),
            (_, matched) => matched.map(|index| index as u64),
        };
        Some(match self.sides[side].origin(var)? {
            Origin::Input(index) => combined([1, first(&self.inputs, index)?]),
            Origin::Output(index, output) => combined([2, first(eqns, index)?, output.into()]),
        })
    }

    /// What stands for all operands that are variables; None where there is none, or one is not
    /// matched.
    fn images(&self, eqns: &Matches, side: usize, index: usize) -> Option<u64> {
        let vars = self.sides[side].operands(index).iter().map(|atom| atom.as_var());
        let mut hasher = FxHasher::default();
        let mut is_known = false;
        for (slot, var) in (0_u64..).zip(vars) {
            if let Some(var) = var {
                hasher.write_u64(slot);
                hasher.write_u64(self.image(eqns, side, var)?);
                is_known = true;
            }
        }
        is_known.then(|| hasher.finish())
    }

    fn align_eqns(&mut self) {
        let mut eqns = std::mem::replace(&mut self.eqns, Matches::new([0, 0]));
        let digest = |side: usize, index: usize| self.sides[side].digest.eqns[index];
        // By what it says, and what its operands are from.
        eqns.round(|eqns, side, index| {
            let of = &self.sides[side];
            let mut hasher = FxHasher::default();
            hasher.write_u64(digest(side, index).own);
            for var in of.operands(index).iter().filter_map(|atom| atom.as_var()) {
                hasher.write_u64(match of.origin(var) {
                    Some(Origin::Output(from, output)) => {
                        digest(side, from).own.wrapping_add(output.into())
                    }
                    _ => self.image(eqns, side, var).unwrap_or(0),
                });
            }
            Some(hasher.finish())
        });
        if !eqns.is_complete() {
            eqns.round(|_, side, index| Some(digest(side, index).own));
            self.settle(&mut eqns);
            self.match_anew(&mut eqns);
            self.find_moved(&mut eqns);
        }
        if !eqns.is_complete() {
            eqns.round(|eqns, side, index| {
                let operands = self.images(eqns, side, index)?;
                Some(combined([digest(side, index).primitive, operands]))
            });
            eqns.round(|_, side, index| Some(digest(side, index).typed));
            eqns.round(|_, side, index| Some(digest(side, index).primitive));
            // What runs a program is not an operation with other params.
            let form = |side: usize, index: usize| {
                let program = self.sides[side].program;
                let params = program.params(program.eqn(eqn(index)).params);
                let runs = u64::from(!params.subprograms().is_empty());
                let outputs = program.eqn_outvars(eqn(index)).len() as u64;
                let operands = program.eqn_invars(eqn(index)).len() as u64;
                combined([combined([operands, outputs]), runs])
            };
            for _ in 0..MAX_ROUNDS {
                let found = eqns.round(|eqns, side, index| {
                    Some(combined([self.images(eqns, side, index)?, form(side, index)]))
                });
                if !found {
                    break;
                }
            }
        }
        self.eqns = eqns;
    }

    /// Of equal neighbours, matches the one that is used by what is matched with the
    /// users. From the results up, since what is matched anew has operands of its own.
    fn settle(&self, eqns: &mut Matches) {
        let [one, another] = &self.sides;
        let users = OnceCell::new();
        let (results, others) = (one.program.outvars(), another.program.outvars());
        let results = if results.len() == others.len() { results } else { &[] };
        for (atom, other) in results.iter().zip(others) {
            self.prefer(eqns, &users, *atom, *other);
        }
        for index in (0..one.digest.eqns.len()).rev() {
            let Some(other) = eqns.of(0, index) else { continue };
            for (atom, other) in one.operands(index).iter().zip(another.operands(other)) {
                self.prefer(eqns, &users, *atom, *other);
            }
        }
    }

    /// Matches what defines two operands at the same place, where more users than now are then of what
    /// they use.
    fn prefer(&self, eqns: &mut Matches, users: &OnceCell<Users>, atom: Atom, other: Atom) {
        let (AtomKind::Var(var), AtomKind::Var(other)) = (atom.kind(), other.kind()) else {
            return;
        };
        let [one, another] = &self.sides;
        let (Some(Origin::Output(own, output)), Some(Origin::Output(wanted, its_output))) =
            (one.origin(var), another.origin(other))
        else {
            return;
        };
        let (now, instead) = (eqns.of(0, own), eqns.of(1, wanted));
        // Exactly one of the two is matched.
        if output != its_output
            || now.is_some() == instead.is_some()
            || one.digest.eqns[own].own != another.digest.eqns[wanted].own
            || eqns.moved.contains(&own)
            || !eqns.fits(own, wanted, instead)
        {
            return;
        }
        let users = users.get_or_init(|| Users::of(one));
        // How many users of an equation have another one as the same operand.
        let using = |of: usize, its: usize| {
            let is_used = |&&(user, slot): &&(usize, usize)| {
                let atoms = match user.checked_sub(one.digest.eqns.len()) {
                    Some(_) => another.program.outvars(),
                    None => match eqns.of(0, user) {
                        Some(user) => another.operands(user),
                        None => return false,
                    },
                };
                let var = atoms.get(slot).and_then(|atom| atom.as_var());
                let origin = var.and_then(|var| another.origin(var));
                matches!(origin, Some(Origin::Output(from, _)) if from == its)
            };
            users.of_eqn(of).iter().take(MAX_USERS).filter(is_used).count()
        };
        let before = now.map_or(0, |now| using(own, now))
            + instead.map_or(0, |instead| using(instead, wanted));
        if using(own, wanted) <= before {
            return;
        }
        if let Some(now) = now {
            eqns.free(own, now);
        }
        if let Some(instead) = instead {
            eqns.free(instead, wanted);
        }
        eqns.set(own, wanted);
    }

    /// Matches those anew that have others as operands, in case neighbours have the same.
    fn match_anew(&self, eqns: &mut Matches) {
        let others: Vec<_> = (0..self.sides[0].digest.eqns.len())
            .filter_map(|index| Some((index, eqns.of(0, index)?)))
            .filter(|&(index, other)| !self.has_same_operands(eqns, index, other))
            .collect();
        for (index, other) in others {
            eqns.free(index, other);
        }
        let own = |side: usize, index: usize| self.sides[side].digest.eqns[index].own;
        eqns.round(|eqns, side, index| {
            Some(combined([own(side, index), self.images(eqns, side, index)?]))
        });
        eqns.round(|_, side, index| Some(own(side, index)));
    }

    /// Whether two equal equations have operands that are matched.
    fn has_same_operands(&self, eqns: &Matches, index: usize, other: usize) -> bool {
        let (own, others) = (self.sides[0].operands(index), self.sides[1].operands(other));
        own.len() == others.len()
            && own.iter().zip(others).all(|(atom, other)| match (atom.as_var(), other.as_var()) {
                (Some(own), Some(other)) => self.is_same_var(eqns, own, other),
                // Literals, which are the same.
                (None, None) => true,
                _ => false,
            })
    }

    /// Whether two variables are of what is matched.
    fn is_same_var(&self, eqns: &Matches, own: Var, other: Var) -> bool {
        match (self.sides[0].origin(own), self.sides[1].origin(other)) {
            (Some(Origin::Input(own)), Some(Origin::Input(other))) => {
                self.inputs.of(0, own) == Some(other)
            }
            (Some(Origin::Output(own, output)), Some(Origin::Output(other, its_output))) => {
                output == its_output && eqns.of(0, own) == Some(other)
            }
            _ => false,
        }
    }

    /// Matches what is equal, with the same operands, elsewhere.
    fn find_moved(&self, eqns: &mut Matches) {
        let [one, another] = &self.sides;
        let mut left: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (index, digest) in another.digest.eqns.iter().enumerate() {
            if eqns.of(1, index).is_none() {
                left.entry(digest.own).or_default().push(index);
            }
        }
        for (index, digest) in one.digest.eqns.iter().enumerate() {
            if left.is_empty() {
                break;
            }
            if eqns.of(0, index).is_some() {
                continue;
            }
            let Some(candidates) = left.get_mut(&digest.own) else { continue };
            let is_same = |&other: &usize| self.has_same_operands(eqns, index, other);
            let found = candidates.iter().take(MAX_CANDIDATES).position(is_same);
            if let Some(found) = found {
                let other = candidates.remove(found);
                eqns.set(index, other);
                eqns.moved.insert(index);
            }
        }
    }

    fn aligned_results(&self) -> Matches {
        let mut results = Matches::new([0, 1].map(|side| self.sides[side].program.outvars().len()));
        results.round(|_, side, index| {
            let of = &self.sides[side];
            match of.program.outvars()[index].kind() {
                AtomKind::Var(var) => self.image(&self.eqns, side, var),
                AtomKind::Literal(_) => of.digest.literals.get(&index).copied(),
            }
        });
        results.pair_up(|_| true);
        results
    }
}

/// Who uses the outputs of each equation: equations, then results, with the place among the operands.
struct Users {
    first: Vec<usize>,
    users: Vec<(usize, usize)>,
}

impl Users {
    fn of(side: &Side<'_>) -> Self {
        let count = side.digest.eqns.len();
        let each = |visit: &mut dyn FnMut(usize, (usize, usize))| {
            let operands = (0..count).map(|index| (index, side.operands(index)));
            for (user, atoms) in operands.chain([(count, side.program.outvars())]) {
                for (slot, var) in atoms.iter().map(|atom| atom.as_var()).enumerate() {
                    if let Some(Origin::Output(from, _)) = var.and_then(|var| side.origin(var)) {
                        visit(from, (user, slot));
                    }
                }
            }
        };
        let mut first = vec![0; count + 1];
        each(&mut |from, _| first[from + 1] += 1);
        for index in 0..count {
            first[index + 1] += first[index];
        }
        let mut next = first.clone();
        let mut users = vec![(0, 0); first[count]];
        each(&mut |from, user| {
            users[next[from]] = user;
            next[from] += 1;
        });
        Self { first, users }
    }

    fn of_eqn(&self, index: usize) -> &[(usize, usize)] {
        &self.users[self.first[index]..self.first[index + 1]]
    }
}
