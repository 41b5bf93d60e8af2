//! The programs that a call has.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::segments::Key;

use crate::python::cache::key::arguments::Call;
use crate::python::cache::programs::forms::{open, rules_of};
use crate::python::cache::programs::registry::{
    has_replays, nested_of, serial_as_given, was_given_as,
};
use crate::python::cache::programs::running::is_running;
use crate::python::cache::programs::sharing::are_ambiguous;
use crate::python::cache::programs::structural_id::{
    StructuralId, portable_id, structural_id_of, tracebacks_of,
};
use crate::python::cache::programs::warned;
use crate::python::cache::reasons::Reason;
use crate::python::cpython::native::address;
use crate::python::jax::names::Jax;
use crate::python::program::read::graph_of;

/// The programs that a call has, as they are: closed or not.
#[derive(Default)]
pub struct Given {
    pub(super) programs: Vec<Py<PyAny>>,
    /// Those that are not closed.
    pub(super) open: Vec<Py<PyAny>>,
    /// Those nested in them.
    pub(super) nested: Vec<Py<PyAny>>,
    /// Where the call happens is part of it.
    pub(super) located: bool,
    /// The addresses of the tracebacks that equations of their transposes have, as part of it.
    transposed_at: SmallVec<[usize; 1]>,
}

/// How a call has the programs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Same,
    /// They are the same, but were closed anew.
    Closed,
}

impl Given {
    /// Those of a call; None where it has none.
    pub fn of(py: Python<'_>, jax: &Jax, call: &Call) -> Option<Self> {
        if call.programs.is_empty() {
            return None;
        }
        let (located, transposed_at) = (call.located, call.transposed_at.clone());
        let mut given = Self { located, transposed_at, ..Self::default() };
        for &program in &call.programs {
            // SAFETY: an argument of the call.
            let program = unsafe { Bound::from_borrowed_ptr(py, program) };
            given.add(jax, &program).ok()?;
        }
        Some(given)
    }

    /// Adds a program with those nested in it.
    ///
    /// # Errors
    /// It has constants.
    fn add(&mut self, jax: &Jax, program: &Bound<'_, PyAny>) -> Result<(), Reason> {
        let (open, _) = open(jax, program)?;
        self.nested.extend(nested_of(&open).into_iter().map(|(_, inner)| inner));
        self.open.push(open.unbind());
        self.programs.push(program.clone().unbind());
        Ok(())
    }

    /// One program, and its structural id.
    ///
    /// # Errors
    /// Why it has none.
    pub fn of_program(
        jax: &Jax,
        program: &Bound<'_, PyAny>,
    ) -> Result<(Self, StructuralId), Reason> {
        // What is nested is known once there is a structural id.
        let id = structural_id_of(jax, &open(jax, program)?.0)?;
        let mut given = Self::default();
        given.add(jax, program)?;
        Ok((given, id))
    }

    /// Whether they are the same, closed anew or not.
    pub fn is(&self, other: &Self) -> bool {
        self.repeats(other).is_some()
    }

    /// Which of the nested programs are the same as those of others that are structurally equal; None where
    /// there are others.
    pub fn same_nested(&self, other: &Self) -> Option<Vec<bool>> {
        (self.nested.len() == other.nested.len())
            .then(|| same_objects(&self.nested, &other.nested).collect())
    }

    /// The addresses of their variables, as far as there are objects; None where one cannot be read.
    pub fn seen_vars(&self, py: Python<'_>, jax: &Jax) -> Option<FxHashSet<usize>> {
        let mut seen = FxHashSet::default();
        for open in &self.open {
            let graph = graph_of(jax, open.bind(py)).ok()?;
            let graph = graph.get();
            seen.extend(graph.table().seen_vars(py).map(|(_, var)| address(&var)));
        }
        Some(seen)
    }

