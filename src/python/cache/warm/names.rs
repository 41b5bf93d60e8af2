//! Portable names of objects and configurations, as numbers.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString, PyTuple, PyType, PyWeakrefReference};

use crate::segments::{Key, key_of};

use crate::python::cache::key::pins::weak;
use crate::python::cache::key::trace_context::world_of;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::{address, is_exactly, string_of};
use crate::python::cpython::shared::Shared;

/// Names beyond this are forgotten, all at once.
const MAX_NAMES: usize = 1 << 16;

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
        let (known, configurations) = (AddressCache::new(), AddressCache::new());
        let devices = Shared::new(None);
        Ok(Self { source: source.unbind(), backends, slotted, known, configurations, devices })
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
        let is_class = |known: &&Slotted| is_exactly(object.as_ptr(), known.class.as_ptr().cast());
        let name = match self.slotted.iter().find(is_class) {
            Some(class) => self.of_slots(&object, class)?,
            None => self.of_value(&object)?,
        };
        let holder = match weak(&object) {
            Some(weak) => Holder::Weak(weak.unbind()),
            None => Holder::Kept(object.unbind()),
        };
        drop(self.known.insert_bounded(place, Named { holder, name }, MAX_NAMES));
        Ok(name)
    }

    /// The name of an object of a class whose instances are what their slots are.
    fn of_slots(
        &self,
        object: &Bound<'_, PyAny>,
        Slotted { name, slots, .. }: &Slotted,
    ) -> PyResult<Option<Key>> {
        let py = object.py();
        let mut words: Vec<u8> = name.to_le_bytes().to_vec();
        for slot in slots {
            let value = object.getattr(slot.bind(py))?;
            if add_plain(&mut words, &value) {
                continue;
            }
            // SAFETY: a slot of a live object has it.
            let Some(own) = (unsafe { self.of(py, address(&value)) })? else {
                return Ok(None);
            };
            words.push(3);
            words.extend(own.to_le_bytes());
        }
        Ok(Some(key_of(&words)))
    }

    /// The name of a value that is no object of its own.
    ///
    /// # Errors
    /// Reading it failed.
    pub fn of_value(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
        let py = value.py();
        key_of_name(&self.source.bind(py).call_method1(intern!(py, "name"), (value,))?)
    }

    /// The name of the configuration that has a number, and that is current.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_configuration(&self, py: Python<'_>, number: u64) -> PyResult<Option<Key>> {
        if let Some(name) = self.configurations.get(&number, |name| *name) {
            return Ok(name);
        }
        let world = world_of(number);
        let name = self.source.bind(py).call_method1(intern!(py, "configuration"), (world,))?;
        let name = key_of_name(&name)?;
        drop(self.configurations.insert_bounded(number, name, MAX_NAMES));
        Ok(name)
    }
}

/// Adds a truth value, a number or a shape to words; whether the value is one.
fn add_plain(words: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> bool {
    if let Ok(value) = value.cast_exact::<PyBool>() {
        words.extend([0, u8::from(value.is_true())]);
    } else if let Ok(value) = value.cast_exact::<PyInt>() {
        let Ok(number) = value.extract::<i64>() else { return false };
        words.push(1);
        words.extend(number.to_le_bytes());
    } else if let Ok(value) = value.cast_exact::<PyTuple>() {
        let number = |item: Bound<'_, PyAny>| item.cast_exact::<PyInt>().ok()?.extract().ok();
        let Some(numbers) = value.iter().map(number).collect::<Option<Vec<i64>>>() else {
            return false;
        };
        words.push(2);
        words.extend((numbers.len() as u64).to_le_bytes());
        words.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    } else {
        return false;
    }
    true
}

fn key_of_name(name: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    if name.is_none() {
        return Ok(None);
    }
    Ok(Some(key_of(name.cast::<PyBytes>()?.as_bytes())))
}
