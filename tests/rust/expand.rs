//! The expansion cache: signatures, fragments and bounded storage.

use jaxide::expand::{
    Bounds, Cache, CallableId, Fragment, FragmentError, Operand, Operands, Signature, Tag,
    Template, out,
};
use jaxide::ir::{Atom, BuildError, DeadCode, EffectsId, EqnShape, Params, Var, verify};
use proptest::prelude::*;

use crate::common::{Fixture, object};

fn template(operands: &[Operand], outputs: usize) -> Template {
    Template::new(operands.into(), vec![0; outputs].into(), 0)
}

/// What a call of two arguments appends: `a = split x y; b = sin a.1`.
fn fragment() -> Fragment {
    let templates =
        vec![template(&[Operand::Arg(0), Operand::Arg(1)], 2), template(&[Operand::Out(1)], 1)];
    Fragment::new(templates, 2, 0, 0).unwrap()
}

fn shapes(f: &mut Fixture) -> Vec<EqnShape> {
    let params = f.builder.params(Params::default());
    let shape = |primitive, types: &[_]| {
        f.builder.shape(primitive, params, types, EffectsId::NONE, f.context).unwrap()
    };
    vec![shape(f.multiple, &[f.ty, f.ty]), shape(f.single, &[f.ty])]
}

#[test]
fn a_replay_appends_what_was_recorded() {
    let mut f = Fixture::new(DeadCode::Keep);
    let (x, y) = (f.invar(), f.invar());
    let shapes = shapes(&mut f);
    let mut ends = Vec::new();
    for (a, b) in [(x, y), (y, x), (x, x)] {
        let args = [Atom::var(a), Atom::var(b)];
        let given = Operands { args: &args, ..Operands::default() };
        let vars = f.builder.num_vars();
        let first = fragment().replay(&mut f.builder, &shapes, given, &[f.source]).unwrap();
        assert_eq!(f.builder.num_vars(), vars + 3);
        ends.push(out(first, 2));
    }
    let program = f.finish(&ends);
    verify(&program).unwrap();
    assert_eq!(program.num_eqns(), 6);
    let operands: Vec<_> = program.eqns().map(|eqn| program.eqn_invars(eqn).to_vec()).collect();
    assert_eq!(operands[0], [Atom::var(x), Atom::var(y)]);
    assert_eq!(operands[2], [Atom::var(y), Atom::var(x)]);
    assert_eq!(operands[4], [Atom::var(x), Atom::var(x)]);
    // The second equation takes the second output of the first.
    assert_eq!(operands[1], [Atom::var(Var::from_u32(x.as_u32() + 3))]);
}

#[test]
fn operands_precede_their_use() {
    let undefined = |operand| Fragment::new(vec![template(&[operand], 1)], 1, 1, 1);
    for operand in [Operand::Arg(1), Operand::Out(0), Operand::Literal(1), Operand::Const(1)] {
        assert_eq!(undefined(operand), Err(FragmentError::Undefined { equation: 0 }));
    }
    for operand in [Operand::Arg(0), Operand::Literal(0), Operand::Const(0)] {
        assert!(undefined(operand).is_ok());
    }
}

#[test]
fn a_replay_on_a_value_that_is_gone_is_refused() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let gone = f.unary(x);
    let shapes = shapes(&mut f);
    f.release(gone);
    let args = [Atom::var(x), Atom::var(gone)];
    let given = Operands { args: &args, ..Operands::default() };
    let refused = fragment().replay(&mut f.builder, &shapes, given, &[f.source]);
    assert_eq!(refused, Err(BuildError::RemovedVar(gone)));
}

/// One argument of a call.
#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Int(i64),
    Float(u64),
    Text(String),
    Traced(u8, u64),
    Sequence(Vec<Argument>),
}

fn write(signature: &mut Signature, argument: &Argument) {
    match argument {
        Argument::Int(value) => {
            signature.tag(Tag::Int, 0);
            signature.word(value.cast_unsigned());
        }
        Argument::Float(bits) => {
            signature.tag(Tag::Float, 0);
            signature.word(*bits);
        }
        Argument::Text(text) => signature.bytes(Tag::Text, text.as_bytes()),
        Argument::Traced(position, ty) => {
            signature.tag(Tag::Traced, usize::from(*position));
            signature.word(*ty);
        }
        Argument::Sequence(items) => {
            signature.tag(Tag::Sequence, items.len());
            signature.word(0);
            for item in items {
                write(signature, item);
            }
        }
    }
}

fn arguments() -> impl Strategy<Value = Vec<Argument>> {
    let leaf = prop_oneof![
        (-3i64..3).prop_map(Argument::Int),
        (0u64..3).prop_map(Argument::Float),
        "[ab\0]{0,17}".prop_map(Argument::Text),
        (0u8..3, 0u64..3).prop_map(|(position, ty)| Argument::Traced(position, ty)),
    ];
    let nested = leaf.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Argument::Sequence)
    });
    prop::collection::vec(nested, 0..4)
}

proptest! {
    #[test]
    fn signatures_are_equal_exactly_where_calls_are(a in arguments(), b in arguments()) {
        let signature = |arguments: &[Argument]| {
            let mut signature = Signature::new(7);
            for argument in arguments {
                write(&mut signature, argument);
            }
            signature
        };
        prop_assert_eq!(signature(&a).words() == signature(&b).words(), a == b);
    }
}

