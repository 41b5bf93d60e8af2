//! What executing a program costs: arithmetic, and bytes that pass between it and memory.

pub(super) mod rules;
mod scopes;

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::ir::{Eqn, ParamValue, Program};

use super::nest::Nest;

use rules::{Kind, kind};
pub use scopes::{Name, by_name, by_scope};

/// What executing something costs. Bytes are those of operands and results, each read and written
/// once: what a program costs whose equations are executed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Additions, multiplications, comparisons, conversions.
    pub flops: u128,
    /// Evaluations of transcendental functions, which are no flops.
    pub transcendentals: u128,
    /// Bytes of operands.
    pub bytes_read: u128,
    /// Bytes of results.
    pub bytes_written: u128,
}

impl Cost {
    /// What tells which of two is larger: arithmetic, then bytes.
    fn weight(&self) -> (u128, u128) {
        let bytes = self.bytes_read.saturating_add(self.bytes_written);
        (self.flops.saturating_add(self.transcendentals), bytes)
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops.saturating_add(other.flops),
            transcendentals: self.transcendentals.saturating_add(other.transcendentals),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u128> for Cost {
    type Output = Self;

    fn mul(self, times: u128) -> Self {
        Self {
            flops: self.flops.saturating_mul(times),
            transcendentals: self.transcendentals.saturating_mul(times),
            bytes_read: self.bytes_read.saturating_mul(times),
            bytes_written: self.bytes_written.saturating_mul(times),
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// What an equation says itself that it costs, as kernels do.
pub trait Estimates {
    /// The estimate of an equation; none where it has none.
    fn estimate(&self, program: &Program, eqn: Eqn) -> Option<Cost>;
}

/// Nothing says what it costs.
pub struct NoEstimates;

impl Estimates for NoEstimates {
    fn estimate(&self, _: &Program, _: Eqn) -> Option<Cost> {
        None
    }
}

/// How often loops run of which that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trips(pub u64);

impl Default for Trips {
    fn default() -> Self {
        Self(1)
    }
}

/// A program that others run, the outermost one being the first.
#[derive(Clone, Debug)]
pub struct Nested {
    /// The program.
    pub program: Arc<Program>,
    /// How often it runs.
    pub times: u128,
    /// What it costs to run it once, the nested programs included.
    pub each: Cost,
    /// What each equation of it costs each time, the programs that it runs included; none where
    /// nothing is known of it.
    pub eqns: Vec<Option<Cost>>,
    /// The equations of it that cost something by themselves, in order: all but those that cost what
    /// the programs cost that they run.
    pub leaves: Vec<Eqn>,
    /// Which programs it runs, by their places in the report, how often, and by which equation.
    pub calls: Vec<(usize, u128, Eqn)>,
}

/// What several equations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// How often they run.
    pub times: u128,
    /// What they cost, the programs that they run left out.
    pub cost: Cost,
}

/// The branches of an equation, of which one runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    /// The place of the program among those of the report.
    pub program: usize,
    /// The equation.
    pub eqn: Eqn,
    /// What each costs.
    pub costs: Vec<Cost>,
}

/// What a program costs, and what in it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All of it.
    pub total: Cost,
    /// By the name of the primitive.
    pub by_primitive: IndexMap<Box<str>, Line, FxBuildHasher>,
    /// The programs that run, before their nested programs.
    pub programs: Vec<Nested>,
    /// Primitives of which nothing is known, and how often they run: they count as nothing.
    pub unknown: IndexMap<Box<str>, u128, FxBuildHasher>,
    /// Loops of which nobody knows how often they run.
    pub loops: Vec<(usize, Eqn)>,
    /// Equations with branches, of which the most expensive ones count.
    pub branches: Vec<Branches>,
}

/// What executing a program costs; loops of which nobody knows it run `trips` times.
pub fn cost(program: &Arc<Program>, trips: Trips, estimates: &impl Estimates) -> Report {
    let mut programs = Programs { trips, estimates, nest: Nest::of(program), order: Vec::new() };
    programs.read();
    programs.report()
}

/// What the equations of a program do.
struct Parts {
    program: Arc<Program>,
    each: Cost,
    /// What each equation costs, the programs that it runs included.
    eqns: Vec<Option<Cost>>,
    /// Equations that run no program.
    leaves: Vec<Eqn>,
    /// How often a program is run by an equation.
    calls: Vec<(usize, u128, Eqn)>,
    loops: Vec<Eqn>,
    branches: Vec<(Eqn, Vec<Cost>)>,
}

struct Programs<'e, E> {
    trips: Trips,
    estimates: &'e E,
    nest: Nest,
    /// What the programs of the nest do, in their order.
    order: Vec<Parts>,
}

impl<E: Estimates> Programs<'_, E> {
    fn read(&mut self) {
        for place in 0..self.nest.len() {
            let parts = self.parts(self.nest.program(place));
            self.order.push(parts);
        }
    }

