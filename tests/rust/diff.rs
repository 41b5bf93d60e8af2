//! Where programs differ: nothing exactly where they are equal, an edit where there was one.

use std::fmt::Write;
use std::sync::Arc;

use jaxide::diff::{Diff, Ends, ProgramDiff, Row, diff};
use jaxide::ir::{
    Atom, Builder, ConstId, DeadCode, DebugInfo, EffectsId, Eqn, ForeignId, ParamValue, Params,
    Program, Source, Subprogram, Var,
};
use jaxide::structure::{Nested, Objects, Place, Plain, Purpose};
use proptest::{prelude::*, sample::Index};

use crate::common::{f32_array, object, params};
use crate::specs::{
    AType, AnEqn, Noise, Numbered, Operand, Spec, Value, a_spec, a_type, an_eqn, are_equal,
    mutated, some_noise,
};

const PURPOSES: [Purpose; 3] = [Purpose::Structure, Purpose::Content, Purpose::Execution];

fn differences(one: &Spec, another: &Spec, noise: [Noise; 2], purpose: Purpose) -> Diff<Numbered> {
    let Ok(diff) = diff(one.nested(noise[0]), another.nested(noise[1]), purpose);
    diff
}

/// The rows of each program, once each and in order; one that was moved at the place of its program.
fn assert_whole<O>(diff: &ProgramDiff<O>) {
    let mut seen: [Vec<Eqn>; 2] = Default::default();
    for row in &diff.rows {
        let (own, other) = match *row {
            Row::Removed(own) | Row::MovedTo(own, _) => (Some(own), None),
            Row::Added(other) | Row::MovedFrom(_, other) => (None, Some(other)),
            Row::Same(own, other) | Row::Changed(own, other, _) => (Some(own), Some(other)),
        };
        seen[0].extend(own);
        seen[1].extend(other);
    }
    for (program, seen) in diff.programs.iter().zip(seen) {
        assert_eq!(program.program.eqns().collect::<Vec<_>>(), seen);
    }
}

/// What is found, with the sides exchanged; rows without an order, since what is removed comes first.
fn exchanged<O>(diff: &Diff<O>, exchange: bool) -> String {
    let mut text = String::new();
    for ProgramDiff { path, inputs, rows, results, effects, .. } in &diff.programs {
        let swap = |row: &Row| match *row {
            _ if !exchange => row.clone(),
            Row::Removed(eqn) => Row::Added(eqn),
            Row::Added(eqn) => Row::Removed(eqn),
            Row::Same(eqn, other) => Row::Same(other, eqn),
            Row::Changed(eqn, other, ref places) => Row::Changed(other, eqn, places.clone()),
            Row::MovedTo(eqn, other) => Row::MovedFrom(other, eqn),
            Row::MovedFrom(eqn, other) => Row::MovedTo(other, eqn),
        };
        let swap_end = |end: &Ends| match *end {
            _ if !exchange => *end,
            Ends::Removed(index) => Ends::Added(index),
            Ends::Added(index) => Ends::Removed(index),
            Ends::Changed(index, other) => Ends::Changed(other, index),
            Ends::Value(index, other) => Ends::Value(other, index),
        };
        let sorted = |texts: Vec<String>| {
            let mut texts = texts;
            texts.sort();
            texts
        };
        let rows = sorted(rows.iter().map(|row| format!("{:?}", swap(row))).collect());
        let ends = inputs.iter().map(|end| format!("in {:?}", swap_end(end)));
        let ends = ends.chain(results.iter().map(|end| format!("out {:?}", swap_end(end))));
        let ends = sorted(ends.collect());
        let path: Vec<_> = path
            .iter()
            .map(|step| {
                let [eqn, other] = step.eqns;
                if exchange { (other, eqn, &step.param) } else { (eqn, other, &step.param) }
            })
            .collect();
        write!(text, "{path:?} {rows:?} {ends:?} {effects}").unwrap();
    }
    text
}

fn assert_consistent(one: &Spec, another: &Spec, noise: [Noise; 2]) {
    for purpose in PURPOSES {
        let found = differences(one, another, noise, purpose);
        assert_eq!(found.programs.is_empty(), are_equal(one, another, noise, purpose));
        found.programs.iter().for_each(assert_whole);
        let back = differences(another, one, [noise[1], noise[0]], purpose);
        assert_eq!(exchanged(&found, false), exchanged(&back, true));
    }
}

