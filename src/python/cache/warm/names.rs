//! Portable names of objects and configurations, as numbers.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyCode, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple,
    PyType, PyWeakrefReference,
};

use crate::segments::{Key, key_of};

use crate::python::cache::key::pins::weak;
use crate::python::cache::key::trace_context::world_of;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, is_a, is_exactly, string_of};
use crate::python::cpython::shared::Shared;
use crate::python::jax::names::jax;
use crate::python::jax::settings;
use crate::python::jax::values::value_classes;
use crate::python::trace::tracer::tracer_type;

/// Names beyond this are forgotten, all at once.
const MAX_NAMES: usize = 1 << 16;

/// How deeply a value may be nested that has a name.
const MAX_DEPTH: usize = 16;

/// An object and its name.
struct Named {
    holder: Holder,
    name: Option<Key>,
}

/// What keeps an address from becoming another object's.
enum Holder {
    /// Of jax's objects.
    Kept(#[allow(dead_code)] Py<PyAny>),
    /// Of the user's.
    Weak(Py<PyWeakrefReference>),
}

/// The portable names that were asked for.
pub struct Names {
    /// Says them.
    source: Py<PyAny>,
    /// The variables of jax's module that starts backends.
    backends: Py<PyDict>,
    /// Classes of jax whose instances are what their slots are.
    slotted: Vec<Slotted>,
    /// The class of what axes have names.
    axis_env: Py<PyType>,
    /// Classes of programs, which are named by how jax comes to them.
    programs: Vec<Py<PyType>>,
    known: AddressCache<Named>,
    configurations: AddressCache<Option<Key>, u64>,
    devices: Shared<Option<Devices>>,
}

/// A class whose instances are what their slots are.
struct Slotted {
    class: Py<PyType>,
    /// Stands for the class.
    name: Key,
    slots: Vec<Py<PyString>>,
}

impl Slotted {
    fn new(class: &Bound<'_, PyAny>, slots: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = class.cast::<PyType>()?.clone();
        let name = key_of(string_of(&class.fully_qualified_name()?).as_bytes());
        let slots = slots.try_iter()?.map(|slot| Ok(slot?.cast_into::<PyString>()?.unbind()));
        Ok(Self { name, slots: slots.collect::<PyResult<_>>()?, class: class.unbind() })
    }
}

/// The devices that were seen last.
struct Devices {
    /// jax's dict of backends, which stays alive, so that its address is its own; and how many there were.
    backends: Py<PyAny>,
    len: usize,
    name: Option<Key>,
}

impl Names {
    /// `source` says names: `jaxide._native.portable.Names`.
    ///
    /// # Errors
    /// It says nothing of backends.
    pub fn new(source: Bound<'_, PyAny>) -> PyResult<Self> {
        let backends = source.getattr("backends")?.cast_into::<PyDict>()?.unbind();
        let slotted = source.getattr("slots")?.cast_into::<PyDict>()?;
        let slotted = slotted.iter().map(|(class, slots)| Slotted::new(&class, &slots));
        let slotted = slotted.collect::<PyResult<_>>()?;
        let programs = source.getattr("programs")?.try_iter()?;
        let programs = programs.map(|class| Ok(class?.cast_into::<PyType>()?.unbind()));
        let programs = programs.collect::<PyResult<_>>()?;
        let axis_env = source.getattr("axis_env")?.cast_into::<PyType>()?.unbind();
        let (known, configurations) = (AddressCache::new(), AddressCache::new());
        let devices = Shared::new(None);
        Ok(Self {
            source: source.unbind(),
            backends,
            slotted,
            axis_env,
            programs,
            known,
            configurations,
            devices,
        })
    }

    /// Whether a signal handler has raised an exception.
    ///
    /// # Errors
    /// Signal handlers cannot be read.
    pub fn is_of_signal(&self, py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        let asked = intern!(py, "is_of_signal");
        self.source.bind(py).call_method1(asked, (error.traceback(py),))?.is_truthy()
    }

