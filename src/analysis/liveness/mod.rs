//! Which values are alive when, and the bytes that they take.
//!
//! The equations of a program run one after another. A value takes its bytes from the equation that
//! defines it until the last one that needs it; inputs and constants take theirs all the time, unless
//! an input is donated. What is defined may take over the bytes of an operand that nobody needs any
//! more: `docs/liveness.md` says where.
//!
//! A program that an equation runs is read once for each set of inputs whose bytes it may take over
//! (those that nobody needs after it), up to a number of sets; beyond that it takes over none, which
//! is never too little. What is within an equation is counted as the most that is alive there at any
//! time, of inputs only those that may be taken over: all others the equation's own program counts.

mod effect;
mod lasts;
mod peak;
mod rules;

use std::rc::Rc;

use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Atom, Eqn, TypeId, Var};

use super::nest::{Nest, Site};
use super::values::bytes;
use super::wiring::{Wiring, wiring};

use effect::{Effect, Placement};
pub use lasts::Last;
use lasts::{Lasts, fused_programs};

/// How many different ways of being run are told apart for each program.
const MAX_WAYS: usize = 64;

/// What liveness assumes.
#[derive(Clone, Debug, Default)]
pub struct Assumptions {
    /// Inputs of the outermost program whose bytes may be taken over; the others are kept.
    pub donated: Vec<bool>,
    /// That what is computed element by element is computed where it is needed, as compilers do.
    pub fused: bool,
}

/// Bytes that are alive around an equation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alive {
    /// Before it runs.
    pub before: u128,
    /// The most while it runs.
    pub during: u128,
    /// When it has run and what nobody needs any more is gone.
    pub after: u128,
}

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An input of the outermost program, by position.
    Input(usize),
    /// A constant of a program, by position.
    Constant(usize, usize),
    /// A result of an equation.
    Result(Site, usize),
    /// What an equation has for itself while it runs programs: an input of one, by position.
    Within(Site, usize),
    /// The copy that an output of a program is, by position.
    Output(usize, usize),
}

/// A value that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// What defines it.
    pub origin: Origin,
    /// The place of the program that has its type, and the type.
    pub ty: (usize, TypeId),
    /// Its bytes.
    pub bytes: u128,
}

/// What is alive when in a program.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// Bytes around each equation of the outermost program.
    pub curve: Vec<Alive>,
    /// Bytes at the end, when outputs have bytes of their own; the same one twice has them once.
    pub end: u128,
    /// The most bytes at any time.
    pub peak: u128,
    /// The innermost equation at which that is; none where it is the beginning or the end.
    pub peak_at: Option<Site>,
    /// What is alive then, the largest first.
    pub alive: Vec<Value>,
    /// When each input is needed for the last time.
    pub inputs: Vec<Last>,
    /// When each result of each equation of the outermost program is.
    pub results: Vec<Vec<Last>>,
    /// The most bytes while each equation of a nested program runs, by its place: of what the program
    /// makes, and of inputs that it may take over, where it has the most of them. None of the
    /// outermost program, and of those that nothing runs.
    pub within: Vec<Option<Vec<u128>>>,
    /// Bytes of inputs.
    pub input_bytes: u128,
    /// Bytes of the constants of all programs.
    pub constant_bytes: u128,
    /// Bytes of outputs, those that are the same counted once.
    pub output_bytes: u128,
}

/// A program, and the inputs whose bytes it may take over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    place: usize,
    given: Box<[bool]>,
}

/// Where an output of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// In the bytes of an input.
    Input(usize),
    /// In bytes that the program made, told apart by a number.
    Own(usize),
    Constant,
}

/// When a program has the most bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramPoint {
    Start,
    At(Eqn),
    End,
}

/// What one needs to know of a program that an equation runs.
#[derive(Clone, Debug)]
struct Summary {
    /// The most bytes at any time: of what it makes, and of inputs that it may take over.
    peak: u128,
    peak_at: ProgramPoint,
    outputs: Vec<Owner>,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    bytes: u128,
    /// How many variables that are alive are in it.
    vars: u32,
    /// The program does not give it back.
    is_held: bool,
    /// The variable that was in it first, and whether it is an input.
    first: Var,
}

type BufferId = u32;
const NOWHERE: BufferId = u32::MAX;