/// The rows that differ; the programs within are the same.
fn edits<O>(diff: &Diff<O>) -> Vec<Row> {
    let [ProgramDiff { path, inputs, rows, results, effects: false, .. }] = &*diff.programs else {
        panic!("{} programs differ", diff.programs.len());
    };
    assert!(path.is_empty() && inputs.is_empty() && results.is_empty());
    rows.iter().filter(|row| row.differs()).cloned().collect()
}

fn eqn(index: usize) -> Eqn {
    Eqn::from_u32(u32::try_from(index).unwrap())
}

proptest! {
    #[test]
    fn nothing_differs_where_programs_are_equal(
        spec in a_spec(2),
        other in a_spec(1),
        which in any::<Index>(),
        eqn in an_eqn(2),
        ty in a_type(),
        one in some_noise(),
        another in some_noise(),
    ) {
        assert_consistent(&spec, &spec, [one, another]);
        assert_consistent(&spec, &other, [one, another]);
        if let Some((new, _)) = mutated(&spec, which, &eqn, &ty) {
            assert_consistent(&spec, &new, [one, another]);
        }
    }

    #[test]
    fn an_equation_is_inserted(
        spec in a_spec(2),
        which in any::<Index>(),
        inserted in an_eqn(1),
        one in some_noise(),
        another in some_noise(),
    ) {
        // Of nothing but literals, and without outputs: what the others refer to is the same.
        let place = which.index(spec.eqns.len() + 1);
        let mut new = spec.clone();
        let operands = inserted.operands.into_iter();
        let operands = operands.filter(|operand| matches!(operand, Operand::Literal(..))).collect();
        let effect = inserted.effect.map(|(kind, _)| (kind, None));
        new.eqns.insert(place, AnEqn { outputs: vec![], operands, effect, ..inserted });
        let found = differences(&spec, &new, [one, another], Purpose::Content);
        let [Row::Added(added)] = *edits(&found) else {
            panic!("{:?}", edits(&found));
        };
        // Of equal ones beside one another any is the new one.
        let added = added.as_u32() as usize;
        let (from, to) = (added.min(place), added.max(place));
        for between in from..to {
            let mut less = new.clone();
            less.eqns.remove(between);
            let noise = [one, another];
            prop_assert!(are_equal(&spec, &less, noise, Purpose::Content));
        }
        let found = differences(&new, &spec, [one, another], Purpose::Content);
        let [Row::Removed(removed)] = *edits(&found) else {
            panic!("{:?}", edits(&found));
        };
        prop_assert_eq!(removed.as_u32() as usize, added);
    }

    #[test]
    fn an_equation_is_changed(
        spec in a_spec(2),
        which in any::<Index>(),
        what in 0..4_u8,
        one in some_noise(),
        another in some_noise(),
    ) {
        if spec.eqns.is_empty() {
            return Ok(());
        }
        let changed = which.index(spec.eqns.len());
        let mut old = spec.clone();
        let mut new = spec;
        let expected = match what {
            0 => {
                new.eqns[changed].context += 1;
                Place::Context
            }
            1 => {
                old.eqns[changed].params.push(Value::Int(1));
                new.eqns[changed].params.push(Value::Int(2));
                Place::Param(format!("k{}", new.eqns[changed].params.len() - 1).into())
            }
            2 => {
                let ty = || AType { dtype: 1, shape: vec![], weak: false, space: false, reference: false };
                old.eqns[changed].operands = vec![Operand::Literal(ty(), 1)];
                new.eqns[changed].operands = vec![Operand::Literal(ty(), 2)];
                Place::Operand(0)
            }
            _ => {
                old.eqns[changed].effect = None;
                new.eqns[changed].effect = Some((0, None));
                Place::Effects
            }
        };
        let found = differences(&old, &new, [one, another], Purpose::Content);
        // The same equation beside it may be taken for the old one: then it was added and removed.
        let edits = edits(&found);
        if let [Row::Changed(own, other, places)] = &*edits {
            prop_assert_eq!(own, other);
            prop_assert_eq!(own.as_u32() as usize, changed);
            prop_assert_eq!(&**places, &[expected]);
        } else {
            let is_like = |spec: &Spec, eqn: &AnEqn| {
                let text = format!("{eqn:?}");
                spec.eqns.iter().any(|other| format!("{other:?}") == text)
            };
            let is_repeated =
                is_like(&old, &new.eqns[changed]) || is_like(&new, &old.eqns[changed]);
            prop_assert!(is_repeated, "{edits:?}");
        }
    }
}

