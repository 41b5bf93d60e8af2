//! What outputs depend on.

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;

use crate::ir::{Eqn, Program, Type, Var};

use super::super::effects::{Ordered, doings};
use super::super::nest::{Nest, Site};
use super::super::wiring::{Body, Wiring};
use super::{
    Answers, Dependencies, Marks, Positions, Question, Visits, Walk, merged, positions, solve,
};

/// What is needed of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Demand {
    place: usize,
    outputs: Positions,
    /// Inputs that are Refs, of which is needed what they hold in the end.
    finals: Positions,
    /// Effects of its equations whose order counts.
    ordered: Ordered,
    /// That it does what others see.
    effects: bool,
}

/// What is needed to run a part of a program.
#[derive(Clone, Debug, Default)]
struct Needs {
    /// Inputs; of Refs what they hold at first.
    inputs: Positions,
    /// Effects before it whose order counts.
    ordered: Ordered,
}

impl Demand {
    fn nothing(place: usize) -> Self {
        let none = Positions::default;
        Self { place, outputs: none(), finals: none(), ordered: Ordered::NONE, effects: false }
    }

    fn is_nothing(&self) -> bool {
        *self == Self::nothing(self.place)
    }
}

impl Question for Demand {
    type Answer = Needs;

    fn place(&self) -> usize {
        self.place
    }

    fn parts(&self) -> Vec<Self> {
        let nothing = || Self::nothing(self.place);
        let outputs = self.outputs.iter().map(|&at| Self { outputs: [at].into(), ..nothing() });
        let finals = self.finals.iter().map(|&at| Self { finals: [at].into(), ..nothing() });
        let ordered = self.ordered.kinds().map(|ordered| Self { ordered, ..nothing() });
        let effects = self.effects.then(|| Self { effects: true, ..nothing() });
        outputs.chain(finals).chain(ordered).chain(effects).collect()
    }

    fn add(answer: &mut Needs, more: &Needs) {
        answer.inputs = merged(&answer.inputs, &more.inputs);
        answer.ordered = answer.ordered.or(more.ordered);
    }
}

struct Backward<'n>(Visits<'n>);

struct Frame {
    demand: Demand,
    needed: EntitySet<Var>,
    ordered: Ordered,
    /// The equations that are still to be looked at, last one first.
    left: u32,
}

/// What an equation needs.
struct EqnNeeds {
    operands: Vec<bool>,
    ordered: Ordered,
}

