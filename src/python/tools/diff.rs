//! Where two programs differ ([`crate::diff`]), as Python has it.

use std::cell::Cell;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::diff::{Ends, ProgramDiff, Row, Step, diff};
use crate::ir::{Atom, AtomKind, Def, Eqn, ParamValue, Type, TypeId, Var};
use crate::print::Wanted;
use crate::structure::{Nested, Place, inputs};

use crate::python::cpython::native::{address, said, string_of};
use crate::python::cpython::shared::Once;
use crate::python::jax::names::jax;
use crate::python::program::graph::Graph;
use crate::python::tools::print::eqn_texts;
use crate::python::tools::scopes::scopes_of;
use crate::python::tools::structure::{
    Kept, PyObjects, eqn_in_words, name_stack_of, primitive_name, purpose, traceback_of,
};

type Of<'py> = Nested<PyObjects<'py>>;

/// Where two programs differ.
#[derive(IntoPyObject)]
pub struct DiffFound {
    /// How many differences there are, those that are not described included.
    count: usize,
    programs: Vec<ProgramFound>,
}

/// Where two programs differ, nested ones not looked at.
#[derive(IntoPyObject)]
struct ProgramFound {
    /// The equations that they are within, from the outermost on: the places in both, the primitive
    /// and the param.
    path: Vec<(u32, u32, String, String)>,
    /// The name scopes around these equations, in both.
    scopes: [Vec<String>; 2],
    /// What differs of inputs.
    before: Vec<Detail>,
    /// Equations that differ, with some around them.
    hunks: Vec<Rows>,
    /// What differs of results and effects.
    after: Vec<Detail>,
    /// How many equations were added and removed, are others, and are at other places.
    counts: [usize; 4],
}

/// What differs: its kind, its name or number, and what both have.
type Detail = (&'static str, String, String, String);

/// Two equations side by side.
#[derive(IntoPyObject)]
pub struct RowFound<'py> {
    kind: &'static str,
    old: Option<EqnFound<'py>>,
    new: Option<EqnFound<'py>>,
    details: Vec<Detail>,
    /// Of one that was added or removed, what it says without names: the same in its program for those
    /// that are alike.
    words: Option<String>,
}

/// An equation.
#[derive(IntoPyObject)]
struct EqnFound<'py> {
    /// The place in its program.
    place: u32,
    primitive: String,
    text: String,
    traceback: Option<Bound<'py, PyAny>>,
    /// Its own name scopes.
    scopes: Vec<String>,
}

/// Where another program differs from one.
///
/// Args:
///     of: What is compared, as in `Graph.equals`.
///     context: How many equations around those that differ are shown.
///     limit: How many differences are described.
///     names: Whether equations are printed as in the text of their whole program; otherwise they are
///         put in words.
///
/// Raises:
///     What comparing objects of the programs raises.
#[pyfunction]
#[pyo3(name = "diff", signature = (one, another, *, of, context, limit, names))]
pub fn diff_of(
    one: &Bound<'_, Graph>,
    another: &Bound<'_, Graph>,
    of: &str,
    context: usize,
    limit: Option<usize>,
    names: bool,
) -> PyResult<DiffFound> {
    let py = one.py();
    let jax = jax(py)?;
    let purpose = purpose(of)?;
    let of = |graph| PyObjects::of(jax, graph, purpose);
    let found = diff(of(one)?, of(another)?, purpose)?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut count = 0;
    let mut shown = Vec::new();
    let mut programs = Vec::new();
    for program in found.programs {
        let own = program.count();
        count += own;
        if left > 0 {
            programs.push(Sides::of(&program).found(&program, left)?);
            shown.push(Shown::new(program, context, left));
            left = left.saturating_sub(own);
        }
    }
    let roots = [one, another].map(|root| root.clone().unbind());
    let all = Arc::new(All { roots, programs: shown, names, texts: Once::new() });
    for (program, found) in programs.iter_mut().enumerate() {
        let hunks = 0..all.programs[program].hunks.len();
        found.hunks = hunks.map(|hunk| Rows { all: all.clone(), program, hunk }).collect();
    }
    Ok(DiffFound { count, programs })
}

