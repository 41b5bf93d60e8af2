//! What is alive where the most is.

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;

use crate::ir::{Def, Var};

use super::super::nest::Site;
use super::super::values::bytes;
use super::effect::Placement;
use super::{BufferId, Origin, Owner, ProgramPoint, Reader, Value, Way};

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
        let origins: FxHashMap<Var, Origin> =
            program.invars().iter().copied().zip(inputs.iter().copied()).collect();
        let origin = |var: Var| match (origins.get(&var), program.var(var).def) {
            (Some(&origin), _) => Some(origin),
            (None, Def::Eqn(eqn)) => {
                let at = program.eqn_outvars(eqn).position(|out| out == var)?;
                Some(Origin::Result(Site { place, eqn }, at))
            }
            (None, _) => None,
        };
        let mut add = |var: Var, bytes: u128| {
            let ty = (place, program.var_type(var));
            found.extend(origin(var).map(|origin| Value { origin, ty, bytes }));
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
                let given = self.given(&frame, eqn);
                let mut origins = Vec::new();
                for (input, operand) in wiring.bodies[at].inputs.iter().enumerate() {
                    let is_taken = way.given[input] && operand.is_some_and(|at| given[at]);
                    let is_slice = wiring.bodies[at].slices.contains(&input);
                    let var = operand.and_then(|at| program.eqn_invars(eqn)[at].as_var());
                    let buffer = var.and_then(|var| Some((var, frame.buffer(var)?)));
                    let own = Origin::Within(Site { place, eqn }, input);
                    origins.push(match buffer.filter(|_| is_taken && !is_slice) {
                        Some((var, buffer)) => {
                            within.push(frame.of[var.index()]);
                            origin(buffer.first).filter(|_| !wiring.is_loop).unwrap_or(own)
                        }
                        None => own,
                    });
                }
                inner = Some((way.clone(), origins));
            }
            for (at, (var, placement)) in
                program.eqn_outvars(eqn).zip(&effect.placements).enumerate()
            {
                // What a call makes is counted within, and what a loop's body carries.
                let is_there = match (wiring, body) {
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
                };
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
}
