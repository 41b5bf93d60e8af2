//! The verifier: checks what every program must be, and lists all that is wrong with one.
//!
//! A program that a [`Builder`](super::Builder) finished satisfies the invariants, but for the
//! names (I10), which the embedding supplies, and the ids of nested programs inside parameters
//! (I1), which it must take from the same builder. Code that rewrites rows checks itself with this.
//!
//! - **I1** Every id is in the range of its table: types, primitives, parameters, effects, sources,
//!   contexts, literals, variables, and the nested programs that parameters name.
//! - **I2** The outputs of an equation are consecutive variables of the program. No variable is an
//!   output of two equations.
//! - **I3** Definitions agree both ways: a variable is defined by an equation exactly if it is an
//!   output of it, as an input exactly if it is among the inputs, once, and as a constant exactly
//!   if it is among the constants, once and with the same value.
//! - **I4** An operand is an input, a constant, a literal or an output of an earlier equation.
//! - **I5** An output of the program is an input, a constant, a literal or an output of an
//!   equation.
//! - **I6** The variable on which an effect of an equation acts is an input, a constant or an
//!   output of an earlier equation; one on which an effect of the program acts is defined.
//! - **I7** An equation of a primitive without multiple results has one output.
//! - **I8** Parameters are sorted by name and none is given twice.
//! - **I9** A nested program that is resolved satisfies the invariants.
//! - **I10** There are as many argument names as inputs and as many result paths as outputs, where
//!   there are any.
//!
//! A variable that was removed (a gap in the ids) is not defined: it may not be used at all.

use std::fmt;

use cranelift_entity::{EntityRef, EntitySet, SecondaryMap, packed_option::PackedOption};
use rustc_hash::FxHashSet;
use thiserror::Error;

use super::{
    ids::{
        Atom, AtomKind, EffectsId, Eqn, LiteralId, ParamsId, PrimitiveId, SubprogramId, TypeId, Var,
    },
    params::ParamValue,
    program::{Def, Program},
};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the program is: the nested programs that lead to it from the one verified.
    pub path: Vec<SubprogramId>,
    /// What is wrong with it.
    pub kind: ViolationKind,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, id) in self.path.iter().enumerate() {
            write!(f, "{}{id}", if depth > 0 { "." } else { "in " })?;
        }
        write!(f, "{}{}", if self.path.is_empty() { "" } else { ": " }, self.kind)
    }
}

impl std::error::Error for Violation {}

/// The place of an id in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A field of an equation.
    Eqn(Eqn),
    /// An operand of an equation.
    Operand(Eqn, usize),
    /// An effect of an equation.
    Effect(Eqn),
    /// The row of a variable.
    Var(Var),
    /// The row of a literal.
    Literal(LiteralId),
    /// Parameters.
    Params(ParamsId),
    /// The list of inputs.
    Invar(usize),
    /// The list of constants.
    Constvar(usize),
    /// The list of outputs.
    Outvar(usize),
    /// The effects of the program.
    ProgramEffects,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eqn(eqn) => eqn.fmt(f),
            Self::Operand(eqn, index) => write!(f, "operand {index} of {eqn}"),
            Self::Effect(eqn) => write!(f, "an effect of {eqn}"),
            Self::Var(var) => var.fmt(f),
            Self::Literal(literal) => literal.fmt(f),
            Self::Params(params) => params.fmt(f),
            Self::Invar(index) => write!(f, "input {index}"),
            Self::Constvar(index) => write!(f, "constant {index}"),
            Self::Outvar(index) => write!(f, "output {index}"),
            Self::ProgramEffects => f.write_str("an effect of the program"),
        }
    }
}

/// What can be wrong with a program; the number of the invariant is in the description.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViolationKind {
    /// I1: an id is out of the range of its table.
    #[error("I1: {place} refers to {id}, which does not exist")]
    OutOfRange {
        /// Where the id is.
        place: Place,
        /// The id as printed.
        id: Box<str>,
    },
    /// I2: a variable is an output of two equations.
    #[error("I2: {var} is an output of {first} and of {second}")]
    DefinedTwice {
        /// The variable.
        var: Var,
        /// The earlier equation.
        first: Eqn,
        /// The later one.
        second: Eqn,
    },
    /// I3: a variable's row does not say what defines it.
    #[error("I3: {var} is {expected:?}, but its row says {found:?}")]
    WrongDef {
        /// The variable.
        var: Var,
        /// What defines it.
        expected: Def,
        /// What its row says.
        found: Def,
    },
    /// I3: a variable's row names a definition that does not have it.
    #[error("I3: {var} says that it is {def:?}, where it is not")]
    NotAtDef {
        /// The variable.
        var: Var,
        /// What its row says.
        def: Def,
    },
    /// I3: a variable is listed twice among the inputs and constants.
    #[error("I3: {var} is listed twice")]
    ListedTwice {
        /// The variable.
        var: Var,
    },
    /// I4, I5, I6: a variable is used that nothing defines, or not yet.
    #[error("I4-I6: {place} uses {var} before it is defined")]
    NotDefined {
        /// The use.
        place: Place,
        /// The variable.
        var: Var,
    },
    /// I7: a primitive with a single result has another number of outputs.
    #[error("I7: {eqn} has {found} outputs, but {primitive} has a single result")]
    OutputCount {
        /// The equation.
        eqn: Eqn,
        /// Its primitive.
        primitive: PrimitiveId,
        /// How many outputs it has.
        found: u32,
    },
    /// I8: parameters are not sorted, or one is given twice.
    #[error("I8: {params} has `{name}` out of order")]
    UnsortedParams {
        /// The parameters.
        params: ParamsId,
        /// The first name that does not come after the one before it.
        name: Box<str>,
    },
    /// I10: there are too many or too few names.
    #[error("I10: {found} {what} for {expected}")]
    NameCount {
        /// Which names.
        what: &'static str,
        /// How many inputs or outputs there are.
        expected: usize,
        /// How many names there are.
        found: usize,
    },
}

