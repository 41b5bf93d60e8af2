//! Puts the programs that a rule of jax has made in the place of those that replays have made: of the
//! same programs there is one of each.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHasher};

use crate::ir::Eqn;

use crate::python::cache::programs::compare::RegeneratedParams;
use crate::python::cache::programs::forms::{Form, is_jaxpr, open};
use crate::python::cache::programs::fresh_copy::{Place, fresh_copy, is_plain, like};
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::registry::{Maker, nested_of};
use crate::python::cache::programs::sharing::{has_multiple, note_multiple};
use crate::python::cache::programs::structural_id::{StructuralId, structural_id_of};
use crate::python::cpython::native::address;
use crate::python::cpython::native::entries;
use crate::python::jax::names::Jax;
use crate::python::program::read::graph_of;
use crate::python::trace::frame::Frame;

/// Puts the programs that a rule of jax has made in relation to those that replays have made: of the
/// same programs there is one of each.
pub struct Canonicalizer<'a, 'py> {
    jax: &'a Jax,
    given: &'a Given,
    /// Names the call, and how many programs were looked at.
    maker: u64,
    seen: Cell<u64>,
    /// What stands for nested programs, by their address.
    stand_ins: RefCell<FxHashMap<usize, Bound<'py, PyAny>>>,
    /// The programs that jax makes when it is asked again, where it was, by their address.
    again: Option<FxHashMap<usize, Bound<'py, PyAny>>>,
}

impl<'a, 'py> Canonicalizer<'a, 'py> {
    /// For the programs that a call has; `name` is the same for calls that are.
    pub fn new(jax: &'a Jax, given: &'a Given, name: impl Hash) -> Self {
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        let maker = hasher.finish();
        Self { jax, given, maker, seen: Cell::new(0), stand_ins: RefCell::default(), again: None }
    }

    /// Takes programs for others of the same kind where the params that jax has made `again` do not have
    /// them.
    pub fn compare_with(&mut self, again: &[Bound<'py, PyDict>]) {
        let mut found = FxHashMap::default();
        for (_, value) in again.iter().flatten() {
            self.add_programs(&value, &mut found);
        }
        self.again = Some(found);
    }

    fn add_programs(
        &self,
        value: &Bound<'py, PyAny>,
        found: &mut FxHashMap<usize, Bound<'py, PyAny>>,
    ) {
        let py = value.py();
        if let Ok(items) = value.cast::<PyTuple>() {
            items.iter().for_each(|item| self.add_programs(&item, found));
        } else if is_jaxpr(py, self.jax, value.as_ptr())
            && let Ok((open, _)) = open(self.jax, value)
            && structural_id_of(self.jax, &open).is_ok()
        {
            for (_, inner) in nested_of(&open) {
                self.add_programs(inner.bind(py), found);
            }
            found.insert(address(value), value.clone());
            found.insert(address(&open), open);
        }
    }

    /// Whether jax makes another program when it is asked again.
    fn is_new(&self, program: &Bound<'py, PyAny>) -> bool {
        self.again.as_ref().is_some_and(|again| !again.contains_key(&address(program)))
    }

    /// Looks at the equations that a call has appended to a program since `first`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn canonicalize(&self, frame: &Bound<'py, Frame>, first: u32) -> PyResult<()> {
        let py = frame.py();
        for (eqn, primitive, params) in appended_since(frame, first) {
            if let Some(canonical) = self.params(&primitive, &params)? {
                let canonical = canonical.as_unbound();
                frame.get().with(py, |state, quiet| {
                    let (builder, side) = state.recording()?;
                    let canonical = side.deferred_params_id(builder, canonical, quiet);
                    builder.set_params(eqn, canonical);
                    Ok::<_, PyErr>(())
                })?;
            }
        }
        Ok(())
    }

    /// Params with programs that others stand for; None where there are none.
    ///
    /// # Errors
    /// Out of memory.
    pub fn params(
        &self,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let regenerated = RegeneratedParams::by(self.jax, primitive).filter(|made| made.always);
        let mut canonical: Option<Bound<'py, PyDict>> = None;
        for (name, value) in entries(params) {
            // There is another one at each call.
            if regenerated.as_ref().is_some_and(|made| made.has(&name)) {
                continue;
            }
            if let Some(own) = self.value(&value)? {
                let canonical = match &canonical {
                    Some(canonical) => canonical,
                    None => canonical.insert(params.copy()?),
                };
                canonical.set_item(name, own)?;
            }
        }
        Ok(canonical)
    }

    fn value(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        if is_jaxpr(py, self.jax, value.as_ptr()) {
            let own = self.program(value)?;
            if let Some(own) = &own {
                self.stand_ins.borrow_mut().insert(address(value), own.clone());
            }
            return Ok(own);
        }
        let Ok(items) = value.cast::<PyTuple>() else { return Ok(None) };
        if !is_plain(items) {
            return Ok(None);
        }
        let canonical: Vec<_> =
            items.iter().map(|item| self.value(&item)).collect::<PyResult<_>>()?;
        if canonical.iter().all(Option::is_none) {
            return Ok(None);
        }
        let both = canonical.into_iter().zip(items.iter());
        let all = both.map(|(own, item)| own.unwrap_or(item)).collect();
        like(items, all).map(Some)
    }