impl Backward<'_> {
    /// What an equation needs of which something is needed; None where it need not run.
    ///
    /// # Errors
    /// What has to be known of a program that it runs.
    fn needs(
        &self,
        frame: &Frame,
        eqn: Eqn,
        answers: &Answers<Demand>,
    ) -> Result<Option<EqnNeeds>, Demand> {
        let place = frame.demand.place;
        let program = self.0.nest.program(place);
        let data = program.eqn(eqn);
        let doings = doings(program, eqn);
        let ordered = doings.ordered.and(frame.ordered);
        let effects = frame.demand.effects && doings.is_seen;
        let writes = doings.writes.iter().any(|&var| frame.needed.contains(var));
        let is_needed = data.outvars().any(|var| frame.needed.contains(var));
        if !is_needed && !writes && !effects && ordered.is_none() {
            return Ok(None);
        }
        let operands = program.eqn_invars(eqn);
        let Some(wiring) = self.0.wiring(Site { place, eqn }) else {
            let operands = vec![true; operands.len()];
            return Ok(Some(EqnNeeds { operands, ordered: doings.ordered }));
        };
        let results: Vec<bool> = data.outvars().map(|var| frame.needed.contains(var)).collect();
        let holds: Vec<bool> = operands
            .iter()
            .map(|atom| {
                let is_ref =
                    |var: &Var| matches!(program.ty(program.var_type(*var)), Type::Ref { .. });
                atom.as_var().is_some_and(|var| frame.needed.contains(var) && is_ref(&var))
            })
            .collect();
        let demand_of = |body: &Body| {
            let mut finals: Vec<bool> =
                body.inputs.iter().map(|operand| operand.is_some_and(|at| holds[at])).collect();
            for &(input, result) in &body.finals {
                finals[input] |= results[result];
            }
            Demand {
                place: body.place,
                outputs: positions(
                    body.results.iter().map(|result| result.is_some_and(|at| results[at])),
                ),
                finals: positions(finals),
                ordered,
                effects,
            }
        };
        let demands: Vec<_> = wiring.bodies.iter().map(demand_of).collect();
        let (needs, does_run) = self.of_bodies(wiring, demands, answers)?;
        let mut found = EqnNeeds { operands: vec![false; operands.len()], ordered: Ordered::NONE };
        for (body, needs) in wiring.bodies.iter().zip(&needs) {
            for &input in &needs.inputs {
                if let Some(operand) = body.inputs[input as usize] {
                    found.operands[operand] = true;
                }
            }
            found.ordered = found.ordered.or(needs.ordered);
        }
        if let Some(choice) = wiring.choice {
            found.operands[choice] = does_run;
        }
        if wiring.may_skip {
            let body = &wiring.bodies[0];
            let carried = body.carried.iter().filter(|(output, _)| results[*output]);
            for operand in carried.filter_map(|&(_, input)| body.inputs[input]) {
                found.operands[operand] = true;
            }
        }
        Ok(Some(found))
    }

    /// What the bodies of an equation need, and whether any has to run.
    fn of_bodies(
        &self,
        wiring: &Wiring,
        mut demands: Vec<Demand>,
        answers: &Answers<Demand>,
    ) -> Result<(Vec<Needs>, bool), Demand> {
        loop {
            let mut does_run = false;
            if let Some(condition) = wiring.condition
                && self.is_changed(&wiring.bodies[0], &demands[0])
            {
                demands[condition].outputs = [0].into();
            }
            let mut needs = Vec::with_capacity(demands.len());
            for demand in &demands {
                does_run |= !demand.is_nothing();
                needs.push(if demand.is_nothing() {
                    Needs::default()
                } else {
                    answers.get(demand)?
                });
            }
            if !wiring.is_loop {
                return Ok((needs, does_run));
            }
            // What the next round needs, the one before it must leave.
            let mut next = demands.clone();
            for ((body, needs), at) in wiring.bodies.iter().zip(&needs).zip(0..) {
                let carried = body.carried.iter().filter(|(_, input)| {
                    u32::try_from(*input)
                        .is_ok_and(|input| needs.inputs.binary_search(&input).is_ok())
                });
                let outputs: Vec<u32> =
                    carried.filter_map(|&(output, _)| u32::try_from(output).ok()).collect();
                next[0].outputs = merged(&next[0].outputs, &outputs);
                let program = self.0.nest.program(body.place);
                let is_ref = |input: &&u32| is_ref(program, **input as usize);
                let refs: Vec<u32> = needs.inputs.iter().filter(is_ref).copied().collect();
                next[at].finals = merged(&next[at].finals, &refs);
                for demand in &mut next {
                    demand.ordered = demand.ordered.or(needs.ordered);
                }
            }
            if next == demands {
                return Ok((needs, does_run));
            }
            demands = next;
        }
    }

    /// Whether something is needed that another round changes.
    fn is_changed(&self, body: &Body, demand: &Demand) -> bool {
        let program = self.0.nest.program(body.place);
        let mut of_carries: FxHashMap<usize, usize> = body.carried.iter().copied().collect();
        let mut stays = |output: usize| {
            let input = of_carries.remove(&output).map(|input| program.invars()[input]);
            program.outvars()[output].as_var().is_some_and(|var| Some(var) == input)
        };
        let outputs = demand.outputs.iter().any(|&output| !stays(output as usize));
        outputs || !demand.finals.is_empty() || demand.effects || !demand.ordered.is_none()
    }
}