/// The equations of a row, of both programs.
fn eqns_of(row: &Row) -> [Option<Eqn>; 2] {
    match *row {
        Row::Removed(eqn) => [Some(eqn), None],
        Row::Added(eqn) => [None, Some(eqn)],
        Row::Same(eqn, other)
        | Row::Changed(eqn, other, _)
        | Row::MovedTo(eqn, other)
        | Row::MovedFrom(eqn, other) => [Some(eqn), Some(other)],
    }
}

/// The texts of equations, by the scope of their program.
type Texts = FxHashMap<(usize, Eqn), String>;

/// All rows that are shown.
struct All {
    roots: [Py<Graph>; 2],
    programs: Vec<Shown>,
    /// Whether equations are printed.
    names: bool,
    /// Of both programs, printed when the first row is looked at.
    texts: Once<[Texts; 2]>,
}

impl All {
    fn texts(&self, py: Python<'_>) -> PyResult<&[Texts; 2]> {
        self.texts.get_or_try_init(py, || {
            let mut texts = [Texts::default(), Texts::default()];
            if !self.names {
                return Ok(texts);
            }
            let mut wanted = [Wanted::default(), Wanted::default()];
            for shown in &self.programs {
                let scopes = shown.bind(py)?.scopes();
                for row in shown.hunks.iter().flatten() {
                    for (table, eqn) in eqns_of(row).into_iter().enumerate() {
                        wanted[table].extend(eqn.map(|eqn| (scopes[table], eqn)));
                    }
                }
            }
            for (table, root) in self.roots.iter().enumerate() {
                if !wanted[table].is_empty() {
                    let found = eqn_texts(jax(py)?, root.bind(py), &wanted[table])?;
                    texts[table] = found.unwrap_or_default();
                }
            }
            Ok(texts)
        })
    }
}

/// Equations that differ in two programs, with some around them: they are described when they are
/// looked at.
#[pyclass(frozen, module = "jaxide._core")]
pub struct Rows {
    all: Arc<All>,
    program: usize,
    hunk: usize,
}

impl Rows {
    fn shown(&self) -> (&Shown, &[Row]) {
        let shown = &self.all.programs[self.program];
        (shown, &shown.hunks[self.hunk])
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.shown().1.len()
    }

    /// The rows from one position up to another.
    ///
    /// Raises:
    ///     `IndexError`: There are not so many.
    ///     What printing objects of the programs raises.
    fn records<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<Vec<RowFound<'py>>> {
        let (shown, rows) = self.shown();
        let found = rows
            .get(start..stop)
            .ok_or_else(|| PyIndexError::new_err(format!("there are {} rows", rows.len())))?;
        let (sides, texts) = (shown.bind(py)?, self.all.texts(py)?);
        found.iter().map(|row| sides.row(row, texts)).collect()
    }
}

/// What is shown of two programs.
struct Shown {
    programs: [Kept; 2],
    hunks: Vec<Box<[Row]>>,
}

impl Shown {
    fn new(diff: ProgramDiff<PyObjects<'_>>, context: usize, limit: usize) -> Self {
        let differing = diff.rows.iter().enumerate().filter(|(_, row)| row.differs());
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (index, _) in differing.take(limit) {
            let (from, to) = (index.saturating_sub(context), index.saturating_add(context + 1));
            let to = to.min(diff.rows.len());
            match ranges.last_mut() {
                Some((_, end)) if from <= *end => *end = to,
                _ => ranges.push((from, to)),
            }
        }
        let mut at = 0;
        let mut rows = diff.rows.into_iter();
        let hunk = |(from, to)| {
            let hunk = rows.by_ref().skip(from - at).take(to - from).collect();
            at = to;
            hunk
        };
        let hunks = ranges.into_iter().map(hunk).collect();
        Self { programs: diff.programs.each_ref().map(PyObjects::kept), hunks }
    }

    fn bind<'py>(&self, py: Python<'py>) -> PyResult<Sides<'py>> {
        let [one, another] = &self.programs;
        Ok(Sides([one.bind(py)?, another.bind(py)?]))
    }
}

/// The name scopes of an equation, those around its program left out.
fn scopes_in(of: &Of<'_>, eqn: Eqn) -> PyResult<Vec<String>> {
    name_stack_of(of, eqn).map_or_else(|| Ok(Vec::new()), |stack| scopes_of(&stack))
}

