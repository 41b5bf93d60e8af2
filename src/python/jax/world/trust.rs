//! Which functions and values are jax's own, and which were put there by somebody else.
//!
//! `jaxide._native.trust` says what jax is built on; here each of the thousands of values of jax's modules is
//! asked about. No code of theirs runs, but for that of objects that make their own attributes.

use std::ffi::c_ulong;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyFunction, PyList, PyModule, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::python::cpython::native::{Slot, address, entries, is_a, is_exactly, said, string_of};
use crate::python::cpython::shared::Shared;

/// What the files of code begin with that was generated for Python and for numpy.
const GENERATED: [&str; 2] = ["<frozen ", "<__array_function__"];
/// Who wraps so much in a closure is not looked through.
const MAX_SEEN: usize = 256;
/// The namespaces in which methods of named tuples are made.
const NAMED_TUPLES: &str = "namedtuple_";

/// Tells what is of jax, of Python, or of what jax is built on.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Trust {
    /// By address, classes whose instances have no functions in them and are nobody's.
    plain: FxHashSet<usize>,
    /// They are kept alive.
    _plain: Py<PyFrozenSet>,
    /// Whose classes are nobody else's.
    packages: FxHashSet<String>,
    /// Packages of which jax imports modules.
    imported: FxHashSet<String>,
    /// The class of partial applications, where nobody has replaced it.
    partial: Option<Py<PyType>>,
    /// `types.SimpleNamespace`, whoever has put another one there.
    namespace: Py<PyType>,
    is_file_of_library: Py<PyAny>,
    /// What that has said, by address: a module's code has one text for its file.
    files: Shared<FxHashMap<usize, File>>,
    /// Where code has its file.
    file_of_code: Slot,
}

/// A file of code.
struct File {
    is_of_library: bool,
    /// Its name stays alive.
    _name: Py<PyString>,
}

/// Whoever makes code of more files is asked about each function of theirs.
const MAX_FILES: usize = 1 << 14;

// CPython's, which pyo3 does not declare.
unsafe extern "C" {
    static PyMethod_Type: ffi::PyTypeObject;
}

/// What a callable is made of.
enum Part<'a, 'py> {
    Function(&'a Bound<'py, PyFunction>),
    /// Nothing more is known of it.
    Object(&'a Bound<'py, PyAny>),
}

#[pymethods]
impl Trust {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // of Python
    fn new(
        py: Python<'_>,
        plain: Bound<'_, PyFrozenSet>,
        packages: FxHashSet<String>,
        imported: FxHashSet<String>,
        partial: Bound<'_, PyAny>,
        is_file_of_library: Py<PyAny>,
    ) -> PyResult<Self> {
        let partial = partial.cast_into::<PyType>().ok().map(Bound::unbind);
        // SAFETY: a static type of CPython's.
        let code = unsafe { Bound::from_borrowed_ptr(py, (&raw mut ffi::PyCode_Type).cast()) };
        let file_of_code = Slot::of_field(&code.cast_into()?, "co_filename")?;
        let (plain, kept) = (plain.iter().map(|class| address(&class)).collect(), plain.unbind());
        let namespace = py.import("sys")?.getattr("implementation")?.get_type().unbind();
        Ok(Self {
            plain,
            _plain: kept,
            packages,
            imported,
            partial,
            namespace,
            is_file_of_library,
            files: Shared::default(),
            file_of_code,
        })
    }

    /// The Python functions that a callable is made of: through partial applications, methods, jits
    /// and functions with derivative rules.
    fn functions_of<'py>(
        &self,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyFunction>>> {
        let mut functions = Vec::new();
        if self.is_plain(value) || value.is_instance_of::<PyType>() {
            return Ok(functions);
        }
        self.visit_parts(value, |part| {
            if let Part::Function(function) = part {
                functions.push(function.clone());
            }
            Ok(())
        })?;
        Ok(functions)
    }

    /// Whether somebody else has put a value in a module, class or registry of jax: code, or an
    /// instance of a class, that is neither of jax nor of what jax is built on.
    pub fn is_foreign(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.judge(value, |_| ())
    }
}

impl Trust {
    /// Whether a value is an instance of a class that says nothing.
    pub fn is_plain(&self, value: &Bound<'_, PyAny>) -> bool {
        self.plain.contains(&(value.get_type_ptr() as usize))
    }

