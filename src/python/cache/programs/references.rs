//! How entries of the store refer to programs: by how jax comes to each.
//!
//! A program counts by identity, so an entry does not have those that jax keeps: it says which jit of jax's own has
//! the program, or which function that keeps its results has made it of another one. The programs of the user's
//! are referred to by their place among those that a call is given.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python::cache::programs::forms::{is_jaxpr, open};
use crate::python::cache::programs::registry::has_replays;
use crate::python::cache::warm::lookup::has_name;
use crate::python::jax::names::Jax;
use crate::python::jax::values::typed_hash;
use crate::python::store::pieces::{Inapplicable, Piece, Reading};

/// More programs than this no params have, nor a function's result.
const MAX_PROGRAMS: usize = 1 << 12;

/// How jax comes to a program.
enum Reference<'py> {
    /// It is nested in those given.
    Nested(usize),
    /// A jit of jax's own has it, and keeps it within equations or not.
    Jit(Bound<'py, PyAny>, bool),
    /// A function has made it of the program at a place, with a key, as an item of its result; it keeps
    /// that within equations or not.
    Derived(Bound<'py, PyAny>, usize, Bound<'py, PyAny>, usize, bool),
}

/// The programs that an entry refers to.
#[derive(Default)]
pub struct References<'py> {
    /// Those nested in the programs given.
    nested: Vec<Bound<'py, PyAny>>,
    known: Vec<Bound<'py, PyAny>>,
}

/// Whether jax comes to each program among params again, and all else in them is plain: the params are the same at
/// every call.
pub fn are_repeated(jax: &Jax, params: &Bound<'_, PyDict>) -> bool {
    params.iter().all(|(_, value)| is_repeated(jax, &value))
}

fn is_repeated(jax: &Jax, value: &Bound<'_, PyAny>) -> bool {
    if is_jaxpr(value.py(), jax, value.as_ptr()) {
        return is_named(jax, value, &[]);
    }
    typed_hash(value).is_some()
        || has_name(value)
        || value
            .cast_exact::<PyTuple>()
            .is_ok_and(|items| items.iter().all(|item| is_repeated(jax, &item)))
}

/// As `are_named`, or they are nested in those that a call is given, or derived from one of them.
pub fn are_named_beside(jax: &Jax, nested: &[Py<PyAny>], params: &Bound<'_, PyDict>) -> bool {
    let mut programs = Vec::new();
    params.iter().for_each(|(_, value)| programs_in(jax, &value, &mut programs));
    programs.iter().all(|program| is_named(jax, program, nested))
}

/// Whether jax comes to a program again.
fn is_named(jax: &Jax, program: &Bound<'_, PyAny>, nested: &[Py<PyAny>]) -> bool {
    let py = program.py();
    let bases = || jax.requests.bind(py).call_method1(intern!(py, "bases"), (program,));
    let is_nested = |program: &Bound<'_, PyAny>| nested.iter().any(|own| own.is(program));
    is_nested(program)
        || bases().is_ok_and(|bases| {
            let bases: PyResult<Vec<_>> = bases.try_iter().and_then(Iterator::collect);
            // The last one is None where a jit of jax's own has the one before.
            bases.is_ok_and(|bases| bases.iter().any(|base| base.is_none() || is_nested(base)))
        })
}

/// The programs in a value.
fn programs_in<'py>(jax: &Jax, value: &Bound<'py, PyAny>, found: &mut Vec<Bound<'py, PyAny>>) {
    if is_jaxpr(value.py(), jax, value.as_ptr()) {
        found.push(value.clone());
    } else if let Ok(items) = value.cast::<PyTuple>() {
        items.iter().for_each(|item| programs_in(jax, &item, found));
    }
}