    /// Where a program is known that a rule has made.
    fn place_of(&self, open: &Bound<'py, PyAny>, id: StructuralId) -> Place<'py> {
        let (py, jax) = (open.py(), self.jax);
        let plain = self.given.place_of(jax, py, id, 0);
        if !has_multiple(plain.label.lineage, Form::Open) {
            return plain;
        }
        let other = |maker| self.given.place_of(jax, py, id, maker);
        plain.labelled(open).unwrap_or_else(|| {
            let mut hasher = FxHasher::default();
            (self.maker, self.seen.get()).hash(&mut hasher);
            other(hasher.finish().max(1))
        })
    }

    fn program(&self, program: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, jax) = (program.py(), self.jax);
        let Ok((open, form)) = open(jax, program) else { return Ok(None) };
        if self.given.has(program) || self.given.has(&open) {
            return Ok(None);
        }
        let Ok(id) = structural_id_of(jax, &open) else { return Ok(None) };
        self.seen.set(self.seen.get() + 1);
        let mut place = self.place_of(&open, id);
        if self.is_new(&open) {
            note_multiple(place.label.lineage, Form::Open);
            place = self.place_of(&open, id);
        } else if self.is_new(program) {
            note_multiple(place.label.lineage, Form::Closed);
        }
        match place.made(Form::Open) {
            Some((known, Maker::Replay)) if !known.is(&open) => {
                let own = if form == Form::Closed { place.close(jax, &known)? } else { known };
                return Ok(Some(own));
            }
            Some((known, Maker::Rule)) if !known.is(&open) => {
                note_multiple(place.label.lineage, Form::Open);
                let place = self.place_of(&open, id);
                place.note(Form::Open, &open, Maker::Rule);
                place.note(form, program, Maker::Rule);
                return Ok(None);
            }
            Some(_) => {
                match place.made(form) {
                    Some((known, _)) if known.is(program) => {}
                    Some(_) => note_multiple(place.label.lineage, form),
                    None => place.note(form, program, Maker::Rule),
                }
                return Ok(None);
            }
            None => {}
        }
        let nested = nested_of(&open);
        if nested.is_empty() {
            place.note(Form::Open, &open, Maker::Rule);
            place.note(form, program, Maker::Rule);
            return Ok(None);
        }
        let graph = graph_of(jax, program)?;
        let dicts: Vec<_> = {
            let (program, side) = (graph.get().program(), graph.get().table());
            let of = |eqn| {
                let data = program.eqn(eqn);
                let primitive = side.object(py, program.primitive(data.primitive).object);
                (primitive, data.params, side.params_dict(py, data.params))
            };
            program.eqns().map(of).collect()
        };
        let mut params = Vec::new();
        for (primitive, id, dict) in dicts {
            if let Some(canonical) = self.params(&primitive, &dict)? {
                params.push((id, canonical));
            }
        }
        if params.is_empty() {
            // What is remembered of a program must not keep it alive; it does keep those nested in it.
            if !nested.iter().any(|(_, inner)| self.given.is_one(inner.bind(py))) {
                place.note(Form::Open, &open, Maker::Rule);
                place.note(form, program, Maker::Rule);
            }
            return Ok(None);
        }
        // Others may have its variables.
        let vars: Vec<_> = graph.get().table().seen_vars(py).collect();
        let own =
            fresh_copy(jax, &graph, (&params, &vars), &place, nested, &self.stand_ins.borrow())?;
        if form == Form::Closed { place.close(jax, &own).map(Some) } else { Ok(Some(own)) }
    }
}

/// The equations that were appended to a program since `first`, with their primitives and params.
pub fn appended_since<'py>(
    frame: &Bound<'py, Frame>,
    first: u32,
) -> Vec<(Eqn, Bound<'py, PyAny>, Bound<'py, PyDict>)> {
    let py = frame.py();
    let appended: Vec<_> = frame.get().with(py, |state, quiet| {
        let Some((builder, side)) = state.recorded() else { return Vec::new() };
        let end = u32::try_from(builder.num_appended()).unwrap_or(u32::MAX);
        let live = (first..end).map(Eqn::from_u32).filter(|&eqn| builder.is_live(eqn));
        let of = |eqn| {
            let data = builder.eqn_data(eqn);
            let primitive = builder.primitive_data(data.primitive).object;
            let primitive = side.object_of(quiet, primitive)?;
            Some((eqn, primitive, side.params_of(quiet, data.params)?))
        };
        live.filter_map(of).collect()
    });
    let bind = |(eqn, primitive, params): (_, Py<PyAny>, Py<PyDict>)| {
        (eqn, primitive.into_bound(py), params.into_bound(py))
    };
    appended.into_iter().map(bind).collect()
}
