//! Nested programs: deep ones must not exhaust the stack, shared ones are visited once.

use std::sync::Arc;

use jaxide::ir::{Builder, DeadCode, DebugInfo, EffectsId, verify};

use crate::common::{enclosing, identity_program, object};

#[test]
fn deep_nesting_is_verified_printed_and_dropped() {
    let depth = 100_000;
    let mut program = identity_program();
    for _ in 0..depth {
        program = enclosing(program).0;
    }
    assert_eq!(verify(&program), Ok(()));
    assert!(program.to_string().contains(&format!("program{depth} {{ lambda; v0:f32[3]. let")));
}

#[test]
fn shared_programs_are_visited_once() {
    // 2^64 paths lead to the innermost program.
    let mut program = identity_program();
    for _ in 0..64 {
        let shared = Arc::new(program);
        let mut builder = Builder::new(DeadCode::Keep);
        for number in 0..2 {
            let id = builder.subprogram(object(number));
            builder.resolve_subprogram(id, Arc::clone(&shared));
        }
        program = builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();
    }
    assert_eq!(verify(&program), Ok(()));
    assert_eq!(program.to_string().matches("{ lambda").count(), 65);
}

#[test]
fn a_shared_nested_program_outlives_the_programs_that_hold_it() {
    let inner = Arc::new(identity_program());
    let hold = || {
        let mut builder = Builder::new(DeadCode::Keep);
        let id = builder.subprogram(object(0));
        builder.resolve_subprogram(id, Arc::clone(&inner));
        builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap()
    };
    let (first, second) = (hold(), hold());
    assert_eq!(Arc::strong_count(&inner), 3);
    drop(first);
    assert_eq!(Arc::strong_count(&inner), 2);
    drop(second);
    assert_eq!(inner.num_vars(), 1);
}
