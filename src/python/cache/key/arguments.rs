//! The arguments of a call as a key, and the objects that the key refers to.

use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::expand::Signature;
use crate::ir::Atom;

/// A call as a key, with what the key refers to. Lives no longer than the call's arguments.
#[allow(clippy::struct_excessive_bools)] // what was seen among the arguments
pub struct Call {
    pub signature: Signature,
    /// The tracers among the arguments. Under transformations also their parts.
    pub traced: SmallVec<[*mut ffi::PyObject; 8]>,
    /// The variables of the trace that records, one for each tracer in order of first mention.
    pub args: SmallVec<[Atom; 8]>,
    /// As `args`, the tangents of differentiations, each with its level.
    pub tangents: SmallVec<[(usize, Atom); 2]>,
    /// Tracers of literals.
    pub literals: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Values of enclosing traces, which are constants here.
    pub enclosing: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Programs among the params of a rule.
    pub programs: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Those among them that jits have.
    pub of_jits: SmallVec<[*mut ffi::PyObject; 2]>,
    /// Objects whose identity is part of the signature: an entry under it must keep them alive. None
    /// until they are asked for, which few calls are.
    pub pins: Option<Vec<*mut ffi::PyObject>>,
    /// What it keeps alive, which is nothing for most.
    pub owned: Option<Box<Owned>>,
    /// There are concrete arrays, by their types.
    pub has_arrays: bool,
    /// There are arrays of numpy's, by what is in them.
    pub has_mutable_arrays: bool,
    /// There are objects that somebody may change while it runs: lists, dicts, arrays, what functions
    /// read.
    pub may_change: bool,
    /// Some argument is a finite float: where a literal is not, numpy warned of an overflow.
    pub finite_float: bool,
    /// Where it happens is part of it: what it appends may have lines of the user's.
    pub located: bool,
    /// All scopes under a differentiation are in the key, or are to be.
    pub within_scopes: bool,
    /// The addresses of the tracebacks that equations of its programs' transposes have, which are part of
    /// it.
    pub transposed_at: SmallVec<[usize; 1]>,
    /// Codes that have to be looked through first.
    pub unread_codes: SmallVec<[*mut ffi::PyObject; 1]>,
}

/// What a call keeps alive itself.
#[derive(Default)]
pub struct Owned {
    /// Objects that the key names though no argument holds them.
    pub kept: Vec<Py<PyAny>>,
    /// Objects that are alive for as long as the call is being described.
    pub held: Vec<Py<PyAny>>,
    /// As `kept`, the tracebacks of a program's equations.
    pub tracebacks: Vec<Py<PyAny>>,
}

impl Call {
    /// A call without arguments in a configuration, named by a number.
    pub fn new(configuration: u64) -> Self {
        Self {
            signature: Signature::new(configuration),
            traced: SmallVec::new(),
            args: SmallVec::new(),
            tangents: SmallVec::new(),
            literals: SmallVec::new(),
            enclosing: SmallVec::new(),
            programs: SmallVec::new(),
            of_jits: SmallVec::new(),
            pins: None,
            owned: None,
            located: false,
            within_scopes: false,
            transposed_at: SmallVec::new(),
            has_arrays: false,
            has_mutable_arrays: false,
            may_change: false,
            finite_float: false,
            unread_codes: SmallVec::new(),
        }
    }

    /// What it keeps alive, to be added to.
    pub fn own(&mut self) -> &mut Owned {
        self.owned.get_or_insert_default()
    }

    /// The tangents of the differentiation of a level.
    pub fn tangents_of(&self, level: usize) -> SmallVec<[Atom; 4]> {
        let of_level = self.tangents.iter().filter(|(known, _)| *known == level);
        of_level.map(|&(_, atom)| atom).collect()
    }

    /// A call in the same configuration and as many scopes, without arguments.
    pub fn empty(&self) -> Self {
        let within_scopes = self.within_scopes;
        Self { within_scopes, ..Self::new(self.signature.configuration()) }
    }
}