/// Two programs with their objects.
struct Sides<'py>([Of<'py>; 2]);

impl<'py> Sides<'py> {
    fn of(diff: &ProgramDiff<PyObjects<'py>>) -> Self {
        Self(diff.programs.clone())
    }

    fn table(&self, table: usize) -> &Of<'py> {
        &self.0[table]
    }

    fn scopes(&self) -> [usize; 2] {
        self.0.each_ref().map(|of| address(of.objects.graph().as_any()))
    }

    /// All but the rows; of the ends so many.
    fn found(&self, diff: &ProgramDiff<PyObjects<'py>>, limit: usize) -> PyResult<ProgramFound> {
        let ProgramDiff { programs: _, path, around, inputs, rows, results, effects } = diff;
        let mut scopes = [Vec::new(), Vec::new()];
        for (step, around) in path.iter().zip(around) {
            for (table, scopes) in scopes.iter_mut().enumerate() {
                scopes.extend(scopes_in(&around[table], step.eqns[table])?);
            }
        }
        let path = path.iter().map(|Step { eqns: [eqn, other], primitive, param }| {
            (eqn.as_u32(), other.as_u32(), primitive.to_string(), param.to_string())
        });
        let before = inputs.iter().take(limit).map(|&ends| self.input(ends));
        let before = before.collect::<PyResult<_>>()?;
        let after = results.iter().take(limit).map(|&ends| self.result(ends));
        let mut after: Vec<_> = after.collect::<PyResult<_>>()?;
        if *effects {
            let text = |table: usize| {
                let of = self.table(table);
                effects_text(of, of.program.effects())
            };
            after.push(("effects", String::new(), text(0)?, text(1)?));
        }
        let mut counts = [0; 4];
        for row in rows {
            match row {
                Row::Added(_) => counts[0] += 1,
                Row::Removed(_) => counts[1] += 1,
                Row::Changed(..) => counts[2] += 1,
                Row::MovedTo(..) => counts[3] += 1,
                Row::Same(..) | Row::MovedFrom(..) => {}
            }
        }
        Ok(ProgramFound { path: path.collect(), scopes, before, hunks: Vec::new(), after, counts })
    }

    fn row(&self, row: &Row, texts: &[Texts; 2]) -> PyResult<RowFound<'py>> {
        let [old, new] = eqns_of(row);
        let scopes = self.scopes();
        let eqn = |table: usize, eqn: Option<Eqn>| {
            let Some(eqn) = eqn else { return Ok(None) };
            let of = self.table(table);
            let text = match texts[table].get(&(scopes[table], eqn)) {
                Some(text) => text.clone(),
                None => eqn_in_words(of, eqn)?,
            };
            Ok::<_, PyErr>(Some(EqnFound {
                place: eqn.as_u32(),
                primitive: primitive_name(&of.program, eqn),
                text,
                traceback: traceback_of(of, eqn),
                scopes: scopes_in(of, eqn)?,
            }))
        };
        let mut details = Vec::new();
        let kind = match row {
            Row::Same(..) => "same",
            Row::Removed(_) => "removed",
            Row::Added(_) => "added",
            Row::MovedTo(..) => "moved to",
            Row::MovedFrom(..) => "moved from",
            Row::Changed(old, new, places) => {
                for place in places {
                    details.push(self.detail([*old, *new], place)?);
                }
                "changed"
            }
        };
        let words = match (old, new) {
            (Some(eqn), None) => Some(eqn_in_words(self.table(0), eqn)?),
            (None, Some(eqn)) => Some(eqn_in_words(self.table(1), eqn)?),
            _ => None,
        };
        Ok(RowFound { kind, old: eqn(0, old)?, new: eqn(1, new)?, details, words })
    }

    /// What both programs have, as Python has it; "none" where one has nothing.
    fn texts(
        &self,
        text: &dyn Fn(usize, &Of<'py>) -> PyResult<Option<String>>,
    ) -> PyResult<(String, String)> {
        let text = |table| {
            Ok::<_, PyErr>(text(table, self.table(table))?.unwrap_or_else(|| "none".to_owned()))
        };
        Ok((text(0)?, text(1)?))
    }

    /// Two types; all of them where what is printed is the same.
    fn types(&self, types: [Option<TypeId>; 2]) -> (String, String) {
        let text = |detailed: bool| {
            let text = |table: usize| {
                let ty = types[table].map(|ty| self.table(table).program.ty(ty));
                ty.map_or_else(|| "none".to_owned(), |ty| type_text(ty, detailed))
            };
            (text(0), text(1))
        };
        let (old, new) = text(false);
        if old == new { text(true) } else { (old, new) }
    }

    fn detail(&self, eqns: [Eqn; 2], place: &Place) -> PyResult<Detail> {
        let (kind, name, (old, new)) = match place {
            Place::Primitive => {
                let text = |table: usize| primitive_name(&self.table(table).program, eqns[table]);
                ("primitive", String::new(), (text(0), text(1)))
            }
            Place::Param(name) => {
                let text = |table: usize, of: &Of<'py>| {
                    let params = of.program.params(of.program.eqn(eqns[table]).params);
                    params.get(name).map(|value| value_text(of, value)).transpose()
                };
                ("param", name.to_string(), self.texts(&text)?)
            }
            Place::Context => {
                let text = |table: usize, of: &Of<'py>| {
                    let context = of.program.context(of.program.eqn(eqns[table]).context);
                    object_text(of, context).map(Some)
                };
                ("context", String::new(), self.texts(&text)?)
            }
            Place::Operand(index) => {
                let atom = |table: usize, of: &Of<'py>| {
                    of.program.eqn_invars(eqns[table]).get(*index).copied()
                };
                let text = |table: usize, of: &Of<'py>| {
                    atom(table, of).map(|atom| atom_text(of, atom)).transpose()
                };
                let are_literals = [0, 1].into_iter().all(|table| {
                    let kind = atom(table, self.table(table)).map(Atom::kind);
                    matches!(kind, Some(AtomKind::Literal(_)))
                });
                let kind = if are_literals { "literal" } else { "operand" };
                (kind, index.to_string(), self.texts(&text)?)
            }
            Place::Output(index) => {
                let ty = |table: usize| {
                    let program = &self.table(table).program;
                    let var = program.eqn_outvars(eqns[table]).nth(*index)?;
                    Some(program.var_type(var))
                };
                ("type of output", index.to_string(), self.types([ty(0), ty(1)]))
            }
            Place::Effects => {
                let text = |table: usize, of: &Of<'py>| {
                    effects_text(of, of.program.eqn(eqns[table]).effects).map(Some)
                };
                ("effects", String::new(), self.texts(&text)?)
            }
        };
        Ok((kind, name, old, new))
    }

    /// What differs of a constant or an input; the name is its number and that of the argument.
    fn input(&self, ends: Ends) -> PyResult<Detail> {
        let described = |table: usize, index: usize| {
            let of = self.table(table);
            let var = inputs(&of.program).nth(index);
            (var.map(|var| input_name(of, var)), var.map(|var| of.program.var_type(var)))
        };
        let kind = |kind: &'static str, constant: &'static str, table: usize, index: usize| {
            let is_constant = index < self.table(table).program.constvars().len();
            if is_constant { constant } else { kind }
        };
        let name = |name: Option<String>| name.unwrap_or_default();
        Ok(match ends {
            Ends::Removed(index) => {
                let (named, ty) = described(0, index);
                let old = self.types([ty, None]).0;
                (
                    kind("removed input", "removed constant", 0, index),
                    name(named),
                    old,
                    String::new(),
                )
            }
            Ends::Added(index) => {
                let (named, ty) = described(1, index);
                let new = self.types([None, ty]).1;
                (kind("added input", "added constant", 1, index), name(named), String::new(), new)
            }
            Ends::Changed(index, other) => {
                let ((_, ty), (named, its)) = (described(0, index), described(1, other));
                let (old, new) = self.types([ty, its]);
                (kind("type of input", "type of constant", 1, other), name(named), old, new)
            }
            Ends::Value(index, other) => {
                let text = |table: usize, of: &Of<'py>| {
                    let index = if table == 0 { index } else { other };
                    let constant = of.program.constvars().get(index);
                    constant.map(|&(_, value)| of.objects.constant_text(value)).transpose()
                };
                let (old, new) = self.texts(&text)?;
                ("constant", other.to_string(), old, new)
            }
        })
    }

    fn result(&self, ends: Ends) -> PyResult<Detail> {
        let text = |table: usize, index: usize| {
            let of = self.table(table);
            let atom = of.program.outvars().get(index);
            atom.map_or_else(|| Ok(String::new()), |&atom| atom_text(of, atom))
        };
        Ok(match ends {
            Ends::Removed(index) => {
                ("removed result", index.to_string(), text(0, index)?, String::new())
            }
            Ends::Added(index) => {
                ("added result", index.to_string(), String::new(), text(1, index)?)
            }
            Ends::Changed(index, other) | Ends::Value(index, other) => {
                ("result", other.to_string(), text(0, index)?, text(1, other)?)
            }
        })
    }
}