/// A program while it is read.
struct Frame {
    way: Way,
    lasts: Rc<Lasts>,
    buffers: Vec<Buffer>,
    /// Where each variable is.
    of: Vec<BufferId>,
    /// Bytes that are alive.
    alive: u128,
    peak: u128,
    peak_at: ProgramPoint,
    /// Bytes around the equations that have run.
    curve: Vec<Alive>,
    next: u32,
}

struct Reader<'n> {
    nest: &'n Nest,
    fused: Option<Vec<Option<bool>>>,
    lasts: FxHashMap<usize, Rc<Lasts>>,
    wirings: FxHashMap<Site, Option<Wiring>>,
    summaries: FxHashMap<Way, Summary>,
    /// How many ways each program is run in.
    ways: Vec<usize>,
    /// The most bytes that each program has, and those while each of its equations runs then.
    most: Vec<Option<(u128, Vec<u128>)>>,
}

impl Frame {
    fn new_buffer(&mut self, var: Var, bytes: u128, is_held: bool) -> BufferId {
        let id = BufferId::try_from(self.buffers.len()).unwrap_or(NOWHERE);
        self.buffers.push(Buffer { bytes, vars: 0, is_held, first: var });
        if !is_held {
            self.alive += bytes;
        }
        id
    }

    fn put(&mut self, var: Var, buffer: BufferId) {
        self.of[var.index()] = buffer;
        if let Some(buffer) = self.buffers.get_mut(buffer as usize) {
            buffer.vars += 1;
        }
    }

    fn buffer(&self, var: Var) -> Option<&Buffer> {
        self.buffers.get(self.of[var.index()] as usize)
    }

    /// A variable is not needed any more.
    fn drop(&mut self, var: Var) {
        let Some(buffer) = self.buffers.get_mut(self.of[var.index()] as usize) else { return };
        buffer.vars -= 1;
        if buffer.vars == 0 && !buffer.is_held {
            self.alive -= buffer.bytes;
        }
    }

    /// Whether nobody but an equation needs what is where a variable is, and it may be taken over.
    fn is_free_after(&self, var: Var, eqn: Eqn) -> bool {
        self.lasts.last(var) == Last::At(eqn)
            && self.buffer(var).is_some_and(|buffer| buffer.vars == 1 && !buffer.is_held)
    }
}