fn position(programs: &[Bound<'_, PyAny>], program: &Bound<'_, PyAny>) -> Option<usize> {
    programs.iter().position(|known| known.is(program))
}

impl<'py> References<'py> {
    /// Those of an entry of a call that is given programs with these nested in them.
    pub fn among(py: Python<'py>, nested: &[Py<PyAny>]) -> Self {
        let nested = nested.iter().map(|program| program.bind(py).clone()).collect();
        Self { nested, known: Vec::new() }
    }

    /// Writes params, and how jax comes to the programs in them.
    ///
    /// # Errors
    /// Something has no form, or jax may not come to a program.
    pub fn write(
        &mut self,
        piece: &mut Piece<'_, '_, 'py>,
        jax: &Jax,
        params: &Bound<'py, PyDict>,
    ) -> PyResult<()> {
        let mut programs = Vec::new();
        params.iter().for_each(|(_, value)| programs_in(jax, &value, &mut programs));
        let mut new = Vec::new();
        for program in &programs {
            self.place(piece, program, &mut new)?;
        }
        piece.number(new.len());
        for reference in &new {
            match reference {
                Reference::Nested(place) => {
                    piece.number(0);
                    piece.number(*place);
                }
                Reference::Jit(request, within) => {
                    piece.number(1);
                    piece.number(usize::from(*within));
                    piece.value(request)?;
                }
                Reference::Derived(function, base, key, index, within) => {
                    piece.number(2);
                    piece.number(usize::from(*within));
                    piece.value(function)?;
                    piece.number(*base);
                    piece.value(key)?;
                    piece.number(*index);
                }
            }
        }
        let known = &self.known;
        piece.value_among(params, &mut |program| {
            position(known, program).ok_or_else(|| PyRuntimeError::new_err("an unknown program"))
        })
    }

    /// The place of a program, to which it comes where it is not known.
    fn place(
        &mut self,
        piece: &Piece<'_, '_, 'py>,
        program: &Bound<'py, PyAny>,
        new: &mut Vec<Reference<'py>>,
    ) -> PyResult<usize> {
        if let Some(place) = position(&self.known, program) {
            return Ok(place);
        }
        let py = program.py();
        let reference = if let Some(place) = position(&self.nested, program) {
            Reference::Nested(place)
        } else {
            let origin = piece.asked(intern!(py, "origin"), program)?.cast_into::<PyTuple>()?;
            if let Ok((within, request)) = origin.extract::<(bool, Bound<'py, PyAny>)>() {
                Reference::Jit(request, within)
            } else {
                let (within, function, base, key, index) = origin.extract::<(
                    bool,
                    Bound<'py, PyAny>,
                    Bound<'py, PyAny>,
                    Bound<'py, PyAny>,
                    usize,
                )>()?;
                let base = self.place(piece, &base, new)?;
                Reference::Derived(function, base, key, index, within)
            }
        };
        new.push(reference);
        self.known.push(program.clone());
        if self.known.len() > MAX_PROGRAMS {
            return Err(PyRuntimeError::new_err("too many programs"));
        }
        Ok(self.known.len() - 1)
    }

    /// Reads params. jax traces what it has not traced so far as for an equation with a traceback, if there is one.
    ///
    /// # Errors
    /// The bytes say something that is not there, or a replay has made programs that jax would make anew.
    pub fn read(
        &mut self,
        reading: &mut Reading<'_, 'py>,
        jax: &Jax,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let len = reading.number(MAX_PROGRAMS, "program")?;
        for _ in 0..len {
            let program = match reading.number(3, "kind of program")? {
                0 => self.nested[reading.number(self.nested.len(), "nested program")?].clone(),
                1 => {
                    let within = reading.number(2, "flag")? == 1;
                    let request = reading.value()?;
                    let maker = reading.maker();
                    maker.call_method1(
                        intern!(maker.py(), "program"),
                        (request, within, traceback),
                    )?
                }
                _ => {
                    let within = reading.number(2, "flag")? == 1;
                    let function = reading.value()?;
                    let base = reading.number(self.known.len(), "program")?;
                    let base = self.known[base].clone();
                    let key = reading.value()?;
                    let index = reading.number(MAX_PROGRAMS, "item")?;
                    let is_replayed = open(jax, &base).map_or(true, |(open, _)| has_replays(&open));
                    // jax makes these with lines of its own.
                    let requests = jax.requests.bind(base.py());
                    let is_loaded =
                        requests.call_method1(intern!(base.py(), "is_loaded"), (&base,));
                    if is_replayed || is_loaded?.is_truthy()? {
                        return Err(Inapplicable::new_err(()));
                    }
                    let maker = reading.maker();
                    let args = (function, base, key, index, within, traceback);
                    maker.call_method1(intern!(maker.py(), "derived"), args)?
                }
            };
            if !is_jaxpr(program.py(), jax, program.as_ptr()) {
                return Err(reading.error("an object that is no program"));
            }
            self.known.push(program);
        }
        let params = reading.value_among(&self.known)?;
        params.cast_into_exact::<PyDict>().map_err(|_| reading.error("params that are no dict"))
    }
}
