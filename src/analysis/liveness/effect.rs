//! What becomes of the bytes around an equation while it runs.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{AtomKind, Eqn, Var};

use super::super::nest::Site;
use super::super::values::bytes;
use super::super::wiring::{Body, Wiring};
use super::rules::{self, Kind};
use super::{Frame, Last, Owner, Reader, Summary, Way};

/// What becomes of a result of an equation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placement {
    /// It is in the bytes of a variable.
    In(Var),
    /// It has bytes of its own, with others of the same number.
    New(usize),
    /// It takes none.
    None,
}

/// What an equation does.
pub(super) struct Effect {
    pub(super) during: u128,
    pub(super) placements: SmallVec<[Placement; 2]>,
    /// The nested program in which the most is alive.
    pub(super) inner: Option<Way>,
}

impl Reader<'_> {
    pub(super) fn effect(&self, frame: &Frame, eqn: Eqn) -> Result<Effect, Way> {
        let place = frame.way.place;
        if self.nest.calls(place).is_empty() {
            return Ok(self.of_leaf(frame, eqn));
        }
        match self.wirings.get(&Site { place, eqn }) {
            Some(Some(wiring)) if wiring.is_loop => self.of_loop(frame, eqn, wiring),
            Some(Some(wiring)) if !wiring.bodies.iter().all(|body| body.finals.is_empty()) => {
                self.of_state(frame, eqn, &wiring.bodies[0])
            }
            Some(Some(wiring)) => self.of_call(frame, eqn, wiring),
            _ => Ok(self.of_leaf(frame, eqn)),
        }
    }

    fn of_leaf(&self, frame: &Frame, eqn: Eqn) -> Effect {
        let program = self.nest.program(frame.way.place);
        let lasts = &frame.lasts;
        let kind = lasts.kind(program.eqn(eqn).primitive);
        let operands = program.eqn_invars(eqn);
        let operand = |at: usize| operands.get(at).and_then(|atom| atom.as_var());
        let mut placements = SmallVec::new();
        let mut during = frame.alive;
        let mut taken: Option<Var> = None;
        let aliases = if kind == Kind::Kernel { rules::aliases(program, eqn) } else { Vec::new() };
        for (at, var) in program.eqn_outvars(eqn).enumerate() {
            let fits = |other: &Var| {
                lasts.bytes(*other) == lasts.bytes(var)
                    && frame.is_free_after(*other, eqn)
                    && taken != Some(*other)
            };
            let is_read = lasts.last(var) != Last::Never;
            let place = match kind {
                _ if lasts.is_fused(var) => Placement::None,
                Kind::RefWrite if !is_read => Placement::None,
                Kind::View => match operand(at).filter(|&var| frame.buffer(var).is_some()) {
                    // The Ref that a value is read from, or the value itself.
                    Some(other) => Placement::In(other),
                    None => Placement::New(at),
                },
                Kind::Update => operand(0)
                    .filter(fits)
                    .filter(|_| at == 0)
                    .map_or(Placement::New(at), Placement::In),
                Kind::PerElement => {
                    let found = lasts.expiring(eqn).iter().copied().find(fits);
                    found.map_or(Placement::New(at), Placement::In)
                }
                Kind::Kernel => {
                    let pair = aliases.iter().find(|(_, result)| *result == at);
                    let found = pair.and_then(|&(from, _)| operand(from)).filter(fits);
                    found.map_or(Placement::New(at), Placement::In)
                }
                Kind::Spread | Kind::Reduction | Kind::RefWrite | Kind::Partition | Kind::Other => {
                    Placement::New(at)
                }
            };
            match place {
                Placement::In(other) if kind != Kind::View => taken = Some(other),
                Placement::New(_) => during += lasts.bytes(var),
                Placement::In(_) | Placement::None => {}
            }
            placements.push(place);
        }
        Effect { during, placements, inner: None }
    }

    /// The operands of an equation whose bytes what it runs may take over.
    pub(super) fn given(&self, frame: &Frame, eqn: Eqn) -> Vec<bool> {
        let program = self.nest.program(frame.way.place);
        let operands = program.eqn_invars(eqn);
        if frame.lasts.kind(program.eqn(eqn).primitive) == Kind::Partition {
            // What runs has another size there.
            return vec![false; operands.len()];
        }
        let mut times: FxHashMap<Var, u32> = FxHashMap::default();
        for var in operands.iter().filter_map(|atom| atom.as_var()) {
            *times.entry(var).or_default() += 1;
        }
        let is_given = |var: Var| times.get(&var) == Some(&1) && frame.is_free_after(var, eqn);
        operands.iter().map(|atom| atom.as_var().is_some_and(is_given)).collect()
    }

    /// A call, or a choice among branches.
    fn of_call(&self, frame: &Frame, eqn: Eqn, wiring: &Wiring) -> Result<Effect, Way> {
        let program = self.nest.program(frame.way.place);
        let lasts = &frame.lasts;
        let operands = program.eqn_invars(eqn);
        let given = self.given(frame, eqn);
        let bytes_of = |at: usize| operands[at].as_var().map_or(0, |var| lasts.bytes(var));
        let mut found: Vec<(&Body, &Summary, u128, Way)> = Vec::new();
        for body in &wiring.bodies {
            let own: Box<[bool]> =
                body.inputs.iter().map(|at| at.is_some_and(|at| given[at])).collect();
            let (summary, way) = self.summary(Way { place: body.place, given: own })?;
            let counted: u128 = (body.inputs.iter().zip(&way.given))
                .filter(|(_, is_given)| **is_given)
                .filter_map(|(at, _)| at.map(bytes_of))
                .sum();
            found.push((body, summary, counted, way));
        }
        // What all branches agree on; where they do not, the result has bytes of its own, into
        // which a branch copies what it does not make itself.
        let results: Vec<Var> = program.eqn_outvars(eqn).collect();
        let owner = |branch: &(&Body, &Summary, u128, Way), at: usize| match branch.1.outputs[at] {
            Owner::Input(input) => branch.0.inputs[input].map_or(Owner::Constant, Owner::Input),
            other => other,
        };
        let mut placements = SmallVec::new();
        for (at, &var) in results.iter().enumerate() {
            let first = found.first().map(|branch| owner(branch, at));
            let agree = found.iter().all(|branch| Some(owner(branch, at)) == first);
            placements.push(match first {
                _ if lasts.is_fused(var) => Placement::None,
                Some(Owner::Input(operand)) if agree => match operands[operand].kind() {
                    AtomKind::Var(var) => Placement::In(var),
                    AtomKind::Literal(_) => Placement::New(at),
                },
                // Numbers of what a program makes are told from positions of results.
                Some(Owner::Own(number)) if agree && found.len() == 1 => {
                    Placement::New(results.len() + number)
                }
                Some(Owner::Constant) if agree && found.len() == 1 => Placement::None,
                _ => Placement::New(at),
            });
        }
        let (mut during, mut inner) = (frame.alive, None);
        for branch in &found {
            let copied: u128 = (0..results.len())
                .filter(|&at| matches!(placements[at], Placement::New(_)))
                .filter(|&at| !matches!(branch.1.outputs[at], Owner::Own(_)))
                .map(|at| lasts.bytes(results[at]))
                .sum();
            let most = frame.alive - branch.2 + branch.1.peak + copied;
            if most > during || inner.is_none() {
                during = during.max(most);
                inner = Some(branch.3.clone());
            }
        }
        Ok(Effect { during, placements, inner })
    }

    /// A loop: what is carried has bytes that each round takes over, slices of operands are copied
    /// for each round, and slices of results are put where all of them will be.
    fn of_loop(&self, frame: &Frame, eqn: Eqn, wiring: &Wiring) -> Result<Effect, Way> {
        let program = self.nest.program(frame.way.place);
        let lasts = &frame.lasts;
        let given = self.given(frame, eqn);
        let operands = program.eqn_invars(eqn);
        let results: Vec<Var> = program.eqn_outvars(eqn).collect();
        let body = &wiring.bodies[0];
        let mut own = vec![false; body.inputs.len()];
        let mut placements: SmallVec<_> = (0..results.len()).map(Placement::New).collect();
        let (mut counted, mut carried) = (0, 0);
        for &(output, input) in &body.carried {
            own[input] = true;
            carried += lasts.bytes(results[output]);
            if let Some(operand) = body.inputs[input].filter(|&at| given[at])
                && let Some(var) = operands[operand].as_var()
            {
                counted += lasts.bytes(var);
                placements[output] = Placement::In(var);
            }
        }
        for input in body.slices.clone() {
            own[input] = true;
        }
        let stacked: u128 = body.stacked.clone().map(|output| lasts.bytes(results[output])).sum();
        let base = frame.alive - counted + stacked;
        let (summary, way) = self.summary(Way { place: body.place, given: own.into() })?;
        // A body that is not read in its own way counts neither carries nor slices.
        let uncounted = if way.given.iter().any(|&is_given| is_given) {
            0
        } else {
            let within = self.nest.program(body.place);
            let size = |input: usize| bytes(within.ty(within.var_type(within.invars()[input])));
            carried + body.slices.clone().map(size).sum::<u128>()
        };
        let mut during = base + summary.peak + uncounted;
        let mut inner = Some(way);
        if let Some(condition) = wiring.condition {
            let body = &wiring.bodies[condition];
            let given = vec![false; body.inputs.len()].into();
            let (summary, way) = self.summary(Way { place: body.place, given })?;
            let most = base + carried + summary.peak;
            if most > during {
                (during, inner) = (most, Some(way));
            }
        }
        Ok(Effect { during, placements, inner })
    }

    /// Values that are Refs while a program runs.
    fn of_state(&self, frame: &Frame, eqn: Eqn, body: &Body) -> Result<Effect, Way> {
        let program = self.nest.program(frame.way.place);
        let given = self.given(frame, eqn);
        let operands = program.eqn_invars(eqn);
        let results: Vec<Var> = program.eqn_outvars(eqn).collect();
        let mut placements: SmallVec<_> = (0..results.len()).map(Placement::New).collect();
        let mut during = frame.alive;
        for &(input, result) in &body.finals {
            let operand = body.inputs[input].filter(|&at| given[at]);
            match operand.and_then(|at| operands[at].as_var()) {
                Some(var) => placements[result] = Placement::In(var),
                None => during += frame.lasts.bytes(results[result]),
            }
        }
        let given = vec![false; body.inputs.len()].into();
        let (summary, way) = self.summary(Way { place: body.place, given })?;
        Ok(Effect { during: during + summary.peak, placements, inner: Some(way) })
    }
}
