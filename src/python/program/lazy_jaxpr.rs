//! jax's own jaxpr, filled from a graph on demand.
//!
//! The trace hands out a `Jaxpr` whose equations, inputs and outputs do not exist yet: a subclass of
//! jax's `Jaxpr` whose lists are made from the arena the first time anything reads them. Until then
//! their slots hold the `Graph`, which is all the jaxpr keeps alive.

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use smallvec::SmallVec;

use crate::python::cpython::native::{
    Args, Slot, TypeSpec, allocate, attribute, heap_type, is_exactly, method, owned_slots,
};
use crate::python::cpython::shared::Once;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::slots::Inputs;
use crate::python::program::graph::Graph;

/// What a jaxpr has besides its equations.
pub struct JaxprFields<'py> {
    pub effects: Bound<'py, PyAny>,
    pub debug_info: Bound<'py, PyAny>,
    pub is_high: bool,
}

impl<'py> JaxprFields<'py> {
    /// The fields of an existing jaxpr.
    pub fn of(jaxpr: &Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            effects: jaxpr.getattr("effects")?,
            debug_info: jaxpr.getattr("debug_info")?,
            is_high: jaxpr.getattr("is_high")?.is_truthy()?,
        })
    }
}

/// A list of a jaxpr that is made when it is first read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Eqns,
    /// With the constvars where jax keeps both in one list.
    Invars,
    Outvars,
}

impl Part {
    const ALL: [Self; 3] = [Self::Eqns, Self::Invars, Self::Outvars];

    fn slot(self, jax: &Jax) -> Slot {
        match self {
            Self::Eqns => jax.slots.jaxpr_eqns,
            Self::Invars => jax.slots.jaxpr_invars.slot(),
            Self::Outvars => jax.slots.jaxpr_outvars,
        }
    }
}

/// A jaxpr of the installed jax over `graph`, its lists not yet made, and its constants.
pub fn new_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
    let py = graph.py();
    let (constvars, consts) = (PyList::empty(py), PyList::empty(py));
    let content = graph.get().content();
    for &(var, value) in content.program.constvars() {
        constvars.append(content.var_object(py, jax, var)?)?;
        consts.append(content.table.constant(py, value))?;
    }
    Ok((lazy_jaxpr(jax, graph, &constvars)?, consts))
}

/// A jaxpr whose lists are not yet made, but for the constvars.
pub fn lazy_jaxpr<'py>(
    jax: &Jax,
    graph: &Bound<'py, Graph>,
    constvars: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = graph.py();
    let JaxprFields { effects, debug_info, is_high } = graph.get().fields(py);
    let class = lazy_jaxpr_type(py, jax)?;
    let (invars, outvars) = if jax.checks_jaxprs(py)? {
        // jax counts the names of arguments and results.
        let invars = Graph::list(graph, jax, Part::Invars)?;
        let outvars = Graph::list(graph, jax, Part::Outvars)?;
        let own = graph.get().program().invars().len();
        (invars.get_slice(invars.len() - own, invars.len()), outvars)
    } else {
        (PyList::empty(py), PyList::empty(py))
    };
    let eqns = PyTuple::empty(py);
    let jaxpr = class.call1((constvars, invars, outvars, eqns, effects, debug_info, is_high))?;
    for part in Part::ALL {
        // SAFETY: `class` extends jax's Jaxpr, whose slots these are.
        unsafe { part.slot(jax).set(jaxpr.as_ptr(), graph.clone().into_any()) };
    }
    Ok(jaxpr)
}

static LAZY_JAXPR: Once<Py<PyType>> = Once::new();

