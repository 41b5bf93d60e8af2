//! What inputs are used for.

use cranelift_entity::EntitySet;

use crate::ir::{Atom, Eqn, Type, Var};

use super::super::effects::{Ordered, doings};
use super::super::nest::{Nest, Site};
use super::super::wiring::{Body, Wiring};
use super::{Answers, Positions, Question, Uses, Visits, Walk, merged, positions, solve};

/// What of a program's surroundings is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Concern {
    place: usize,
    inputs: Positions,
    /// Effects before it whose order counts.
    ordered: Ordered,
}

/// What of a program is concerned.
#[derive(Clone, Debug, Default)]
struct Reach {
    outputs: Positions,
    /// Inputs that are Refs, of which what they hold in the end is.
    finals: Positions,
    ordered: Ordered,
}

impl Question for Concern {
    type Answer = Reach;

    fn place(&self) -> usize {
        self.place
    }

    fn parts(&self) -> Vec<Self> {
        let nothing = || Self { inputs: Positions::default(), ordered: Ordered::NONE, ..*self };
        let inputs = self.inputs.iter().map(|&at| Self { inputs: [at].into(), ..nothing() });
        let ordered = self.ordered.kinds().map(|ordered| Self { ordered, ..nothing() });
        inputs.chain(ordered).collect()
    }

    fn add(answer: &mut Reach, more: &Reach) {
        answer.outputs = merged(&answer.outputs, &more.outputs);
        answer.finals = merged(&answer.finals, &more.finals);
        answer.ordered = answer.ordered.or(more.ordered);
    }
}

struct Forward<'n>(Visits<'n>);

struct Frame {
    place: usize,
    concerned: EntitySet<Var>,
    ordered: Ordered,
    /// The next equation.
    next: u32,
}

/// What of an equation is concerned.
struct EqnReach {
    results: Vec<bool>,
    /// Operands that are Refs, of which what they hold afterwards is.
    refs: Vec<Var>,
    ordered: Ordered,
}

impl Forward<'_> {
    fn reach(
        &self,
        frame: &Frame,
        eqn: Eqn,
        answers: &Answers<Concern>,
    ) -> Result<Option<EqnReach>, Concern> {
        let program = self.0.nest.program(frame.place);
        let data = program.eqn(eqn);
        let doings = doings(program, eqn);
        let ordered = doings.ordered.and(frame.ordered);
        let operands = program.eqn_invars(eqn);
        let is_concerned =
            |atom: &Atom| atom.as_var().is_some_and(|var| frame.concerned.contains(var));
        if ordered.is_none() && !operands.iter().any(is_concerned) {
            return Ok(None);
        }
        let results = data.outvars().len();
        let Some(wiring) = self.0.wiring(Site { place: frame.place, eqn }) else {
            let results = vec![true; results];
            return Ok(Some(EqnReach { results, refs: doings.writes, ordered: doings.ordered }));
        };
        let concerned: Vec<bool> = operands.iter().map(is_concerned).collect();
        if wiring.choice.is_some_and(|choice| concerned[choice]) {
            // Which branch runs counts for all that they do; what within them is concerned is
            // asked all the same.
            self.of_bodies(wiring, &concerned, ordered, answers)?;
            let results = vec![true; results];
            return Ok(Some(EqnReach { results, refs: doings.writes, ordered: doings.ordered }));
        }
        let (reaches, again) = self.of_bodies(wiring, &concerned, ordered, answers)?;
        let mut found =
            EqnReach { results: vec![false; results], refs: Vec::new(), ordered: Ordered::NONE };
        for (body, reach) in wiring.bodies.iter().zip(&reaches) {
            for &output in &reach.outputs {
                if let Some(result) = body.results[output as usize] {
                    found.results[result] = true;
                }
            }
            for &input in &reach.finals {
                let input = input as usize;
                if let Some(var) = body.inputs[input].and_then(|at| operands[at].as_var()) {
                    found.refs.push(var);
                }
                let finals = body.finals.iter().filter(|(of, _)| *of == input);
                finals.for_each(|&(_, result)| found.results[result] = true);
            }
            found.ordered = found.ordered.or(reach.ordered);
        }
        if wiring.may_skip {
            let body = &wiring.bodies[0];
            for &(output, input) in &body.carried {
                found.results[output] |= body.inputs[input].is_some_and(|at| concerned[at]);
            }
        }
        if again {
            // How often the body runs counts for all that it changes.
            let body = &wiring.bodies[0];
            let within = self.0.nest.program(body.place);
            for &(output, input) in &body.carried {
                let stays = within.outvars()[output].as_var() == Some(within.invars()[input]);
                found.results[output] |= !stays;
            }
            found.refs.extend(doings.writes);
            found.ordered = found.ordered.or(doings.ordered);
        }
        // A variable that stands for a Ref of which nothing changed stays as it was.
        found.refs.retain(|&var| matches!(program.ty(program.var_type(var)), Type::Ref { .. }));
        Ok(Some(found))
    }

    /// What of the bodies of an equation is concerned, and whether it is how often they run.
    fn of_bodies(
        &self,
        wiring: &Wiring,
        operands: &[bool],
        ordered: Ordered,
        answers: &Answers<Concern>,
    ) -> Result<(Vec<Reach>, bool), Concern> {
        let of = |body: &Body| Concern {
            place: body.place,
            inputs: positions(body.inputs.iter().map(|at| at.is_some_and(|at| operands[at]))),
            ordered,
        };
        let mut concerns: Vec<_> = wiring.bodies.iter().map(of).collect();
        loop {
            let reaches: Vec<Reach> =
                concerns.iter().map(|concern| answers.get(concern)).collect::<Result<_, _>>()?;
            let again = wiring.condition.is_some_and(|at| !reaches[at].outputs.is_empty());
            if !wiring.is_loop {
                return Ok((reaches, again));
            }
            let mut next = concerns.clone();
            for ((body, reach), concern) in wiring.bodies.iter().zip(&reaches).zip(&mut next) {
                let within = self.0.nest.program(wiring.bodies[0].place);
                let changes = |output: usize| {
                    let stays = wiring.bodies[0].carried.iter().any(|&(of, input)| {
                        of == output
                            && within.outvars()[of].as_var() == Some(within.invars()[input])
                    });
                    again && !stays
                };
                let carried = body.carried.iter().filter(|&&(output, _)| {
                    let is_reached = |output| reaches[0].outputs.binary_search(&output).is_ok();
                    u32::try_from(output).is_ok_and(is_reached) || changes(output)
                });
                let inputs: Vec<u32> =
                    carried.filter_map(|&(_, input)| u32::try_from(input).ok()).collect();
                concern.inputs = merged(&merged(&concern.inputs, &inputs), &reach.finals);
                for reach in &reaches {
                    concern.ordered = concern.ordered.or(reach.ordered);
                }
            }
            if next == concerns {
                return Ok((reaches, again));
            }
            concerns = next;
        }
    }
}