impl Reader<'_> {
    fn lasts(&mut self, place: usize) -> Rc<Lasts> {
        let (nest, fused) = (self.nest, self.fused.as_deref());
        let known = self.lasts.entry(place);
        known.or_insert_with(|| Rc::new(Lasts::of(nest, place, fused))).clone()
    }

    fn open(&mut self, way: Way) -> Frame {
        let lasts = self.lasts(way.place);
        let nest = self.nest;
        let program = nest.program(way.place);
        for call in nest.calls(way.place) {
            let site = Site { place: way.place, eqn: call.eqn };
            let known = self.wirings.entry(site);
            known.or_insert_with(|| wiring(nest, site.place, site.eqn));
        }
        let mut frame = Frame {
            of: vec![NOWHERE; program.num_vars()],
            buffers: Vec::new(),
            alive: 0,
            peak: 0,
            peak_at: ProgramPoint::Start,
            curve: Vec::with_capacity(program.num_eqns()),
            next: 0,
            lasts,
            way,
        };
        for (input, &var) in program.invars().iter().enumerate() {
            let is_held = !frame.way.given.get(input).is_some_and(|&is_given| is_given);
            let id = frame.new_buffer(var, frame.lasts.bytes(var), is_held);
            frame.put(var, id);
        }
        for &(var, _) in program.constvars() {
            let id = frame.new_buffer(var, frame.lasts.bytes(var), true);
            frame.put(var, id);
        }
        frame.peak = frame.alive;
        for &var in program.invars() {
            if frame.lasts.last(var) == Last::Never {
                frame.drop(var);
            }
        }
        frame
    }

    /// What is known of a program that is run in some way.
    fn summary(&self, way: Way) -> Result<(&Summary, Way), Way> {
        if let Some(known) = self.summaries.get(&way) {
            return Ok((known, way));
        }
        if self.ways[way.place] < MAX_WAYS {
            return Err(way);
        }
        let plain = Way { given: vec![false; way.given.len()].into(), ..way };
        match self.summaries.get(&plain) {
            Some(known) => Ok((known, plain)),
            None => Err(plain),
        }
    }

    /// Runs the equations of a frame up to one; what that one does.
    fn advance(&self, frame: &mut Frame, until: Option<Eqn>) -> Result<Option<Effect>, Way> {
        let program = self.nest.program(frame.way.place);
        let lasts = frame.lasts.clone();
        while (frame.next as usize) < program.num_eqns() {
            let eqn = Eqn::from_u32(frame.next);
            let before = frame.alive;
            let effect = self.effect(frame, eqn)?;
            if effect.during > frame.peak {
                (frame.peak, frame.peak_at) = (effect.during, ProgramPoint::At(eqn));
            }
            if until == Some(eqn) {
                return Ok(Some(effect));
            }
            let mut groups: SmallVec<[(usize, BufferId); 2]> = SmallVec::new();
            for (var, placement) in program.eqn_outvars(eqn).zip(&effect.placements) {
                let buffer = match *placement {
                    Placement::In(other) => frame.of[other.index()],
                    Placement::None => NOWHERE,
                    Placement::New(group) => {
                        let known = groups.iter().find(|(known, _)| *known == group);
                        if let Some(&(_, known)) = known {
                            known
                        } else {
                            let id = frame.new_buffer(var, lasts.bytes(var), false);
                            groups.push((group, id));
                            id
                        }
                    }
                };
                frame.put(var, buffer);
            }
            for &var in lasts.expiring(eqn) {
                frame.drop(var);
            }
            for var in program.eqn_outvars(eqn) {
                if lasts.last(var) == Last::Never {
                    frame.drop(var);
                }
            }
            frame.next += 1;
            frame.curve.push(Alive { before, during: effect.during, after: frame.alive });
        }
        Ok(None)
    }

    /// The outputs of a program that are copies, when all equations have run: literals, and for the
    /// outermost program, whose outputs are their caller's alone, what is kept or another output.
    fn copies(&self, frame: &Frame, is_root: bool) -> Vec<usize> {
        let program = self.nest.program(frame.way.place);
        let mut seen: FxHashMap<BufferId, Var> = FxHashMap::default();
        let mut copies = Vec::new();
        for (at, atom) in program.outvars().iter().enumerate() {
            let is_copy = atom.as_var().is_none_or(|var| {
                let id = frame.of[var.index()];
                let Some(buffer) = frame.buffers.get(id as usize).filter(|_| is_root) else {
                    return false;
                };
                match seen.insert(id, var) {
                    None => buffer.is_held,
                    Some(before) => before != var,
                }
            });
            if is_copy {
                copies.push(at);
            }
        }
        copies
    }

    /// What there is to know of a program whose equations have all run.
    fn close(&self, frame: &mut Frame, is_root: bool) -> Summary {
        let program = self.nest.program(frame.way.place);
        for at in self.copies(frame, is_root) {
            frame.alive += bytes(program.ty(program.atom_type(program.outvars()[at])));
        }
        if frame.alive > frame.peak {
            (frame.peak, frame.peak_at) = (frame.alive, ProgramPoint::End);
        }
        let inputs: FxHashMap<Var, usize> =
            program.invars().iter().enumerate().map(|(at, &var)| (var, at)).collect();
        let owner = |(at, atom): (usize, &Atom)| {
            // Literals are told apart by their positions.
            let Some(var) = atom.as_var() else { return Owner::Own(frame.buffers.len() + at) };
            let id = frame.of[var.index()];
            let Some(buffer) = frame.buffers.get(id as usize) else { return Owner::Constant };
            match inputs.get(&buffer.first) {
                Some(&input) => Owner::Input(input),
                None if buffer.is_held => Owner::Constant,
                None => Owner::Own(id as usize),
            }
        };
        let outputs = program.outvars().iter().enumerate().map(owner).collect();
        Summary { peak: frame.peak, peak_at: frame.peak_at, outputs }
    }

    /// Reads the equations of a program, and before an equation what it runs.
    fn read(&mut self, root: Way) -> (Frame, Summary) {
        let mut frame = self.open(root);
        let mut waiting: Vec<Frame> = Vec::new();
        loop {
            if let Err(way) = self.advance(&mut frame, None) {
                let within = self.open(way);
                waiting.push(std::mem::replace(&mut frame, within));
                continue;
            }
            let summary = self.close(&mut frame, waiting.is_empty());
            let Some(caller) = waiting.pop() else { return (frame, summary) };
            let Frame { way, curve, .. } = std::mem::replace(&mut frame, caller);
            self.ways[way.place] += 1;
            let most = &mut self.most[way.place];
            if most.as_ref().is_none_or(|(peak, _)| *peak < summary.peak) {
                *most = Some((summary.peak, curve.iter().map(|alive| alive.during).collect()));
            }
            self.summaries.insert(way, summary);
        }
    }
}

