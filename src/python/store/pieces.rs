//! Entries of segments with their Python objects: what is written of them, and read back.
//!
//! An entry is written by a [`Piece`], whose objects are rows of one [`Saver`], and read by a [`Reading`]. The
//! objects of a segment are made when an entry refers to them first, once in a process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use cranelift_entity::EntityRef;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::ir::{ForeignId, ParamValue};
use crate::segments::{Fingerprint, Key, Part, Segment, SegmentWriter};
use crate::store::{Array, Object, PieceReader, PieceWriter, object_piece};

use crate::python::cpython::address_cache::AddressCache;
use crate::python::store::load::make_array;
use crate::python::store::save::{PlaceOf, Saver};
use crate::python::store::values::make_value;

create_exception!(
    jaxide._core,
    Inapplicable,
    PyException,
    "What an entry says is not what jax would make in this process."
);

/// The record of a dict of params.
const PARAMS: &str = "params";
/// The record of one that jax makes when a jit of its own is called.
const REQUEST: &str = "request";

/// How a dict of params is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By what is in it.
    Content,
    /// By which call of a jit of its own jax makes it.
    Request,
}

/// How many objects may refer to each other in a row.
const MAX_DEPTH: usize = 64;
/// How many values an object may be made of, each counted as often as it is referred to.
const MAX_EXPANDED: u64 = 1 << 20;

/// Writes the entries of a segment.
pub struct EntrySaver<'a, 'py> {
    saver: Saver<'a, 'py>,
    entries: Vec<(Key, Vec<ForeignId>, Box<[u8]>)>,
}

/// An entry that is being written.
pub struct Piece<'s, 'a, 'py> {
    saver: &'s mut Saver<'a, 'py>,
    writer: PieceWriter,
    rows: Vec<ForeignId>,
}

impl<'a, 'py> EntrySaver<'a, 'py> {
    /// `records` says what objects are.
    ///
    /// # Errors
    /// jax is not what it was.
    pub fn new(records: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self { saver: Saver::new(records, false)?, entries: Vec::new() })
    }

    /// Adds the entry that `write` writes.
    ///
    /// # Errors
    /// Those of `write`: there is no entry then.
    pub fn entry(
        &mut self,
        key: Key,
        write: impl FnOnce(&mut Piece<'_, 'a, 'py>) -> PyResult<()>,
    ) -> PyResult<()> {
        let saver = &mut self.saver;
        let mut piece = Piece { saver, writer: PieceWriter::default(), rows: Vec::new() };
        write(&mut piece)?;
        let Piece { writer, rows, .. } = piece;
        self.entries.push((key, rows, writer.finish()));
        Ok(())
    }

    /// The segment, with the objects that its entries refer to; None where there are no entries.
    ///
    /// # Errors
    /// A value is nested too deeply.
    pub fn finish(self, fingerprint: Fingerprint) -> PyResult<Option<Vec<u8>>> {
        let objects = self.saver.into_objects();
        let mut places = vec![None; objects.len()];
        let mut writer = SegmentWriter::default();
        for (key, rows, bytes) in self.entries {
            let of_rows = rows.iter().map(|row| place(&objects, &mut places, &mut writer, *row));
            let objects = of_rows.collect::<PyResult<_>>()?;
            writer.entry(key, Part { objects, bytes });
        }
        Ok((!writer.is_empty()).then(|| writer.finish(fingerprint)))
    }
}

