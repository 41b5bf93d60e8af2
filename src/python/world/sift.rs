//! The entries of a dict of which something has to be asked, without most of them.
//!
//! Modules have thousands of entries, and nearly all are functions that a library has defined, other
//! modules, or plain values. `jaxide._world` looks at the rest.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::super::shared::Shared;
use super::super::side::address;

/// Sorts the entries of a dict that nobody else changes.
///
/// Args:
///     entries: the dict.
///     skipped: keys that do not count.
///     plain: classes whose instances say nothing; of these, only dicts are in the rest.
///     files: files, with whether their code is of jax or of what jax is built on.
///     known: addresses of values that are known; of these, only dicts are in the rest.
///
/// Returns:
///     The functions that are not known, stand for no others, and have code from such files, as
///     those in their closures have; and the rest, as pairs of keys and values.
#[pyfunction]
pub fn sort_entries<'py>(
    entries: &Bound<'py, PyDict>,
    skipped: &Bound<'py, PyFrozenSet>,
    plain: &Bound<'py, PyFrozenSet>,
    files: &Bound<'py, PyDict>,
    known: &Bound<'py, PySet>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let py = entries.py();
    let (functions, rest) = (PyList::empty(py), PyList::empty(py));
    for (key, value) in entries {
        let is_dict = value.is_exact_instance_of::<PyDict>();
        if skipped.contains(&key)?
            || !is_dict && (plain.contains(value.get_type())? || known.contains(address(&value))?)
        {
            continue;
        }
        if is_plain_function(&value, files)? {
            functions.append(value)?;
        } else {
            rest.append((key, value))?;
        }
    }
    Ok((functions, rest))
}

/// Which objects a dict has had under names. Used by one at a time.
#[pyclass(frozen, module = "jaxide._core")]
#[derive(Default)]
pub struct Census {
    /// Addresses, by the hashes of names.
    noted: Shared<FxHashMap<isize, usize>>,
    /// What there was last.
    last: Shared<FxHashMap<isize, usize>>,
}

#[pymethods]
impl Census {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// How many names were noted.
    fn __len__(&self) -> usize {
        self.noted.peek(|noted| noted.len())
    }

    /// The names under which `entries` has other objects than were noted.
    fn unseen<'py>(&self, entries: &Bound<'py, PyDict>) -> PyResult<Vec<Bound<'py, PyString>>> {
        let (mut names, mut last) = (Vec::new(), FxHashMap::default());
        for (name, value) in entries {
            // No Python code runs meanwhile: texts have hashes of their own.
            let Ok(name) = name.cast_into_exact::<PyString>() else { continue };
            let (hash, address) = (name.hash()?, address(&value));
            last.insert(hash, address);
            if self.noted.peek(|noted| noted.get(&hash) != Some(&address)) {
                names.push(name);
            }
        }
        self.last.peek(|known| *known = last);
        Ok(names)
    }

    /// Notes what there was, but for some names.
    #[allow(clippy::needless_pass_by_value)] // of Python
    fn note(&self, omitted: Vec<Bound<'_, PyString>>) -> PyResult<()> {
        let mut last = self.last.peek(std::mem::take);
        for name in omitted {
            last.remove(&name.hash()?);
        }
        self.noted.peek(|noted| *noted = last);
        Ok(())
    }
}

/// Whether a value is a function that stands for no other one, with code from a file of a library, as
/// the functions in its closure have.
fn is_plain_function(value: &Bound<'_, PyAny>, files: &Bound<'_, PyDict>) -> PyResult<bool> {
    let py = value.py();
    if !is_function(value) {
        return Ok(false);
    }
    // SAFETY: a part of a live function, which may be missing.
    let own = unsafe { Bound::from_borrowed_ptr_or_opt(py, parts_of(value).func_dict) };
    if let Some(own) = own
        && own.contains(intern!(py, "__wrapped__"))?
    {
        return Ok(false);
    }
    let mut seen: SmallVec<[usize; 8]> = SmallVec::new();
    let mut pending: SmallVec<[Bound<'_, PyAny>; 4]> = smallvec![value.clone()];
    while let Some(function) = pending.pop() {
        if seen.contains(&address(&function)) {
            continue;
        }
        seen.push(address(&function));
        // SAFETY: parts of a live function; the closure may be missing.
        let (code, closure) = unsafe {
            let parts = parts_of(&function);
            (
                Bound::from_borrowed_ptr(py, parts.func_code),
                Bound::from_borrowed_ptr_or_opt(py, parts.func_closure),
            )
        };
        let file = code.getattr(intern!(py, "co_filename"))?;
        // Another class of texts might compare in its own way.
        if !file.is_exact_instance_of::<PyString>()
            || !files.get_item(file)?.is_some_and(|known| known.is(PyBool::new(py, true)))
        {
            return Ok(false);
        }
        for cell in closure.iter().flat_map(|cells| cells.cast::<PyTuple>()).flatten() {
            // SAFETY: a cell of a closure; it may be empty.
            let content =
                unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyCell_Get(cell.as_ptr())) };
            pending.extend(content.filter(is_function));
        }
    }
    Ok(true)
}

fn is_function(value: &Bound<'_, PyAny>) -> bool {
    value.get_type_ptr() == &raw mut ffi::PyFunction_Type
}

/// # Safety
/// A function.
unsafe fn parts_of<'a>(function: &'a Bound<'_, PyAny>) -> &'a ffi::PyFunctionObject {
    // SAFETY: as promised.
    unsafe { &*function.as_ptr().cast() }
}
