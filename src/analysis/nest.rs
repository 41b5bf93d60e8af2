//! A program and the programs that its equations run, however deep.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ir::{Eqn, ParamsId, Program, SubprogramId};

/// An equation of one of the programs of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The place of the program.
    pub place: usize,
    /// The equation.
    pub eqn: Eqn,
}

/// That an equation has a program among its params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The equation.
    pub eqn: Eqn,
    /// Which of the equation's programs it is, in the order of its params.
    pub nth: u32,
    /// The place of the program that it runs.
    pub callee: usize,
}

/// A program and its nested programs, each of them once, in a fixed order: those that others run come
/// before these, so that the outermost one is the last.
#[derive(Debug)]
pub struct Nest {
    programs: Vec<Arc<Program>>,
    /// By the address of the program.
    places: FxHashMap<usize, usize>,
    calls: Vec<Vec<Call>>,
    /// The place of a program that runs this one, and which of its calls that is.
    callers: Vec<Option<(usize, usize)>>,
}

fn address(program: &Program) -> usize {
    std::ptr::from_ref(program) as usize
}

/// Programs whose reading waits for that of others.
enum Step {
    Open(Arc<Program>),
    Close(Arc<Program>, Vec<(Eqn, u32, Arc<Program>)>),
}

/// The programs among the params of a program's equations, in order.
fn within(program: &Program) -> Vec<(Eqn, u32, Arc<Program>)> {
    let mut found = Vec::new();
    if program.subprograms().len() == 0 {
        return found;
    }
    let mut by_params: FxHashMap<ParamsId, Vec<SubprogramId>> = FxHashMap::default();
    for eqn in program.eqns() {
        let params = program.eqn(eqn).params;
        let ids = by_params.entry(params).or_insert_with(|| program.params(params).subprograms());
        for (nth, &id) in (0..).zip(&*ids) {
            let resolved = program.subprogram(id).program.clone();
            found.extend(resolved.map(|callee| (eqn, nth, callee)));
        }
    }
    found
}

impl Nest {
    /// Reads the nested programs of a resolved one.
    pub fn of(root: &Arc<Program>) -> Self {
        let mut nest = Self {
            programs: Vec::new(),
            places: FxHashMap::default(),
            calls: Vec::new(),
            callers: Vec::new(),
        };
        let mut pending = vec![Step::Open(root.clone())];
        while let Some(step) = pending.pop() {
            match step {
                Step::Open(program) => {
                    if nest.places.contains_key(&address(&program)) {
                        continue;
                    }
                    let within = within(&program);
                    let unread: Vec<_> = within
                        .iter()
                        .rev()
                        .filter(|(_, _, callee)| !nest.places.contains_key(&address(callee)))
                        .map(|(_, _, callee)| Step::Open(callee.clone()))
                        .collect();
                    pending.push(Step::Close(program, within));
                    pending.extend(unread);
                }
                Step::Close(program, within) => {
                    if !nest.places.contains_key(&address(&program)) {
                        nest.push(program, within);
                    }
                }
            }
        }
        for place in (0..nest.programs.len()).rev() {
            for (number, call) in nest.calls[place].iter().enumerate() {
                nest.callers[call.callee].get_or_insert((place, number));
            }
        }
        nest
    }

    fn push(&mut self, program: Arc<Program>, within: Vec<(Eqn, u32, Arc<Program>)>) {
        let call = |(eqn, nth, callee): (Eqn, u32, Arc<Program>)| {
            let callee = *self.places.get(&address(&callee))?;
            Some(Call { eqn, nth, callee })
        };
        self.calls.push(within.into_iter().filter_map(call).collect());
        self.places.insert(address(&program), self.programs.len());
        self.programs.push(program);
        self.callers.push(None);
    }

    /// How many programs there are.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether there are none, which never is.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// The place of the outermost program.
    pub fn root(&self) -> usize {
        self.programs.len() - 1
    }

    /// A program.
    pub fn program(&self, place: usize) -> &Arc<Program> {
        &self.programs[place]
    }

    /// The programs, in order.
    pub fn programs(&self) -> impl DoubleEndedIterator<Item = (usize, &Arc<Program>)> {
        self.programs.iter().enumerate()
    }

    /// The programs among the params of a program's equations, in the order of these.
    pub fn calls(&self, place: usize) -> &[Call] {
        &self.calls[place]
    }

    /// The place of a nested program.
    pub fn place(&self, program: &Program, id: SubprogramId) -> Option<usize> {
        let within = program.subprogram(id).program.as_ref()?;
        self.places.get(&address(within)).copied()
    }

    /// The equations through which one comes to a program from the outermost one, and which of
    /// their programs are run. Where several run the same program, it is those of one of them.
    pub fn path(&self, place: usize) -> Vec<(Site, Call)> {
        let mut path = Vec::new();
        let mut place = place;
        while let Some((caller, number)) = self.callers[place] {
            let call = self.calls[caller][number];
            path.push((Site { place: caller, eqn: call.eqn }, call));
            place = caller;
        }
        path.reverse();
        path
    }

    /// Equations in the order of the positions through which one comes to them, each as deep as it
    /// is.
    pub fn in_order(&self, mut sites: Vec<Site>) -> Vec<Site> {
        // Of a single program they are in order as they are.
        if sites.is_sorted_by(|a, b| a.place == b.place && a.eqn <= b.eqn) {
            return sites;
        }
        let mut ways: FxHashMap<usize, Vec<Call>> = FxHashMap::default();
        for site in &sites {
            let way = || self.path(site.place).into_iter().map(|(_, call)| call).collect();
            ways.entry(site.place).or_insert_with(way);
        }
        sites.sort_by(|a, b| {
            if a.place == b.place {
                return a.eqn.cmp(&b.eqn);
            }
            let (way, other) = (&ways[&a.place], &ways[&b.place]);
            let eqns = way.iter().map(|call| call.eqn).chain([a.eqn]);
            let others = other.iter().map(|call| call.eqn).chain([b.eqn]);
            let programs = || way.iter().map(|call| call.nth);
            eqns.cmp(others).then_with(|| programs().cmp(other.iter().map(|call| call.nth)))
        });
        sites
    }

    /// How often each program is run by equations, each of which counts once.
    pub fn times(&self) -> Vec<u128> {
        let mut times = vec![0_u128; self.len()];
        times[self.root()] = 1;
        for place in (0..self.len()).rev() {
            for call in &self.calls[place] {
                times[call.callee] = times[call.callee].saturating_add(times[place]);
            }
        }
        times
    }
}