fn type_text(ty: &Type, detailed: bool) -> String {
    match ty {
        Type::Array(array) if detailed => {
            let weak_type = ParamValue::Bool(array.weak_type);
            format!("{ty}{{weak_type={weak_type}}}")
        }
        _ => ty.to_string(),
    }
}

/// The number of an input among those of its kind, and the name of the argument where it has one.
fn input_name(of: &Of<'_>, var: Var) -> String {
    let program = &of.program;
    if let Some(index) = program.constvars().iter().position(|&(own, _)| own == var) {
        return format!("{index}");
    }
    let index = program.invars().iter().position(|&own| own == var).unwrap_or_default();
    let names = program.debug_info().arg_names.as_ref();
    match names.and_then(|names| names.get(index)) {
        Some(name) if !name.is_empty() => format!("{index} ({name})"),
        _ => index.to_string(),
    }
}

/// A literal, or where a variable is from.
fn atom_text(of: &Of<'_>, atom: Atom) -> PyResult<String> {
    let program = &of.program;
    let ty = program.ty(program.atom_type(atom));
    Ok(match atom.kind() {
        AtomKind::Literal(literal) => {
            format!("{}:{ty}", of.objects.literal_text(program.literal(literal).object)?)
        }
        AtomKind::Var(var) => match program.var(var).def {
            Def::Eqn(eqn) => {
                let place = format!("equation {} ({})", eqn.as_u32(), primitive_name(program, eqn));
                match var.as_u32() - program.eqn(eqn).first_outvar.as_u32() {
                    0 if program.eqn(eqn).num_outvars == 1 => format!("{place}:{ty}"),
                    output => format!("output {output} of {place}:{ty}"),
                }
            }
            Def::Constvar(_) => format!("constant {}:{ty}", input_name(of, var)),
            _ => format!("input {}:{ty}", input_name(of, var)),
        },
    })
}

