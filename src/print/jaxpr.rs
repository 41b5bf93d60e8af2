//! jaxprs as text.

use std::collections::VecDeque;
use std::rc::Rc;

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::ir::{
    Atom, AtomKind, Eqn, EqnData, LiteralId, ParamsId, PrimitiveId, Program, SourceId, TypeId, Var,
};

use super::layout::{Layout, Options, Stop, Style, Written};
use super::names::{Identity, Name, Names};

/// A nested program of more equations than this is printed before the program it is in.
const MAX_INLINE_EQNS: usize = 10;

/// Programs that are nested more deeply are not printed here.
const MAX_DEPTH: usize = 300;

/// What is printed of programs.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // these are jax's
pub struct Settings {
    /// Types, where variables are defined.
    pub print_shapes: bool,
    /// The line in the user's source behind each equation.
    pub source_info: bool,
    /// The name stack behind each equation.
    pub name_stack: bool,
    /// Effects, behind the results.
    pub print_effects: bool,
}

impl Default for Settings {
    /// What jax has where nobody says otherwise.
    fn default() -> Self {
        Self { print_shapes: true, source_info: false, name_stack: false, print_effects: false }
    }
}

/// What is left out of the text of a program that is too large to be read whole. What is shown reads
/// as it does in the whole text.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// How deep the programs that are shown are nested; none are within programs at 0.
    pub max_depth: Option<usize>,
    /// How many equations of each program are shown, half of them its last ones.
    pub max_eqns: Option<usize>,
    /// Names of primitives and of nested programs, which are shown without the equations within.
    pub collapse: FxHashSet<Box<str>>,
}

impl Limits {
    /// Whether the equations within an equation's programs are not shown.
    fn collapses<T>(&self, program: &Program, eqn: Eqn, text: &EqnText<T>) -> bool {
        let primitive = &program.primitive(program.eqn(eqn).primitive).name;
        let named = |name: &str| self.collapse.contains(name);
        named(primitive) || text.name.as_deref().is_some_and(named)
    }
}

/// The text of an equation's params.
pub struct EqnText<T> {
    /// Those that are shown, in order.
    pub params: Vec<Param<T>>,
    /// The programs among all of them.
    pub programs: Vec<T>,
    /// How these programs are called where they are printed before the others.
    pub name: Option<Box<str>>,
    /// Whether the only program has its inputs' names from the operands, and its results' from the outputs.
    pub is_call: bool,
}

/// A param and its text.
pub struct Param<T> {
    /// Its name.
    pub name: Rc<str>,
    /// Its value.
    pub value: ParamText<T>,
}

/// The value of a param.
pub enum ParamText<T> {
    /// In words.
    Text(Rc<str>),
    /// As a program.
    Program(T),
    /// As several programs.
    Programs(Vec<T>),
}

/// One program, and what only the embedding can say of it.
pub trait Texts: Clone {
    /// Why it cannot.
    type Error;

    /// The program.
    fn program(&self) -> &Program;

    /// Tells programs apart: jax prints one that occurs twice once.
    fn key(&self) -> usize;

    /// Tells apart those that share no variables.
    fn scope(&self) -> usize;

    /// Whether a variable is also one of other programs.
    fn identity(&self, var: Var) -> Identity;

    /// A type, behind a colon.
    ///
    /// # Errors
    /// The embedding fails.
    fn type_text(&self, ty: TypeId) -> Result<Rc<str>, Self::Error>;

    /// A literal, with its type.
    ///
    /// # Errors
    /// The embedding fails.
    fn literal_text(&self, literal: LiteralId) -> Result<Rc<str>, Self::Error>;

    /// The params of an equation.
    ///
    /// # Errors
    /// The embedding fails, or has no text for them that is independent of the rest.
    fn eqn_text(&self, eqn: Eqn) -> Result<Rc<EqnText<Self>>, Self::Error>;

    /// Where an equation is from.
    ///
    /// # Errors
    /// The embedding fails.
    fn source_text(&self, source: SourceId) -> Result<Rc<str>, Self::Error>;

