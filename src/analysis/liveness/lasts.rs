//! Until when the variables of a program are needed, and the bytes that they take.

use cranelift_entity::EntityRef;

use crate::ir::{Eqn, PrimitiveId, Program, TypeId, Var};

use super::super::nest::Nest;
use super::super::values::bytes;
use super::rules::{Kind, is_cheap, kind};

/// When a variable is needed for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Last {
    /// Nobody needs it.
    Never,
    /// By an equation.
    At(Eqn),
    /// It is an output of the program.
    End,
}

/// What is known of the variables of a program whoever runs it.
pub(super) struct Lasts {
    by_var: Vec<Last>,
    bytes: Vec<u128>,
    /// Variables whose elements are computed where they are used.
    is_fused: Vec<bool>,
    /// By primitive.
    kinds: Vec<Kind>,
    /// Variables in the order of the equations that need them last, and where those of each begin.
    expiring: Vec<Var>,
    starts: Vec<u32>,
}

/// What consumes a value for fusion, and what may be fused.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fusion {
    /// It can compute its operands where it needs them.
    takes: bool,
    /// It can be computed where it is needed.
    gives: bool,
    is_cheap: bool,
}

impl Fusion {
    fn of(primitive: &str) -> Self {
        let kind = kind(primitive);
        let gives = matches!(kind, Kind::PerElement | Kind::Spread)
            || matches!(
                primitive,
                "reshape" | "squeeze" | "expand_dims" | "stop_gradient" | "name"
            );
        let takes = gives || kind == Kind::Reduction;
        Self { takes, gives, is_cheap: is_cheap(primitive) }
    }
}

/// Whether what an equation of a primitive runs is part of the program as it is compiled.
fn is_inlined(primitive: &str) -> bool {
    matches!(primitive, "jit" | "closed_call" | "custom_jvp_call" | "custom_vjp_call")
}

/// The nested programs of a nest in which everything is computed element by element, and whether that
/// costs little.
pub(super) fn fused_programs(nest: &Nest) -> Vec<Option<bool>> {
    let mut known: Vec<Option<bool>> = Vec::with_capacity(nest.len());
    for (place, program) in nest.programs() {
        let mut calls = nest.calls(place).iter().peekable();
        let mut all_cheap = true;
        let is_whole = place != nest.root()
            && program.eqns().all(|eqn| {
                let name = program.primitive(program.eqn(eqn).primitive).operation();
                let within = calls.next_if(|call| call.eqn == eqn).map(|call| known[call.callee]);
                let fusion = match (name, within) {
                    (
                        "jit" | "closed_call" | "custom_jvp_call" | "custom_vjp_call",
                        Some(Some(cheap)),
                    ) => Fusion { takes: true, gives: true, is_cheap: cheap },
                    (_, Some(_)) => return false,
                    (name, None) => Fusion::of(name),
                };
                all_cheap &= fusion.is_cheap;
                fusion.gives
            });
        known.push(is_whole.then_some(all_cheap));
    }
    known
}

impl Lasts {
    /// Reads a program; `whole` are the programs that can be fused as a whole, where fusion counts.
    pub(super) fn of(nest: &Nest, place: usize, whole: Option<&[Option<bool>]>) -> Self {
        let program = nest.program(place);
        let mut found = Self {
            by_var: vec![Last::Never; program.num_vars()],
            bytes: Vec::with_capacity(program.num_vars()),
            is_fused: vec![false; if whole.is_some() { program.num_vars() } else { 0 }],
            kinds: Vec::new(),
            expiring: Vec::new(),
            starts: Vec::new(),
        };
        for eqn in program.eqns() {
            let primitive = program.eqn(eqn).primitive;
            // Primitives are numbered as they come.
            while found.kinds.len() <= primitive.index() {
                let primitive = PrimitiveId::new(found.kinds.len());
                found.kinds.push(kind(program.primitive(primitive).operation()));
            }
        }
        let mut sizes: Vec<Option<u128>> = Vec::new();
        for var in (0..program.num_vars()).map(Var::new) {
            let ty: TypeId = program.var_type(var);
            if sizes.len() <= ty.index() {
                sizes.resize(ty.index() + 1, None);
            }
            let size = *sizes[ty.index()].get_or_insert_with(|| bytes(program.ty(ty)));
            found.bytes.push(size);
        }
        for var in program.outvars().iter().filter_map(|atom| atom.as_var()) {
            found.by_var[var.index()] = Last::End;
        }
        match whole {
            None => found.read(program),
            Some(whole) => found.read_fused(nest, place, whole),
        }
        found.sort(program);
        found
    }