/// The place of an object in a segment, which comes after those that it refers to.
fn place(
    objects: &[Object<'_>],
    places: &mut [Option<u32>],
    writer: &mut SegmentWriter,
    row: ForeignId,
) -> PyResult<u32> {
    if let Some(place) = places[row.index()] {
        return Ok(place);
    }
    let mut rows = Vec::new();
    let local = match &objects[row.index()] {
        Object::Record { class, fields } => {
            Object::Record { class: class.clone(), fields: localized(fields, &mut rows) }
        }
        Object::Array(array) => Object::Array(array.clone()),
        Object::Program(_) | Object::Closed { .. } => {
            return Err(PyRuntimeError::new_err("programs are no part of an entry"));
        }
    };
    let of_rows = rows.iter().map(|&row| place(objects, places, writer, row));
    let objects = of_rows.collect::<PyResult<_>>()?;
    let bytes = object_piece(&local).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let place = writer.object(Part { objects, bytes });
    places[row.index()] = Some(place);
    Ok(place)
}

/// A value whose objects are named by their places among `rows`.
fn localized(value: &ParamValue, rows: &mut Vec<ForeignId>) -> ParamValue {
    value.with_objects(&mut |row| ForeignId::new(position(rows, row)))
}

/// The place of a row in a list, to which it is added where it is not there.
fn position(rows: &mut Vec<ForeignId>, row: ForeignId) -> usize {
    rows.iter().position(|&known| known == row).unwrap_or_else(|| {
        rows.push(row);
        rows.len() - 1
    })
}

impl<'py> Piece<'_, '_, 'py> {
    /// Writes a number.
    pub fn number(&mut self, number: usize) {
        self.writer.number(number);
    }

    /// Writes a place in a list, or none.
    pub fn optional(&mut self, place: Option<usize>) {
        self.writer.optional(place);
    }

    /// Writes an object.
    ///
    /// # Errors
    /// It has no record.
    pub fn object(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        let row = self.saver.object(object, "")?;
        self.row(row);
        Ok(())
    }

    fn row(&mut self, row: ForeignId) {
        let place = position(&mut self.rows, row);
        self.writer.number(place);
    }

    /// Writes a value: a number, a text, a container, or an object.
    ///
    /// # Errors
    /// It has no form.
    pub fn value(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        self.value_among(value, &mut |_| Err(refused("a program within a value")))
    }

    /// Writes a value whose programs are places in a list.
    ///
    /// # Errors
    /// It has no form, or a program is not in the list.
    pub fn value_among(
        &mut self,
        value: &Bound<'py, PyAny>,
        place_of: &mut PlaceOf<'_, 'py>,
    ) -> PyResult<()> {
        self.check_nans(value)?;
        let value = self.saver.value_among(value, "", Some(place_of))?;
        self.localized(&value)
    }

    /// A NaN is equal to no other: numpy's is the one that a reading has.
    fn check_nans(&self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Ok(number) = value.cast_exact::<PyFloat>() {
            let is_own = number.value().is_nan() && !self.saver.is_nan(value)?;
            return if is_own { Err(refused("a NaN of its own")) } else { Ok(()) };
        }
        if let Ok(items) = value.cast::<PyTuple>() {
            return items.iter().try_for_each(|item| self.check_nans(&item));
        }
        if let Ok(items) = value.cast::<PyDict>() {
            return items.iter().try_for_each(|(_, item)| self.check_nans(&item));
        }
        Ok(())
    }

    fn localized(&mut self, value: &ParamValue) -> PyResult<()> {
        let local = localized(value, &mut self.rows);
        self.writer.value(&local).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Why something cannot be written.
    #[allow(clippy::unused_self)] // as of a `Reading`
    pub fn error(&self, what: &str) -> PyErr {
        refused(what)
    }

    /// What the records say of a program.
    ///
    /// # Errors
    /// Those of the records.
    pub fn asked(
        &self,
        method: &Bound<'py, PyString>,
        program: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.saver.asked(method, program)
    }

    /// Writes a dict of params, which is one object for all entries of the segment.
    ///
    /// # Errors
    /// A param has no form.
    pub fn params(&mut self, params: &Bound<'py, PyDict>, form: Form) -> PyResult<()> {
        let py = params.py();
        if form == Form::Content {
            self.check_nans(params)?;
        }
        let (class, value) = match form {
            Form::Content => (PARAMS, params.clone().into_any()),
            Form::Request => (REQUEST, self.saver.asked(intern!(py, "request"), params)?),
        };
        let fields = self.saver.value(&value, "")?;
        let row = self.saver.intern((class.to_owned(), fields));
        self.row(row);
        Ok(())
    }
}

/// A segment whose objects are made when they are asked for.
pub struct Shelf {
    segment: Segment,
    /// Objects with how many values they are, by their place.
    made: AddressCache<(Py<PyAny>, u64), u32>,
    is_used: AtomicBool,
}

/// An entry that is being read.
pub struct Reading<'p, 'py> {
    objects: Vec<Bound<'py, PyAny>>,
    maker: &'p Bound<'py, PyAny>,
    reader: PieceReader<'p>,
}

#[allow(clippy::needless_pass_by_value)] // what `map_err` hands over
fn refused(error: impl ToString) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

impl Shelf {
    /// A segment of which nothing was made so far.
    pub fn new(segment: Segment) -> Self {
        Self { segment, made: AddressCache::new(), is_used: AtomicBool::new(false) }
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether something was found in it.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Forgets what was made.
    pub fn forget(&self) {
        drop(self.made.clear());
    }

    /// Reads an entry by `read`; `maker` makes objects of records. None where there is none.
    ///
    /// # Errors
    /// It is damaged, or says something that is not there: it is as if there were no entry.
    pub fn entry<'py, R>(
        &self,
        key: Key,
        maker: &Bound<'py, PyAny>,
        read: impl FnOnce(&mut Reading<'_, 'py>) -> PyResult<R>,
    ) -> PyResult<Option<R>> {
        let Some(part) = self.segment.entry(key).map_err(refused)? else { return Ok(None) };
        let making = Making { maker, met: RefCell::default() };
        let (objects, expanded) = self.all(&making, &part, 0)?;
        let mut reading =
            Reading { objects, maker, reader: PieceReader::new(&part.bytes, expanded) };
        let result = read(&mut reading)?;
        reading.reader.end().map_err(refused)?;
        self.is_used.store(true, Ordering::Relaxed);
        Ok(Some(result))
    }

    fn all<'py>(
        &self,
        making: &Making<'_, 'py>,
        part: &Part,
        depth: usize,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<u64>)> {
        let made = part.objects.iter().map(|&place| self.object(making, place, depth));
        Ok(made.collect::<PyResult<Vec<_>>>()?.into_iter().unzip())
    }

    fn object<'py>(
        &self,
        making: &Making<'_, 'py>,
        place: u32,
        depth: usize,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        let maker = making.maker;
        let py = maker.py();
        let own = |made: &mut (Py<PyAny>, u64)| (made.0.clone_ref(py), made.1);
        if let Some((made, expanded)) = self.made.get(&place, own) {
            return Ok((made.into_bound(py), expanded));
        }
        if let Some(met) = making.met.borrow().get(&place) {
            return Ok(met.clone());
        }
        if depth == MAX_DEPTH {
            return Err(refused("objects are nested too deeply"));
        }
        let part = self.segment.object(place as usize).map_err(refused)?;
        let (objects, within) = self.all(making, &part, depth + 1)?;
        let mut reader = PieceReader::new(&part.bytes, within);
        let (object, expanded) = reader.object().map_err(refused)?;
        reader.end().map_err(refused)?;
        if expanded > MAX_EXPANDED {
            return Err(refused("an object is made of too many values"));
        }
        let made = match &object {
            Object::Record { class, fields } => {
                let fields = value(maker, fields, &objects, &[])?;
                if class == PARAMS {
                    fields.cast::<PyDict>()?.clone().into_any()
                } else {
                    maker.call_method1(intern!(py, "object"), (&**class, fields))?
                }
            }
            Object::Array(array @ Array { .. }) => make_array(maker, array)?,
            Object::Program(_) | Object::Closed { .. } => {
                return Err(refused("programs are no part of an entry"));
            }
        };
        if let Object::Record { class, .. } = &object
            && class == REQUEST
        {
            // jax says another thing under another configuration, and once it has forgotten its programs.
            making.met.borrow_mut().insert(place, (made.clone(), expanded));
            return Ok((made, expanded));
        }
        // Another thread may have made it meanwhile: there is one.
        let new = (made.unbind(), expanded);
        let ((made, expanded), late) = self.made.get_or_insert(place, new, own);
        drop(late);
        Ok((made.into_bound(py), expanded))
    }
}

