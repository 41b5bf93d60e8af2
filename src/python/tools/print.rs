//! The texts of Python objects in programs, for printing them.

use std::cell::RefCell;
use std::hash::Hasher;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHasher};

use crate::ir::{Eqn, ForeignId, LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var};
use crate::print::{
    EqnText, Identity, Limits, Options, Param, ParamText, Settings, Texts, Wanted,
    print as print_program, print_eqns, variable_names as names_in_text,
};

use crate::python::cpython::native::{address, is_exactly, with_bytes};
use crate::python::jax::derived_types::is_shaped_array;
use crate::python::jax::names::{Jax, jax};
use crate::python::jax::values::{equal_params, hash_params};
use crate::python::program::graph::Graph;
use crate::python::program::lazy_jaxpr::unfilled;
use crate::python::program::read::graph_of;
use crate::python::tools::print_memo::{self, ParamsKey, PlainParams};

/// Why a program has no text here.
pub enum Unprintable {
    /// Something in it is printed by a function of its own, which sees more than it.
    Elsewhere,
    Failed(PyErr),
}

impl From<PyErr> for Unprintable {
    fn from(error: PyErr) -> Self {
        Self::Failed(error)
    }
}

type Printed<T> = Result<T, Unprintable>;

/// The text that Python has returned.
fn text_of(said: &Bound<'_, PyAny>) -> PyResult<Rc<str>> {
    Ok(said.cast::<PyString>()?.to_str()?.into())
}

type EqnTexts<'py> = EqnText<PyTexts<'py>>;

impl From<&PlainParams> for EqnTexts<'_> {
    fn from(plain: &PlainParams) -> Self {
        let text = |(name, text): &(Box<str>, Box<str>)| Param {
            name: (**name).into(),
            value: ParamText::Text((**text).into()),
        };
        let params = plain.shown.iter().map(text).collect();
        Self { params, programs: Vec::new(), name: None, is_call: plain.is_call }
    }
}

impl TryFrom<&EqnTexts<'_>> for PlainParams {
    /// There are programs among them.
    type Error = ();

    fn try_from(text: &EqnTexts<'_>) -> Result<Self, ()> {
        if !text.programs.is_empty() || text.name.is_some() {
            return Err(());
        }
        let plain = |param: &Param<_>| match &param.value {
            ParamText::Text(text) => Ok(((*param.name).into(), (**text).into())),
            ParamText::Program(_) | ParamText::Programs(_) => Err(()),
        };
        let shown = text.params.iter().map(plain).collect::<Result<_, ()>>()?;
        Ok(Self { shown, is_call: text.is_call })
    }
}

/// Params that equal ones of the same primitive are printed like, by their typed hash.
type Known<'py> = FxHashMap<(usize, u64), Vec<(Bound<'py, PyDict>, Rc<EqnTexts<'py>>)>>;

/// What has been printed for one text, by the objects, which the programs keep alive.
struct Session<'py> {
    jax: &'py Jax,
    /// Whether primitives have their own way of being printed.
    custom_rules: bool,
    /// These, by primitive.
    rules: Bound<'py, PyAny>,
    types: RefCell<FxHashMap<usize, Rc<str>>>,
    /// By class, aval and bits.
    literals: RefCell<FxHashMap<(usize, usize, u64), Rc<str>>>,
    params: RefCell<Known<'py>>,
    programs: RefCell<FxHashMap<usize, PyTexts<'py>>>,
}

/// One program with its objects.
#[derive(Clone)]
pub struct PyTexts<'py>(Rc<Inner<'py>>);

struct Inner<'py> {
    session: Rc<Session<'py>>,
    graph: Bound<'py, Graph>,
    program: Arc<Program>,
    /// The jaxpr, which tells the program from others; None for the outermost one.
    jaxpr: Option<Bound<'py, PyAny>>,
    /// Of the variables that Python has seen.
    identities: Vec<Identity>,
    eqns: RefCell<FxHashMap<(PrimitiveId, ParamsId), Rc<EqnTexts<'py>>>>,
    sources: RefCell<FxHashMap<Option<ForeignId>, Rc<str>>>,
    name_stacks: RefCell<FxHashMap<Option<ForeignId>, Rc<str>>>,
}