    fn read(&mut self, program: &Program) {
        for eqn in program.eqns() {
            for var in program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()) {
                let last = &mut self.by_var[var.index()];
                *last = Last::At(eqn).max(*last);
            }
        }
    }

    /// Whatever is fused needs its operands until it is needed itself for the last time.
    fn read_fused(&mut self, nest: &Nest, place: usize, fusible: &[Option<bool>]) {
        let program = nest.program(place);
        // How often a variable is used, and whether only by what can compute it there.
        let mut uses: Vec<(u32, bool)> = vec![(0, true); program.num_vars()];
        for var in program.outvars().iter().filter_map(|atom| atom.as_var()) {
            uses[var.index()] = (1, false);
        }
        let mut calls = nest.calls(place).iter().rev().peekable();
        let mut fusions: Vec<Option<Fusion>> = vec![None; self.kinds.len()];
        for eqn in program.eqns().rev() {
            let data = program.eqn(eqn);
            let name = program.primitive(data.primitive).operation();
            let mut fusion =
                *fusions[data.primitive.index()].get_or_insert_with(|| Fusion::of(name));
            while let Some(call) = calls.next_if(|call| call.eqn == eqn) {
                let whole = fusible[call.callee].filter(|_| is_inlined(name));
                let (takes, gives) = (whole.is_some(), whole.is_some());
                fusion = Fusion { takes, gives, is_cheap: whole == Some(true) };
            }
            let is_fused = fusion.gives
                && data.outvars().all(|var| {
                    let (count, is_taken) = uses[var.index()];
                    is_taken && (count <= 1 || fusion.is_cheap)
                });
            let mut needed = Last::At(eqn);
            if is_fused {
                for var in data.outvars() {
                    self.is_fused[var.index()] = true;
                    needed = needed.max(self.by_var[var.index()]);
                }
            }
            for var in program.eqn_invars(eqn).iter().filter_map(|atom| atom.as_var()) {
                let last = &mut self.by_var[var.index()];
                *last = needed.max(*last);
                let (count, is_taken) = &mut uses[var.index()];
                *count += 1;
                *is_taken &= fusion.takes;
            }
        }
    }

    fn sort(&mut self, program: &Program) {
        let mut starts = vec![0_u32; program.num_eqns() + 1];
        for last in &self.by_var {
            if let Last::At(eqn) = last {
                starts[eqn.index() + 1] += 1;
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        self.expiring = vec![Var::from_u32(0); starts.last().map_or(0, |&end| end as usize)];
        for (var, last) in self.by_var.iter().enumerate() {
            if let Last::At(eqn) = last {
                self.expiring[next[eqn.index()] as usize] = Var::new(var);
                next[eqn.index()] += 1;
            }
        }
        self.starts = starts;
    }

    pub(super) fn kind(&self, primitive: PrimitiveId) -> Kind {
        self.kinds.get(primitive.index()).copied().unwrap_or(Kind::Other)
    }

    pub(super) fn last(&self, var: Var) -> Last {
        self.by_var[var.index()]
    }

    pub(super) fn bytes(&self, var: Var) -> u128 {
        self.bytes[var.index()]
    }

    pub(super) fn is_fused(&self, var: Var) -> bool {
        self.is_fused.get(var.index()).is_some_and(|&is_fused| is_fused)
    }

    /// The variables that an equation is the last to need.
    pub(super) fn expiring(&self, eqn: Eqn) -> &[Var] {
        &self.expiring[self.starts[eqn.index()] as usize..self.starts[eqn.index() + 1] as usize]
    }
}