/// A chain: each equation has the last result as its first operand.
#[derive(Clone)]
struct Link {
    primitive: u32,
    /// The result of which equation is the other operand.
    also: Option<usize>,
    param: i64,
    within: Option<Arc<Program>>,
}

fn link(primitive: u32) -> Link {
    Link { primitive, also: None, param: 0, within: None }
}

fn chain(links: &[Link]) -> Arc<Program> {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[2]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let mut vars = vec![b.invar(ty).unwrap()];
    for (number, link) in links.iter().enumerate() {
        let primitive =
            b.primitive(&format!("p{}", link.primitive), false, object(10 + link.primitive));
        let mut values = vec![("number", ParamValue::Int(link.param))];
        if let Some(program) = &link.within {
            let id = b.subprogram(object(1000 + u32::try_from(number).unwrap()));
            b.resolve_subprogram(id, program.clone());
            values.push(("program", ParamValue::Program(id)));
        }
        let params = b.params(params(values));
        let mut operands: Vec<Atom> = vec![(*vars.last().unwrap()).into()];
        operands.extend(link.also.map(|also| Atom::var(vars[also + 1])));
        let eqn =
            b.eqn(primitive, params, &operands, &[ty], EffectsId::NONE, source, context).unwrap();
        vars.push(b.outvars_of(eqn).0);
    }
    let last: Var = *vars.last().unwrap();
    Arc::new(b.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap())
}

fn between(one: &Arc<Program>, another: &Arc<Program>) -> Diff<Plain> {
    let [one, another] = [one, another].map(|program| Nested::plain(program.clone()));
    diff(one, another, Purpose::Content).unwrap()
}

/// Layers of different equations.
fn layers(count: u32) -> Vec<Link> {
    (0..count).flat_map(|_| (0..5).map(link)).collect()
}

#[test]
fn what_is_inserted_into_a_chain() {
    let links = layers(6);
    for place in 0..links.len() {
        let mut new = links.clone();
        new.insert(place, link(9));
        let found = between(&chain(&links), &chain(&new));
        // What follows has another operand.
        let expected = [
            Row::Added(eqn(place)),
            Row::Changed(eqn(place), eqn(place + 1), vec![Place::Operand(0)]),
        ];
        assert_eq!(edits(&found), expected, "at {place}");
    }
}

#[test]
fn what_is_deleted_from_a_chain_of_one_kind() {
    // Which equation is gone is known only by who uses the results of which.
    let mut links = vec![link(0); 40];
    for (index, link) in links.iter_mut().enumerate().skip(2) {
        link.also = Some(index - 2);
    }
    let old = chain(&links);
    for place in 3..38 {
        let mut new = links.clone();
        new.remove(place);
        for link in &mut new[place..] {
            link.also = link.also.map(|also| if also >= place { also - 1 } else { also });
        }
        let found = between(&old, &chain(&new));
        let edits = edits(&found);
        let removed = edits.iter().filter(|row| matches!(row, Row::Removed(_))).count();
        assert_eq!((removed, edits.len() <= 4), (1, true), "at {place}: {edits:?}");
    }
}

#[test]
fn another_primitive_at_the_same_place() {
    let links = layers(3);
    let mut new = links.clone();
    new[7] = link(9);
    let found = between(&chain(&links), &chain(&new));
    assert_eq!(edits(&found), [Row::Changed(eqn(7), eqn(7), vec![Place::Primitive])]);
    // And one after the other.
    new[8] = link(8);
    let found = between(&chain(&links), &chain(&new));
    let changed = |index| Row::Changed(eqn(index), eqn(index), vec![Place::Primitive]);
    assert_eq!(edits(&found), [changed(7), changed(8)]);
}