fn call(number: u64) -> Signature {
    let mut signature = Signature::new(0);
    signature.word(number);
    signature
}

const BOUNDS: Bounds = Bounds { per_callable: 3, entries: 8, bytes: 1 << 20 };

#[test]
fn the_least_recently_used_entry_of_a_callable_goes_first() {
    let mut cache = Cache::new(BOUNDS);
    let callable = CallableId(0);
    for number in 0..3 {
        assert!(cache.insert(callable, &call(number), number, 0).is_empty());
    }
    assert!(cache.get(callable, &call(0)).is_some());
    let removed = cache.insert(callable, &call(3), 3, 0);
    assert_eq!(removed, [1]);
    assert!(cache.get(callable, &call(1)).is_none());
    assert_eq!(cache.get(callable, &call(0)), Some(&0));
    assert_eq!(cache.len_of(callable), 3);
}

#[test]
fn the_callable_used_least_recently_gives_up_entries_first() {
    let mut cache = Cache::new(BOUNDS);
    for callable in 0..4 {
        for number in 0..2 {
            cache.insert(CallableId(callable), &call(number), callable, 0);
        }
    }
    assert_eq!(cache.len(), 8);
    assert!(cache.get(CallableId(0), &call(0)).is_some());
    let removed = cache.insert(CallableId(9), &call(0), 9, 0);
    assert!(!removed.is_empty());
    assert!(removed.iter().all(|value| *value == 1), "{removed:?}");
    assert!(cache.len() <= BOUNDS.entries);
}

#[test]
fn an_entry_of_a_call_that_is_known_takes_its_place() {
    let mut cache = Cache::new(BOUNDS);
    let callable = CallableId(0);
    cache.insert(callable, &call(0), "candidate", 100);
    let bytes = cache.bytes();
    assert_eq!(cache.insert(callable, &call(0), "sure", 100), ["candidate"]);
    assert_eq!((cache.len(), cache.bytes()), (1, bytes));
}

#[test]
fn an_entry_takes_the_bytes_of_its_signature_too() {
    let mut cache = Cache::new(BOUNDS);
    cache.insert(CallableId(0), &call(0), (), 100);
    let one = cache.bytes();
    let mut long = call(0);
    (1..10).for_each(|number| long.word(number));
    cache.insert(CallableId(0), &long, (), 100);
    assert!(one > 100);
    assert_eq!(cache.bytes(), 2 * one + 9 * size_of::<u64>());
}

#[test]
fn narrower_bounds_hold_at_once() {
    let mut cache = Cache::new(Bounds { per_callable: 100, ..BOUNDS });
    for number in 0..8 {
        cache.insert(CallableId(0), &call(number), number, 1000);
    }
    let removed = cache.set_bounds(Bounds { per_callable: 100, entries: 100, bytes: 4000 });
    assert!(cache.bytes() <= 4000);
    assert_eq!(removed.len() + cache.len(), 8);
    let removed = cache.set_bounds(Bounds { per_callable: 1, entries: 100, bytes: 4000 });
    assert_eq!((cache.len(), removed.is_empty()), (1, false));
}

#[test]
fn nothing_is_left_of_a_forgotten_callable() {
    let mut cache = Cache::new(BOUNDS);
    cache.insert(CallableId(0), &call(0), 0, 10);
    cache.insert(CallableId(1), &call(0), 1, 10);
    assert_eq!(cache.forget(CallableId(0)), [0]);
    assert_eq!(cache.len(), 1);
    assert_eq!(cache.clear(), [1]);
    assert_eq!((cache.is_empty(), cache.bytes()), (true, 0));
}

#[test]
fn deferred_params_become_equal_when_they_are_known() {
    let mut f = Fixture::new(DeadCode::Keep);
    let x = f.invar();
    let deferred: Vec<_> = (0..4).map(|n| f.builder.deferred_params(object(50 + n))).collect();
    assert_eq!(f.builder.deferred_params(object(50)), deferred[0]);
    for &params in &deferred {
        let types = [f.ty];
        f.builder
            .eqn(f.single, params, &[Atom::var(x)], &types, EffectsId::NONE, f.source, f.context)
            .unwrap();
    }
    let axis = |n| crate::common::params(vec![("axis", jaxide::ir::ParamValue::Int(n))]);
    let known = f.builder.params(axis(3));
    let types = [f.ty];
    let x = Atom::var(x);
    f.builder.eqn(f.single, known, &[x], &types, EffectsId::NONE, f.source, f.context).unwrap();
    assert_eq!(f.builder.unresolved_params(), deferred);
    f.builder.resolve_params(
        [2, 1, 2, 3].map(axis).into_iter().zip(deferred.clone()).map(|(params, id)| (id, params)),
    );
    assert!(f.builder.unresolved_params().is_empty());
    let program = f.finish(&[x.as_var().unwrap()]);
    verify(&program).unwrap();
    let ids: Vec<_> = program.eqns().map(|eqn| program.eqn(eqn).params).collect();
    // The first of equal ones, or the one that was known before; none is another one than it was.
    assert_eq!(ids, [deferred[0], deferred[1], deferred[0], known, known]);
    let texts: Vec<_> = ids.iter().map(|&id| program.params(id).to_string()).collect();
    assert_eq!(texts, ["[axis=2]", "[axis=1]", "[axis=2]", "[axis=3]", "[axis=3]"]);
}
