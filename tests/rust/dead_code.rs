//! Reference-counted removal, case by case; `random` compares it with a model.

use jaxide::ir::{Atom, ConstId, DeadCode, Def, EffectsId, Eqn, Var, verify};

use crate::common::{Fixture, effect};

fn live_eqns(f: &Fixture) -> Vec<Eqn> {
    f.builder.live_eqns().collect()
}

#[test]
fn an_equation_goes_with_its_last_handle_and_takes_its_operands_along() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let a = f.unary(x);
    let b = f.unary(a);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 2, "b uses a");
    f.release(b);
    assert_eq!(f.builder.num_eqns(), 0);
    assert_eq!(f.builder.var(a).def, Def::Removed);
    assert_eq!(f.builder.var(x).def, Def::Invar, "inputs stay");
    assert_eq!(f.builder.eqn_invars(Eqn::from_u32(0)), []);
    assert!(!f.builder.is_live(Eqn::from_u32(0)));
}

#[test]
fn a_second_handle_keeps_it() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let a = f.unary(x);
    f.builder.retain(a);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 1);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 0);
}

#[test]
fn all_outputs_of_an_equation_must_go() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let split = f.eqn(&[x], 2, EffectsId::NONE);
    let (first, count) = f.builder.outvars_of(split);
    let second = Var::from_u32(first.as_u32() + 1);
    assert_eq!(count, 2);
    f.release(first);
    assert!(f.builder.is_live(split));
    f.release(second);
    assert!(!f.builder.is_live(split));
}

#[test]
fn an_operand_used_twice_by_one_equation_is_counted_twice() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let a = f.unary(x);
    let square = f.eqn(&[a, a], 1, EffectsId::NONE);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 2);
    let (out, _) = f.builder.outvars_of(square);
    f.release(out);
    assert_eq!(f.builder.num_eqns(), 0);
}

#[test]
fn effects_keep_an_equation_and_what_it_uses() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let effects = f.builder.effects(&[effect("io", None)]);
    let x = f.invar();
    let a = f.unary(x);
    let print = f.eqn(&[a], 1, effects);
    let (out, _) = f.builder.outvars_of(print);
    f.release(a);
    f.release(out);
    assert_eq!(f.builder.num_eqns(), 2);
    let silent = f.eqn(&[a], 0, effects);
    assert!(f.builder.is_live(silent));
}

#[test]
fn an_equation_without_outputs_and_effects_is_dead_on_arrival() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let a = f.unary(x);
    let eqn = f.eqn(&[a], 0, EffectsId::NONE);
    assert!(!f.builder.is_live(eqn));
    assert_eq!(f.builder.num_eqns(), 1);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 0, "it does not keep its operands");

    let mut f = Fixture::new(DeadCode::Keep);
    let x = f.invar();
    let eqn = f.eqn(&[x], 0, EffectsId::NONE);
    assert!(f.builder.is_live(eqn));
}

#[test]
fn keeping_keeps_every_equation() {
    let mut f = Fixture::new(DeadCode::Keep);
    let x = f.invar();
    let a = f.unary(x);
    f.release(a);
    assert_eq!(f.builder.num_eqns(), 1);
    assert_eq!(f.builder.eqn_invars(Eqn::from_u32(0)), [Atom::var(x)]);
}

#[test]
fn an_unused_constant_is_dropped_with_its_last_handle() {
    for dce in [DeadCode::Keep, DeadCode::RemoveUnreferenced] {
        let mut f = Fixture::new(dce);
        let (c, d) = (f.constvar(10), f.constvar(11));
        f.builder.retain(c);
        assert_eq!(f.release(c), []);
        assert_eq!(f.release(c), [ConstId::from_u32(10)]);
        assert_eq!(f.builder.constvars().collect::<Vec<_>>(), [(d, ConstId::from_u32(11))]);
        let p = f.finish(&[d]);
        assert_eq!(p.constvars(), [(d, ConstId::from_u32(11))]);
        assert_eq!(p.var(c).def, Def::Removed);
        assert_eq!(verify(&p), Ok(()));
    }
}

#[test]
fn a_constant_that_an_equation_uses_goes_only_with_it() {
    let mut f = Fixture::new(DeadCode::Keep);
    let c = f.constvar(10);
    let a = f.unary(c);
    assert_eq!(f.release(c), []);
    assert_eq!(f.release(a), []);
    assert_eq!(f.builder.constvars().count(), 1);

    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let c = f.constvar(10);
    let a = f.unary(c);
    assert_eq!(f.release(c), []);
    assert_eq!(f.release(a), [ConstId::from_u32(10)]);
    assert_eq!(f.builder.constvars().count(), 0);
}

#[test]
fn a_long_chain_goes_without_recursion() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let mut last = f.constvar(10);
    for _ in 0..100_000 {
        let next = f.unary(last);
        f.release(last);
        last = next;
    }
    assert_eq!(f.builder.num_eqns(), 100_000);
    assert_eq!(f.release(last), [ConstId::from_u32(10)]);
    assert_eq!(live_eqns(&f), []);
}

#[test]
fn finishing_renumbers_equations_but_not_variables() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let dead = f.unary(x);
    let a = f.unary(x);
    let out = f.unary(a);
    f.release(dead);
    assert_eq!(live_eqns(&f), [Eqn::from_u32(1), Eqn::from_u32(2)]);
    let reversed: Vec<_> = f.builder.live_eqns().rev().collect();
    assert_eq!(reversed, [Eqn::from_u32(2), Eqn::from_u32(1)]);

    let program = f.finish(&[out]);
    assert_eq!(program.num_eqns(), 2);
    assert_eq!(program.eqn_outvars(Eqn::from_u32(0)).collect::<Vec<_>>(), [a]);
    assert_eq!(program.var(out).def, Def::Eqn(Eqn::from_u32(1)));
    assert_eq!(program.var(dead).def, Def::Removed);
    assert_eq!(verify(&program), Ok(()));
}

#[test]
fn what_was_appended_last_is_taken_back() {
    for dead_code in [DeadCode::RemoveUnreferenced, DeadCode::Keep] {
        let mut f = Fixture::new(dead_code);
        let (input, weights) = (f.invar(), f.constvar(0));
        let kept = f.unary(input);
        let split = f.eqn(&[kept, weights], 2, EffectsId::NONE);
        let (part, _) = f.builder.outvars_of(split);
        let last = f.unary(part);
        let outputs: Vec<Var> = f.builder.eqn_data(split).outvars().chain([last]).collect();
        for var in outputs {
            f.release(var);
        }
        assert_eq!(
            f.release(weights),
            if f.builder.is_live(split) { vec![] } else { vec![ConstId::from_u32(0)] }
        );
        let mut dropped = Vec::new();
        f.builder.retract(split, &mut dropped);
        assert_eq!(live_eqns(&f), [Eqn::from_u32(0)]);
        assert_eq!(f.builder.constvars().count(), 0, "the constant went with its last equation");
        let again = f.unary(kept);
        let program = f.finish(&[again]);
        verify(&program).unwrap();
        assert_eq!(program.num_eqns(), 2);
    }
}