    /// The name stack of an equation.
    ///
    /// # Errors
    /// The embedding fails.
    fn name_stack_text(&self, source: SourceId) -> Result<Rc<str>, Self::Error>;

    /// The effects of the program.
    ///
    /// # Errors
    /// The embedding fails.
    fn effect_texts(&self) -> Result<Vec<Rc<str>>, Self::Error>;

    /// What is said of programs that are nested too deeply.
    fn too_deep(&self) -> Self::Error;
}

/// The text of a program.
///
/// # Errors
/// The embedding fails, or programs are nested too deeply.
pub fn print<T: Texts>(
    root: &T,
    settings: Settings,
    limits: Limits,
    options: Options,
) -> Result<String, T::Error> {
    let mut printer = Printer::new(settings, limits, options);
    match printer.all(root) {
        Ok(()) | Err(Stop::Overflow | Stop::Done) => Ok(printer.layout.finish()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The names that variables have in the text of a program.
pub struct VariableNames(Names);

impl VariableNames {
    /// The name of a variable; none where the text does not mention it.
    pub fn of<T: Texts>(&self, of: &T, var: Var) -> Option<String> {
        let name = self.0.entry(of.scope(), var, of.identity(var))?;
        Some(name.spell(&mut [0; 8]).to_owned())
    }
}

/// The names that variables have in the text of a program, which is not made.
///
/// # Errors
/// The embedding fails, or programs are nested too deeply.
pub fn variable_names<T: Texts>(root: &T) -> Result<VariableNames, T::Error> {
    let mut printer = Printer::new(Settings::default(), Limits::default(), Options::default());
    match printer.unwritten(&mut |printer| printer.all(root)) {
        Ok(()) | Err(Stop::Overflow | Stop::Done) => Ok(VariableNames(printer.names)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Equations, by the scope of their program.
pub type Wanted = FxHashSet<(usize, Eqn)>;

/// The texts of some equations, each on one line, with the names that they have in the text of the
/// whole program. Nested programs are left out.
///
/// # Errors
/// The embedding fails, or programs are nested too deeply.
pub fn print_eqns<T: Texts>(
    root: &T,
    settings: Settings,
    wanted: Wanted,
) -> Result<FxHashMap<(usize, Eqn), String>, T::Error> {
    let options = Options { width: i64::MAX, ..Options::default() };
    let mut printer = Printer::new(settings, Limits::default(), options);
    printer.wanted = Some(wanted);
    match printer.unwritten(&mut |printer| printer.all(root)) {
        Ok(()) | Err(Stop::Overflow | Stop::Done) => Ok(printer.excerpts),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Names the outputs of equations that nothing in the program refers to.
fn drop_unused<T: Texts>(root: &T, names: &mut Names) {
    let program = root.program();
    let mut used = EntitySet::new();
    let mut note = |atoms: &[Atom]| {
        for var in atoms.iter().filter_map(|atom| atom.as_var()) {
            used.insert(var);
        }
    };
    note(program.outvars());
    for eqn in program.eqns() {
        note(program.eqn_invars(eqn));
    }
    for var in program.eqns().flat_map(|eqn| program.eqn_outvars(eqn)) {
        if !used.contains(var) {
            names.set(root.scope(), var, root.identity(var), Name::DROPPED);
        }
    }
}

/// A program that is printed before the others.
struct Shared<T> {
    program: T,
    name: Rc<str>,
    /// Whether an equation refers to it whose programs are shown.
    is_shown: bool,
}

/// Equations, by the scope of their program.
type Eqns = FxHashMap<usize, EntitySet<Eqn>>;

/// Programs that are printed before the others: those that occur more than once, and large ones. Also
/// notes the equations of all programs that have nested programs.
fn shared_programs<T: Texts>(
    root: &T,
    limits: &Limits,
    with_programs: &mut Eqns,
) -> Result<Vec<Shared<T>>, T::Error> {
    struct Seen<T> {
        program: T,
        name: Option<Box<str>>,
        count: usize,
        is_shown: bool,
    }
    let mut seen: IndexMap<usize, Seen<T>, FxBuildHasher> = IndexMap::default();
    let mut pending = VecDeque::from([(root.clone(), None::<Box<str>>, true)]);
    while let Some((of, name, is_shown)) = pending.pop_front() {
        let new = || Seen { program: of.clone(), name: None, count: 0, is_shown: false };
        let entry = seen.entry(of.key()).or_insert_with(new);
        entry.name = entry.name.take().or(name);
        entry.count += 1;
        let is_news = is_shown && !entry.is_shown;
        entry.is_shown |= is_shown;
        // What is within a program that occurs a third time has been met twice.
        if entry.count > 2 && !is_news {
            continue;
        }
        let program = of.program();
        // The primitive that last had the params and no programs.
        let mut plain: SecondaryMap<ParamsId, PackedOption<PrimitiveId>> = SecondaryMap::new();
        for eqn in program.eqns() {
            let EqnData { primitive, params, .. } = *program.eqn(eqn);
            if plain[params] == primitive.into() {
                continue;
            }
            let text = of.eqn_text(eqn)?;
            if text.programs.is_empty() {
                plain[params] = primitive.into();
                continue;
            }
            with_programs.entry(of.scope()).or_default().insert(eqn);
            let is_shown = is_shown && !limits.collapses(program, eqn, &text);
            let within = text.programs.iter();
            pending.extend(within.map(|within| (within.clone(), text.name.clone(), is_shown)));
        }
    }
    let mut counts: FxHashMap<Box<str>, usize> = FxHashMap::default();
    let mut shared = Vec::new();
    for (key, Seen { program, name, count, is_shown }) in seen {
        let is_large = key != root.key() && program.program().num_eqns() > MAX_INLINE_EQNS;
        if count == 1 && !is_large {
            continue;
        }
        let mut name = name.unwrap_or_else(|| "jaxpr".into());
        let known = counts.entry(name.clone()).or_default();
        let before = *known;
        *known += 1;
        if before > 0 {
            name = format!("{name}{before}").into();
            *counts.entry(name.clone()).or_default() += 1;
        }
        shared.push(Shared { program, name: name.into(), is_shown });
    }
    Ok(shared)
}

/// What stands for equations that are not shown.
fn left_out(count: usize) -> String {
    format!("... {count} equation{} ...", if count == 1 { "" } else { "s" })
}

struct Printer {
    settings: Settings,
    limits: Limits,
    names: Names,
    shared: FxHashMap<usize, Rc<str>>,
    /// Programs whose inputs and results have names from their calls.
    named: FxHashSet<usize>,
    layout: Layout,
    depth: usize,
    /// Whether the programs of the equation that is being written are not shown.
    is_collapsed: bool,
    /// Where not all is written: the equations that are, by themselves, and their texts.
    wanted: Option<Wanted>,
    /// Those that are more than names where nothing is written: that have nested programs, or are
    /// wanted.
    special: FxHashMap<usize, Rc<EntitySet<Eqn>>>,
    excerpts: FxHashMap<(usize, Eqn), String>,
}

type Body<'a, E> = &'a mut dyn FnMut(&mut Printer) -> Written<E>;

impl Printer {
    fn new(settings: Settings, limits: Limits, options: Options) -> Self {
        Self {
            settings,
            limits,
            names: Names::default(),
            shared: FxHashMap::default(),
            named: FxHashSet::default(),
            layout: Layout::new(options),
            depth: 0,
            is_collapsed: false,
            wanted: None,
            special: FxHashMap::default(),
            excerpts: FxHashMap::default(),
        }
    }

    /// A program, those that are printed before it first.
    fn all<T: Texts>(&mut self, root: &T) -> Written<T::Error> {
        drop_unused(root, &mut self.names);
        let mut special = Eqns::default();
        let shared = shared_programs(root, &self.limits, &mut special)?;
        for &(scope, eqn) in self.wanted.iter().flatten() {
            special.entry(scope).or_default().insert(eqn);
        }
        self.special = special.into_iter().map(|(scope, eqns)| (scope, Rc::new(eqns))).collect();
        for Shared { program, name, .. } in &shared {
            self.names.take(name);
            self.shared.insert(program.key(), name.clone());
        }
        self.depth = 1;
        for definition in &shared {
            self.definition(definition)?;
        }
        self.depth = 0;
        self.skeleton(root)
    }

    fn group<E>(&mut self, body: Body<'_, E>) -> Written<E> {
        if !self.layout.has_room() {
            return body(self);
        }
        let Some(start) = self.layout.try_flat() else { return body(self) };
        match body(self) {
            Ok(()) => {
                self.layout.fitted();
                Ok(())
            }
            Err(Stop::Overflow) => {
                self.layout.take_back(start);
                body(self)
            }
            failed => failed,
        }
    }

    fn nest<E>(&mut self, body: Body<'_, E>) -> Written<E> {
        self.layout.indent(2);
        body(self)?;
        self.layout.dedent(2);
        Ok(())
    }

    fn text<E>(&mut self, text: &str) -> Written<E> {
        self.layout.text(text)
    }

    fn keyword<E>(&mut self, text: &str) -> Written<E> {
        self.layout.styled(text, Style::KEYWORD)
    }

    fn line_break<E>(&mut self, text: &str) -> Written<E> {
        self.layout.line_break(text)
    }

    /// The definition of a program that is printed before others.
    fn definition<T: Texts>(&mut self, of: &Shared<T>) -> Written<T::Error> {
        let Shared { program, name, is_shown } = of;
        let is_muted = self.layout.is_muted() || self.is_hidden() || !is_shown;
        let before = self.layout.mute(is_muted);
        self.text("let ")?;
        self.text(name)?;
        self.text(" = ")?;
        self.skeleton(program)?;
        self.text(" in")?;
        self.line_break(" ")?;
        self.layout.mute(before);
        Ok(())
    }

    /// Whether programs that are nested as deep as what is written next are not shown.
    fn is_hidden(&self) -> bool {
        self.limits.max_depth.is_some_and(|most| self.depth > most)
    }

    /// Gives names as if it were written.
    fn unwritten<E>(&mut self, body: Body<'_, E>) -> Written<E> {
        let before = self.layout.mute(true);
        let done = body(self);
        self.layout.mute(before);
        done
    }

    /// A program, or its name where it is defined.
    fn program<T: Texts>(&mut self, of: &T) -> Written<T::Error> {
        match self.shared.get(&of.key()).cloned() {
            Some(name) => self.text(&name),
            None if self.is_collapsed || self.is_hidden() => {
                self.unwritten(&mut |printer| printer.skeleton(of))?;
                self.text(&format!("{{ {} }}", left_out(of.program().num_eqns())))
            }
            None => self.skeleton(of),
        }
    }

    fn skeleton<T: Texts>(&mut self, of: &T) -> Written<T::Error> {
        if self.depth == MAX_DEPTH {
            return Err(Stop::Failed(of.too_deep()));
        }
        self.depth += 1;
        let depth = self.depth;
        self.group(&mut |printer| {
            printer.depth = depth;
            printer.nest(&mut |printer| printer.body(of))?;
            printer.text(" }")
        })?;
        self.depth = depth - 1;
        Ok(())
    }

    fn body<T: Texts>(&mut self, of: &T) -> Written<T::Error> {
        let program = of.program();
        let shapes = self.settings.print_shapes;
        self.text("{ ")?;
        self.keyword("lambda ")?;
        self.binders(of, &program.constvars().iter().map(|&(var, _)| var), shapes)?;
        self.text("; ")?;
        self.binders(of, &program.invars().iter().copied(), shapes)?;
        self.text(". ")?;
        self.keyword("let")?;
        self.nest(&mut |printer| {
            printer.line_break(" ")?;
            if printer.layout.is_muted() {
                return printer.unwritten_eqns(of, program.eqns());
            }
            let count = program.num_eqns();
            let most = printer.limits.max_eqns.unwrap_or(count).min(count);
            let (first, last) = (most.div_ceil(2), count - most / 2);
            for (position, eqn) in program.eqns().enumerate() {
                let is_shown = !(first..last).contains(&position);
                if position > 0 && (is_shown || position == first) {
                    printer.line_break("; ")?;
                }
                if is_shown {
                    printer.eqn(of, eqn)?;
                } else if position == first {
                    printer.unwritten(&mut |printer| {
                        let eqns = program.eqns().skip(first).take(last - first);
                        printer.unwritten_eqns(of, eqns)
                    })?;
                    printer.text(&left_out(last - first))?;
                }
            }
            Ok(())
        })?;
        self.line_break(" ")?;
        self.keyword("in ")?;
        self.text("(")?;
        self.atoms(of, program.outvars(), ",")?;
        self.text(if program.outvars().len() == 1 { ",)" } else { ")" })?;
        if self.settings.print_effects {
            self.text(" : { ")?;
            for (position, effect) in of.effect_texts()?.iter().enumerate() {
                if position > 0 {
                    self.text(", ")?;
                }
                self.text(effect)?;
            }
            self.text(" }")?;
        }
        Ok(())
    }

    /// Gives the variables of equations names as if they were written; those that are wanted are, each
    /// by itself.
    fn unwritten_eqns<T: Texts>(
        &mut self,
        of: &T,
        eqns: impl Iterator<Item = Eqn>,
    ) -> Written<T::Error> {
        let (program, scope) = (of.program(), of.scope());
        let special = self.special.get(&scope).cloned();
        let mut names = self.names.within(scope, program.num_vars());
        for eqn in eqns {
            if special.as_ref().is_some_and(|special| special.contains(eqn)) {
                self.special_eqn(of, eqn)?;
                names = self.names.within(scope, 0);
                continue;
            }
            let invars = program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var());
            for var in program.eqn_outvars(eqn).chain(invars) {
                names.of(var, of.identity(var));
            }
        }
        Ok(())
    }

    /// One that has nested programs, or is wanted.
    fn special_eqn<T: Texts>(&mut self, of: &T, eqn: Eqn) -> Written<T::Error> {
        let place = (of.scope(), eqn);
        if !self.wanted.as_ref().is_some_and(|wanted| wanted.contains(&place)) {
            return self.eqn(of, eqn);
        }
        let outer = self.layout.begin_excerpt();
        let written = self.eqn(of, eqn);
        let excerpt = self.layout.end_excerpt(outer);
        written?;
        self.excerpts.insert(place, excerpt);
        let is_done = self.wanted.as_ref().is_some_and(|all| all.len() == self.excerpts.len());
        if is_done { Err(Stop::Done) } else { Ok(()) }
    }

    fn eqn<T: Texts>(&mut self, of: &T, eqn: Eqn) -> Written<T::Error> {
        let program = of.program();
        let data = program.eqn(eqn);
        let text = of.eqn_text(eqn)?;
        if text.is_call
            && let [within] = &*text.programs
            && !self.shared.contains_key(&within.key())
            // Once, however often a group is written.
            && self.named.insert(within.key())
        {
            self.suggest_names(of, eqn, within);
        }
        if data.num_outvars > 0 {
            self.binders(of, &data.outvars(), self.settings.print_shapes)?;
            if self.settings.source_info {
                self.layout.annotate(of.source_text(data.source)?);
            }
            self.text(" = ")?;
        }
        if self.settings.name_stack {
            self.layout.annotate(of.name_stack_text(data.source)?);
        }
        self.text(&program.primitive(data.primitive).name)?;
        let is_collapsed = self.wanted.is_some() || self.limits.collapses(program, eqn, &text);
        if !text.params.is_empty() {
            let before = self.is_collapsed;
            self.group(&mut |printer| {
                printer.is_collapsed = is_collapsed;
                printer.nest(&mut |printer| {
                    printer.text("[")?;
                    printer.line_break("")?;
                    for (position, param) in text.params.iter().enumerate() {
                        if position > 0 {
                            printer.line_break(" ")?;
                        }
                        printer.param(param)?;
                    }
                    Ok(())
                })?;
                printer.line_break("")?;
                printer.text("]")
            })?;
            self.is_collapsed = before;
        }
        self.text(" ")?;
        self.atoms(of, program.eqn_invars(eqn), "")
    }

    fn param<T: Texts>(&mut self, param: &Param<T>) -> Written<T::Error> {
        self.text(&param.name)?;
        self.text("=")?;
        match &param.value {
            ParamText::Text(text) => self.text(text),
            ParamText::Program(program) => self.program(program),
            ParamText::Programs(programs) => self.group(&mut |printer| {
                printer.nest(&mut |printer| {
                    printer.text("(")?;
                    printer.line_break("")?;
                    for (position, program) in programs.iter().enumerate() {
                        if position > 0 {
                            printer.line_break(" ")?;
                        }
                        printer.program(program)?;
                    }
                    Ok(())
                })?;
                printer.line_break("")?;
                printer.text(")")
            }),
        }
    }

    /// Gives the inputs of a called program the names of the operands, and its results those of the
    /// outputs, where nothing else has them.
    fn suggest_names<T: Texts>(&mut self, of: &T, eqn: Eqn, called: &T) {
        let program = of.program();
        let inputs: Vec<_> = called.program().invars().iter().map(|&var| Atom::var(var)).collect();
        self.suggest(called, &inputs, of, program.eqn_invars(eqn));
        let outputs: Vec<_> = program.eqn_outvars(eqn).map(Atom::var).collect();
        self.suggest(called, called.program().outvars(), of, &outputs);
    }

    fn suggest<T: Texts>(&mut self, to: &T, atoms: &[Atom], from: &T, like: &[Atom]) {
        if atoms.len() != like.len() {
            return;
        }
        let mut used = EntitySet::new();
        for (atom, like) in atoms.iter().zip(like) {
            let (Some(var), Some(like)) = (atom.as_var(), like.as_var()) else { continue };
            let identity = to.identity(var);
            if used.contains(like) || self.names.has(to.scope(), var, identity) {
                continue;
            }
            used.insert(like);
            let name = self.names.of(from.scope(), like, from.identity(like));
            self.names.set(to.scope(), var, identity, name);
        }
    }

    /// Variables where they are defined.
    fn binders<T: Texts>(
        &mut self,
        of: &T,
        vars: &(impl Iterator<Item = Var> + Clone),
        print_shapes: bool,
    ) -> Written<T::Error> {
        let program = of.program();
        self.separated(vars, "", &mut |printer: &mut Self, var| {
            printer.var(of, var)?;
            if print_shapes {
                let ty = of.type_text(program.var_type(var))?;
                printer.layout.styled(&ty, Style::TYPE)?;
            }
            Ok(())
        })
    }

    /// Variables and literals where they are used.
    fn atoms<T: Texts>(&mut self, of: &T, atoms: &[Atom], separator: &str) -> Written<T::Error> {
        self.separated(&atoms.iter().copied(), separator, &mut |printer: &mut Self, atom: Atom| {
            match atom.kind() {
                AtomKind::Var(var) => printer.var(of, var),
                AtomKind::Literal(literal) => {
                    let text = of.literal_text(literal)?;
                    printer.text(&text)
                }
            }
        })
    }

    fn var<T: Texts>(&mut self, of: &T, var: Var) -> Written<T::Error> {
        let name = self.names.of(of.scope(), var, of.identity(var));
        self.layout.text(name.spell(&mut [0; 8]))
    }

    /// Items with spaces between them, as many on a line as fit.
    fn separated<E, I>(
        &mut self,
        items: &(impl Iterator<Item = I> + Clone),
        separator: &str,
        write: &mut dyn FnMut(&mut Self, I) -> Written<E>,
    ) -> Written<E> {
        self.nest(&mut |printer| {
            printer.group(&mut |printer| {
                for (position, item) in items.clone().enumerate() {
                    if position > 0 {
                        printer.text(separator)?;
                        printer.group(&mut |printer| printer.line_break(" "))?;
                    }
                    write(printer, item)?;
                }
                Ok(())
            })
        })
    }
}