/// The subclass of jax's `Jaxpr` with lists on demand. Shows itself under jax's own name, and
/// becomes jax's own class when the equations are there.
pub fn lazy_jaxpr_type<'py>(py: Python<'py>, jax: &Jax) -> PyResult<&'py Bound<'py, PyType>> {
    let class = LAZY_JAXPR.get_or_try_init(py, || {
        heap_type(
            jax.jaxpr_type.bind(py),
            TypeSpec {
                name: "jax._src.core.Jaxpr",
                extra_size: 0,
                methods: vec![
                    method!("with_consts", with_consts),
                    method!("__reduce_ex__", reduce_ex),
                ],
                attributes: vec![
                    attribute!("_eqns", eqns, set_eqns),
                    match jax.slots.jaxpr_invars {
                        Inputs::Own(_) => attribute!("_invars", invars, set_invars),
                        Inputs::All(_) => attribute!("_all_invars", invars, set_invars),
                    },
                    attribute!("_outvars", outvars, set_outvars),
                ],
                slots: Vec::new(),
            },
        )
        .map(Bound::unbind)
    })?;
    Ok(class.bind(py))
}

/// `Jaxpr.with_consts` (jax 0.11 on), the result as unfilled as this jaxpr.
fn with_consts<'py>(slf: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let jax = jax(py)?;
    let stock = jax.jaxpr_type.bind(py).getattr(intern!(py, "with_consts"))?;
    let consts = args.required(0, "consts")?;
    if graph_behind(jax, slf).is_none() {
        return stock.call1((slf, consts));
    }
    if consts.len()? > 0 {
        invars(slf)?;
    }
    // jax's method copies the lists of a plain Jaxpr: it is given one that nobody sees, with empty ones.
    let lent = allocate(jax.jaxpr_type.bind(py))?;
    let slots = JAXPR_SLOTS.get_or_try_init(py, || owned_slots(jax.jaxpr_type.bind(py)))?;
    let mut lazy: SmallVec<[(Slot, Bound<'py, PyAny>); 3]> = SmallVec::new();
    for &slot in slots {
        // SAFETY: `slf` is of the lazy subclass, which has jax's slots, and `lent` is a fresh instance of
        // jax's class.
        unsafe {
            let Some(value) = slot.get(slf) else { continue };
            if value.is_instance_of::<Graph>() {
                lazy.push((slot, value));
                slot.fill(lent.as_ptr(), PyList::empty(py).into_any());
            } else {
                slot.fill(lent.as_ptr(), value);
            }
        }
    }
    let copied = stock.call1((lent, consts))?;
    for (slot, graph) in lazy {
        // SAFETY: an instance of jax's class.
        unsafe { slot.set(copied.as_ptr(), graph) };
    }
    copied.setattr(intern!(py, "__class__"), lazy_jaxpr_type(py, jax)?)?;
    Ok(copied)
}

/// What `copy` and `pickle` make a jaxpr of again: it is read for them.
fn reduce_ex<'py>(slf: &Bound<'py, PyAny>, args: &Args<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let name = intern!(py, "__reduce_ex__");
    if graph_behind(jax(py)?, slf).is_some() {
        eqns(slf)?;
        return slf.call_method1(name, (args.required(0, "protocol")?,));
    }
    py.get_type::<PyAny>().call_method1(name, (slf, args.required(0, "protocol")?))
}

/// What a jaxpr consists of.
static JAXPR_SLOTS: Once<Vec<Slot>> = Once::new();

/// Whether an object is a jaxpr that was traced here and whose equations nobody has read.
pub fn is_lazy(py: Python<'_>, object: *mut ffi::PyObject) -> bool {
    LAZY_JAXPR.get(py).is_some_and(|class| is_exactly(object, class.as_ptr().cast()))
}

/// The graph of a jaxpr that was traced here and whose equations nobody has read.
pub fn unfilled<'py>(jax: &Jax, jaxpr: &Bound<'py, PyAny>) -> Option<Bound<'py, Graph>> {
    graph_behind(jax, jaxpr).filter(|graph| has_constvars_of(jax, jaxpr, graph))
}

/// As `unfilled`, whichever of the graph's constvars and inputs are constvars of the jaxpr.
pub fn graph_behind<'py>(jax: &Jax, jaxpr: &Bound<'py, PyAny>) -> Option<Bound<'py, Graph>> {
    let py = jaxpr.py();
    let class = LAZY_JAXPR.get(py)?;
    if !jaxpr.get_type().is(class) {
        return None;
    }
    // SAFETY: the exact type was checked.
    let eqns = unsafe { jax.slots.jaxpr_eqns.get(jaxpr) }?;
    eqns.cast_into::<Graph>().ok()
}