/// Checks the invariants of a program and of all programs nested in it.
///
/// # Errors
/// All violations.
pub fn verify(program: &Program) -> Result<(), Vec<Violation>> {
    // Nesting can be deep and shared: a list of programs, each entered from one before it.
    let mut entered = vec![Entered { program, from: None }];
    let mut seen = FxHashSet::from_iter([std::ptr::from_ref(program)]);
    let mut violations = Vec::new();
    let mut index = 0;
    while let Some(&Entered { program, .. }) = entered.get(index) {
        let found = Verifier::new(program).run();
        if !found.is_empty() {
            let path = path_to(&entered, index);
            violations.extend(found.into_iter().map(|kind| Violation { path: path.clone(), kind }));
        }
        for (id, subprogram) in program.subprograms() {
            if let Some(nested) = &subprogram.program
                && seen.insert(std::ptr::from_ref(&**nested))
            {
                entered.push(Entered { program: nested, from: Some((index, id)) });
            }
        }
        index += 1;
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// A program, and the index of the one whose nested program it is.
#[derive(Clone, Copy)]
struct Entered<'p> {
    program: &'p Program,
    from: Option<(usize, SubprogramId)>,
}

fn path_to(entered: &[Entered<'_>], index: usize) -> Vec<SubprogramId> {
    let mut path = Vec::new();
    let mut from = entered[index].from;
    while let Some((parent, id)) = from {
        path.push(id);
        from = entered[parent].from;
    }
    path.reverse();
    path
}

/// The state of checking one program.
struct Verifier<'p> {
    program: &'p Program,
    /// The first equation that has a variable as output.
    defining_eqn: SecondaryMap<Var, PackedOption<Eqn>>,
    /// The variables that are inputs or constants.
    listed: EntitySet<Var>,
    found: Vec<ViolationKind>,
}

impl<'p> Verifier<'p> {
    fn new(program: &'p Program) -> Self {
        Self {
            program,
            defining_eqn: SecondaryMap::with_capacity(program.num_vars()),
            listed: EntitySet::with_capacity(program.num_vars()),
            found: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<ViolationKind> {
        let program = self.program;
        for (index, &var) in program.invars().iter().enumerate() {
            self.check_listed(Place::Invar(index), var, Def::Invar);
        }
        for (index, &(var, value)) in program.constvars().iter().enumerate() {
            self.check_listed(Place::Constvar(index), var, Def::Constvar(value));
        }
        for eqn in program.eqns() {
            self.check_outvars(eqn);
        }
        for var in program.vars.keys() {
            self.check_var(var);
        }
        for (literal, data) in &program.literals {
            self.check_type(Place::Literal(literal), data.ty);
        }
        for eqn in program.eqns() {
            self.check_eqn(eqn);
        }
        for (index, &atom) in program.outvars().iter().enumerate() {
            self.check_use(Place::Outvar(index), atom, None);
        }
        self.check_effects(Place::ProgramEffects, program.effects(), None);
        self.check_params();
        self.check_names();
        self.found
    }

    /// I1, I3: an entry of the list of inputs or constants.
    fn check_listed(&mut self, place: Place, var: Var, expected: Def) {
        if !self.check_id(place, var, self.program.num_vars()) {
            return;
        }
        if !self.listed.insert(var) {
            self.found.push(ViolationKind::ListedTwice { var });
        }
        self.check_def(var, expected);
    }

    fn check_def(&mut self, var: Var, expected: Def) {
        let found = self.program.var(var).def;
        if found != expected {
            self.found.push(ViolationKind::WrongDef { var, expected, found });
        }
    }

    /// I1, I2, I3: the outputs of an equation.
    fn check_outvars(&mut self, eqn: Eqn) {
        let data = self.program.eqn(eqn);
        let num_vars = self.program.num_vars();
        let first = data.first_outvar.index();
        for index in first..first + data.num_outvars as usize {
            if index >= num_vars {
                let id = format!("v{index}").into();
                self.found.push(ViolationKind::OutOfRange { place: Place::Eqn(eqn), id });
                break;
            }
            let var = Var::new(index);
            if let Some(first) = self.defining_eqn[var].expand() {
                self.found.push(ViolationKind::DefinedTwice { var, first, second: eqn });
                continue;
            }
            self.defining_eqn[var] = eqn.into();
            self.check_def(var, Def::Eqn(eqn));
        }
    }

    /// I1, I3: the row of a variable.
    fn check_var(&mut self, var: Var) {
        let data = self.program.var(var);
        self.check_type(Place::Var(var), data.ty);
        let is_at_def = match data.def {
            Def::Invar | Def::Constvar(_) => self.listed.contains(var),
            Def::Eqn(_) => self.defining_eqn[var].is_some(),
            Def::Removed => true,
        };
        if !is_at_def {
            self.found.push(ViolationKind::NotAtDef { var, def: data.def });
        }
    }

    /// I1, I4, I6, I7: the fields of an equation.
    fn check_eqn(&mut self, eqn: Eqn) {
        let program = self.program;
        let data = program.eqn(eqn);
        let place = Place::Eqn(eqn);
        if self.check_id(place, data.primitive, program.primitives.len())
            && !program.primitive(data.primitive).multiple_results
            && data.num_outvars != 1
        {
            self.found.push(ViolationKind::OutputCount {
                eqn,
                primitive: data.primitive,
                found: data.num_outvars,
            });
        }
        self.check_id(place, data.params, program.params.len());
        self.check_id(place, data.source, program.sources.len());
        self.check_id(place, data.context, program.contexts.len());
        self.check_effects(Place::Effect(eqn), data.effects, Some(eqn));
        for (index, &atom) in program.eqn_invars(eqn).iter().enumerate() {
            self.check_use(Place::Operand(eqn, index), atom, Some(eqn));
        }
    }

    /// I1, I4, I5: a use, by an equation or by the program.
    fn check_use(&mut self, place: Place, atom: Atom, user: Option<Eqn>) {
        match atom.kind() {
            AtomKind::Var(var) => self.check_var_use(place, var, user),
            AtomKind::Literal(literal) => {
                self.check_id(place, literal, self.program.literals.len());
            }
        }
    }

    fn check_var_use(&mut self, place: Place, var: Var, user: Option<Eqn>) {
        if !self.check_id(place, var, self.program.num_vars()) {
            return;
        }
        let is_defined = match self.defining_eqn[var].expand() {
            Some(eqn) => user.is_none_or(|user| eqn < user),
            None => self.listed.contains(var),
        };
        if !is_defined {
            self.found.push(ViolationKind::NotDefined { place, var });
        }
    }

    /// I1, I6: effects, of an equation or of the program.
    fn check_effects(&mut self, place: Place, effects: EffectsId, user: Option<Eqn>) {
        if !self.check_id(place, effects, self.program.effect_lists.len()) {
            return;
        }
        for input in self.program.effect_list(effects).iter().filter_map(|effect| effect.input) {
            self.check_var_use(place, input, user);
        }
    }

    /// I1, I8: all parameters.
    fn check_params(&mut self) {
        let num_subprograms = self.program.subprograms.len();
        for (id, params) in self.program.params.iter() {
            let mut neighbours = params.iter().zip(params.iter().skip(1));
            if let Some((_, (name, _))) = neighbours.find(|((a, _), (b, _))| a >= b) {
                self.found.push(ViolationKind::UnsortedParams { params: id, name: name.into() });
            }
            for (_, value) in params.iter() {
                value.walk(&mut |value| {
                    if let ParamValue::Program(nested) = value {
                        self.check_id(Place::Params(id), *nested, num_subprograms);
                    }
                });
            }
        }
    }

    /// I10: the names.
    fn check_names(&mut self) {
        let info = self.program.debug_info();
        for (what, names, expected) in [
            ("argument names", &info.arg_names, self.program.invars().len()),
            ("result paths", &info.result_paths, self.program.outvars().len()),
        ] {
            if let Some(names) = names
                && names.len() != expected
            {
                let found = names.len();
                self.found.push(ViolationKind::NameCount { what, expected, found });
            }
        }
    }

    fn check_type(&mut self, place: Place, ty: TypeId) {
        self.check_id(place, ty, self.program.types.len());
    }

    /// I1: whether an id is in the range of its table.
    fn check_id<K: EntityRef + fmt::Display>(&mut self, place: Place, id: K, len: usize) -> bool {
        let exists = id.index() < len;
        if !exists {
            self.found.push(ViolationKind::OutOfRange { place, id: id.to_string().into() });
        }
        exists
    }
}
