//! What was derived from a program, as bytes of an entry of the store and back.
//!
//! The lines of a derived program's equations are those of the program that it was derived from: an entry has their
//! places there. What is read has the lines, and the nested programs, of the program at hand.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use crate::ir::{
    Atom, Builder, ContextId, DeadCode, EffectsId, LiteralId, ParamsId, PrimitiveId, SourceId,
    TypeId, Var,
};

use crate::python::cache::key::canonical::{canonical, canonical_traceback};
use crate::python::cache::programs::forms::{Form, close, is_jaxpr, open};
use crate::python::cache::programs::given::Given;
use crate::python::cache::programs::references::{References, are_named_beside};
use crate::python::cache::programs::stored_rules;
use crate::python::cpython::native::address;
use crate::python::jax::avals::build_error;
use crate::python::jax::names::Jax;
use crate::python::jax::source::SourceRef;
use crate::python::jax::world::owns_primitive;
use crate::python::program::graph::Graph;
use crate::python::program::jaxpr_view::{GraphView, JaxprView, ListsView, Operand};
use crate::python::program::lazy_jaxpr::{JaxprFields, new_jaxpr, unfilled};
use crate::python::program::objects::ObjectTable;
use crate::python::store::pieces::{Inapplicable, Piece, Reading};

/// More of anything than this no program has.
const MAX_PLACES: usize = 1 << 20;

/// Whether what a function has made of the programs given says the same in another process: `context` is that of
/// the configuration, which all equations have.
///
/// # Errors
/// A program cannot be read.
pub fn is_lasting(
    jax: &Jax,
    context: &Bound<'_, PyAny>,
    given: &Given,
    result: &Bound<'_, PyTuple>,
) -> PyResult<bool> {
    let py = context.py();
    let programs = result.iter().filter(|item| is_jaxpr(py, jax, item.as_ptr()));
    do_programs_last(jax, context, Some(given), programs)
}

/// As `is_lasting`, of a program that is made of no other. Nobody makes derivative rules for it.
///
/// # Errors
/// The program cannot be read.
pub fn lasts_alone(
    jax: &Jax,
    context: &Bound<'_, PyAny>,
    program: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    do_programs_last(jax, context, None, std::iter::once(program.clone()))
}

