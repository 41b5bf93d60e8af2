//! Portable names of objects and configurations, as numbers.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyWeakrefReference};

use crate::segments::{Key, key_of};

use crate::python::cache::key::pins::weak;
use crate::python::cache::key::trace_context::world_of;
use crate::python::cpython::address_cache::AddressCache;
use crate::python::cpython::native::address;
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
    known: AddressCache<Named>,
    configurations: AddressCache<Option<Key>, u64>,
    devices: Shared<Option<Devices>>,
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
        let (known, configurations) = (AddressCache::new(), AddressCache::new());
        let devices = Shared::new(None);
        Ok(Self { source: source.unbind(), backends, known, configurations, devices })
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
        let name = self.source.bind(py).call_method1(intern!(py, "name"), (&object,))?;
        let name = key_of_name(&name)?;
        let holder = match weak(&object) {
            Some(weak) => Holder::Weak(weak.unbind()),
            None => Holder::Kept(object.unbind()),
        };
        drop(self.known.insert_bounded(place, Named { holder, name }, MAX_NAMES));
        Ok(name)
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

fn key_of_name(name: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    if name.is_none() {
        return Ok(None);
    }
    Ok(Some(key_of(name.cast::<PyBytes>()?.as_bytes())))
}
