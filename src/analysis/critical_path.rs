//! The longest chain of equations that wait for each other.
//!
//! It is what a program takes on a machine that runs everything at once that can be. An equation that
//! runs programs waits for all of its operands, and takes as long as the longest chain within; a loop
//! that as often as it runs, one round after another; of branches the longest.

use cranelift_entity::SecondaryMap;

use crate::ir::{EffectsId, Eqn, ParamValue, Program, Var};

use super::cost::{
    Estimates, Trips,
    rules::{Kind, kind},
};
use super::effects::{Ordered, doings};
use super::nest::{Nest, Site};

/// What an equation weighs that runs no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One.
    Equations,
    /// Its flops and transcendental functions.
    Operations,
    /// The bytes that it reads and writes.
    Bytes,
}

/// The longest chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// What its equations weigh together.
    pub length: u128,
    /// What all equations weigh together.
    pub total: u128,
    /// The equations; after one that runs a program the chain within, once for each program.
    pub eqns: Vec<Site>,
}

/// A program's longest chain.
#[derive(Default)]
struct Chain {
    length: u128,
    total: u128,
    eqns: Vec<Eqn>,
}

/// What an equation takes, from its start and in all.
struct Taken {
    length: u128,
    total: u128,
}

struct Chains<'n, E> {
    nest: &'n Nest,
    weight: Weight,
    trips: Trips,
    estimates: &'n E,
    known: Vec<Chain>,
}

impl<E: Estimates> Chains<'_, E> {
    fn weigh(&self, cost: Option<super::cost::Cost>) -> u128 {
        match (self.weight, cost) {
            (Weight::Equations, _) => 1,
            (_, None) => 0,
            (Weight::Operations, Some(cost)) => cost.flops.saturating_add(cost.transcendentals),
            (Weight::Bytes, Some(cost)) => cost.bytes_read.saturating_add(cost.bytes_written),
        }
    }

    fn within(&self, program: &Program, value: &ParamValue) -> Vec<&Chain> {
        let mut found = Vec::new();
        value.walk(&mut |value| {
            if let ParamValue::Program(id) = value {
                found.extend(self.nest.place(program, *id).and_then(|place| self.known.get(place)));
            }
        });
        found
    }

    fn taken(&self, program: &Program, eqn: Eqn) -> Taken {
        let leaf = |weight| Taken { length: weight, total: weight };
        if let Some(estimate) = self.estimates.estimate(program, eqn) {
            return leaf(self.weigh(Some(estimate)));
        }
        let mut taken = Taken { length: 0, total: 0 };
        let mut run = |value: &ParamValue, times: u128| {
            for chain in self.within(program, value) {
                let add = |sum: u128, each: u128| sum.saturating_add(each.saturating_mul(times));
                taken.length = add(taken.length, chain.length);
                taken.total = add(taken.total, chain.total);
            }
        };
        match kind(program, eqn) {
            Kind::Leaf(cost) => return leaf(self.weigh(Some(cost))),
            Kind::Unknown => return leaf(self.weigh(None)),
            Kind::Calls(calls) => {
                for (value, times) in calls {
                    run(value, times);
                }
            }
            Kind::Loop { condition, body } => {
                let trips = u128::from(self.trips.0);
                run(body, trips);
                if let Some(condition) = condition {
                    run(condition, trips + 1);
                }
            }
            Kind::Branches(branches) => {
                for branch in branches {
                    for chain in self.within(program, branch) {
                        taken.length = taken.length.max(chain.length);
                        taken.total = taken.total.max(chain.total);
                    }
                }
            }
        }
        taken
    }

    fn chain(&self, program: &Program) -> Chain {
        // When a variable is there, and the equation that made it so late.
        let mut ready: SecondaryMap<Var, (u128, Option<Eqn>)> =
            SecondaryMap::with_capacity(program.num_vars());
        let mut ordered = [(0_u128, None::<Eqn>); Ordered::ALL.len()];
        let mut before: SecondaryMap<Eqn, Option<Eqn>> =
            SecondaryMap::with_capacity(program.num_eqns());
        let (mut latest, mut total) = ((0_u128, None), 0_u128);
        for eqn in program.eqns() {
            let data = program.eqn(eqn);
            let operands = program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var());
            let mut start =
                operands.map(|var| ready[var]).max_by_key(|at| at.0).unwrap_or_default();
            let doings = (data.effects != EffectsId::NONE).then(|| doings(program, eqn));
            let kinds = || (0..).zip(Ordered::ALL).map(|(at, kind): (usize, _)| (at, kind));
            if let Some(doings) = &doings {
                for (at, kind) in kinds() {
                    if !doings.ordered.and(kind).is_none() && ordered[at].0 > start.0 {
                        start = ordered[at];
                    }
                }
            }
            let taken = self.taken(program, eqn);
            total = total.saturating_add(taken.total);
            before[eqn] = start.1;
            let end = (start.0.saturating_add(taken.length), Some(eqn));
            for var in data.outvars() {
                ready[var] = end;
            }
            if let Some(doings) = doings {
                doings.writes.iter().for_each(|&var| ready[var] = end);
                let own = kinds().filter(|(_, kind)| !doings.ordered.and(*kind).is_none());
                own.for_each(|(at, _)| ordered[at] = end);
            }
            if end.0 > latest.0 || latest.1.is_none() {
                latest = end;
            }
        }
        let mut eqns = Vec::new();
        let mut last = latest.1;
        while let Some(eqn) = last {
            eqns.push(eqn);
            last = before[eqn];
        }
        eqns.reverse();
        Chain { length: latest.0, total, eqns }
    }
}

/// The longest chain of equations of a program, each of which needs something of the one before;
/// loops of which nobody knows it run `trips` times.
pub fn critical_path(
    nest: &Nest,
    weight: Weight,
    trips: Trips,
    estimates: &impl Estimates,
) -> CriticalPath {
    let mut chains = Chains { nest, weight, trips, estimates, known: Vec::new() };
    for (_, program) in nest.programs() {
        let chain = chains.chain(program);
        chains.known.push(chain);
    }
    let known = chains.known;
    let mut eqns = Vec::new();
    let mut is_shown = vec![false; nest.len()];
    let mut pending = vec![(nest.root(), 0)];
    while let Some((place, at)) = pending.pop() {
        let Some(&eqn) = known[place].eqns.get(at) else { continue };
        pending.push((place, at + 1));
        eqns.push(Site { place, eqn });
        let calls = nest.calls(place);
        let first = calls.partition_point(|call| call.eqn < eqn);
        let own = calls[first..].iter().take_while(|call| call.eqn == eqn);
        // Of several the longest one.
        let longest = own.map(|call| call.callee).max_by_key(|&callee| known[callee].length);
        if let Some(callee) = longest.filter(|&callee| !is_shown[callee]) {
            is_shown[callee] = true;
            pending.push((callee, 0));
        }
    }
    let root = &known[nest.root()];
    CriticalPath { length: root.length, total: root.total, eqns }
}