/// As `is_lasting`, of programs that are made of those given, or of none.
fn do_programs_last<'py>(
    jax: &Jax,
    context: &Bound<'py, PyAny>,
    given: Option<&Given>,
    programs: impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<bool> {
    for program in programs {
        let Ok((open, _)) = open(jax, &program) else { return Ok(false) };
        let lasts = match unfilled(jax, &open) {
            Some(graph) => lasts(jax, context, given, &GraphView::new(jax, &graph))?,
            None => lasts(jax, context, given, &ListsView::new(jax, &open))?,
        };
        if !lasts || open.getattr(intern!(open.py(), "is_high"))?.is_truthy()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lasts<'py, V: JaxprView<'py>>(
    jax: &Jax,
    context: &Bound<'py, PyAny>,
    given: Option<&Given>,
    view: &V,
) -> PyResult<bool> {
    if !view.constvars()?.is_empty() || !view.effects()?.is_empty() {
        return Ok(false);
    }
    for eqn in view.eqns()? {
        let Some(eqn) = eqn else { return Ok(false) };
        let params = view.params(&eqn);
        let do_params_last = if stored_rules::has_rule(&params)? {
            given.is_some() && of_rule_last(jax, context, given, &params)?
        } else {
            are_named_beside(jax, given.map_or(&[], |given| &given.nested), &params)
        };
        if view.has_effects(&eqn)?
            || !view.has_set_of_effects(&eqn)
            || !owns_primitive(jax, &view.primitive(&eqn))
            || !view.context(&eqn).is(context)
            || !do_params_last
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// As `lasts`, of the params of an equation with a derivative rule: the function makes its program anew as well.
fn of_rule_last<'py>(
    jax: &Jax,
    context: &Bound<'py, PyAny>,
    given: Option<&Given>,
    params: &Bound<'py, PyDict>,
) -> PyResult<bool> {
    let py = params.py();
    let values = params.values();
    let programs = values.iter().filter(|value| is_jaxpr(py, jax, value.as_ptr()));
    do_programs_last(jax, context, given, programs)
}

/// Objects that are written where they come first, and after that by their place.
struct Seen(FxHashMap<usize, usize>);

impl Seen {
    fn new() -> Self {
        Self(FxHashMap::default())
    }

    /// Writes the place of an object; whether it comes first.
    fn write(&mut self, piece: &mut Piece<'_, '_, '_>, object: usize) -> bool {
        let next = self.0.len();
        let place = *self.0.entry(object).or_insert(next);
        piece.number(place);
        place == next
    }
}

/// Writes what a function has made of the programs given, which is lasting.
///
/// # Errors
/// Something in it has no form.
pub fn save<'py>(
    piece: &mut Piece<'_, '_, 'py>,
    jax: &Jax,
    given: &Given,
    result: &Bound<'py, PyTuple>,
) -> PyResult<()> {
    let py = result.py();
    let lines = given.lines(py, jax).ok_or_else(|| piece.error("the lines are forgotten"))?;
    let references = References::among(py, &given.nested);
    let mut writer = Writer::new(piece, jax, py, &lines, references);
    writer.piece.number(result.len());
    result.iter().try_for_each(|item| writer.item(&item))
}

/// Writes a program that is made of no other, and has no line of the user's.
///
/// # Errors
/// Something in it has no form, or there is such a line.
pub fn save_alone<'py>(
    piece: &mut Piece<'_, '_, 'py>,
    jax: &Jax,
    program: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = program.py();
    let line = canonical_traceback(jax, &jax.no_frames.bind(py).call0()?)?.unbind();
    Writer::new(piece, jax, py, &[line], References::default()).item(program)
}

/// Writes programs and values beside each other.
pub(super) struct Writer<'w, 's, 'a, 'py> {
    pub(super) piece: &'w mut Piece<'s, 'a, 'py>,
    jax: &'w Jax,
    py: Python<'py>,
    /// The places of lines, by the address of what stands for equal ones.
    places: FxHashMap<usize, usize>,
    references: References<'py>,
}

/// The names that a program has.
const NAMES: [&str; 4] = ["traced_for", "func_src_info", "arg_names", "result_paths"];

impl<'w, 's, 'a, 'py> Writer<'w, 's, 'a, 'py> {
    /// `lines` are what tracebacks are written by.
    pub(super) fn new(
        piece: &'w mut Piece<'s, 'a, 'py>,
        jax: &'w Jax,
        py: Python<'py>,
        lines: &[Py<PyAny>],
        references: References<'py>,
    ) -> Self {
        let mut places = FxHashMap::default();
        for (place, line) in lines.iter().enumerate() {
            places.entry(line.as_ptr() as usize).or_insert(place);
        }
        Self { piece, jax, py, places, references }
    }

    /// A program, or a value without programs.
    pub(super) fn item(&mut self, item: &Bound<'py, PyAny>) -> PyResult<()> {
        let jax = self.jax;
        if !is_jaxpr(self.py, jax, item.as_ptr()) {
            self.piece.number(0);
            return self.piece.value(item);
        }
        let (open, form) =
            open(jax, item).map_err(|_| self.piece.error("a program with constants"))?;
        self.piece.number(if form == Form::Closed { 2 } else { 1 });
        self.debug_info(&open)?;
        match unfilled(jax, &open) {
            Some(graph) => self.program(&GraphView::new(jax, &graph)),
            None => self.program(&ListsView::new(jax, &open)),
        }
    }

    fn debug_info(&mut self, open: &Bound<'py, PyAny>) -> PyResult<()> {
        let debug_info = open.getattr(intern!(self.py, "debug_info"))?;
        NAMES.iter().try_for_each(|name| self.piece.value(&debug_info.getattr(*name)?))
    }

    fn program<V: JaxprView<'py>>(&mut self, view: &V) -> PyResult<()> {
        let [mut types, mut primitives, mut params, mut stacks, mut literals] =
            std::array::from_fn(|_| Seen::new());
        let mut vars: FxHashMap<u32, usize> = FxHashMap::default();
        let invars = view.invars()?;
        self.piece.number(invars.len());
        for var in &invars {
            self.aval(&mut types, &view.aval(var)?)?;
            vars.insert(view.number(var), vars.len());
        }
        let eqns = view.eqns()?;
        self.piece.number(eqns.len());
        for eqn in eqns {
            let eqn = eqn.ok_or_else(|| self.piece.error("an equation that is none of jax's"))?;
            let primitive = view.primitive(&eqn);
            if primitives.write(self.piece, address(&primitive)) {
                self.piece.object(&primitive)?;
            }
            let source = view.source(&eqn)?;
            self.line(&source)?;
            let stack = canonical(&source.name_stack)?;
            if stacks.write(self.piece, address(&stack)) {
                self.piece.object(&stack)?;
            }
            let own_params = view.params(&eqn);
            if params.write(self.piece, address(&own_params)) {
                let has_rule = stored_rules::has_rule(&own_params)?;
                self.piece.number(usize::from(has_rule));
                if has_rule {
                    stored_rules::save_derived(self, &own_params)?;
                } else {
                    self.references.write(self.piece, self.jax, &own_params)?;
                }
            }
            let operands = view.eqn_invars(&eqn);
            self.piece.number(operands.len());
            for operand in operands {
                self.operand(view, &vars, &mut literals, &operand)?;
            }
            let outvars = view.eqn_outvars(&eqn);
            self.piece.number(outvars.len());
            for var in outvars {
                self.aval(&mut types, &view.aval(&var)?)?;
                self.piece.number(usize::from(view.is_dropped(&var)));
                vars.insert(view.number(&var), vars.len());
            }
        }
        let outvars = view.outvars()?;
        self.piece.number(outvars.len());
        outvars.iter().try_for_each(|out| self.operand(view, &vars, &mut literals, out))
    }

    fn aval(&mut self, types: &mut Seen, aval: &Bound<'py, PyAny>) -> PyResult<()> {
        if types.write(self.piece, address(aval)) {
            self.piece.object(aval)?;
        }
        Ok(())
    }

    /// The place of an equation's traceback among the lines; zero where it has none.
    fn line(&mut self, source: &SourceRef<'py>) -> PyResult<()> {
        let place = match &source.traceback {
            None => None,
            Some(traceback) => {
                let traceback = canonical_traceback(self.jax, traceback)?;
                let place = self.places.get(&address(&traceback)).copied();
                Some(place.ok_or_else(|| self.piece.error("a line of its own"))?)
            }
        };
        self.piece.optional(place);
        Ok(())
    }

    fn operand<V: JaxprView<'py>>(
        &mut self,
        view: &V,
        vars: &FxHashMap<u32, usize>,
        literals: &mut Seen,
        operand: &Operand<'py, V::Var>,
    ) -> PyResult<()> {
        match operand {
            Operand::Var(var) => {
                let place = vars.get(&view.number(var)).copied();
                self.piece.number(0);
                self.piece.number(place.ok_or_else(|| self.piece.error("an unknown variable"))?);
            }
            Operand::Literal(literal) => {
                self.piece.number(1);
                if literals.write(self.piece, address(literal)) {
                    let (value, aval) = self.jax.parts_of_literal(literal)?;
                    self.piece.value(&value)?;
                    self.piece.object(&aval)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads what `save` has written, for other programs with the same portable ids. `context` is that of the
/// configuration. `deriving` returns what has jax make the same, of which derivative rules are taken when somebody asks
/// for them. Whether there are any comes beside the programs.
///
/// # Errors
/// The bytes say something that is not there, or jax would make other programs.
pub fn load<'py>(
    reading: &mut Reading<'_, 'py>,
    jax: &Jax,
    context: &Bound<'py, PyAny>,
    given: &Given,
    deriving: Deriving<'_, 'py>,
) -> PyResult<(Bound<'py, PyTuple>, bool)> {
    let py = context.py();
    let lines = given.lines(py, jax).ok_or_else(|| Inapplicable::new_err(()))?;
    let references = References::among(py, &given.nested);
    let derived = Some(Derived::new(deriving));
    let mut reader = Reader { reading, jax, context, lines, derived, references };
    let mut items = Vec::new();
    for item in 0..reader.number()? {
        if let Some(derived) = &mut reader.derived {
            derived.item = item;
        }
        items.push(reader.item()?);
    }
    let has_rules = reader.derived.is_some_and(|derived| derived.derive.is_some());
    Ok((PyTuple::new(py, items)?, has_rules))
}

/// Reads what `save_alone` has written, as `load`.
///
/// # Errors
/// The bytes say something that is not there.
pub fn load_alone<'py>(
    reading: &mut Reading<'_, 'py>,
    jax: &Jax,
    context: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let lines = vec![jax.no_frames.bind(context.py()).call0()?.unbind()];
    let references = References::default();
    let program = Reader { reading, jax, context, lines, derived: None, references }.item()?;
    if is_jaxpr(program.py(), jax, program.as_ptr()) {
        Ok(program)
    } else {
        Err(reading.error("an object that is no program"))
    }
}

/// Returns what has jax derive programs.
pub type Deriving<'d, 'py> = &'d dyn Fn() -> PyResult<Bound<'py, PyAny>>;

/// A program that jax derives.
pub(super) struct Derived<'d, 'py> {
    deriving: Deriving<'d, 'py>,
    /// Has jax derive it, and all that it derives with it; None where no rule was met so far.
    derive: Option<Bound<'py, PyAny>>,
    /// Its place among these.
    pub(super) item: usize,
    /// The place of the equation that is read.
    pub(super) eqn: usize,
}

impl<'d, 'py> Derived<'d, 'py> {
    fn new(deriving: Deriving<'d, 'py>) -> Self {
        Self { deriving, derive: None, item: 0, eqn: 0 }
    }

    /// What has jax derive it: the equation that is read has a derivative rule.
    pub(super) fn derive(&mut self) -> PyResult<Bound<'py, PyAny>> {
        if let Some(derive) = &self.derive {
            return Ok(derive.clone());
        }
        let derive = (self.deriving)()?;
        self.derive = Some(derive.clone());
        Ok(derive)
    }
}

/// Reads what a `Writer` has written.
pub(super) struct Reader<'r, 'p, 'py> {
    pub(super) reading: &'r mut Reading<'p, 'py>,
    pub(super) jax: &'r Jax,
    /// The context of all equations.
    pub(super) context: &'r Bound<'py, PyAny>,
    /// What tracebacks were written by.
    pub(super) lines: Vec<Py<PyAny>>,
    /// The program that is read, where jax derives it: what jax traces for an equation has the line of that.
    pub(super) derived: Option<Derived<'r, 'py>>,
    pub(super) references: References<'py>,
}

