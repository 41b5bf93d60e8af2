//! Names of places in trees, which jax gives to arguments and results.

use std::fmt::Write;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple, PyType};

use crate::python::cpython::native::is_exactly;

/// What jax's own function would replace in a name.
const FLAT_INDEX: &str = "<flat index ";

/// Stands in for `linear_util._clean_keystr_arg_names`, which says the keys of a path one after the other.
///
/// Example: the path of a leaf in `{"w": [leaf]}` is `['w'][0]`.
#[pyclass(frozen, module = "jaxide._core")]
pub struct PathNames {
    stock: Py<PyAny>,
    /// The variables of jax's function, and the function among them that spells a path.
    globals: Py<PyDict>,
    keystr: Py<PyAny>,
    /// The classes of keys of dicts, of sequences, and of attributes.
    of_dicts: Py<PyType>,
    of_sequences: Py<PyType>,
    of_attributes: Py<PyType>,
}

#[pymethods]
impl PathNames {
    /// Args:
    ///     stock: jax's function.
    ///     globals: its variables, with `keystr` among them.
    ///     classes: the classes of keys of dicts, of sequences, and of attributes.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // of Python
    fn new(
        py: Python<'_>,
        stock: Py<PyAny>,
        globals: Py<PyDict>,
        classes: (Py<PyType>, Py<PyType>, Py<PyType>),
    ) -> PyResult<Self> {
        let keystr = globals.bind(py).as_any().get_item(intern!(py, "keystr"))?.unbind();
        let (of_dicts, of_sequences, of_attributes) = classes;
        Ok(Self { stock, globals, keystr, of_dicts, of_sequences, of_attributes })
    }

    /// The name of a path.
    fn __call__<'py>(&self, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = path.py();
        let mut text = String::new();
        if self.is_as_ever(py)? && self.add(&mut text, path)? {
            return Ok(PyString::new(py, &text).into_any());
        }
        self.stock.bind(py).call1((path,))
    }

    /// The names of paths, each after a prefix.
    fn after<'py>(
        &self,
        prefix: &Bound<'py, PyString>,
        paths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.names(prefix, paths.try_iter()?)
    }

    /// As `after`, for pairs of a path and a leaf.
    fn of_leaves<'py>(
        &self,
        prefix: &Bound<'py, PyString>,
        leaves: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let paths = leaves.try_iter()?.map(|leaf| leaf?.get_item(0));
        self.names(prefix, paths)
    }
}

impl PathNames {
    fn names<'py>(
        &self,
        prefix: &Bound<'py, PyString>,
        paths: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = prefix.py();
        // Not where Rust does not have its characters.
        let own = prefix.to_str().ok().filter(|_| self.is_as_ever(py).unwrap_or(false));
        let (mut names, mut text) = (Vec::new(), String::new());
        for path in paths {
            let path = path?;
            if let Some(own) = own {
                text.clear();
                text.push_str(own);
                if self.add(&mut text, &path)? {
                    names.push(PyString::new(py, &text).into_any());
                    continue;
                }
            }
            names.push(prefix.add(self.stock.bind(py).call1((&path,))?)?);
        }
        PyTuple::new(py, names)
    }

    /// Whether paths are spelled by the function that was there at first.
    fn is_as_ever(&self, py: Python<'_>) -> PyResult<bool> {
        let now = self.globals.bind(py).get_item(intern!(py, "keystr"))?;
        Ok(now.is_some_and(|now| now.is(&self.keystr)))
    }

    /// Adds the name of a path; whether it has keys of jax's own classes alone, and says of none what jax would
    /// replace. Otherwise part of it may have been added.
    fn add(&self, text: &mut String, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = path.py();
        let start = text.len();
        let Ok(path) = path.cast_exact::<PyTuple>() else { return Ok(false) };
        for key in path {
            let is = |class: &Py<PyType>| is_exactly(key.as_ptr(), class.as_ptr().cast());
            if is(&self.of_dicts) {
                if !add_item(text, &key.getattr(intern!(py, "key"))?)? {
                    return Ok(false);
                }
            } else if is(&self.of_sequences) {
                let index = key.getattr(intern!(py, "idx"))?;
                if !index.is_exact_instance_of::<PyInt>() || !add_item(text, &index)? {
                    return Ok(false);
                }
            } else if is(&self.of_attributes) {
                let name = key.getattr(intern!(py, "name"))?;
                let Ok(name) = name.cast_exact::<PyString>() else { return Ok(false) };
                let Ok(name) = name.to_str() else { return Ok(false) };
                text.push('.');
                text.push_str(name);
            } else {
                return Ok(false);
            }
        }
        Ok(!text[start..].contains(FLAT_INDEX))
    }
}

/// Adds `[key]`; whether Rust has its characters.
fn add_item(text: &mut String, key: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'\'' && byte != b'\\';
    if let Ok(key) = key.cast_exact::<PyString>()
        && let Ok(key) = key.to_str()
        && key.bytes().all(is_plain)
    {
        let _ = write!(text, "['{key}']");
    } else if let Ok(index) = key.cast_exact::<PyInt>()
        && let Ok(index) = index.extract::<i64>()
    {
        let _ = write!(text, "[{index}]");
    } else {
        let spelled = key.repr()?;
        let Ok(spelled) = spelled.to_str() else { return Ok(false) };
        let _ = write!(text, "[{spelled}]");
    }
    Ok(true)
}