#[test]
fn what_is_moved() {
    // All use the first, so that their order says nothing.
    let program = |order: &[u32]| {
        let mut b = Builder::new(DeadCode::Keep);
        let ty = b.ty(f32_array(&[2]));
        let (source, context) = (b.source(Source::default()), b.context(object(0)));
        let input = b.invar(ty).unwrap();
        let params = b.params(Params::default());
        let mut results = vec![None; order.len()];
        for &kind in order {
            let primitive = b.primitive(&format!("p{kind}"), false, object(10 + kind));
            let operands = [input.into()];
            let eqn = b
                .eqn(primitive, params, &operands, &[ty], EffectsId::NONE, source, context)
                .unwrap();
            results[kind as usize] = Some(Atom::var(b.outvars_of(eqn).0));
        }
        let results: Vec<Atom> = results.into_iter().flatten().collect();
        Arc::new(b.finish(&results, DebugInfo::default(), EffectsId::NONE).unwrap())
    };
    let found = between(&program(&[0, 1, 2, 3, 4]), &program(&[1, 2, 3, 0, 4]));
    assert_eq!(edits(&found), [Row::MovedTo(eqn(0), eqn(3)), Row::MovedFrom(eqn(0), eqn(3))]);
}

#[test]
fn programs_within_are_compared_once() {
    let inner = |param| chain(&[link(0), Link { param, ..link(1) }]);
    let outer = |inner: &Arc<Program>| {
        let within = |primitive| Link { within: Some(inner.clone()), ..link(primitive) };
        chain(&[within(5), link(2), within(5), within(6)])
    };
    let found = between(&outer(&inner(1)), &outer(&inner(2)));
    let [ProgramDiff { path, rows, .. }] = &*found.programs else { panic!("one differs") };
    assert_eq!(path.len(), 1);
    assert_eq!((path[0].eqns, &*path[0].param), ([eqn(0); 2], "program"));
    let changed = Row::Changed(eqn(1), eqn(1), vec![Place::Param("number".into())]);
    assert_eq!(rows[1], changed);
}

#[test]
fn programs_nested_deeply() {
    let deep = |param| {
        let mut program = chain(&[Link { param, ..link(0) }]);
        for _ in 0..5000 {
            program = chain(&[link(1), Link { within: Some(program), ..link(2) }]);
        }
        program
    };
    let (one, another) = (deep(1), deep(2));
    let found = between(&one, &another);
    let [ProgramDiff { path, .. }] = &*found.programs else { panic!("one differs") };
    assert_eq!(path.len(), 5000);
    assert!(path.iter().all(|step| step.eqns == [eqn(1); 2]));
    assert!(between(&one, &deep(1)).programs.is_empty());
}

/// Numbers below bounds, in an order without a rule.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn links(&mut self, count: u64) -> Vec<Link> {
        (0..count).map(|_| link(u32::try_from(self.below(16)).unwrap())).collect()
    }
}

#[test]
fn edits_of_long_programs_that_repeat_themselves() {
    // Nothing occurs once, so only the order tells what is which.
    let mut numbers = Numbers(7);
    for (period, most) in [(100, 40), (500, 40), (2000, 40), (2000, 400), (5000, 400)] {
        let once = numbers.links(period);
        let old: Vec<_> = once.iter().cycle().take(20_000).cloned().collect();
        let (mut new, mut expected, mut next) = (Vec::new(), 0, 0);
        while next < old.len() {
            let kept = usize::try_from(numbers.below(50 * most)).unwrap();
            let edited = 1 + numbers.below(most);
            let end = old.len().min(next + kept);
            new.extend_from_slice(&old[next..end]);
            next = end;
            if numbers.below(2) == 0 {
                new.extend(numbers.links(edited));
            } else {
                next = old.len().min(next + usize::try_from(edited).unwrap());
            }
            // What follows has another operand.
            expected += usize::try_from(edited).unwrap() + 1;
        }
        let found = between(&chain(&old), &chain(&new));
        let [program] = &*found.programs else { panic!("one differs") };
        assert_whole(program);
        let count = program.count();
        assert!(count <= expected * 5 / 4, "period {period}, up to {most}: {count}, {expected}");
    }
}

#[test]
fn entirely_different_programs() {
    // As many equations of as few kinds as there may be, in other orders.
    let [one, another] = [1, 2].map(|seed| chain(&Numbers(seed).links(20_000)));
    let found = between(&one, &another);
    let [program] = &*found.programs else { panic!("one differs") };
    assert_whole(program);
    assert!(program.count() > 1000);
}