    pub(super) fn first<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.open[0].bind(py)
    }

    /// The serial of the first, closed or not.
    pub(super) fn serial(&self, py: Python<'_>) -> u64 {
        serial_as_given(self.first(py), self.programs[0].bind(py))
    }

    /// Whether other calls had some of them, but not all.
    pub fn are_ambiguous(&self, py: Python<'_>, jax: &Jax) -> bool {
        let nested = self.nested.iter().filter_map(|inner| open(jax, inner.bind(py)).ok());
        let nested: Vec<_> = nested.map(|(open, _)| open).collect();
        are_ambiguous(&self.open, &nested, !is_running(), py)
    }

    /// The derivative rules that they have, and those nested in them.
    pub(super) fn rules<'py>(
        &self,
        py: Python<'py>,
        jax: &Jax,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut rules = Vec::new();
        for program in self.open.iter().chain(&self.nested) {
            let (open, _) = open(jax, program.bind(py)).map_err(PyRuntimeError::new_err)?;
            rules.extend(rules_of(jax, &open)?);
        }
        Ok(rules)
    }

    /// The tracebacks of their equations and of their transposes', by the address of what stands for equal
    /// ones. None where they are forgotten.
    pub fn tracebacks(&self, py: Python<'_>, jax: &Jax) -> Option<FxHashSet<usize>> {
        let mut tracebacks: FxHashSet<usize> = self.transposed_at.iter().copied().collect();
        for program in self.open.iter().chain(&self.nested) {
            let (open, _) = open(jax, program.bind(py)).ok()?;
            let all = tracebacks_of(structural_id_of(jax, &open).ok()?)?;
            tracebacks.extend(all.iter().map(|traceback| traceback.as_ptr() as usize));
        }
        Some(tracebacks)
    }

    /// The tracebacks of their equations, and of those nested in them, in order. None where they are
    /// forgotten.
    pub fn lines(&self, py: Python<'_>, jax: &Jax) -> Option<Vec<Py<PyAny>>> {
        let mut lines = Vec::new();
        for program in self.open.iter().chain(&self.nested) {
            let (open, _) = open(jax, program.bind(py)).ok()?;
            let all = tracebacks_of(structural_id_of(jax, &open).ok()?)?;
            lines.extend(all.iter().map(|traceback| traceback.clone_ref(py)));
        }
        Some(lines)
    }

    /// What is the same in another process: the portable ids of the programs, and which of the nested ones
    /// and of the lines are the same. None where something has no portable id.
    pub fn portable(&self, py: Python<'_>, jax: &Jax) -> Option<Vec<Key>> {
        let mut words = Vec::new();
        for program in &self.open {
            words.push(portable_id(structural_id_of(jax, program.bind(py)).ok()?)?);
        }
        let mut repetition = |objects: &[Py<PyAny>]| {
            let mut first: FxHashMap<usize, usize> = FxHashMap::default();
            words.push(objects.len() as Key);
            for (place, object) in objects.iter().enumerate() {
                words.push(*first.entry(object.as_ptr() as usize).or_insert(place) as Key);
            }
        };
        repetition(&self.nested);
        repetition(&self.lines(py, jax)?);
        Some(words)
    }

    /// Whether a program is one of them.
    pub(super) fn is_one(&self, program: &Bound<'_, PyAny>) -> bool {
        self.open.iter().chain(&self.programs).any(|own| own.is(program))
    }

    /// Whether a program is one of them, or nested in one.
    pub(super) fn has(&self, program: &Bound<'_, PyAny>) -> bool {
        self.is_one(program) || self.nested.iter().any(|own| own.is(program))
    }

    /// How they are those of another call, of which a replay has made something; None where there is none.
    /// Of a nested one too: that call may have had it alone.
    pub fn replayed(&self, py: Python<'_>, jax: &Jax) -> Option<Repeat> {
        let first = self.first(py);
        if has_replays(first) {
            let same = was_given_as(first, self.serial(py));
            return Some(if same { Repeat::Same } else { Repeat::Closed });
        }
        let nested = self.nested.iter().filter_map(|inner| open(jax, inner.bind(py)).ok());
        let any = nested.map(|(inner, _)| inner).any(|inner| has_replays(&inner));
        any.then_some(Repeat::Same)
    }

    /// Notes that jax has warned of them.
    pub fn note_warned(&self, py: Python<'_>, jax: &Jax) {
        warned::note(self.ids(py, jax));
    }

    /// Whether jax has warned of one of them before.
    pub fn has_warned(&self, py: Python<'_>, jax: &Jax) -> bool {
        warned::has(|| self.ids(py, jax))
    }

    /// The structural ids of all.
    fn ids(&self, py: Python<'_>, jax: &Jax) -> SmallVec<[StructuralId; 4]> {
        let all = self.open.iter().chain(&self.nested);
        let opened = all.filter_map(|program| open(jax, program.bind(py)).ok());
        opened.filter_map(|(program, _)| structural_id_of(jax, &program).ok()).collect()
    }

    /// Whether they are the same programs, and if so whether closed anew.
    pub(super) fn repeats(&self, other: &Self) -> Option<Repeat> {
        let same = |own: &[Py<PyAny>], others: &[Py<PyAny>]| {
            own.len() == others.len() && same_objects(own, others).all(|same| same)
        };
        same(&self.open, &other.open).then(|| {
            if same(&self.programs, &other.programs) { Repeat::Same } else { Repeat::Closed }
        })
    }
}

/// Whether the equations of programs with a structural id have lines among `tracebacks`
/// only; None where the lines are forgotten.
pub fn has_lines_among(tracebacks: &FxHashSet<usize>, id: StructuralId) -> Option<bool> {
    let is_among = |line: &Py<PyAny>| tracebacks.contains(&(line.as_ptr() as usize));
    Some(tracebacks_of(id)?.iter().all(is_among))
}

pub(super) fn same_objects<'a>(
    one: &'a [Py<PyAny>],
    another: &'a [Py<PyAny>],
) -> impl Iterator<Item = bool> + 'a {
    one.iter().zip(another).map(|(one, another)| one.is(another))
}