/// The rows of a program that is read, in the order in which they came first.
#[derive(Default)]
struct Rows {
    types: Vec<TypeId>,
    primitives: Vec<PrimitiveId>,
    params: Vec<ParamsId>,
    literals: Vec<LiteralId>,
    sources: FxHashMap<(Option<usize>, usize), SourceId>,
    vars: Vec<Var>,
}

impl<'py> Reader<'_, '_, 'py> {
    pub(super) fn number(&mut self) -> PyResult<usize> {
        self.reading.number(MAX_PLACES, "number")
    }

    /// A program, or a value.
    pub(super) fn item(&mut self) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.reading.number(3, "kind of item")? {
            0 => self.reading.value()?,
            1 => self.program()?,
            _ => close(self.jax, &self.program()?)?,
        })
    }

    /// A place among `known` rows, or the next one.
    fn place(&mut self, known: usize) -> PyResult<(usize, bool)> {
        let place = self.reading.number(known + 1, "place")?;
        Ok((place, place == known))
    }

    fn program(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let (jax, py) = (self.jax, self.context.py());
        let names: [_; NAMES.len()] = [
            self.reading.value()?,
            self.reading.value()?,
            self.reading.value()?,
            self.reading.value()?,
        ];
        let maker = self.reading.maker();
        let debug_info = maker.call_method1(intern!(py, "debug_info"), PyTuple::new(py, names)?)?;
        let (mut builder, mut table) = (Builder::new(DeadCode::Keep), ObjectTable::default());
        let context = builder.context(table.handle(self.context));
        let mut rows = Rows::default();
        let mut stacks = Vec::new();
        for _ in 0..self.number()? {
            let ty = self.ty(&mut builder, &mut table, &mut rows)?;
            rows.vars.push(builder.invar(ty).map_err(build_error)?);
        }
        for eqn in 0..self.number()? {
            if let Some(derived) = &mut self.derived {
                derived.eqn = eqn;
            }
            self.equation(&mut builder, &mut table, &mut rows, &mut stacks, context)?;
        }
        let outvars = self.operands(&mut builder, &mut table, &mut rows)?;
        let effects = jax.no_effects.bind(py).clone();
        let fields = JaxprFields { effects, debug_info, is_high: false };
        let graph = Graph::finish(builder, table, &outvars, &fields, None)?;
        Ok(new_jaxpr(jax, &graph)?.0)
    }

    fn equation(
        &mut self,
        builder: &mut Builder,
        table: &mut ObjectTable,
        rows: &mut Rows,
        stacks: &mut Vec<Bound<'py, PyAny>>,
        context: ContextId,
    ) -> PyResult<()> {
        let (jax, py) = (self.jax, self.context.py());
        let (place, is_new) = self.place(rows.primitives.len())?;
        if is_new {
            let primitive = self.reading.object()?;
            if !owns_primitive(jax, &primitive) {
                return Err(self.reading.error("an object that is no primitive of jax's"));
            }
            rows.primitives.push(table.primitive(builder, &primitive)?);
        }
        let primitive = rows.primitives[place];
        let line = self.reading.optional(self.lines.len(), "line")?;
        let (stack, is_new) = self.place(stacks.len())?;
        if is_new {
            let object = self.reading.object()?;
            if !object.get_type().is(jax.empty_name_stack.bind(py).get_type()) {
                return Err(self.reading.error("an object that is no name stack"));
            }
            stacks.push(canonical(&object)?);
        }
        let source = if let Some(&source) = rows.sources.get(&(line, stack)) {
            source
        } else {
            let traceback = line.map(|line| self.lines[line].bind(py).clone());
            let source = SourceRef { traceback, name_stack: stacks[stack].clone() };
            let source = table.source(jax, builder, &source)?;
            rows.sources.insert((line, stack), source);
            source
        };
        let (place, is_new) = self.place(rows.params.len())?;
        if is_new {
            let params = if self.reading.number(2, "flag")? == 1 {
                stored_rules::load_derived(self)?
            } else {
                let line = line.filter(|_| self.derived.is_some());
                let traceback = line.map(|line| self.lines[line].bind(py));
                self.references.read(self.reading, jax, traceback)?
            };
            rows.params.push(table.params_id(jax, builder, &params)?);
        }
        let params = rows.params[place];
        let operands = self.operands(builder, table, rows)?;
        let (mut types, mut dropped) = (Vec::new(), Vec::new());
        for _ in 0..self.number()? {
            types.push(self.ty(builder, table, rows)?);
            dropped.push(self.reading.number(2, "flag")? == 1);
        }
        let none = EffectsId::NONE;
        let eqn = builder
            .eqn(primitive, params, &operands, &types, none, source, context)
            .map_err(build_error)?;
        for (var, is_dropped) in builder.eqn_data(eqn).outvars().zip(dropped) {
            if is_dropped {
                let aval = table.aval(py, builder.type_of(var));
                table.set_var_object(var, &jax.drop_var_type.bind(py).call1((aval,))?);
            }
            rows.vars.push(var);
        }
        Ok(())
    }

    fn ty(
        &mut self,
        builder: &mut Builder,
        table: &mut ObjectTable,
        rows: &mut Rows,
    ) -> PyResult<TypeId> {
        let (place, is_new) = self.place(rows.types.len())?;
        if is_new {
            let aval = self.aval()?;
            rows.types.push(table.ty(self.jax, builder, &aval)?);
        }
        Ok(rows.types[place])
    }

    fn aval(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let aval = self.reading.object()?;
        if aval.get_type().is(self.jax.shaped_array_type.bind(aval.py())) {
            Ok(aval)
        } else {
            Err(self.reading.error("an object that is no type"))
        }
    }

    fn operands(
        &mut self,
        builder: &mut Builder,
        table: &mut ObjectTable,
        rows: &mut Rows,
    ) -> PyResult<Vec<Atom>> {
        let len = self.number()?;
        let mut operands = Vec::new();
        for _ in 0..len {
            operands.push(if self.reading.number(2, "kind of operand")? == 0 {
                Atom::var(rows.vars[self.reading.number(rows.vars.len(), "variable")?])
            } else {
                let (place, is_new) = self.place(rows.literals.len())?;
                if is_new {
                    let value = self.reading.value()?;
                    let literal = self.jax.new_literal(&value, &self.aval()?)?;
                    rows.literals.push(table.fresh_literal(self.jax, builder, &literal)?);
                }
                Atom::literal(rows.literals[place])
            });
        }
        Ok(operands)
    }
}