#[test]
fn ends_of_programs() {
    let program = |inputs: &[&[u64]], constants: &[u32], results: &[usize]| {
        let mut b = Builder::new(DeadCode::Keep);
        let mut vars = Vec::new();
        for &value in constants {
            let ty = b.ty(f32_array(&[7]));
            let var = b.constvar(ty, ConstId::from_u32(value)).unwrap();
            b.retain(var);
            vars.push(var);
        }
        for shape in inputs {
            let ty = b.ty(f32_array(shape));
            vars.push(b.invar(ty).unwrap());
        }
        let results: Vec<Atom> = results.iter().map(|&index| vars[index].into()).collect();
        Arc::new(b.finish(&results, DebugInfo::default(), EffectsId::NONE).unwrap())
    };
    let ends = |one: &Arc<Program>, another: &Arc<Program>| {
        let found = between(one, another);
        let [ProgramDiff { inputs, results, .. }] = &*found.programs else { panic!("they differ") };
        (inputs.clone(), results.clone())
    };
    let old = program(&[&[1], &[2]], &[1], &[0, 1, 2]);
    let added = program(&[&[1], &[3], &[2]], &[1], &[0, 1, 3]);
    assert_eq!(ends(&old, &added), (vec![Ends::Added(2)], vec![]));
    assert_eq!(ends(&added, &old), (vec![Ends::Removed(2)], vec![]));
    let another_type = program(&[&[1], &[5]], &[1], &[0, 1, 2]);
    assert_eq!(ends(&old, &another_type), (vec![Ends::Changed(2, 2)], vec![]));
    let another_value = program(&[&[1], &[2]], &[4], &[0, 1, 2]);
    assert_eq!(ends(&old, &another_value), (vec![Ends::Value(0, 0)], vec![]));
    let fewer_results = program(&[&[1], &[2]], &[1], &[0, 2]);
    assert_eq!(ends(&old, &fewer_results), (vec![], vec![Ends::Removed(1)]));
    let other_results = program(&[&[1], &[2]], &[1], &[0, 2, 2]);
    assert_eq!(ends(&old, &other_results), (vec![], vec![Ends::Changed(1, 1)]));
}

/// Objects say whether they are the same; what they are described by only finds candidates.
#[test]
fn equality_decides() {
    /// Objects that all read alike.
    #[derive(Clone)]
    struct Alike;
    impl Objects for Alike {
        type Error = std::convert::Infallible;
        fn nested(&self, subprogram: &Subprogram) -> Result<Nested<Self>, Self::Error> {
            let program = subprogram.program.clone().unwrap();
            Ok(Nested { key: Arc::as_ptr(&program) as usize, program, objects: Self })
        }
        fn describe(&self, _: ForeignId) -> Result<jaxide::structure::Fingerprint, Self::Error> {
            Ok(jaxide::structure::Fingerprint(0))
        }
        fn is_executed(&self, _: &jaxide::ir::PrimitiveData, _: &str) -> bool {
            true
        }
        fn describe_constant(
            &self,
            _: ConstId,
        ) -> Result<jaxide::structure::Fingerprint, Self::Error> {
            Ok(jaxide::structure::Fingerprint(0))
        }
        fn type_of(&self, _: ForeignId) -> Result<Option<jaxide::ir::Type>, Self::Error> {
            Ok(None)
        }
        fn same(&self, own: ForeignId, _: &Self, other: ForeignId) -> Result<bool, Self::Error> {
            Ok(own == other)
        }
        fn same_constant(
            &self,
            own: ConstId,
            _: &Self,
            other: ConstId,
        ) -> Result<bool, Self::Error> {
            Ok(own == other)
        }
    }
    let program = |function: u32| {
        let mut b = Builder::new(DeadCode::Keep);
        let (source, context) = (b.source(Source::default()), b.context(object(0)));
        let primitive = b.primitive("call", true, object(1));
        let params = b.params(params(vec![("function", ParamValue::Opaque(object(function)))]));
        b.eqn(primitive, params, &[], &[], EffectsId::NONE, source, context).unwrap();
        let program = Arc::new(b.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap());
        Nested { key: Arc::as_ptr(&program) as usize, program, objects: Alike }
    };
    let Ok(found) = diff(program(5), program(6), Purpose::Content);
    assert_eq!(
        edits(&found),
        [Row::Changed(eqn(0), eqn(0), vec![Place::Param("function".into())])]
    );
}
