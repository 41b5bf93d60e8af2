//! What the arena costs per equation, from 10^2 to 10^6 equations: `cargo bench --features bench`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use jaxide::analysis::{
    Assumptions, Counting, Filter, Nest, NoEstimates, Trips, Weight, cost, critical_path, dead,
    depends_on, duplicates, effects, find, histogram, large_constants, liveness, precision,
    unused_inputs, used_by,
};
use jaxide::diff::diff;
use jaxide::ir::{
    ArrayType, Atom, Builder, DType, DeadCode, DebugInfo, Dim, EffectsId, ForeignId, ParamValue,
    Params, Program, Source, verify,
};
use jaxide::passes::{self, Pass, Scalar, optimize};
use jaxide::print::{Limits, Options, Plain as PlainTexts, Settings, print};
use jaxide::store::{Document, Frame, Object, Stack, StoredProgram, read, write};
use jaxide::structure::{Nested, Plain, Purpose};

const SIZES: [u32; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

/// A chain of equations: each has the last two results as operands and a traceback of its own.
/// A handle is held on the last result alone, as by a loop that overwrites its variable.
fn build(dce: DeadCode, equations: u32) -> Program {
    let mut builder = Builder::new(dce);
    let ty = builder.ty(ArrayType::new(DType::Float32, [Dim::Static(8)]).into());
    let primitive = builder.primitive("add", false, ForeignId::from_u32(0));
    let params = builder.params(Params::default());
    let context = builder.context(ForeignId::from_u32(1));
    let mut dropped = Vec::new();
    let mut previous = builder.invar(ty).unwrap();
    let mut last = builder.invar(ty).unwrap();
    builder.retain(last);
    for number in 0..equations {
        let traceback = Some(ForeignId::from_u32(number));
        let source = builder.source(Source { traceback, name_stack: None });
        let operands = [Atom::var(previous), Atom::var(last)];
        let eqn = builder
            .eqn(primitive, params, &operands, &[ty], EffectsId::NONE, source, context)
            .unwrap();
        let (out, _) = builder.outvars_of(eqn);
        builder.retain(out);
        builder.release(last, &mut dropped);
        (previous, last) = (last, out);
    }
    builder.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap()
}

/// A chain of equations of these primitives, where those of the first kind also have an input of their own.
fn chain(kinds: &[u32]) -> Nested<Plain> {
    let mut builder = Builder::new(DeadCode::Keep);
    let ty = builder.ty(ArrayType::new(DType::Float32, [Dim::Static(8)]).into());
    let params = builder.params(Params::default());
    let context = builder.context(ForeignId::from_u32(100));
    let source = builder.source(Source::default());
    let mut last = builder.invar(ty).unwrap();
    for &kind in kinds {
        let primitive = builder.primitive("op", false, ForeignId::from_u32(kind));
        let mut operands = vec![Atom::var(last)];
        if kind == 0 {
            operands.push(builder.invar(ty).unwrap().into());
        }
        let eqn = builder
            .eqn(primitive, params, &operands, &[ty], EffectsId::NONE, source, context)
            .unwrap();
        last = builder.outvars_of(eqn).0;
    }
    let program = builder.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap();
    Nested::plain(Arc::new(program))
}

/// Primitives in an order without a rule.
fn random_kinds(count: u32, mut state: u64) -> Vec<u32> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 60) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// Equations for each pass to do something about, by turns: a sum with an input, a copy, a product
/// with one, what nobody uses, a difference that was there before, a sum of literals.
fn repetitive(equations: u32) -> (Arc<Program>, passes::Plain) {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(ArrayType::new(DType::Int32, []).into());
    let mut primitive = |name, number| b.primitive(name, false, ForeignId::from_u32(number));
    let [add, reshape, mul] =
        [("add", 10), ("reshape", 11), ("mul", 12)].map(|(n, i)| primitive(n, i));
    let [sin, sub] = [("sin", 13), ("sub", 14)].map(|(n, i)| primitive(n, i));
    let params = b.params(Params::default());
    let context = b.context(ForeignId::from_u32(1));
    let one = ForeignId::from_u32(2);
    let plain =
        passes::Plain { scalars: [(one, Scalar::Int(1))].into_iter().collect(), evaluates: true };
    let one = b.literal(ty, one).unwrap().into();
    let [x, y] = [(); 2].map(|()| Atom::var(b.invar(ty).unwrap()));
    let mut last = x;
    for number in 0..equations {
        let source =
            b.source(Source { traceback: Some(ForeignId::from_u32(number)), name_stack: None });
        let (primitive, operands) = match number % 6 {
            0 => (add, vec![last, x]),
            1 => (reshape, vec![last]),
            2 => (mul, vec![last, one]),
            3 => (sin, vec![last]),
            4 => (sub, vec![x, y]),
            _ => (add, vec![one, one]),
        };
        let eqn =
            b.eqn(primitive, params, &operands, &[ty], EffectsId::NONE, source, context).unwrap();
        if number % 6 < 3 {
            last = b.outvars_of(eqn).0.into();
        }
    }
    let program = b.finish(&[last], DebugInfo::default(), EffectsId::NONE).unwrap();
    (Arc::new(program), plain)
}

