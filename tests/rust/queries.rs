use std::sync::Arc;

use jaxide::analysis::{
    Assumptions, Counting, Nest, NoEstimates, Trips, Weight, critical_path, dead, depends_on,
    duplicates, histogram, liveness, unused_inputs, used_by,
};
use jaxide::ir::{
    Builder, DeadCode, DebugInfo, EffectsId, ParamValue, Params, Program, Source, Var,
};

use crate::common::{f32_array, object, params};

/// `lambda a b: (sin a, b)`, with another equation that nobody needs.
fn innermost() -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[4]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let (x, y) = (b.invar(ty).unwrap(), b.invar(ty).unwrap());
    let none = b.params(Params::default());
    let mut outs = Vec::new();
    for number in 1..3 {
        let primitive = b.primitive(["", "sin", "cos"][number as usize], false, object(number));
        let eqn =
            b.eqn(primitive, none, &[x.into()], &[ty], EffectsId::NONE, source, context).unwrap();
        outs.push(b.outvars_of(eqn).0);
    }
    b.finish(&[outs[0].into(), y.into()], DebugInfo::default(), EffectsId::NONE).unwrap()
}

/// `lambda a b: f(*f(b, a))`, of which the outputs are given the other way round at each level.
fn twice(program: Arc<Program>) -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[4]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let (x, y) = (b.invar(ty).unwrap(), b.invar(ty).unwrap());
    let id = b.subprogram(object(1));
    b.resolve_subprogram(id, program);
    let jit = b.primitive("jit", true, object(2));
    let own = b.params(params(vec![("jaxpr", ParamValue::Program(id))]));
    let mut operands = [y, x];
    for _ in 0..2 {
        let atoms = operands.map(Into::into);
        let eqn = b.eqn(jit, own, &atoms, &[ty, ty], EffectsId::NONE, source, context).unwrap();
        let first = b.outvars_of(eqn).0;
        operands = [first, Var::from_u32(first.as_u32() + 1)];
    }
    b.finish(&operands.map(Into::into), DebugInfo::default(), EffectsId::NONE).unwrap()
}

fn nested(depth: usize) -> Nest {
    let mut program = innermost();
    for _ in 0..depth {
        program = twice(Arc::new(program));
    }
    Nest::of(&Arc::new(program))
}

#[test]
fn shared_and_deep_programs_are_read_once() {
    // 2^5000 ways lead to the innermost one.
    for depth in [1, 2, 3, 5000] {
        let nest = nested(depth);
        assert_eq!(nest.len(), depth + 1);
        let forward: Vec<_> = (0..2).map(|input| used_by(&nest, input).outputs).collect();
        for output in 0..2 {
            let found = depends_on(&nest, output);
            assert_eq!(found.inputs.len(), 1, "{depth}");
            assert!(forward[found.inputs[0] as usize].contains(&output));
        }
        assert!(unused_inputs(&nest).is_empty());
        let dead = dead(&nest);
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].place, 0);
        assert!(duplicates(&nest, |_, _| Ok::<_, ()>(0)).unwrap().is_empty());
        let path = critical_path(&nest, Weight::Equations, Trips(1), &NoEstimates);
        let calls = u32::try_from(depth).unwrap();
        assert_eq!(path.length, 2_u128.checked_pow(calls).unwrap_or(u128::MAX));
        if path.length < u128::MAX {
            // Where the length cannot be counted, neither can it be told which chain is longer.
            assert_eq!(path.eqns.len(), 2 * depth + 1);
        }
        let counts = histogram(&nest, Counting::EachCall);
        let sines = counts.iter().find(|(name, _)| **name == *"sin").map(|(_, count)| *count);
        assert_eq!(sines, Some(path.length));
        let report = liveness(&nest, &Assumptions::default());
        assert_eq!(report.peak, report.alive.iter().map(|value| value.bytes).sum::<u128>());
    }
}

#[test]
fn questions_about_what_is_not_there() {
    let nest = nested(1);
    assert!(depends_on(&nest, 7).inputs.is_empty());
    assert!(used_by(&nest, 7).outputs.is_empty());
}

#[test]
fn params_that_are_not_as_they_should_be() {
    // A jit whose program has other inputs than the equation has operands is not looked into.
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[4]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let x = b.invar(ty).unwrap();
    let id = b.subprogram(object(1));
    b.resolve_subprogram(id, Arc::new(innermost()));
    let mut last = x;
    for (number, name) in (2..).zip(["jit", "scan", "while", "cond", "run_state"]) {
        let primitive = b.primitive(name, false, object(number));
        let own = b.params(params(vec![
            ("jaxpr", ParamValue::Program(id)),
            ("branches", ParamValue::Tuple([ParamValue::Program(id)].into())),
            ("num_carry", ParamValue::Int(-1)),
            ("cond_nconsts", ParamValue::Int(i64::MAX)),
            ("body_nconsts", ParamValue::Int(i64::MAX)),
        ]));
        let eqn =
            b.eqn(primitive, own, &[last.into()], &[ty], EffectsId::NONE, source, context).unwrap();
        last = b.outvars_of(eqn).0;
    }
    let program = b.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap();
    let nest = Nest::of(&Arc::new(program));
    let found = depends_on(&nest, 0);
    assert_eq!((found.inputs, found.eqns.len()), (vec![0], 5));
    assert_eq!(used_by(&nest, 0).outputs, [0]);
    assert_eq!(liveness(&nest, &Assumptions::default()).curve.len(), 5);
}