    /// The name of the devices that there are, which functions of jax may ask for. It is another one before
    /// there are any.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of_devices(&self, py: Python<'_>) -> PyResult<Option<Key>> {
        let backends = self.backends.bind(py).get_item(intern!(py, "_backends"))?;
        let Some(backends) = backends else { return Ok(None) };
        let (len, place) = (backends.len()?, address(&backends));
        let known = self.devices.peek(|devices| {
            let known = devices.as_ref()?;
            let same = known.backends.as_ptr() as usize == place && known.len == len;
            same.then_some(known.name)
        });
        if let Some(name) = known {
            return Ok(name);
        }
        let name = key_of_name(&self.source.bind(py).call_method0(intern!(py, "devices"))?)?;
        let new = Devices { backends: backends.unbind(), len, name };
        let old = self.devices.peek(|devices| devices.replace(new));
        drop(old);
        Ok(name)
    }

    /// The name of the object at an address; None where it has none.
    ///
    /// # Errors
    /// Reading the object failed.
    ///
    /// # Safety
    /// It is alive.
    pub unsafe fn of(&self, py: Python<'_>, place: usize) -> PyResult<Option<Key>> {
        let known = self.known.get(&place, |named| match &named.holder {
            Holder::Kept(_) => Some(named.name),
            Holder::Weak(weak) => weak
                .bind(py)
                .upgrade()
                .is_some_and(|alive| alive.as_ptr() as usize == place)
                .then_some(named.name),
        });
        if let Some(Some(name)) = known {
            return Ok(name);
        }
        // SAFETY: as promised.
        let object = unsafe { Bound::from_borrowed_ptr(py, place as *mut ffi::PyObject) };
        // The class of tracers of enclosing traces is in no module.
        let is_tracer = object.is(tracer_type(py)?);
        let name = if is_tracer { Some(key_of(b"tracer")) } else { self.of_value(&object)? };
        let holder = match weak(&object) {
            Some(weak) => Holder::Weak(weak.unbind()),
            None => Holder::Kept(object.unbind()),
        };
        drop(self.known.insert_bounded(place, Named { holder, name }, MAX_NAMES));
        Ok(name)
    }

    /// The name of a value, whether or not it is an object of its own.
    ///
    /// # Errors
    /// Reading it failed.
    pub fn of_value(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
        let py = value.py();
        let mut words = Words::default();
        match self.add_compound(&mut words, value, 0)? {
            Added::All => Ok(Some(key_of(&words.0))),
            Added::Nothing => {
                key_of_name(&self.source.bind(py).call_method1(intern!(py, "name"), (value,))?)
            }
            Added::Nameless => Ok(None),
        }
    }

    /// Adds what a value consists of, where that is known without the source.
    fn add_compound(
        &self,
        words: &mut Words,
        value: &Bound<'_, PyAny>,
        depth: usize,
    ) -> PyResult<Added> {
        let py = value.py();
        if depth == MAX_DEPTH {
            return Ok(Added::Nameless);
        }
        if let Ok(items) = value.cast_exact::<PyTuple>() {
            words.begin(Tag::Tuple, items.len());
            return self.add_all(words, items.iter(), depth);
        }
        if let Ok(items) = value.cast_exact::<PyList>() {
            words.begin(Tag::List, items.len());
            return self.add_all(words, items.iter(), depth);
        }
        if let Ok(items) = value.cast_exact::<PyDict>() {
            words.begin(Tag::Dict, items.len());
            return self.add_all(words, items.iter().flat_map(|(key, item)| [key, item]), depth);
        }
        if let Ok(items) = value.cast_exact::<PyFrozenSet>()
            && items.is_empty()
        {
            words.begin(Tag::Set, 0);
            return Ok(Added::All);
        }
        if is_exactly(value.as_ptr(), self.axis_env.as_ptr().cast()) && is_empty(value)? {
            words.0.push(Tag::NoAxes as u8);
            return Ok(Added::All);
        }
        if add_builtin(words, value)? || add_placed(words, value)? {
            return Ok(Added::All);
        }
        if let Some(Slotted { name, slots, .. }) = self
            .slotted
            .iter()
            .find(|known| is_exactly(value.as_ptr(), known.class.as_ptr().cast()))
        {
            words.begin(Tag::Slots, slots.len());
            words.0.extend(name.to_le_bytes());
            for slot in slots {
                let added = self.add(words, &value.getattr(slot.bind(py))?, depth + 1)?;
                if added != Added::All {
                    return Ok(added);
                }
            }
            return Ok(Added::All);
        }
        if value.is_exact_instance_of::<PyCode>() {
            // Version 2 says nothing of which objects are the same, nor of which texts are interned.
            let marshal = py.import(intern!(py, "marshal"))?;
            let Ok(content) = marshal.call_method1(intern!(py, "dumps"), (value, 2)) else {
                return Ok(Added::Nothing);
            };
            words.text(Tag::Code, content.cast::<PyBytes>()?.as_bytes());
            return Ok(Added::All);
        }
        // A program whose equations nobody has asked for is of a class of its own.
        if self.programs.iter().any(|class| is_a(value, class.as_ptr().cast())) {
            let chain = self.source.bind(py).call_method1(intern!(py, "chain"), (value,))?;
            if chain.is_none() {
                return Ok(Added::Nameless);
            }
            words.0.push(Tag::Program as u8);
            return self.add(words, &chain, depth + 1);
        }
        Ok(Added::Nothing)
    }