/// Calls of a program of seven equations, as many as make so many equations.
fn calls(equations: u32) -> Arc<Program> {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(ArrayType::new(DType::Float32, [Dim::Static(8)]).into());
    let body = b.subprogram(ForeignId::from_u32(3));
    b.resolve_subprogram(body, Arc::new(build(DeadCode::Keep, 7)));
    let entries = vec![("jaxpr".into(), ParamValue::Program(body))];
    let params = b.params(Params::new(entries).unwrap());
    let jit = b.primitive("jit", false, ForeignId::from_u32(4));
    let context = b.context(ForeignId::from_u32(1));
    let x = Atom::var(b.invar(ty).unwrap());
    let mut last = x;
    for number in 0..equations / 7 {
        let source =
            b.source(Source { traceback: Some(ForeignId::from_u32(number)), name_stack: None });
        let operands = [last, x];
        let eqn = b.eqn(jit, params, &operands, &[ty], EffectsId::NONE, source, context).unwrap();
        last = b.outvars_of(eqn).0.into();
    }
    Arc::new(b.finish(&[last], DebugInfo::default(), EffectsId::NONE).unwrap())
}

/// Reads every operand's type and every output.
fn traverse(program: &Program) -> u64 {
    let mut sum = 0;
    for eqn in program.eqns() {
        for &atom in program.eqn_invars(eqn) {
            sum += u64::from(program.atom_type(atom).as_u32());
        }
        for var in program.eqn_outvars(eqn) {
            sum += u64::from(var.as_u32());
        }
    }
    sum
}

fn over_sizes(c: &mut Criterion, name: &str, mut measure: impl FnMut(&mut Bencher<'_>, u32)) {
    let mut group = c.benchmark_group(name);
    for equations in SIZES {
        group.throughput(Throughput::Elements(equations.into()));
        group.bench_function(BenchmarkId::from_parameter(equations), |b| measure(b, equations));
    }
    group.finish();
}

/// The program with something for each object that it refers to.
fn document(equations: u32) -> Document<'static> {
    let record =
        |class: &'static str| Object::Record { class: class.into(), fields: ParamValue::None };
    let program = StoredProgram {
        program: Arc::new(build(DeadCode::Keep, equations)),
        is_high: false,
        param_order: Vec::new(),
        no_effects: Vec::new(),
        dropped: Vec::new(),
        shared: Vec::new(),
    };
    Document {
        names: vec!["step.py".into(), "step".into()],
        frames: vec![Frame { file: 0, function: 1, location: [1, 0, 1, 0] }],
        stacks: (0..equations).map(|_| Stack { caller: None, frame: 0 }).collect(),
        objects: vec![record("primitive"), record("context"), Object::Program(program)],
        root: ParamValue::Opaque(ForeignId::from_u32(2)),
    }
}

/// An analysis of a program with the programs within.
fn of_nests<T>(c: &mut Criterion, name: &str, analyse: impl Fn(&Nest) -> T) {
    over_sizes(c, name, |b, equations| {
        let program = Arc::new(build(DeadCode::Keep, equations));
        b.iter_with_large_drop(|| analyse(&Nest::of(black_box(&program))));
    });
}