/// Whether as many values are attached as the graph has constvars. From jax 0.11 on those without are
/// the first of the inputs.
fn has_constvars_of(jax: &Jax, jaxpr: &Bound<'_, PyAny>, graph: &Bound<'_, Graph>) -> bool {
    let Some(consts) = jax.slots.jaxpr_consts else { return true };
    // SAFETY: a lazy jaxpr has the slots of jax's.
    let num_consts = unsafe {
        match jax.slots.jaxpr_num_consts {
            Some(slot) => slot.get(jaxpr).and_then(|number| number.extract().ok()),
            None => consts.get(jaxpr).and_then(|consts| consts.len().ok()),
        }
    };
    num_consts == Some(graph.get().program().constvars().len())
}

/// The equations of a lazy jaxpr.
pub fn eqns<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let jax = jax(py)?;
    let mut todo: Vec<_> = graph_behind(jax, slf).map(|_| slf.clone()).into_iter().collect();
    while let Some(jaxpr) = todo.pop() {
        invars(&jaxpr)?;
        outvars(&jaxpr)?;
        let eqns = list(&jaxpr, Part::Eqns)?;
        // Nothing of ours is left in it: from now on it is exactly jax's.
        jaxpr.setattr(intern!(py, "__class__"), &jax.jaxpr_type)?;
        // From jax 0.11 on the programs of loops and branches have to be that, too, where somebody checks
        // an equation.
        if jax.has_one_jaxpr_type() {
            for eqn in eqns.try_iter()? {
                let params = eqn?.getattr(intern!(py, "params"))?.cast_into::<PyDict>()?;
                params.iter().for_each(|(_, param)| add_unfilled(&param, &mut todo));
            }
        }
    }
    list(slf, Part::Eqns)
}

/// The jaxprs that nobody has read: a param, or those in one that is a tuple.
fn add_unfilled<'py>(param: &Bound<'py, PyAny>, found: &mut Vec<Bound<'py, PyAny>>) {
    if is_lazy(param.py(), param.as_ptr()) {
        found.push(param.clone());
    } else if let Ok(items) = param.cast::<PyTuple>() {
        items.iter().for_each(|item| add_unfilled(&item, found));
    }
}

fn invars<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    list(slf, Part::Invars)
}

fn outvars<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    list(slf, Part::Outvars)
}

/// A list of a jaxpr, which stays in it.
fn list<'py>(slf: &Bound<'py, PyAny>, part: Part) -> PyResult<Bound<'py, PyAny>> {
    let jax = jax(slf.py())?;
    let slot = part.slot(jax);
    // SAFETY: the getters belong to the lazy subclass of Jaxpr.
    let Some(current) = (unsafe { slot.get(slf) }) else {
        return Err(PyAttributeError::new_err("the jaxpr is not initialized"));
    };
    let Ok(graph) = current.cast::<Graph>() else { return Ok(current) };
    let list = Graph::list(graph, jax, part)?.into_any();
    // SAFETY: as above. Whoever comes first, the graph's list is the one, unless somebody has put
    // another one there meanwhile.
    unsafe {
        if let Some(now) = slot.get(slf)
            && !now.is(graph)
        {
            return Ok(now);
        }
        slot.set(slf.as_ptr(), list.clone());
    }
    Ok(list)
}

fn set_eqns(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Eqns, value)
}

fn set_invars(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Invars, value)
}

fn set_outvars(slf: &Bound<'_, PyAny>, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    set_list(slf, Part::Outvars, value)
}

fn set_list(slf: &Bound<'_, PyAny>, part: Part, value: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let jax = jax(slf.py())?;
    let value =
        value.ok_or_else(|| PyAttributeError::new_err("a list of a jaxpr cannot be deleted"))?;
    // SAFETY: the setters belong to the lazy subclass of Jaxpr.
    unsafe { part.slot(jax).set(slf.as_ptr(), value) };
    Ok(())
}