impl<'py> PyTexts<'py> {
    fn new(
        session: &Rc<Session<'py>>,
        graph: Bound<'py, Graph>,
        jaxpr: Option<Bound<'py, PyAny>>,
    ) -> Self {
        let py = graph.py();
        let (program, identities) = {
            let graph = graph.get();
            let drop_var = session.jax.drop_var_type.bind(py);
            let mut identities = Vec::new();
            for (var, object) in graph.table().seen_vars(py) {
                identities.resize(var.as_u32() as usize, Identity::Own);
                let is_dropped = object.get_type().is(drop_var);
                let shared = Identity::Shared(address(&object));
                identities.push(if is_dropped { Identity::Dropped } else { shared });
            }
            (graph.program().clone(), identities)
        };
        Self(Rc::new(Inner {
            session: session.clone(),
            graph,
            program,
            jaxpr,
            identities,
            eqns: RefCell::default(),
            sources: RefCell::default(),
            name_stacks: RefCell::default(),
        }))
    }

    fn py(&self) -> Python<'py> {
        self.0.graph.py()
    }

    /// A program among params.
    fn within(&self, jaxpr: &Bound<'py, PyAny>) -> Printed<Self> {
        let session = &self.0.session;
        let open = session.jax.open_jaxpr.bind(self.py()).call1((jaxpr,))?.get_item(0)?;
        if let Some(known) = session.programs.borrow().get(&address(&open)) {
            return Ok(known.clone());
        }
        let read = self.0.graph.get().table().known_subgraph(jaxpr);
        let graph = match read.or_else(|| unfilled(session.jax, &open)) {
            Some(graph) if !graph.get().is_derived() => graph,
            _ => graph_of(session.jax, jaxpr)?,
        };
        let key = address(&open);
        let new = Self::new(session, graph, Some(open));
        session.programs.borrow_mut().insert(key, new.clone());
        Ok(new)
    }

    /// The text of params.
    fn params_text(
        &self,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
    ) -> Printed<Rc<EqnText<Self>>> {
        let py = self.py();
        let session = &self.0.session;
        let printed = session
            .jax
            .printing
            .bind(py)
            .call_method1(intern!(py, "params"), (primitive, params, session.custom_rules))?;
        if printed.is_none() {
            return Err(Unprintable::Elsewhere);
        }
        let (shown, programs, name, is_call) =
            printed
                .extract::<(Bound<'py, PyTuple>, Bound<'py, PyTuple>, Option<String>, bool)>()?;
        let mut own = Vec::with_capacity(shown.len());
        for param in shown.iter() {
            let (name, value) = param.extract::<(Bound<'py, PyString>, Bound<'py, PyAny>)>()?;
            let value = if let Ok(text) = value.cast::<PyString>() {
                ParamText::Text(text.to_str()?.into())
            } else if let Ok(several) = value.cast::<PyTuple>() {
                ParamText::Programs(
                    several.iter().map(|jaxpr| self.within(&jaxpr)).collect::<Printed<_>>()?,
                )
            } else {
                ParamText::Program(self.within(&value)?)
            };
            own.push(Param { name: name.to_str()?.into(), value });
        }
        let programs =
            programs.iter().map(|jaxpr| self.within(&jaxpr)).collect::<Printed<Vec<_>>>()?;
        Ok(Rc::new(EqnText { params: own, programs, name: name.map(Into::into), is_call }))
    }

    /// The text of params that can be known, by their typed hash.
    fn remembered_text(
        &self,
        primitive: &Bound<'py, PyAny>,
        params: &Bound<'py, PyDict>,
        hash: u64,
    ) -> Printed<Rc<EqnText<Self>>> {
        let Session { custom_rules, rules, .. } = &*self.0.session;
        let rule = if *custom_rules {
            Some(rules.call_method1(intern!(self.py(), "get"), (primitive,))?)
        } else {
            None
        };
        let rule = rule.as_ref().filter(|rule| !rule.is_none());
        let key = ParamsKey { primitive, custom_rules: *custom_rules, rule, params, hash };
        if let Some(plain) = print_memo::params_text(&key) {
            return Ok(Rc::new(plain.as_ref().into()));
        }
        let text = self.params_text(primitive, params)?;
        if let Ok(plain) = PlainParams::try_from(&*text) {
            print_memo::remember_params(&key, plain);
        }
        Ok(text)
    }

    /// The bits of a literal's value, where it is a plain number.
    fn bits(&self, value: &Bound<'py, PyAny>) -> Option<u64> {
        if is_exactly(value.as_ptr(), self.0.session.jax.typed_array_type.as_ptr().cast()) {
            return with_bytes(value.as_ptr(), |bytes| {
                let mut bits = [0; 8];
                bits.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(u64::from_ne_bytes(bits))
            })?;
        }
        // SAFETY: a live object, of the type that is looked for.
        unsafe {
            (ffi::PyFloat_Check(value.as_ptr()) != 0)
                .then(|| ffi::PyFloat_AS_DOUBLE(value.as_ptr()).to_bits())
        }
    }

    fn literal_of(&self, literal: &Bound<'py, PyAny>) -> PyResult<Rc<str>> {
        let py = self.py();
        let printed = literal.call_method1(intern!(py, "pretty_print"), (py.None(),))?;
        text_of(&printed)
    }

    /// What one of jax's functions says of a source, the same for those that share an object.
    fn source_part(
        &self,
        known: &RefCell<FxHashMap<Option<ForeignId>, Rc<str>>>,
        object: Option<ForeignId>,
        source: SourceId,
        function: &Bound<'py, PyString>,
    ) -> Printed<Rc<str>> {
        if let Some(known) = known.borrow().get(&object) {
            return Ok(known.clone());
        }
        let (py, jax) = (self.py(), self.0.session.jax);
        let source_info =
            self.0.graph.get().table().source_info(py, jax, self.0.program.source(source))?;
        let said = jax.printing.bind(py).call_method1(function, (source_info,))?;
        let said = text_of(&said)?;
        known.borrow_mut().insert(object, said.clone());
        Ok(said)
    }
}

