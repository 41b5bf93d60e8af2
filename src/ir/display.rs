//! A plain text dump of a program, for debugging and snapshots, with the ids of the tables as
//! names:
//!
//! ```text
//! program0 { lambda v1:f32[3]=const0; v0:f32[3]. let
//!     v2:f32[3] = mul v0 v1  # src0 ctx0
//!     v3:f32[3] = jit[jaxpr=sub0] v2 lit0:f32[]  # src1 ctx0
//!   in (v3) }
//!   sub0 = program1
//! ```
//!
//! A program that several parameters share is written once.

use std::fmt::{Display, Formatter, Result, Write};

use indexmap::map::Entry;

use super::{
    ids::{Atom, AtomKind, EffectsId, Eqn, Var},
    program::Program,
    table::FxIndexMap,
};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut numbered = FxIndexMap::from_iter([(std::ptr::from_ref(self), self)]);
        let mut number = 0;
        while let Some((_, &program)) = numbered.get_index(number) {
            if number > 0 {
                f.write_char('\n')?;
            }
            write!(f, "program{number} ")?;
            write_program(f, program)?;
            for (id, subprogram) in program.subprograms() {
                match &subprogram.program {
                    None => writeln!(f, "  {id} = {}", subprogram.object)?,
                    Some(nested) => {
                        let entry = numbered.entry(std::ptr::from_ref(&**nested));
                        writeln!(f, "  {id} = program{}", entry.index())?;
                        if let Entry::Vacant(entry) = entry {
                            entry.insert(nested);
                        }
                    }
                }
            }
            number += 1;
        }
        Ok(())
    }
}

fn write_program(f: &mut Formatter<'_>, program: &Program) -> Result {
    f.write_str("{ lambda")?;
    for &(var, value) in program.constvars() {
        write!(f, " {}={value}", Typed(program, var))?;
    }
    f.write_char(';')?;
    for &var in program.invars() {
        write!(f, " {}", Typed(program, var))?;
    }
    f.write_str(". let\n")?;
    for eqn in program.eqns() {
        write_eqn(f, program, eqn)?;
    }
    f.write_str("  in (")?;
    for (index, &atom) in program.outvars().iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(f, "{comma}{}", Operand(program, atom))?;
    }
    f.write_char(')')?;
    write_effects(f, program, program.effects())?;
    f.write_str(" }\n")
}

fn write_eqn(f: &mut Formatter<'_>, program: &Program, eqn: Eqn) -> Result {
    let data = program.eqn(eqn);
    f.write_str("    ")?;
    for var in data.outvars() {
        write!(f, "{} ", Typed(program, var))?;
    }
    if data.num_outvars > 0 {
        f.write_str("= ")?;
    }
    let primitive = &program.primitive(data.primitive).name;
    write!(f, "{primitive}{}", program.params(data.params))?;
    for &atom in program.eqn_invars(eqn) {
        write!(f, " {}", Operand(program, atom))?;
    }
    write_effects(f, program, data.effects)?;
    writeln!(f, "  # {} {}", data.source, data.context)
}

/// Writes ` {read v0, io}`, and nothing where there are no effects.
fn write_effects(f: &mut Formatter<'_>, program: &Program, id: EffectsId) -> Result {
    for (index, effect) in program.effect_list(id).iter().enumerate() {
        write!(f, "{}{}", if index > 0 { ", " } else { " {" }, effect.name)?;
        if let Some(input) = effect.input {
            write!(f, " {input}")?;
        }
    }
    f.write_str(if program.effect_list(id).is_empty() { "" } else { "}" })
}

/// A variable where it is bound: with its type.
struct Typed<'p>(&'p Program, Var);

impl Display for Typed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self(program, var) = *self;
        write!(f, "{var}:{}", program.ty(program.var_type(var)))
    }
}

/// An atom where it is used: only a literal shows its type.
struct Operand<'p>(&'p Program, Atom);

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self(program, atom) = *self;
        match atom.kind() {
            AtomKind::Var(var) => var.fmt(f),
            AtomKind::Literal(literal) => {
                write!(f, "{literal}:{}", program.ty(program.literal(literal).ty))
            }
        }
    }
}
