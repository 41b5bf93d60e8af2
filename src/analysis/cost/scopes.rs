//! What programs cost by name scope or by line: by those of equations, and of equations that run their programs.

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ir::SourceId;

use super::{Line, Report};

/// A name, as whoever asks has numbered it.
pub type Name = u32;

/// More pairs of scopes and equations than this are counted without the scopes around a program.
const MAX_STEPS: usize = 1 << 24;

/// Scopes, each within another.
#[derive(Default)]
struct Scopes {
    /// The scope around each, and its own name; the first one is around all.
    within: Vec<(u32, Name)>,
    known: FxHashMap<(u32, Name), u32>,
}

impl Scopes {
    fn new() -> Self {
        Self { within: vec![(0, 0)], known: FxHashMap::default() }
    }

    /// The scope of these names within another.
    fn of(&mut self, around: u32, names: &[Name]) -> u32 {
        names.iter().fold(around, |around, &name| {
            *self.known.entry((around, name)).or_insert_with(|| {
                self.within.push((around, name));
                u32::try_from(self.within.len() - 1).unwrap_or(u32::MAX)
            })
        })
    }

    /// The names of a scope, the outermost one first.
    fn names(&self, mut scope: u32) -> Vec<Name> {
        let mut names = Vec::new();
        while scope != 0 {
            let (around, name) = self.within[scope as usize];
            names.push(name);
            scope = around;
        }
        names.reverse();
        names
    }
}

/// What equations cost by the scopes around them: of each scope, those of scopes within it left out; in the order in
/// which they are met. `names` says which scopes a source has, of a program by its place in the report.
pub fn by_scope(
    report: &Report,
    names: impl FnMut(usize, SourceId) -> Vec<Name>,
) -> Vec<(Vec<Name>, Line)> {
    let (scopes, found) = within(report, names, Scopes::of);
    found.into_iter().map(|(scope, line)| (scopes.names(scope), line)).collect()
}

/// What equations cost by the innermost name that is known: one without a name counts for the equation that runs its
/// program; None where that has none either. `name` says which one a source has.
pub fn by_name(
    report: &Report,
    mut name: impl FnMut(usize, SourceId) -> Option<Name>,
) -> Vec<(Option<Name>, Line)> {
    let names = |place, source| name(place, source).into_iter().collect();
    let (scopes, found) =
        within(
            report,
            names,
            |scopes, around, names| {
                if names.is_empty() { around } else { scopes.of(0, names) }
            },
        );
    found.into_iter().map(|(scope, line)| (scopes.names(scope).pop(), line)).collect()
}

/// What equations cost by scope, which `join` makes of the one around their program and of their names.
fn within(
    report: &Report,
    mut names: impl FnMut(usize, SourceId) -> Vec<Name>,
    join: impl Fn(&mut Scopes, u32, &[Name]) -> u32,
) -> (Scopes, IndexMap<u32, Line, FxBuildHasher>) {
    let mut scopes = Scopes::new();
    let mut found: IndexMap<u32, Line, FxBuildHasher> = IndexMap::default();
    // How often each program runs in which scope; those that run it come before it.
    let mut runs: Vec<IndexMap<u32, u128, FxBuildHasher>> = Vec::new();
    runs.resize_with(report.programs.len(), IndexMap::default);
    if let Some(root) = runs.first_mut() {
        root.insert(0, 1);
    }
    let mut steps = 0_usize;
    for (place, nested) in report.programs.iter().enumerate() {
        let mut around = std::mem::take(&mut runs[place]);
        steps = steps.saturating_add(around.len().saturating_mul(nested.eqns.len()));
        if steps > MAX_STEPS {
            let times = around.values().fold(0_u128, |all, &times| all.saturating_add(times));
            around = std::iter::once((0, times)).collect();
        }
        let mut of_source: FxHashMap<SourceId, Vec<Name>> = FxHashMap::default();
        let mut known: FxHashMap<(u32, SourceId), u32> = FxHashMap::default();
        let mut scope = |scopes: &mut Scopes, around: u32, source: SourceId| -> u32 {
            *known.entry((around, source)).or_insert_with(|| {
                let names = of_source.entry(source).or_insert_with(|| names(place, source));
                join(scopes, around, names)
            })
        };
        let source = |eqn| nested.program.eqn(eqn).source;
        for (&around, &times) in &around {
            for &eqn in &nested.leaves {
                let Some(cost) = nested.eqns[eqn.as_u32() as usize] else { continue };
                let own = found.entry(scope(&mut scopes, around, source(eqn))).or_default();
                own.times = own.times.saturating_add(times);
                own.cost += cost * times;
            }
            for &(within, calls, eqn) in &nested.calls {
                let own = scope(&mut scopes, around, source(eqn));
                let runs = runs[within].entry(own).or_default();
                *runs = runs.saturating_add(times.saturating_mul(calls));
            }
        }
    }
    (scopes, found)
}
