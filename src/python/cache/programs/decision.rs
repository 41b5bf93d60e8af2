//! What is known of the programs of a fragment, and whether it holds for those of another call.

use std::sync::Arc;

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::python::cache::programs::compare::Comparison;
use crate::python::cache::programs::forms::Form;
use crate::python::cache::programs::given::{Given, Repeat, same_objects};
use crate::python::cache::programs::registry::{Label, has_new_jit, last_given, note_given};
use crate::python::cache::programs::sharing::{has_multiple, next_serial};
use crate::python::jax::names::Jax;

/// What is known of the programs of a fragment.
pub struct Programs {
    /// Names the call in all its recordings.
    number: u64,
    pub(super) given: Arc<Given>,
    /// Other programs were seen to give the same but for fresh copies. Which of the programs, and of those
    /// nested in them, were the same objects then.
    for_others: Option<Fixed>,
    /// How the same programs were seen to give the same.
    repeated: SmallVec<[Repeat; 2]>,
    /// Programs made.
    made: Vec<Label>,
}

struct Fixed {
    programs: Vec<bool>,
    nested: Vec<bool>,
}

/// How a call is replayed.
pub enum Decision {
    /// With programs of its own.
    Replay,
    /// That has to be seen first.
    Learn,
    /// It has to run.
    Run,
}

impl Programs {
    /// What is known once a call has run.
    pub fn new(given: Given) -> Self {
        let (number, given) = (next_serial(), Arc::new(given));
        Self { number, given, for_others: None, repeated: SmallVec::new(), made: Vec::new() }
    }

    /// As this, where it is known that the same programs give the same.
    #[must_use]
    pub fn repeating(self) -> Self {
        Self { repeated: SmallVec::from_slice(&[Repeat::Same]), ..self }
    }

    /// Notes that the call has programs.
    pub fn note_given(&self, py: Python<'_>, given: &Given) {
        note_given(given.first(py), self.number, given.serial(py));
    }

    /// Notes that the call has those of this recording.
    pub fn note_own(&self, py: Python<'_>) {
        self.note_given(py, &self.given);
    }

    /// Whether the call had programs before.
    pub fn were_given(&self, py: Python<'_>, given: &Given) -> bool {
        last_given(given.first(py), self.number).is_some()
    }

    /// How the programs for which the call is now to run are those for which it was replayed; None where it
    /// was not.
    pub fn replayed(&self, py: Python<'_>, given: &Given) -> Option<Repeat> {
        if self.repeats(given).is_some() {
            return None;
        }
        let before = last_given(given.first(py), self.number)?;
        Some(if given.serial(py) == before { Repeat::Same } else { Repeat::Closed })
    }

    /// How a call with other programs, or the same, is replayed.
    pub fn decide(&self, py: Python<'_>, given: &Given, kept: bool) -> Decision {
        let is_plain = |label: &Label| label.maker == 0;
        if self.made.iter().any(|label| is_plain(label) && has_multiple(label.lineage, Form::Open))
        {
            return Decision::Learn;
        }
        if let Some(repeat) = self.given.repeats(given) {
            return if self.repeated.contains(&repeat) {
                Decision::Replay
            } else {
                Decision::Learn
            };
        }
        // Which of several that are structurally equal another call would have is not known.
        let has_multiple = !self.made.iter().all(is_plain);
        if kept || has_multiple || given.open.iter().any(|open| has_new_jit(open.bind(py))) {
            return Decision::Run;
        }
        let Some(fixed) = &self.for_others else { return Decision::Learn };
        let same = |own: &[Py<PyAny>], others: &[Py<PyAny>], fixed: &[bool]| {
            own.len() == others.len()
                && same_objects(own, others).zip(fixed).all(|(same, &fixed)| same || !fixed)
        };
        if !same(&self.given.programs, &given.programs, &fixed.programs)
            || !same(&self.given.nested, &given.nested, &fixed.nested)
        {
            return Decision::Learn;
        }
        match self.replayed(py, given) {
            Some(repeat) if !self.repeated.contains(&repeat) => Decision::Learn,
            _ => Decision::Replay,
        }
    }

    /// Whether the programs of a recording are those of this one.
    pub fn repeats(&self, given: &Given) -> Option<Repeat> {
        self.given.repeats(given)
    }

    /// Whether other programs were seen to give the same but for fresh copies.
    pub fn is_confirmed(&self) -> bool {
        self.for_others.is_some()
    }

    /// The programs of this recording beside those of another, whose objects may differ.
    pub fn beside<'a>(&'a self, jax: &'a Jax, now: &'a Given) -> Comparison<'a> {
        self.given.beside(jax, now)
    }

    /// What is known once the call was replayed for programs and then ran for the same.
    pub fn unrepeated(&self, given: Given) -> Self {
        Self { number: self.number, ..Self::new(given) }
    }

    /// What is known once a recording for other programs has agreed with this one.
    pub fn confirmed(&self, given: Given, made: Vec<Label>) -> Self {
        let fixed = Fixed {
            programs: same_objects(&self.given.programs, &given.programs).collect(),
            nested: same_objects(&self.given.nested, &given.nested).collect(),
        };
        let given = Arc::new(given);
        let (number, repeated) = (self.number, self.repeated.clone());
        Self { number, given, for_others: Some(fixed), repeated, made }
    }

    /// As this, for the same programs, which gave the same again.
    pub fn again(&self, given: Given, repeat: Repeat) -> Self {
        let fixed = self
            .for_others
            .as_ref()
            .map(|fixed| Fixed { programs: fixed.programs.clone(), nested: fixed.nested.clone() });
        let mut repeated = self.repeated.clone();
        if !repeated.contains(&repeat) {
            repeated.push(repeat);
        }
        let (number, given, made) = (self.number, Arc::new(given), self.made.clone());
        Self { number, given, for_others: fixed, repeated, made }
    }
}