    /// As `is_foreign`. `found` is given the functions that the value is made of.
    ///
    /// # Errors
    /// What an object that makes its own attributes raises.
    pub fn judge(
        &self,
        value: &Bound<'_, PyAny>,
        mut found: impl FnMut(&Bound<'_, PyFunction>),
    ) -> PyResult<bool> {
        if let Ok(module) = value.cast::<PyModule>() {
            return self.is_foreign_module(module);
        }
        if self.is_plain(value) {
            return Ok(false);
        }
        if let Some(function) = lone_function(value)? {
            found(function);
            return Ok(!self.is_of_library(function)?);
        }
        let mut is_foreign = self.is_of_foreign_class(value)?;
        if !value.is_instance_of::<PyType>() {
            self.visit_parts(value, |part| {
                is_foreign |= match part {
                    Part::Function(function) => {
                        found(function);
                        !self.is_of_library(function)?
                    }
                    Part::Object(object) => self.is_of_foreign_class(object)?,
                };
                Ok(())
            })?;
        }
        Ok(is_foreign)
    }

    /// Visits what a callable is made of: functions, and objects of which nothing more is known.
    fn visit_parts<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        mut visit: impl FnMut(Part<'_, 'py>) -> PyResult<()>,
    ) -> PyResult<()> {
        let py = value.py();
        let mut pending: SmallVec<[Bound<'py, PyAny>; 8]> = smallvec![value.clone()];
        // They stay alive, so that each has an address of its own.
        let mut seen: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        while let Some(item) = pending.pop() {
            if item.is_none() || seen.iter().any(|known| known.is(&item)) {
                continue;
            }
            if let Ok(function) = item.cast::<PyFunction>() {
                // What filters tracebacks has a file of jax's, whatever it calls.
                pending.extend(wrapped_by(function)?);
                visit(Part::Function(function))?;
            } else if self.is_partial(&item) {
                pending.push(item.getattr(intern!(py, "func"))?);
                pending.push(item.getattr(intern!(py, "args"))?);
                let named = item.getattr(intern!(py, "keywords"))?;
                pending.extend(named.cast::<PyDict>().iter().flat_map(|named| named.values()));
            } else if is_method(&item) {
                pending.push(item.getattr(intern!(py, "__func__"))?);
            } else if is_a(&item, &raw const ffi::PyProperty_Type) {
                for name in [intern!(py, "fget"), intern!(py, "fset"), intern!(py, "fdel")] {
                    pending.push(item.getattr(name)?);
                }
            } else if let Ok(parts) = item.cast::<PyTuple>() {
                // Methods and properties of types of arrays are named tuples.
                pending.extend(parts);
            } else if !item.is_instance_of::<PyType>() && !item.is_instance_of::<PyModule>() {
                let own = attributes_of(&item)?;
                if let Some(own) = &own
                    && is_exactly(item.as_ptr(), self.namespace.as_ptr().cast())
                {
                    for (_, value) in entries(own) {
                        if value.is_instance_of::<PyType>() {
                            visit(Part::Object(&value))?;
                        } else {
                            pending.push(value);
                        }
                    }
                } else if let Some(own) = own {
                    for name in of_callables(py) {
                        pending.extend(own.get_item(name)?);
                    }
                } else if is_made_in_python(&item.get_type()) && !self.is_of_foreign_class(&item)? {
                    // An entry of a table of rules that lower, which has slots. Its class is asked first:
                    // objects of C++ that lack an attribute throw.
                    let name = intern!(py, "rule");
                    if item.get_type().getattr_opt(name)?.is_some() {
                        pending.extend(item.getattr_opt(name)?);
                    }
                }
                if !item.is(value) {
                    visit(Part::Object(&item))?;
                }
            }
            seen.push(item);
        }
        Ok(())
    }

    fn is_partial(&self, value: &Bound<'_, PyAny>) -> bool {
        self.partial
            .as_ref()
            .is_some_and(|partial| is_a(value, partial.as_ptr().cast_const().cast()))
    }

    /// Whether a module is none of jax's, of Python's or of what jax is built on, or not the one that
    /// everybody imports.
    fn is_foreign_module(&self, module: &Bound<'_, PyModule>) -> PyResult<bool> {
        let py = module.py();
        let Some(name) = module.dict().get_item(intern!(py, "__name__"))?.and_then(name_of) else {
            return Ok(true);
        };
        let package = package_of(&name.to_string_lossy()).to_owned();
        if !self.packages.contains(&package) && !self.imported.contains(&package) {
            return Ok(true);
        }
        // SAFETY: with the interpreter attached; it lives as long as that.
        let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
        let modules = modules.cast::<PyDict>()?;
        if modules.get_item(&name)?.is_some_and(|known| known.is(module)) {
            return Ok(false);
        }
        // `collections.abc` is imported under another name than it has.
        let spec = module.dict().get_item(intern!(py, "__spec__"))?;
        let name = spec.map(|spec| spec.getattr_opt(intern!(py, "name"))).transpose()?.flatten();
        let Some(name) = name.and_then(name_of) else { return Ok(true) };
        Ok(!modules.get_item(&name)?.is_some_and(|known| known.is(module)))
    }

    /// Whether a name is within what is nobody else's.
    fn is_of_packages(&self, name: &str) -> bool {
        self.packages.contains(package_of(name))
    }

    /// Whether the code of a function belongs to jax, to Python or to what jax is built on, and that of
    /// what its closure has: jax wraps rules that somebody registers.
    fn is_of_library(&self, function: &Bound<'_, PyFunction>) -> PyResult<bool> {
        let py = function.py();
        // Most have no closure.
        if parts_of(function).func_closure.is_null() {
            return self.has_code_of_library(function);
        }
        let mut pending: SmallVec<[_; 4]> = smallvec![function.clone().into_any()];
        // They stay alive, so that each has an address of its own.
        let mut seen: SmallVec<[_; 8]> = SmallVec::new();
        while let Some(value) = pending.pop() {
            if seen.len() == MAX_SEEN {
                return Ok(false);
            }
            if let Ok(function) = value.cast::<PyFunction>() {
                if !self.has_code_of_library(function)? {
                    return Ok(false);
                }
                // SAFETY: a part of a live function, which may be missing.
                let closure =
                    unsafe { Bound::from_borrowed_ptr_or_opt(py, parts_of(function).func_closure) };
                for cell in closure.iter().flat_map(|cells| cells.cast::<PyTuple>()).flatten() {
                    // SAFETY: a cell of a closure; it may be empty.
                    let content =
                        unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyCell_Get(cell.as_ptr())) };
                    pending.extend(content);
                }
            } else if let Ok(parts) = value.cast_exact::<PyDict>() {
                pending.extend(entries(parts).into_iter().map(|(_, value)| value));
            } else if let Ok(parts) = value.cast_exact::<PyList>() {
                pending.extend(parts);
            } else if !self.is_plain(&value) && !value.is_instance_of::<PyModule>() {
                if self.is_of_foreign_class(&value)? {
                    return Ok(false);
                }
                if !value.is_instance_of::<PyType>() {
                    self.visit_parts(&value, |part| {
                        if let Part::Function(part) = part {
                            pending.push(part.clone().into_any());
                        }
                        Ok(())
                    })?;
                }
            }
            seen.push(value);
            pending.retain(|value| !seen.iter().any(|known| known.is(&*value)));
        }
        Ok(true)
    }

    fn has_code_of_library(&self, function: &Bound<'_, PyFunction>) -> PyResult<bool> {
        let py = function.py();
        // SAFETY: parts of a live function.
        let (code, globals) = unsafe {
            let parts = parts_of(function);
            (
                Bound::from_borrowed_ptr(py, parts.func_code),
                Bound::from_borrowed_ptr(py, parts.func_globals),
            )
        };
        // SAFETY: the code of a function, whose class cannot be derived from.
        let file = unsafe { self.file_of_code.get(&code) };
        // Another class of texts might compare in its own way.
        let Some(Ok(file)) = file.as_ref().map(Bound::cast_exact::<PyString>) else {
            return Ok(false);
        };
        let at = address(file);
        let known = self.files.peek(|files| files.get(&at).map(|file| file.is_of_library));
        if let Some(is_of_library) = known {
            return Ok(is_of_library);
        }
        let path = file.to_string_lossy();
        if !path.starts_with('<') {
            return self.is_file_of_library(file);
        }
        // Code that was generated, such as the methods of a dataclass, is its module's.
        let name = globals.cast::<PyDict>()?.get_item(intern!(py, "__name__"))?;
        let name = name.map(|name| name.str()).transpose()?;
        let name = name.as_ref().and_then(|name| name.to_str().ok()).unwrap_or_default();
        Ok(GENERATED.iter().any(|prefix| path.starts_with(prefix))
            || is_jax_module(name)
            || name.starts_with(NAMED_TUPLES))
    }

    fn is_file_of_library(&self, file: &Bound<'_, PyString>) -> PyResult<bool> {
        let asked = self.is_file_of_library.bind(file.py()).call1((file,))?;
        let (at, is_of_library) = (address(file), asked.is_truthy()?);
        let file = File { is_of_library, _name: file.clone().unbind() };
        let late = self.files.peek(|files| {
            if files.len() < MAX_FILES { files.insert(at, file) } else { Some(file) }
        });
        drop(late);
        Ok(is_of_library)
    }

    /// Whether a class, or the class of a value, is somebody else's.
    fn is_of_foreign_class(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let class = value.cast::<PyType>().map_or_else(|_| value.get_type(), Clone::clone);
        let Some(module) = module_of(&class)? else { return Ok(true) };
        Ok(!self.is_of_packages(&module))
    }
}