/// What is made for one entry.
struct Making<'a, 'py> {
    maker: &'a Bound<'py, PyAny>,
    /// What jax was asked for, by place: once, however many refer to it.
    met: RefCell<FxHashMap<u32, (Bound<'py, PyAny>, u64)>>,
}

fn value<'py>(
    maker: &Bound<'py, PyAny>,
    value: &ParamValue,
    objects: &[Bound<'py, PyAny>],
    programs: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    make_value(maker, value, &|value| match value {
        ParamValue::Opaque(place) => objects.get(place.index()).cloned(),
        ParamValue::Program(place) => programs.get(place.index()).cloned(),
        _ => None,
    })
}

impl<'py> Reading<'_, 'py> {
    /// Reads a number below a bound.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&mut self, bound: usize, what: &str) -> PyResult<usize> {
        self.reader.number(bound, what).map_err(refused)
    }

    /// Reads a place in a list of `len`, or none.
    ///
    /// # Errors
    /// There is none.
    pub fn optional(&mut self, len: usize, what: &str) -> PyResult<Option<usize>> {
        self.reader.optional(len, what).map_err(refused)
    }

    /// Reads an object.
    ///
    /// # Errors
    /// There is none.
    pub fn object(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let place = self.number(self.objects.len(), "object")?;
        Ok(self.objects[place].clone())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// There is none.
    pub fn value(&mut self) -> PyResult<Bound<'py, PyAny>> {
        self.value_among(&[])
    }

    /// Reads a value whose programs are places in a list.
    ///
    /// # Errors
    /// There is none.
    pub fn value_among(&mut self, programs: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
        let read = self.reader.value(programs.len()).map_err(refused)?;
        value(self.maker, &read, &self.objects, programs)
    }

    /// What makes objects.
    pub fn maker(&self) -> &Bound<'py, PyAny> {
        self.maker
    }

    /// Why what was read is refused.
    pub fn error(&self, what: &str) -> PyErr {
        refused(self.reader.error(what))
    }
}
