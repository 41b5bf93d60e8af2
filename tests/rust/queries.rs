use std::sync::Arc;

use jaxide::analysis::{
    Assumptions, Counting, Nest, NoEstimates, Site, Trips, Weight, critical_path, dead, depends_on,
    duplicates, histogram, liveness, unused_inputs, used_by, wiring,
};
use jaxide::ir::{
    Builder, DeadCode, DebugInfo, EffectsId, Eqn, ParamValue, Params, Program, Source, Var,
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
    // As it is called in the linear program of a pullback as well.
    let jits = ["jit", "vjp_node[jit]"].map(|name| b.primitive(name, true, object(2)));
    let own = b.params(params(vec![("jaxpr", ParamValue::Program(id))]));
    let mut operands = [y, x];
    for jit in jits {
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
        assert!(report.within.iter().flatten().flatten().all(|&bytes| bytes <= report.peak));
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

#[test]
fn equations_are_in_the_order_of_their_places() {
    let nest = nested(3);
    let everything: Vec<Site> = nest
        .programs()
        .flat_map(|(place, program)| program.eqns().map(move |eqn| Site { place, eqn }))
        .collect();
    let way = |site: &Site| -> Vec<u32> {
        let path = nest.path(site.place).into_iter().map(|(site, _)| site.eqn.as_u32());
        path.chain([site.eqn.as_u32()]).collect()
    };
    let ordered = nest.in_order(everything.clone());
    assert_eq!(ordered.len(), everything.len());
    assert!(ordered.is_sorted_by_key(way), "{:?}", ordered.iter().map(way).collect::<Vec<_>>());
    assert_eq!(nest.in_order(ordered.clone()), ordered);
}

/// A scan of `lambda c d: (sin c, d)`, the params of which are trees, the first operand a constant.
fn scan_of_trees(trees: ParamValue) -> Nest {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[4]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let (x, y) = (b.invar(ty).unwrap(), b.invar(ty).unwrap());
    let id = b.subprogram(object(1));
    b.resolve_subprogram(id, Arc::new(innermost()));
    let scan = b.primitive("scan", true, object(2));
    let length = ("length", ParamValue::Int(3));
    let own = b.params(params(vec![("ft_in", trees), ("jaxpr", ParamValue::Program(id)), length]));
    let atoms = [x.into(), y.into()];
    let eqn = b.eqn(scan, own, &atoms, &[ty, ty], EffectsId::NONE, source, context).unwrap();
    let first = b.outvars_of(eqn).0;
    let outs = [first.into(), Var::from_u32(first.as_u32() + 1).into()];
    Nest::of(&Arc::new(b.finish(&outs, DebugInfo::default(), EffectsId::NONE).unwrap()))
}

fn tree(name: &str, field: &str, value: ParamValue) -> ParamValue {
    ParamValue::Named {
        type_name: format!("jax._src.flattree.{name}").into(),
        fields: [(field.into(), value)].into(),
    }
}

fn tuple(items: impl IntoIterator<Item = ParamValue>) -> ParamValue {
    tree("FTTuple", "elts", ParamValue::Tuple(items.into_iter().collect()))
}

#[test]
fn loops_say_by_trees_what_they_carry() {
    let leaf = || tree("FTSingleton", "val", ParamValue::None);
    let fixed = tree("FTStatic", "val", ParamValue::Int(7));
    let leaves = |count: usize| {
        let leaves = vec![ParamValue::None; count];
        tree("FTPyTree", "xs", ParamValue::Tuple(leaves.into()))
    };
    let either = |is_right: bool| {
        let value = ParamValue::Named {
            type_name: "jax._src.util.Either".into(),
            fields: [("is_right".into(), ParamValue::Bool(is_right))].into(),
        };
        tree("FTFiltered", "val", tree("FTSingleton", "val", value))
    };
    // Both are carried: what the first output is made of stays apart.
    for carried in [
        tuple([leaf(), leaf()]),
        tuple([tuple([leaf(), fixed]), leaf()]),
        leaves(2),
        tuple([either(true), either(false), leaf()]),
    ] {
        let nest = scan_of_trees(tuple([tuple([]), carried, tuple([])]));
        assert_eq!(depends_on(&nest, 0).inputs, [0]);
        assert_eq!(depends_on(&nest, 1).inputs, [1]);
        let wiring = wiring(&nest, nest.root(), Eqn::from_u32(0)).unwrap();
        assert_eq!(wiring.bodies[0].carried, [(0, 0), (1, 1)]);
    }
    // The first is a constant, the second is carried.
    let nest = scan_of_trees(tuple([leaf(), leaves(1), tuple([])]));
    let wired = wiring(&nest, nest.root(), Eqn::from_u32(0)).unwrap();
    assert_eq!(wired.bodies[0].carried, [(0, 1)]);
    // Of these nobody knows: everything depends on everything.
    for unknown in [
        ParamValue::None,
        tuple([leaf()]),
        tuple([tuple([]), tree("Other", "val", ParamValue::None), tuple([])]),
        tuple([tuple([]), leaves(3), tuple([])]),
    ] {
        let nest = scan_of_trees(unknown);
        assert_eq!(depends_on(&nest, 0).inputs, [0, 1]);
    }
}