impl Texts for PyTexts<'_> {
    type Error = Unprintable;

    fn program(&self) -> &Program {
        &self.0.program
    }

    fn key(&self) -> usize {
        match &self.0.jaxpr {
            Some(jaxpr) => address(jaxpr),
            None => self.scope(),
        }
    }

    fn scope(&self) -> usize {
        address(self.0.graph.as_any())
    }

    fn identity(&self, var: Var) -> Identity {
        let known = self.0.identities.get(var.as_u32() as usize);
        known.copied().unwrap_or(Identity::Own)
    }

    fn type_text(&self, ty: TypeId) -> Printed<Rc<str>> {
        let py = self.py();
        let aval = self.0.graph.get().table().aval(py, ty);
        let types = &self.0.session.types;
        if let Some(known) = types.borrow().get(&address(&aval)) {
            return Ok(known.clone());
        }
        let text = if let Some(known) = print_memo::type_text(&aval) {
            Rc::from(&*known)
        } else {
            let printing = self.0.session.jax.printing.bind(py);
            let said = printing.call_method1(intern!(py, "type_text"), (&aval,))?;
            let text = text_of(&said)?;
            if is_shaped_array(self.0.session.jax, &aval) {
                print_memo::remember_type(&aval, &text);
            }
            text
        };
        types.borrow_mut().insert(address(&aval), text.clone());
        Ok(text)
    }

    fn literal_text(&self, literal: LiteralId) -> Printed<Rc<str>> {
        let py = self.py();
        let session = &self.0.session;
        let object = self.0.program.literal(literal).object;
        let literal = self.0.graph.get().table().object(py, object);
        if !is_exactly(literal.as_ptr(), session.jax.literal_type.as_ptr().cast()) {
            return Ok(self.literal_of(&literal)?);
        }
        let slots = &session.jax.slots;
        // SAFETY: the exact type was checked.
        let parts = unsafe { (slots.literal_val.get(&literal), slots.literal_aval.get(&literal)) };
        let (Some(value), Some(aval)) = parts else { return Ok(self.literal_of(&literal)?) };
        let Some(bits) = self.bits(&value) else { return Ok(self.literal_of(&literal)?) };
        let key = (value.get_type().as_ptr() as usize, address(&aval), bits);
        if let Some(known) = session.literals.borrow().get(&key) {
            return Ok(known.clone());
        }
        let text = self.literal_of(&literal)?;
        session.literals.borrow_mut().insert(key, text.clone());
        Ok(text)
    }

    fn eqn_text(&self, eqn: Eqn) -> Printed<Rc<EqnText<Self>>> {
        let data = self.0.program.eqn(eqn);
        let key = (data.primitive, data.params);
        if let Some(known) = self.0.eqns.borrow().get(&key) {
            return Ok(known.clone());
        }
        let py = self.py();
        let (primitive, params) = {
            let graph = self.0.graph.get();
            let primitive = self.0.program.primitive(data.primitive).object;
            (graph.table().object(py, primitive), graph.table().params_dict(py, data.params))
        };
        let mut hasher = FxHasher::default();
        let text = if hash_params(&params, &mut hasher) {
            let session = &self.0.session;
            let typed = (address(&primitive), hasher.finish());
            let same = session.params.borrow().get(&typed).and_then(|known| {
                let mut known = known.iter();
                known.find(|(own, _)| equal_params(own, &params)).map(|(_, text)| text.clone())
            });
            if let Some(known) = same {
                known
            } else {
                let new = self.remembered_text(&primitive, &params, typed.1)?;
                let mut known = session.params.borrow_mut();
                known.entry(typed).or_default().push((params, new.clone()));
                new
            }
        } else {
            self.params_text(&primitive, &params)?
        };
        self.0.eqns.borrow_mut().insert(key, text.clone());
        Ok(text)
    }

    fn source_text(&self, source: SourceId) -> Printed<Rc<str>> {
        let traceback = self.0.program.source(source).traceback;
        self.source_part(&self.0.sources, traceback, source, intern!(self.py(), "source_text"))
    }

    fn name_stack_text(&self, source: SourceId) -> Printed<Rc<str>> {
        let name_stack = self.0.program.source(source).name_stack;
        let function = intern!(self.py(), "name_stack_text");
        self.source_part(&self.0.name_stacks, name_stack, source, function)
    }

    fn effect_texts(&self) -> Printed<Vec<Rc<str>>> {
        let py = self.py();
        let effects = self.0.graph.get().effects(py);
        let printing = self.0.session.jax.printing.bind(py);
        let said = printing.call_method1(intern!(py, "effect_texts"), (effects,))?;
        if said.is_none() {
            return Err(Unprintable::Elsewhere);
        }
        Ok(said.extract::<Vec<String>>()?.into_iter().map(Into::into).collect())
    }

    fn too_deep(&self) -> Unprintable {
        Unprintable::Elsewhere
    }
}

