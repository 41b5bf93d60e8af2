//! What is alive where the most is.

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;

use crate::ir::{Def, Eqn, Program, Var};

use super::super::nest::Site;
use super::super::values::bytes;
use super::super::wiring::Wiring;
use super::effect::Placement;
use super::{BufferId, Frame, Origin, Owner, ProgramPoint, Reader, Value, Way};

/// Where the values of a program come from.
struct Origins<'a> {
    program: &'a Program,
    place: usize,
    inputs: FxHashMap<Var, Origin>,
}

impl Origins<'_> {
    fn of(&self, var: Var) -> Option<Origin> {
        match (self.inputs.get(&var), self.program.var(var).def) {
            (Some(&origin), _) => Some(origin),
            (None, Def::Eqn(eqn)) => {
                let at = self.program.eqn_outvars(eqn).position(|out| out == var)?;
                Some(Origin::Result(Site { place: self.place, eqn }, at))
            }
            (None, _) => None,
        }
    }
}

impl Reader<'_> {
    /// Adds what is alive in a program at some point to what was found; the nested program in which
    /// the most is, and what its inputs are. Inputs have the origins given.
    pub(super) fn alive_at(
        &mut self,
        way: &Way,
        point: ProgramPoint,
        inputs: &[Origin],
        found: &mut Vec<Value>,
    ) -> Option<(Way, Vec<Origin>)> {
        let place = way.place;
        let program = self.nest.program(place).clone();
        let mut frame = self.open(way.clone());
        let eqn = match point {
            ProgramPoint::At(eqn) => Some(eqn),
            ProgramPoint::End => None,
            ProgramPoint::Start => {
                // Those that nobody needs are still there.
                let given = inputs.iter().zip(program.invars()).zip(&way.given);
                for ((&origin, &var), _) in given.filter(|(_, is_given)| **is_given) {
                    let (ty, bytes) = (program.var_type(var), frame.lasts.bytes(var));
                    found.push(Value { origin, ty: (place, ty), bytes });
                }
                return None;
            }
        };
        let effect = self.advance(&mut frame, eqn).ok().flatten();
        let inputs = program.invars().iter().copied().zip(inputs.iter().copied()).collect();
        let origins = Origins { program: &program, place, inputs };
        let mut add = |var: Var, bytes: u128| {
            let ty = (place, program.var_type(var));
            found.extend(origins.of(var).map(|origin| Value { origin, ty, bytes }));
        };
        // What a nested program may take over is counted there.
        let mut within: Vec<BufferId> = Vec::new();
        let mut inner = None;
        if let (Some(eqn), Some(effect)) = (eqn, &effect) {
            let wiring = self.wirings.get(&Site { place, eqn }).and_then(Option::as_ref);
            let body = wiring.zip(effect.inner.as_ref()).and_then(|(wiring, inner)| {
                let body = wiring.bodies.iter().position(|body| body.place == inner.place)?;
                Some((wiring, inner, body))
            });
            if let Some((wiring, way, at)) = body {
                let body = (wiring, way, at);
                let inputs = self.body_inputs(&frame, eqn, body, &origins, &mut within);
                inner = Some((way.clone(), inputs));
            }
            for (at, (var, placement)) in
                program.eqn_outvars(eqn).zip(&effect.placements).enumerate()
            {
                let is_there = self.is_made_outside(wiring, body, at);
                if is_there && matches!(placement, Placement::New(_)) {
                    add(var, frame.lasts.bytes(var));
                }
            }
        }
        for (id, buffer) in (0..).zip(&frame.buffers) {
            if buffer.vars > 0 && !buffer.is_held && !within.contains(&id) {
                add(buffer.first, buffer.bytes);
            }
        }
        if eqn.is_none() {
            for at in self.copies(&frame, place == self.nest.root()) {
                let ty = program.atom_type(program.outvars()[at]);
                let (origin, bytes) = (Origin::Output(place, at), bytes(program.ty(ty)));
                found.push(Value { origin, ty: (place, ty), bytes });
            }
        }
        inner
    }

    /// The origins of a body's inputs. The buffers that the body may take over are added to `within`.
    fn body_inputs(
        &self,
        frame: &Frame,
        eqn: Eqn,
        (wiring, way, at): (&Wiring, &Way, usize),
        origins: &Origins<'_>,
        within: &mut Vec<BufferId>,
    ) -> Vec<Origin> {
        let given = self.given(frame, eqn);
        let body = &wiring.bodies[at];
        let origin = |(input, operand): (usize, &Option<usize>)| {
            let is_taken = way.given[input] && operand.is_some_and(|at| given[at]);
            let is_slice = body.slices.contains(&input);
            let var = operand.and_then(|at| origins.program.eqn_invars(eqn)[at].as_var());
            let buffer = var.and_then(|var| Some((var, frame.buffer(var)?)));
            let own = Origin::Within(Site { place: origins.place, eqn }, input);
            let Some((var, buffer)) = buffer.filter(|_| is_taken && !is_slice) else { return own };
            within.push(frame.of[var.index()]);
            origins.of(buffer.first).filter(|_| !wiring.is_loop).unwrap_or(own)
        };
        body.inputs.iter().enumerate().map(origin).collect()
    }

    /// Whether a result of an equation is a value of the equation's own program. What a call makes is
    /// counted within, and what a loop's body carries.
    fn is_made_outside(
        &self,
        wiring: Option<&Wiring>,
        body: Option<(&Wiring, &Way, usize)>,
        at: usize,
    ) -> bool {
        match (wiring, body) {
            (None, _) => true,
            (Some(wiring), Some((_, _, body))) if wiring.is_loop => {
                wiring.bodies[0].stacked.contains(&at) || wiring.condition == Some(body)
            }
            (Some(wiring), _) if !wiring.bodies[0].finals.is_empty() => true,
            (Some(_), Some((_, way, _))) => {
                let outputs = self.summaries.get(way).map(|known| &known.outputs);
                outputs.is_some_and(|known| !matches!(known[at], Owner::Own(_)))
            }
            (Some(_), None) => false,
        }
    }
}