    fn add_all<'py>(
        &self,
        words: &mut Words,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Added> {
        for item in items {
            let added = self.add(words, &item, depth + 1)?;
            if added != Added::All {
                return Ok(added);
            }
        }
        Ok(Added::All)
    }

    /// Adds a value, an object by its name; all of it, or it has no name.
    fn add(&self, words: &mut Words, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Added> {
        if words.add_plain(value) {
            return Ok(Added::All);
        }
        match self.add_compound(words, value, depth)? {
            // SAFETY: the caller has it.
            Added::Nothing => match unsafe { self.of(value.py(), address(value)) }? {
                Some(name) => {
                    words.0.push(Tag::Name as u8);
                    words.0.extend(name.to_le_bytes());
                    Ok(Added::All)
                }
                None => Ok(Added::Nameless),
            },
            added => Ok(added),
        }
    }

    /// The name of the configuration that has a number, and that is current.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_configuration(&self, py: Python<'_>, number: u64) -> PyResult<Option<Key>> {
        if let Some(name) = self.configurations.get(&number, |name| *name) {
            return Ok(name);
        }
        let settings = PyTuple::new(py, settings::values(py, jax(py)?)?)?;
        let asked = (world_of(number), settings);
        let parts = self.source.bind(py).call_method1(intern!(py, "configuration"), asked)?;
        let name = if parts.is_none() { None } else { self.of_value(&parts)? };
        drop(self.configurations.insert_bounded(number, name, MAX_NAMES));
        Ok(name)
    }
}

/// Whether no axis has a name.
fn is_empty(axes: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = axes.py();
    let sizes = axes.getattr(intern!(py, "axis_sizes"))?;
    Ok(sizes.is_empty()? && axes.getattr(intern!(py, "spmd_axis_names"))?.is_empty()?)
}

/// Adds None, a class that Python has built in, or a dtype that numpy has; whether it is one.
fn add_builtin(words: &mut Words, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    if value.is_none() {
        words.0.push(Tag::None as u8);
        return Ok(true);
    }
    if let Ok(class) = value.cast::<PyType>() {
        // SAFETY: a class.
        let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
        if flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
            return Ok(false);
        }
        let name = class.name()?;
        let is_own = match py.import(intern!(py, "builtins"))?.getattr_opt(&name)? {
            Some(found) => found.is(class),
            None => class.is(py.None().bind(py).get_type()),
        };
        if is_own {
            words.text(Tag::Class, name.to_str()?.as_bytes());
        }
        return Ok(is_own);
    }
    if !value.is_instance(value_classes(py)?.dtype.bind(py))?
        || !value.getattr(intern!(py, "isbuiltin"))?.eq(1)?
    {
        return Ok(false);
    }
    // `num` tells types of one size apart, the text byte orders.
    let number: i64 = value.getattr(intern!(py, "num"))?.extract()?;
    words.text(
        Tag::Dtype,
        value.getattr(intern!(py, "str"))?.cast::<PyString>()?.to_str()?.as_bytes(),
    );
    words.0.extend(number.to_le_bytes());
    Ok(true)
}