/// A jaxpr as jax prints it; None where something in it is printed by a function of jax that sees
/// more than it.
///
/// Raises:
///   What printing an object of the program raises.
#[pyfunction]
#[pyo3(signature = (
    jaxpr, *, source_info, print_shapes, custom_rules, name_stack, print_effects, width, use_color,
    separable_lines, annotation_prefix, max_depth, max_eqns, collapse
))]
#[allow(clippy::fn_params_excessive_bools, clippy::too_many_arguments)] // these are jax's
pub fn print_jaxpr(
    jaxpr: &Bound<'_, PyAny>,
    source_info: bool,
    print_shapes: bool,
    custom_rules: bool,
    name_stack: bool,
    print_effects: bool,
    width: i64,
    use_color: bool,
    separable_lines: bool,
    annotation_prefix: &str,
    max_depth: Option<usize>,
    max_eqns: Option<usize>,
    collapse: Vec<String>,
) -> PyResult<Option<String>> {
    let jax = jax(jaxpr.py())?;
    let graph = match jaxpr.cast::<Graph>() {
        Ok(graph) => graph.clone(),
        Err(_) => graph_of(jax, jaxpr)?,
    };
    let settings = Settings { print_shapes, source_info, name_stack, print_effects };
    let options = Options {
        width,
        colored: use_color,
        separable_lines,
        annotation_prefix: annotation_prefix.into(),
    };
    let collapse = collapse.into_iter().map(Into::into).collect();
    let limits = Limits { max_depth, max_eqns, collapse };
    printed(jax, graph, custom_rules, |root| print_program(root, settings, limits, options))
}