/// What is alive when in a program whose inputs are kept, but for those that are donated.
pub fn liveness(nest: &Nest, assumptions: &Assumptions) -> Liveness {
    let root = nest.root();
    let program = nest.program(root);
    let mut given = assumptions.donated.clone();
    given.resize(program.invars().len(), false);
    let mut reader = Reader {
        nest,
        fused: assumptions.fused.then(|| fused_programs(nest)),
        lasts: FxHashMap::default(),
        wirings: FxHashMap::default(),
        summaries: FxHashMap::default(),
        ways: vec![0; nest.len()],
        most: vec![None; nest.len()],
    };
    let constants = |place: usize| {
        let program = nest.program(place);
        program.constvars().iter().map(move |&(var, _)| bytes(program.ty(program.var_type(var))))
    };
    let constant_bytes: u128 = (0..nest.len()).flat_map(constants).sum();
    let size = |var: &Var| bytes(program.ty(program.var_type(*var)));
    let kept: u128 =
        program.invars().iter().zip(&given).filter(|(_, g)| !**g).map(|(v, _)| size(v)).sum();
    let always = kept + constant_bytes;
    let way = Way { place: root, given: given.into() };
    let (frame, summary) = reader.read(way.clone());
    let more = |alive: &Alive| Alive {
        before: alive.before + always,
        during: alive.during + always,
        after: alive.after + always,
    };
    let curve = frame.curve.iter().map(more).collect();
    let lasts = frame.lasts.clone();
    let (mut alive, mut peak_at) = (Vec::new(), None);
    let origins: Vec<_> = (0..program.invars().len()).map(Origin::Input).collect();
    let mut at = Some((way.clone(), origins, summary.peak_at));
    while let Some((way, origins, point)) = at.take() {
        let inner = reader.alive_at(&way, point, &origins, &mut alive);
        if let ProgramPoint::At(eqn) = point {
            peak_at = Some(Site { place: way.place, eqn });
        }
        at = inner.and_then(|(inner, origins)| {
            let point = reader.summaries.get(&inner)?.peak_at;
            Some((inner, origins, point))
        });
    }
    for (position, &var) in program.invars().iter().enumerate() {
        if !way.given[position] {
            let bytes = lasts.bytes(var);
            let ty = (root, program.var_type(var));
            alive.push(Value { origin: Origin::Input(position), ty, bytes });
        }
    }
    for (place, program) in nest.programs() {
        for (position, &(var, _)) in program.constvars().iter().enumerate() {
            let ty = program.var_type(var);
            let (origin, bytes) = (Origin::Constant(place, position), bytes(program.ty(ty)));
            alive.push(Value { origin, ty: (place, ty), bytes });
        }
    }
    alive.retain(|value| value.bytes > 0);
    alive.sort_by_key(|value| std::cmp::Reverse(value.bytes));
    let mut outputs = program.outvars().to_vec();
    outputs.sort_unstable();
    outputs.dedup();
    let output_bytes = outputs.iter().map(|&atom| bytes(program.ty(program.atom_type(atom)))).sum();
    let results = |eqn| program.eqn_outvars(eqn).map(|var| lasts.last(var)).collect();
    Liveness {
        curve,
        end: frame.alive + always,
        peak: summary.peak + always,
        peak_at,
        alive,
        inputs: program.invars().iter().map(|&var| lasts.last(var)).collect(),
        results: program.eqns().map(results).collect(),
        within: reader.most.into_iter().map(|most| Some(most?.1)).collect(),
        input_bytes: program.invars().iter().map(size).sum(),
        constant_bytes,
        output_bytes,
    }
}