fn is_ref(program: &Program, input: usize) -> bool {
    let ty = program.invars().get(input).map(|&var| program.ty(program.var_type(var)));
    matches!(ty, Some(Type::Ref { .. }))
}

impl Walk for Backward<'_> {
    type Question = Demand;
    type Frame = Frame;

    fn open(&self, demand: &Demand) -> Frame {
        let program = self.0.nest.program(demand.place);
        let mut needed = EntitySet::with_capacity(program.num_vars());
        let outputs =
            demand.outputs.iter().filter_map(|&at| program.outvars()[at as usize].as_var());
        for var in outputs.chain(demand.finals.iter().map(|&at| program.invars()[at as usize])) {
            needed.insert(var);
        }
        let left = u32::try_from(program.num_eqns()).unwrap_or(u32::MAX);
        Frame { demand: demand.clone(), needed, ordered: demand.ordered, left }
    }

    fn advance(&mut self, frame: &mut Frame, answers: &Answers<Demand>) -> Result<Needs, Demand> {
        let nest = self.0.nest;
        let place = frame.demand.place;
        let program = nest.program(place);
        self.0.enter(place);
        while frame.left > 0 {
            let eqn = Eqn::from_u32(frame.left - 1);
            if let Some(needs) = self.needs(frame, eqn, answers)? {
                self.0.marks.eqns[place].insert(eqn);
                frame.ordered = frame.ordered.or(needs.ordered);
                for (atom, is_needed) in program.eqn_invars(eqn).iter().zip(needs.operands) {
                    if let (Some(var), true) = (atom.as_var(), is_needed) {
                        frame.needed.insert(var);
                    }
                }
            }
            frame.left -= 1;
        }
        for &(var, _) in program.constvars() {
            if frame.needed.contains(var) {
                self.0.marks.constvars[place].insert(var);
            }
        }
        let inputs = program.invars().iter().map(|&var| frame.needed.contains(var));
        Ok(Needs { inputs: positions(inputs), ordered: frame.ordered })
    }
}

fn slice(nest: &Nest, demand: Demand) -> (Needs, Marks) {
    let mut walk = Backward(Visits::new(nest));
    let needs = solve(&mut walk, nest, demand);
    (needs, walk.0.marks)
}

/// What an output of the outermost program depends on; nothing where there is no such output.
pub fn depends_on(nest: &Nest, output: u32) -> Dependencies {
    let root = nest.root();
    let exists = (output as usize) < nest.program(root).outvars().len();
    let outputs = exists.then_some(output).into_iter().collect();
    let (needs, marks) = slice(nest, Demand { outputs, ..Demand::nothing(root) });
    Dependencies {
        inputs: needs.inputs.into(),
        constants: marks.constants(nest),
        eqns: marks.sites(nest),
    }
}

/// Everything that a program is run for.
fn all(nest: &Nest) -> Demand {
    let outputs = positions(nest.program(nest.root()).outvars().iter().map(|_| true));
    Demand { outputs, effects: true, ..Demand::nothing(nest.root()) }
}

/// The positions of inputs of the outermost program that no output and no effect depends on.
pub fn unused_inputs(nest: &Nest) -> Vec<u32> {
    let (needs, _) = slice(nest, all(nest));
    let inputs = nest.program(nest.root()).invars();
    let is_unused = |at: &u32| needs.inputs.binary_search(at).is_err();
    (0..).zip(inputs).map(|(at, _)| at).filter(is_unused).collect()
}

/// Equations whose results no output and no effect depends on, whichever equation runs them; those
/// of the outermost program first. Not said again is what is within a dead equation.
pub fn dead(nest: &Nest) -> Vec<Site> {
    let (_, marks) = slice(nest, all(nest));
    let mut dead = Vec::new();
    for (place, program) in nest.programs().rev().filter(|&(place, _)| marks.is_read[place]) {
        let unmarked = program.eqns().filter(|&eqn| !marks.eqns[place].contains(eqn));
        dead.extend(unmarked.map(|eqn| Site { place, eqn }));
    }
    dead
}