impl Walk for Forward<'_> {
    type Question = Concern;
    type Frame = Frame;

    fn open(&self, concern: &Concern) -> Frame {
        let program = self.0.nest.program(concern.place);
        let mut concerned = EntitySet::with_capacity(program.num_vars());
        for &at in &concern.inputs {
            concerned.insert(program.invars()[at as usize]);
        }
        Frame { place: concern.place, concerned, ordered: concern.ordered, next: 0 }
    }

    fn advance(&mut self, frame: &mut Frame, answers: &Answers<Concern>) -> Result<Reach, Concern> {
        let nest = self.0.nest;
        let place = frame.place;
        let program = nest.program(place);
        self.0.enter(place);
        while (frame.next as usize) < program.num_eqns() {
            let eqn = Eqn::from_u32(frame.next);
            if let Some(reach) = self.reach(frame, eqn, answers)? {
                self.0.marks.eqns[place].insert(eqn);
                frame.ordered = frame.ordered.or(reach.ordered);
                let results = program.eqn_outvars(eqn).zip(reach.results);
                let reached = results.filter(|(_, is_reached)| *is_reached).map(|(var, _)| var);
                for var in reached.chain(reach.refs) {
                    frame.concerned.insert(var);
                }
            }
            frame.next += 1;
        }
        let is_concerned = |var: Var| frame.concerned.contains(var);
        let outputs = program.outvars().iter().map(|atom| atom.as_var().is_some_and(is_concerned));
        let finals = program.invars().iter().map(|&var| {
            is_concerned(var) && matches!(program.ty(program.var_type(var)), Type::Ref { .. })
        });
        Ok(Reach { outputs: positions(outputs), finals: positions(finals), ordered: frame.ordered })
    }
}

/// What an input of the outermost program is used for; nothing where there is no such input.
pub fn used_by(nest: &Nest, input: u32) -> Uses {
    let root = nest.root();
    let exists = (input as usize) < nest.program(root).invars().len();
    let inputs = exists.then_some(input).into_iter().collect();
    let mut walk = Forward(Visits::new(nest));
    let reach = solve(&mut walk, nest, Concern { place: root, inputs, ordered: Ordered::NONE });
    Uses { outputs: reach.outputs.into(), eqns: walk.0.marks.sites(nest) }
}