#[allow(clippy::too_many_lines)] // one case for each figure
fn benchmark(c: &mut Criterion) {
    over_sizes(c, "build, keeping dead code", |b, equations| {
        b.iter_with_large_drop(|| build(DeadCode::Keep, equations));
    });
    over_sizes(c, "build, removing dead code", |b, equations| {
        b.iter_with_large_drop(|| build(DeadCode::RemoveUnreferenced, equations));
    });
    over_sizes(c, "verify", |b, equations| {
        let program = build(DeadCode::Keep, equations);
        b.iter(|| verify(black_box(&program)).unwrap());
    });
    over_sizes(c, "print", |b, equations| {
        let program = PlainTexts::from(Arc::new(build(DeadCode::Keep, equations)));
        b.iter(|| {
            let (settings, limits) = (Settings::default(), Limits::default());
            print(black_box(&program), settings, limits, Options::default()).unwrap()
        });
    });
    over_sizes(c, "cost", |b, equations| {
        let program = Arc::new(build(DeadCode::Keep, equations));
        b.iter(|| cost(black_box(&program), Trips(1), &NoEstimates));
    });
    over_sizes(c, "diff, one equation inserted", |b, equations| {
        let kinds: Vec<_> = (0..equations).map(|number| number % 12).collect();
        let mut more = kinds.clone();
        more.insert(kinds.len() / 2, 12);
        let [one, another] = [kinds, more].map(|kinds| chain(&kinds));
        b.iter(|| {
            let found = diff(one.clone(), another.clone(), Purpose::Content).unwrap();
            assert!(!found.programs.is_empty());
            found
        });
    });
    over_sizes(c, "diff, entirely different", |b, equations| {
        let programs = [1, 2].map(|seed| chain(&random_kinds(equations, seed)));
        b.iter(|| {
            let [one, another] = programs.clone();
            let found = diff(one, another, Purpose::Content).unwrap();
            assert!(!found.programs.is_empty());
            found
        });
    });
    for pass in Pass::ALL {
        let options = passes::Options { passes: vec![pass], ..passes::Options::default() };
        over_sizes(c, &format!("pass {}", pass.name()), |b, equations| {
            let (program, plain) = match pass {
                Pass::Inline => (calls(equations), passes::Plain::default()),
                _ => repetitive(equations),
            };
            b.iter_with_large_drop(|| {
                optimize(black_box(&program), &options, &mut plain.clone()).unwrap()
            });
        });
    }
    over_sizes(c, "store, write", |b, equations| {
        let document = document(equations);
        b.iter_with_large_drop(|| write(black_box(&document)).unwrap());
    });
    over_sizes(c, "store, read", |b, equations| {
        let file = write(&document(equations)).unwrap();
        b.iter_with_large_drop(|| read(black_box(&file)).unwrap());
    });
    of_nests(c, "liveness", |nest| liveness(nest, &Assumptions::default()));
    of_nests(c, "liveness, fused", |nest| {
        liveness(nest, &Assumptions { donated: Vec::new(), fused: true })
    });
    of_nests(c, "depends_on", |nest| depends_on(nest, 0));
    of_nests(c, "used_by", |nest| used_by(nest, 0));
    of_nests(c, "unused_inputs", unused_inputs);
    of_nests(c, "dead", dead);
    of_nests(c, "critical_path", |nest| {
        critical_path(nest, Weight::Operations, Trips(1), &NoEstimates)
    });
    of_nests(c, "duplicates", |nest| duplicates(nest, |_, id| Ok::<_, ()>(id.as_u32().into())));
    of_nests(c, "find", |nest| {
        let filter = Filter { dtype: Some(DType::Float32), ..Filter::default() };
        find(nest, &filter, |_, _| Ok::<_, ()>(true))
    });
    of_nests(c, "histogram", |nest| histogram(nest, Counting::Once));
    of_nests(c, "large_constants", |nest| large_constants(nest, 0));
    of_nests(c, "precision", precision);
    of_nests(c, "effects", effects);
    over_sizes(c, "traverse", |b, equations| {
        let program = build(DeadCode::Keep, equations);
        b.iter(|| traverse(black_box(&program)));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = benchmark
}
criterion_main!(benches);