fn object_text(of: &Of<'_>, object: crate::ir::ForeignId) -> PyResult<String> {
    let object = of.objects.object(object);
    let text = said(object.py(), object.repr())?.as_ref().map(string_of);
    Ok(text.unwrap_or_else(|| "an object without a text".to_owned()))
}

fn value_text(of: &Of<'_>, value: &ParamValue) -> PyResult<String> {
    let interrupt = Cell::new(None);
    let say = |value: &ParamValue| match value {
        ParamValue::Opaque(object) => {
            object_text(of, *object).map_err(|error| interrupt.set(Some(error))).ok()
        }
        ParamValue::Program(program) => {
            let program = of.program.subprogram(*program).program.as_ref()?;
            let count = program.num_eqns();
            Some(format!("{{ {count} equation{} }}", if count == 1 { "" } else { "s" }))
        }
        _ => None,
    };
    let text = value.spelled(&say).to_string();
    interrupt.take().map_or(Ok(text), Err)
}

fn effects_text(of: &Of<'_>, effects: crate::ir::EffectsId) -> PyResult<String> {
    let names = of.program.effect_list(effects).iter().map(|effect| match effect.input {
        Some(var) => Ok(format!("{} of {}", effect.name, atom_text(of, var.into())?)),
        None => Ok(effect.name.to_string()),
    });
    Ok(format!("{{{}}}", names.collect::<PyResult<Vec<_>>>()?.join(", ")))
}