/// The module of a class, as the class says; None where it says nothing.
///
/// # Errors
/// Whoever is asked was interrupted.
pub fn module_of(class: &Bound<'_, PyType>) -> PyResult<Option<String>> {
    let py = class.py();
    let module = said(py, class.getattr(intern!(py, "__module__")))?;
    Ok(module.and_then(|module| module.cast_exact::<PyString>().ok().map(string_of)))
}

/// Whether the module that a class says it is of has the class under its name. A class that somebody
/// makes by calling a metaclass says that it is of the metaclass's module: `ABCMeta("Own", (), {})` is
/// `abc.Own`.
///
/// # Errors
/// Whoever is asked was interrupted.
pub fn is_where_it_says(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let Some(module) = module_of(class)? else { return Ok(false) };
    // SAFETY: with the interpreter attached; it lives as long as that.
    let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
    let Some(module) = modules.cast::<PyDict>()?.get_item(module)? else { return Ok(false) };
    let Ok(module) = module.cast_into::<PyModule>() else { return Ok(false) };
    let path = class.qualname()?;
    let mut found: Option<Bound<'_, PyAny>> = None;
    for name in path.to_str()?.split('.') {
        found = match found {
            None => module.dict().get_item(name)?,
            Some(within) => said(py, within.getattr(name))?,
        };
        if found.is_none() {
            return Ok(false);
        }
    }
    Ok(found.is_some_and(|found| found.is(class)))
}