/// What a function prints of a program; None where something in it is printed by a function of jax
/// that sees more than it.
fn printed<'py, T>(
    jax: &'py Jax,
    graph: Bound<'py, Graph>,
    custom_rules: bool,
    print: impl FnOnce(&PyTexts<'py>) -> Printed<T>,
) -> PyResult<Option<T>> {
    let session = Rc::new(Session {
        jax,
        custom_rules,
        rules: jax.printing.bind(graph.py()).getattr(intern!(graph.py(), "rules"))?,
        types: RefCell::default(),
        literals: RefCell::default(),
        params: RefCell::default(),
        programs: RefCell::default(),
    });
    let printed = print(&PyTexts::new(&session, graph, None));
    // Programs refer to the session that knows them.
    session.programs.borrow_mut().clear();
    session.params.borrow_mut().clear();
    match printed {
        Ok(text) => Ok(Some(text)),
        Err(Unprintable::Elsewhere) => Ok(None),
        Err(Unprintable::Failed(error)) => Err(error),
    }
}

/// The texts of some equations, by the address of their graph, with the names that they have in the
/// text of the whole program; None where programs are nested too deeply for one. Equations that jax
/// prints by functions that see more than it are printed like others.
///
/// # Errors
/// What printing an object of the program raises.
pub fn eqn_texts<'py>(
    jax: &'py Jax,
    graph: &Bound<'py, Graph>,
    wanted: &Wanted,
) -> PyResult<Option<FxHashMap<(usize, Eqn), String>>> {
    for custom_rules in [true, false] {
        let texts = printed(jax, graph.clone(), custom_rules, |root| {
            print_eqns(root, Settings::default(), wanted.clone())
        })?;
        if texts.is_some() {
            return Ok(texts);
        }
    }
    Ok(None)
}

/// The names of a program's variables, those of its constants first, then of its inputs and of the
/// outputs of its equations; None for those that the text does not mention.
pub type VariableNames = Vec<Option<String>>;

/// The names that variables have in the text of a program.
pub struct NamesInText {
    root: VariableNames,
    /// Of the nested programs, by the address of the open jaxpr.
    within: FxHashMap<usize, VariableNames>,
}

impl NamesInText {
    /// Those of a program; the outermost one has no jaxpr.
    pub fn of(&mut self, jaxpr: Option<usize>) -> Option<VariableNames> {
        match jaxpr {
            None => Some(std::mem::take(&mut self.root)),
            Some(jaxpr) => self.within.remove(&jaxpr),
        }
    }
}

/// The names that variables have in the text of a program; None where programs are nested too deeply
/// for one.
///
/// # Errors
/// What printing an object of the program raises.
pub fn variable_names<'py>(
    jax: &'py Jax,
    graph: &Bound<'py, Graph>,
) -> PyResult<Option<NamesInText>> {
    for custom_rules in [true, false] {
        let names = printed(jax, graph.clone(), custom_rules, |root| {
            let names = names_in_text(root)?;
            let all = |of: &PyTexts<'py>| {
                let program = of.program();
                let constvars = program.constvars().iter().map(|&(var, _)| var);
                let outvars = program.eqns().flat_map(|eqn| program.eqn_outvars(eqn));
                let vars = constvars.chain(program.invars().iter().copied()).chain(outvars);
                vars.map(|var| names.of(of, var)).collect()
            };
            let programs = root.0.session.programs.borrow();
            let within = programs.iter().map(|(&jaxpr, of)| (jaxpr, all(of))).collect();
            Ok(NamesInText { root: all(root), within })
        })?;
        if names.is_some() {
            return Ok(names);
        }
    }
    Ok(None)
}