/// Adds a class that is in a module of jax or numpy under its name, or a member of such an enumeration; whether
/// it is one.
fn add_placed(words: &mut Words, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    if let Ok(class) = value.cast::<PyType>() {
        let place = place_of(class)?;
        if let Some(place) = &place {
            words.text(Tag::Place, place.as_bytes());
        }
        return Ok(place.is_some());
    }
    let class = value.get_type();
    if !is_exactly(class.as_ptr(), value_classes(py)?.enum_meta.as_ptr().cast()) {
        return Ok(false);
    }
    let Ok(name) = value.getattr(intern!(py, "_name_"))?.cast_into::<PyString>() else {
        return Ok(false);
    };
    let members = class.getattr(intern!(py, "_member_map_"))?;
    let is_member = members.cast::<PyDict>()?.get_item(&name)?.is_some_and(|own| own.is(value));
    let Some(place) = (if is_member { place_of(&class)? } else { None }) else { return Ok(false) };
    words.text(Tag::Member, place.as_bytes());
    words.text(Tag::Text, name.to_str()?.as_bytes());
    Ok(true)
}

/// Where in a module of jax or numpy a class is under its name; None where it is not.
fn place_of(class: &Bound<'_, PyType>) -> PyResult<Option<String>> {
    let py = class.py();
    let (module, name) = (class.module()?, class.qualname()?);
    let (Ok(of), Ok(own)) = (module.to_str(), name.to_str()) else { return Ok(None) };
    if !matches!(of.split('.').next(), Some("jax" | "numpy")) || own.contains('.') {
        return Ok(None);
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Some(found) = modules.cast::<PyDict>()?.get_item(&module)? else { return Ok(None) };
    let is_there = found.getattr_opt(&name)?.is_some_and(|found| found.is(class));
    Ok(is_there.then(|| format!("{of}:{own}")))
}

/// How much of a value was added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Added {
    All,
    /// It is none of those that can be: words are as they were.
    Nothing,
    /// Part of it has no name.
    Nameless,
}

/// What comes next in words. No name that the source says begins with such a byte.
#[derive(Clone, Copy)]
enum Tag {
    None,
    Bool,
    Int,
    Float,
    Text,
    Bytes,
    Tuple,
    List,
    Dict,
    Slots,
    Program,
    Name,
    Code,
    Set,
    Class,
    Dtype,
    Place,
    Member,
    NoAxes,
}

/// What a name is made of.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn begin(&mut self, tag: Tag, len: usize) {
        self.0.push(tag as u8);
        self.0.extend((len as u64).to_le_bytes());
    }

    fn text(&mut self, tag: Tag, text: &[u8]) {
        self.begin(tag, text.len());
        self.0.extend(text);
    }

    /// Adds a plain value; whether it is one. A number that is not equal to itself is none.
    fn add_plain(&mut self, value: &Bound<'_, PyAny>) -> bool {
        if value.is_none() {
            self.0.push(Tag::None as u8);
        } else if let Ok(value) = value.cast_exact::<PyBool>() {
            self.0.extend([Tag::Bool as u8, u8::from(value.is_true())]);
        } else if let Ok(value) = value.cast_exact::<PyInt>() {
            let Ok(number) = value.extract::<i64>() else { return false };
            self.0.push(Tag::Int as u8);
            self.0.extend(number.to_le_bytes());
        } else if let Ok(value) = value.cast_exact::<PyFloat>() {
            let number = value.value();
            if number.is_nan() {
                return false;
            }
            self.0.push(Tag::Float as u8);
            self.0.extend(number.to_bits().to_le_bytes());
        } else if let Ok(value) = value.cast_exact::<PyString>() {
            let Ok(text) = value.to_str() else { return false };
            self.text(Tag::Text, text.as_bytes());
        } else if let Ok(value) = value.cast_exact::<PyBytes>() {
            self.text(Tag::Bytes, value.as_bytes());
        } else {
            return false;
        }
        true
    }
}

fn key_of_name(name: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    if name.is_none() {
        return Ok(None);
    }
    Ok(Some(key_of(name.cast::<PyBytes>()?.as_bytes())))
}