    /// The places of the programs that a param has.
    fn places(&self, program: &Program, value: &ParamValue) -> Vec<usize> {
        let mut found = Vec::new();
        value.walk(&mut |value| {
            if let ParamValue::Program(id) = value {
                found.extend(self.nest.place(program, *id));
            }
        });
        found
    }

    fn parts(&self, program: &Arc<Program>) -> Parts {
        let mut parts = Parts {
            program: program.clone(),
            each: Cost::default(),
            eqns: Vec::with_capacity(program.num_eqns()),
            leaves: Vec::new(),
            calls: Vec::new(),
            loops: Vec::new(),
            branches: Vec::new(),
        };
        let each = |place: usize| self.order[place].each;
        for eqn in program.eqns() {
            let estimate = self.estimates.estimate(program, eqn).map(Kind::Leaf);
            let cost = match estimate.unwrap_or_else(|| kind(program, eqn)) {
                Kind::Leaf(cost) => {
                    parts.leaves.push(eqn);
                    Some(cost)
                }
                Kind::Unknown => {
                    parts.leaves.push(eqn);
                    None
                }
                Kind::Calls(calls) => Some(self.calls(program, &mut parts, eqn, calls)),
                Kind::Loop { condition, body } => {
                    parts.loops.push(eqn);
                    let trips = u128::from(self.trips.0);
                    let runs = condition.map(|condition| (condition, trips + 1));
                    let runs = runs.into_iter().chain([(body, trips)]);
                    Some(self.calls(program, &mut parts, eqn, runs))
                }
                Kind::Branches(branches) => {
                    let places: Vec<_> =
                        branches.iter().flat_map(|value| self.places(program, value)).collect();
                    let largest = places.iter().copied().max_by_key(|&place| each(place).weight());
                    parts.calls.extend(largest.map(|place| (place, 1, eqn)));
                    parts.branches.push((eqn, places.into_iter().map(each).collect()));
                    Some(largest.map(each).unwrap_or_default())
                }
            };
            parts.each += cost.unwrap_or_default();
            parts.eqns.push(cost);
        }
        parts
    }

    /// Notes the programs that an equation runs, and how often. What they cost.
    fn calls<'p>(
        &self,
        program: &Program,
        parts: &mut Parts,
        eqn: Eqn,
        calls: impl IntoIterator<Item = (&'p ParamValue, u128)>,
    ) -> Cost {
        let mut cost = Cost::default();
        for (value, times) in calls {
            for place in self.places(program, value) {
                cost += self.order[place].each * times;
                parts.calls.push((place, times, eqn));
            }
        }
        cost
    }

    fn report(self) -> Report {
        let mut times = vec![0_u128; self.order.len()];
        if let Some(root) = times.last_mut() {
            *root = 1;
        }
        for place in (0..self.order.len()).rev() {
            for &(within, calls, _) in &self.order[place].calls {
                let more = times[place].saturating_mul(calls);
                times[within] = times[within].saturating_add(more);
            }
        }
        let mut report = Report::default();
        let last = self.order.len().saturating_sub(1);
        for (parts, times) in self.order.into_iter().zip(times).rev() {
            let number = report.programs.len();
            if number == 0 {
                report.total = parts.each;
            }
            let program = &parts.program;
            for &eqn in &parts.leaves {
                let data = program.eqn(eqn);
                let name = &program.primitive(data.primitive).name;
                let Some(cost) = parts.eqns[eqn.as_u32() as usize] else {
                    let count = report.unknown.entry(name.clone()).or_default();
                    *count = count.saturating_add(times);
                    continue;
                };
                let line = Line { times, cost: cost * times };
                if !report.by_primitive.contains_key(&**name) {
                    report.by_primitive.insert(name.clone(), Line::default());
                }
                if let Some(known) = report.by_primitive.get_mut(&**name) {
                    known.times = known.times.saturating_add(line.times);
                    known.cost += line.cost;
                }
            }
            report.loops.extend(parts.loops.iter().map(|&eqn| (number, eqn)));
            let branches = parts.branches.into_iter();
            report.branches.extend(branches.map(|(eqn, costs)| Branches {
                program: number,
                eqn,
                costs,
            }));
            let Parts { program, each, eqns, leaves, calls, .. } = parts;
            let calls = calls.into_iter().map(|(place, times, eqn)| (last - place, times, eqn));
            let calls = calls.collect();
            report.programs.push(Nested { program, times, each, eqns, leaves, calls });
        }
        report
    }
}