/// A name, where it is a text and of no class that compares in its own way.
fn name_of(value: Bound<'_, PyAny>) -> Option<Bound<'_, PyString>> {
    value.cast_into_exact().ok()
}

/// The package that a module of this name is in.
fn package_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(package, _)| package)
}

/// Whether a module of this name is one of jax's.
pub fn is_jax_module(name: &str) -> bool {
    is_within(name, "jax")
}

/// Whether a module of this name is a package, or within it.
pub fn is_within(name: &str, package: &str) -> bool {
    name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Attributes in which callables keep what they are made of.
fn of_callables(py: Python<'_>) -> [&Bound<'_, PyString>; 8] {
    [
        intern!(py, "__wrapped__"),
        intern!(py, "fun"),
        intern!(py, "jvp"),
        intern!(py, "fwd"),
        intern!(py, "bwd"),
        intern!(py, "func"),
        intern!(py, "_fun"),
        intern!(py, "_func"),
    ]
}

/// The function that a value is, where it stands for no other one.
fn lone_function<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Option<&'a Bound<'py, PyFunction>>> {
    let Ok(function) = value.cast::<PyFunction>() else { return Ok(None) };
    Ok(wrapped_by(function)?.is_none().then_some(function))
}

/// What a function stands for.
fn wrapped_by<'py>(function: &Bound<'py, PyFunction>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = function.py();
    // SAFETY: a part of a live function, which may be missing.
    let own = unsafe { Bound::from_borrowed_ptr_or_opt(py, parts_of(function).func_dict) };
    match own.as_ref().and_then(|own| own.cast::<PyDict>().ok()) {
        Some(own) => own.get_item(intern!(py, "__wrapped__")),
        None => Ok(None),
    }
}

/// Whether a class lies on the heap, as those do that Python code makes.
pub fn is_made_in_python(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a live class.
    unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) != 0 }
}

/// `Py_TPFLAGS_MANAGED_DICT`: the interpreter keeps the dict of an instance.
const MANAGED_DICT: c_ulong = 1 << 4;

/// The attributes of an object that are its own, whatever its class says of others.
fn attributes_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = object.py();
    // SAFETY: a live object.
    let own = unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        if (*class).tp_dictoffset == 0 && ffi::PyType_HasFeature(class, MANAGED_DICT) == 0 {
            return Ok(None);
        }
        let name = intern!(py, "__dict__");
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyObject_GenericGetAttr(object.as_ptr(), name.as_ptr()),
        )
    };
    match own {
        Ok(own) => Ok(own.cast_into().ok()),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a value is a method: a bound one, a static one or one of the class.
fn is_method(value: &Bound<'_, PyAny>) -> bool {
    is_a(value, &raw const PyMethod_Type)
        || is_a(value, &raw const ffi::PyStaticMethod_Type)
        || is_a(value, &raw const ffi::PyClassMethod_Type)
}

/// The parts of a function.
fn parts_of<'a>(function: &'a Bound<'_, PyFunction>) -> &'a ffi::PyFunctionObject {
    // SAFETY: a live function, whose class cannot be derived from.
    unsafe { &*function.as_ptr().cast() }
}
