//! Fragments: the equations that one call appended, in terms of the call's own operands.

use thiserror::Error;

use crate::ir::{Atom, BuildError, Builder, EqnShape, SourceId, Var};

/// An operand of an equation of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A traced argument of the call.
    Arg(u32),
    /// An output of an earlier equation of the fragment, counted over all of them.
    Out(u32),
    /// A literal of the fragment.
    Literal(u32),
    /// A constant that the function captured.
    Const(u32),
}

/// One equation of a fragment. What it is besides (primitive, params, effects, context) is the
/// embedding's, row for row in the shapes it replays with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    operands: Box<[Operand]>,
    /// Rows of the embedding's table of types.
    out_types: Box<[u32]>,
    /// Which name scope, inside the call's own, it belongs to: a row of the call's sources.
    scope: u32,
}

impl Template {
    /// An equation of a fragment.
    pub fn new(operands: Box<[Operand]>, out_types: Box<[u32]>, scope: u32) -> Self {
        Self { operands, out_types, scope }
    }

    /// The operands.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The types of the outputs, as rows of the embedding's table.
    pub fn out_types(&self) -> &[u32] {
        &self.out_types
    }

    /// The name scope, as a row of the call's sources.
    pub fn scope(&self) -> u32 {
        self.scope
    }
}

/// Why a list of equations is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FragmentError {
    /// An operand that the call has not, or that no earlier equation defines.
    #[error("equation {equation} has an operand that is not defined")]
    Undefined {
        /// The position of the equation.
        equation: usize,
    },
}

/// What one call appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    templates: Box<[Template]>,
    num_args: u32,
    num_literals: u32,
    num_consts: u32,
}

/// What one call of a fragment works on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operands<'a> {
    /// The traced arguments.
    pub args: &'a [Atom],
    /// The literals.
    pub literals: &'a [Atom],
    /// The constants.
    pub consts: &'a [Atom],
}

/// An output of a fragment that was appended, counted over all its equations.
#[inline]
pub fn out(first: Var, index: u32) -> Var {
    Var::from_u32(first.as_u32() + index)
}

impl Fragment {
    /// Checks that operands precede their use.
    ///
    /// # Errors
    /// An operand is not defined.
    pub fn new(
        templates: Vec<Template>,
        num_args: u32,
        num_literals: u32,
        num_consts: u32,
    ) -> Result<Self, FragmentError> {
        let mut num_outs = 0;
        for (equation, template) in templates.iter().enumerate() {
            let defined = |operand: &Operand| match *operand {
                Operand::Arg(index) => index < num_args,
                Operand::Out(index) => (index as usize) < num_outs,
                Operand::Literal(index) => index < num_literals,
                Operand::Const(index) => index < num_consts,
            };
            if !template.operands.iter().all(defined) {
                return Err(FragmentError::Undefined { equation });
            }
            num_outs += template.out_types.len();
        }
        Ok(Self { templates: templates.into(), num_args, num_literals, num_consts })
    }

    /// The equations.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// How many traced arguments the call has.
    pub fn num_args(&self) -> usize {
        self.num_args as usize
    }

    /// Appends the fragment to a program. The outputs of all its equations are consecutive
    /// variables; the result is the first one.
    ///
    /// `shapes` has one for each equation, `sources` one for each scope.
    ///
    /// # Errors
    /// The builder refuses an equation: an argument was removed, or the program is full.
    pub fn replay(
        &self,
        builder: &mut Builder,
        shapes: &[EqnShape],
        given: Operands<'_>,
        sources: &[SourceId],
    ) -> Result<Var, BuildError> {
        let first = builder.next_var();
        let atom = |operand: &Operand| match *operand {
            Operand::Arg(index) => given.args[index as usize],
            Operand::Out(index) => Atom::var(out(first, index)),
            Operand::Literal(index) => given.literals[index as usize],
            Operand::Const(index) => given.consts[index as usize],
        };
        let mut few = [Atom::var(first); 8];
        for (template, shape) in self.templates.iter().zip(shapes) {
            let source = sources[template.scope as usize];
            if let Some(atoms) = few.get_mut(..template.operands.len()) {
                for (place, operand) in atoms.iter_mut().zip(&template.operands) {
                    *place = atom(operand);
                }
                builder.eqn_of(shape, atoms, source)?;
            } else {
                let atoms: Vec<Atom> = template.operands.iter().map(atom).collect();
                builder.eqn_of(shape, &atoms, source)?;
            }
        }
        Ok(first)
    }

    /// Whether another fragment does the same, where `same` says which of its literals are equal to which of these:
    /// one may be several there.
    pub fn agrees(&self, other: &Self, mut same: impl FnMut(u32, u32) -> bool) -> bool {
        let mut same_operand = |pair: (&Operand, &Operand)| match pair {
            (Operand::Literal(own), Operand::Literal(others)) => same(*own, *others),
            (own, others) => own == others,
        };
        (self.num_args, self.num_consts) == (other.num_args, other.num_consts)
            && self.templates.len() == other.templates.len()
            && self.templates.iter().zip(&other.templates).all(|(own, others)| {
                (&own.out_types, own.scope) == (&others.out_types, others.scope)
                    && own.operands.len() == others.operands.len()
                    && own.operands.iter().zip(&others.operands).all(&mut same_operand)
            })
    }

    /// Bytes of the fragment.
    pub fn memory_bytes(&self) -> usize {
        let of = |template: &Template| {
            size_of::<Template>()
                + size_of_val::<[_]>(&template.operands)
                + size_of_val::<[_]>(&template.out_types)
        };
        size_of::<Self>() + self.templates.iter().map(of).sum::<usize>()
    }
}
