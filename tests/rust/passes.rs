use std::sync::Arc;

use jaxide::ir::{
    ArrayType, Atom, AtomKind, Builder, ConstId, DType, DeadCode, DebugInfo, EffectsId, ForeignId,
    ParamValue, Params, Program, Source, TypeId, Var, verify,
};
use jaxide::passes::{Options, Pass, Plain, Scalar, optimize};

use proptest::{prelude::*, sample::Index};
use rustc_hash::FxHashMap;

use crate::common::{effect, f32_array, object, params};

/// A program under construction, all of whose values have one type.
struct Text {
    b: Builder,
    ty: TypeId,
    plain: Plain,
}

impl Text {
    fn new(dtype: DType) -> Self {
        let mut b = Builder::new(DeadCode::Keep);
        let ty = b.ty(ArrayType::new(dtype, []).into());
        Self { b, ty, plain: Plain { evaluates: true, ..Plain::default() } }
    }

    fn input(&mut self) -> Atom {
        self.b.invar(self.ty).unwrap().into()
    }

    fn literal(&mut self, scalar: Scalar) -> Atom {
        let object = ForeignId::from_u32(1000 + u32::try_from(self.plain.scalars.len()).unwrap());
        self.plain.scalars.insert(object, scalar);
        self.b.literal(self.ty, object).unwrap().into()
    }

    fn with(&mut self, name: &str, operands: &[Atom], given: Params, effects: EffectsId) -> Atom {
        // The number of a primitive is that of its name.
        let number = name.bytes().fold(0, |sum, byte| (sum * 31 + u32::from(byte)) % 9973);
        let primitive = self.b.primitive(name, false, ForeignId::from_u32(20_000 + number));
        let (source, context) = (self.b.source(Source::default()), self.b.context(object(0)));
        let given = self.b.params(given);
        let types = [self.ty];
        let eqn = self.b.eqn(primitive, given, operands, &types, effects, source, context).unwrap();
        Atom::var(self.b.outvars_of(eqn).0)
    }

    fn eqn(&mut self, name: &str, operands: &[Atom]) -> Atom {
        self.with(name, operands, Params::default(), EffectsId::NONE)
    }

    fn call(&mut self, program: &Arc<Program>, operand: Atom) -> Atom {
        let id = self.b.subprogram(ForeignId::from_u32(30_000));
        self.b.resolve_subprogram(id, program.clone());
        let given = params(vec![("jaxpr", ParamValue::Program(id))]);
        self.with("jit", &[operand], given, EffectsId::NONE)
    }

    /// What the program is with passes done to it.
    fn optimized(mut self, outvars: &[Atom], passes: &[Pass]) -> Arc<Program> {
        let program = self.b.finish(outvars, DebugInfo::default(), EffectsId::NONE).unwrap();
        done(&Arc::new(program), passes, &mut self.plain)
    }
}

fn done(program: &Arc<Program>, passes: &[Pass], plain: &mut Plain) -> Arc<Program> {
    let options = Options { passes: passes.to_vec(), ..Options::default() };
    let result = optimize(program, &options, plain).unwrap();
    assert_eq!(verify(&result), Ok(()));
    let again = optimize(&result, &options, plain).unwrap();
    assert!(Arc::ptr_eq(&again, &result), "something was left to do:\n{result}\n{again}");
    result
}

fn names(program: &Program) -> Vec<&str> {
    program.eqns().map(|eqn| &*program.primitive(program.eqn(eqn).primitive).name).collect()
}

#[test]
fn dead_equations_go_and_constants_with_them() {
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let weights = t.b.constvar(t.ty, ConstId::from_u32(0)).unwrap();
    t.b.retain(weights);
    let dead = t.eqn("sin", &[weights.into()]);
    t.eqn("cos", &[dead]);
    let y = t.eqn("neg", &[x]);
    let result = t.optimized(&[y], &[Pass::Dce]);
    assert_eq!(names(&result), ["neg"]);
    assert!(result.constvars().is_empty());
}

#[test]
fn effects_stay_in_their_order() {
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let io = t.b.effects(&[effect("io", None)]);
    for name in ["first", "second", "first"] {
        t.with(name, &[x], Params::default(), io);
    }
    let y = t.eqn("sin", &[x]);
    let result = t.optimized(&[y], &Pass::ALL);
    assert_eq!(names(&result), ["first", "second", "first", "sin"]);
}

#[test]
fn equal_equations_are_one() {
    let mut t = Text::new(DType::Int32);
    let (x, y) = (t.input(), t.input());
    let one = t.eqn("add", &[x, y]);
    let other = t.eqn("add", &[y, x]);
    let (one, other) = (t.eqn("sin", &[one]), t.eqn("sin", &[other]));
    let both = t.eqn("sub", &[one, other]);
    assert_eq!(names(&t.optimized(&[both], &[Pass::Cse])), ["add", "sin", "sub"]);
}

#[test]
fn sums_of_floats_do_not_commute() {
    let mut t = Text::new(DType::Float32);
    let (x, y) = (t.input(), t.input());
    let (one, other) = (t.eqn("add", &[x, y]), t.eqn("add", &[y, x]));
    assert_eq!(names(&t.optimized(&[one, other], &[Pass::Cse])), ["add", "add"]);
}

#[test]
fn what_is_not_the_same_each_time_is_not_one() {
    for name in ["optimization_barrier", "rng_uniform", "remat2", "copy"] {
        let mut t = Text::new(DType::Float32);
        let x = t.input();
        let (one, other) = (t.eqn(name, &[x]), t.eqn(name, &[x]));
        assert_eq!(names(&t.optimized(&[one, other], &Pass::ALL)), [name, name]);
    }
}

#[test]
fn literals_are_the_same_by_their_bits() {
    let zeros = [0.0_f64, -0.0, 0.0].map(|zero| Scalar::Float(zero.to_bits()));
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let outs = zeros.map(|zero| {
        let zero = t.literal(zero);
        t.eqn("atan2", &[x, zero])
    });
    assert_eq!(names(&t.optimized(&outs, &[Pass::Cse])).len(), 2);
}

/// Whether an operation on `x` and a literal comes to `x`.
fn is_identity(dtype: &DType, name: &str, number: Scalar) -> bool {
    let mut t = Text::new(dtype.clone());
    let x = t.input();
    let number = t.literal(number);
    let y = t.eqn(name, &[x, number]);
    let result = t.optimized(&[y], &[Pass::Algebra]);
    result.num_eqns() == 0 && result.outvars() == [x]
}

#[test]
fn identities_of_floats_are_exact() {
    let float = |value: f64| Scalar::Float(value.to_bits());
    for (name, number, expected) in [
        ("mul", 1.0, true),
        ("div", 1.0, true),
        ("sub", 0.0, true),
        ("add", -0.0, true),
        // -0.0 + 0.0 is 0.0, as is -0.0 - -0.0, and nothing times infinity is no number.
        ("add", 0.0, false),
        ("sub", -0.0, false),
        ("mul", 0.0, false),
        ("mul", -1.0, false),
    ] {
        for dtype in [DType::Float32, DType::BFloat16] {
            assert_eq!(is_identity(&dtype, name, float(number)), expected, "{name} {number:?}");
        }
        // The parts of a complex product mix; of small floats little is promised.
        for dtype in [DType::Complex64, DType::Float8E5M2] {
            assert!(!is_identity(&dtype, name, float(number)), "{name} {number:?}");
        }
    }
}

#[test]
fn identities_of_integers() {
    let int = Scalar::Int;
    for (dtype, name, number, expected) in [
        (DType::Int32, "add", int(0), true),
        (DType::Int32, "mul", int(1), true),
        (DType::Int32, "and", int(-1), true),
        (DType::UInt8, "and", int(255), true),
        (DType::UInt32, "and", int(255), false),
        (DType::UInt64, "and", int((1 << 64) - 1), true),
        (DType::Int32, "xor", int(0), true),
        (DType::Bool, "and", Scalar::Bool(true), true),
        (DType::Bool, "or", Scalar::Bool(false), true),
        (DType::Int32, "shift_left", int(0), true),
        (DType::Int32, "sub", int(1), false),
    ] {
        assert_eq!(is_identity(&dtype, name, number), expected, "{dtype} {name} {number:?}");
    }
}

#[test]
fn chains_of_sums_are_one_sum() {
    let chain = |dtype| {
        let mut t = Text::new(dtype);
        let x = t.input();
        let mut last = x;
        for number in 1..=40 {
            let number = t.literal(Scalar::Int(number));
            last = t.eqn("add", &[last, number]);
        }
        let result = t.optimized(&[last], &[Pass::Algebra, Pass::Dce]);
        names(&result).len()
    };
    assert_eq!(chain(DType::Int32), 1);
    assert_eq!(chain(DType::Float32), 40);
}

#[test]
fn equations_on_literals_are_their_results() {
    let mut t = Text::new(DType::Int32);
    let (two, three) = (t.literal(Scalar::Int(2)), t.literal(Scalar::Int(3)));
    let product = t.eqn("mul", &[two, three]);
    let sum = t.eqn("add", &[product, product]);
    let x = t.input();
    let y = t.eqn("sub", &[x, sum]);
    let result = t.optimized(&[y], &[Pass::Fold]);
    assert_eq!(names(&result), ["sub"]);
}

#[test]
fn conversions_to_the_same_type_are_copies() {
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let same = t.eqn("convert_element_type", &[x]);
    let again = t.eqn("reshape", &[same]);
    let y = t.eqn("sin", &[again]);
    assert_eq!(names(&t.optimized(&[y], &[Pass::Copies])), ["sin"]);
}

fn body(count: usize) -> Arc<Program> {
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let y = (0..count).fold(x, |last, _| t.eqn("sin", &[last]));
    Arc::new(t.b.finish(&[y], DebugInfo::default(), EffectsId::NONE).unwrap())
}

#[test]
fn small_programs_are_inlined_everywhere() {
    let small = body(3);
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let y = t.call(&small, x);
    let z = t.call(&small, y);
    assert_eq!(names(&t.optimized(&[z], &[Pass::Inline])), ["sin"; 6]);
}

#[test]
fn large_programs_are_inlined_where_they_are_called_once() {
    let large = body(50);
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let y = t.call(&large, x);
    assert_eq!(names(&t.optimized(&[y], &[Pass::Inline])).len(), 50);
    let mut t = Text::new(DType::Float32);
    let x = t.input();
    let y = t.call(&large, x);
    let z = t.call(&large, y);
    assert_eq!(names(&t.optimized(&[z], &[Pass::Inline])), ["jit", "jit"]);
}

#[test]
fn programs_that_call_others_twice_do_not_grow_beyond_measure() {
    // 2^40 calls of the innermost one.
    let mut program = body(1);
    for _ in 0..40 {
        let mut t = Text::new(DType::Float32);
        let x = t.input();
        let y = t.call(&program, x);
        let z = t.call(&program, y);
        program = Arc::new(t.b.finish(&[z], DebugInfo::default(), EffectsId::NONE).unwrap());
    }
    let result = done(&program, &Pass::ALL, &mut Plain::default());
    assert!(result.num_eqns() <= 16, "{}", result.num_eqns());
}

#[test]
fn programs_nested_deeply_are_rewritten() {
    let mut program = {
        let mut t = Text::new(DType::Float32);
        let x = t.input();
        t.eqn("cos", &[x]);
        let y = t.eqn("sin", &[x]);
        Arc::new(t.b.finish(&[y], DebugInfo::default(), EffectsId::NONE).unwrap())
    };
    for _ in 0..5000 {
        let mut t = Text::new(DType::Float32);
        let x = t.input();
        let y = t.call(&program, x);
        program = Arc::new(t.b.finish(&[y], DebugInfo::default(), EffectsId::NONE).unwrap());
    }
    let result = done(&program, &[Pass::Dce], &mut Plain::default());
    let mut innermost = result;
    while let Some((_, within)) = innermost.clone().subprograms().find(|(_, s)| s.program.is_some())
    {
        innermost = within.program.clone().unwrap();
    }
    assert_eq!(names(&innermost), ["sin"]);
}

#[test]
fn references_are_left_alone() {
    let mut b = Builder::new(DeadCode::Keep);
    let array = b.ty(f32_array(&[]));
    let reference = b.ty(jaxide::ir::Type::Ref {
        inner: Box::new(f32_array(&[])),
        memory_space: None,
        kind: None,
    });
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let given = b.params(Params::default());
    let cell: Var = b.invar(reference).unwrap();
    // Reads without effects, as no primitive of jax's is: types alone tell.
    let read = b.primitive("get", false, object(5));
    let mut outs: Vec<Atom> = Vec::new();
    for _ in 0..2 {
        let eqn =
            b.eqn(read, given, &[cell.into()], &[array], EffectsId::NONE, source, context).unwrap();
        outs.push(b.outvars_of(eqn).0.into());
    }
    let program = Arc::new(b.finish(&outs, DebugInfo::default(), EffectsId::NONE).unwrap());
    assert!(Arc::ptr_eq(&done(&program, &Pass::ALL, &mut Plain::default()), &program));
}

/// An equation of a random program: an operation, and operands among the values that there are.
type Step = (usize, Index, Index);

const OPERATIONS: [&str; 14] = [
    "add", "sub", "mul", "and", "or", "xor", "max", "min", "neg", "not", "abs", "reshape", "jit",
    "print",
];

/// A program of these steps; some of the first values are literals.
fn random_program(t: &mut Text, steps: &[Step], within: Option<&Arc<Program>>) -> Vec<Atom> {
    let mut values: Vec<Atom> = vec![t.input(), t.input()];
    values.extend([0, 1, -1, 3].map(|number| t.literal(Scalar::Int(number))));
    let io = t.b.effects(&[effect("io", None)]);
    for (operation, one, other) in steps {
        let (one, other) = (*one.get(&values), *other.get(&values));
        let value = match (OPERATIONS[*operation], within) {
            ("jit", Some(program)) => {
                let id = t.b.subprogram(ForeignId::from_u32(30_000));
                t.b.resolve_subprogram(id, program.clone());
                let given = params(vec![("jaxpr", ParamValue::Program(id))]);
                t.with("jit", &[one, other], given, EffectsId::NONE)
            }
            ("jit", None) => t.eqn("add", &[one, other]),
            ("print", Some(_)) => t.with("print", &[one], Params::default(), io),
            ("print", None) => t.eqn("neg", &[one]),
            (name @ ("neg" | "not" | "abs" | "reshape"), _) => t.eqn(name, &[one]),
            (name, _) => t.eqn(name, &[one, other]),
        };
        values.push(value);
    }
    values.split_off(values.len() - 3)
}

/// What a program returns and prints.
fn evaluate(program: &Program, plain: &Plain, inputs: &[i128]) -> (Vec<i128>, Vec<i128>) {
    let mut values: FxHashMap<Var, i128> =
        program.invars().iter().copied().zip(inputs.iter().copied()).collect();
    let value = |values: &FxHashMap<Var, i128>, atom: Atom| match atom.kind() {
        AtomKind::Var(var) => values[&var],
        AtomKind::Literal(id) => match plain.scalars[&program.literal(id).object] {
            Scalar::Int(number) => number,
            other => panic!("{other:?} among integers"),
        },
    };
    let mut printed = Vec::new();
    for eqn in program.eqns() {
        let data = program.eqn(eqn);
        let operands: Vec<i128> =
            program.eqn_invars(eqn).iter().map(|&atom| value(&values, atom)).collect();
        let result = match (&*program.primitive(data.primitive).name, &operands[..]) {
            ("add", &[a, b]) => a.wrapping_add(b),
            ("sub", &[a, b]) => a.wrapping_sub(b),
            ("mul", &[a, b]) => a.wrapping_mul(b),
            ("and", &[a, b]) => a & b,
            ("or", &[a, b]) => a | b,
            ("xor", &[a, b]) => a ^ b,
            ("max", &[a, b]) => a.max(b),
            ("min", &[a, b]) => a.min(b),
            ("neg", &[a]) => a.wrapping_neg(),
            ("not", &[a]) => !a,
            ("abs", &[a]) => a.wrapping_abs(),
            ("reshape", &[a]) => a,
            ("print", &[a]) => {
                printed.push(a);
                a
            }
            ("jit", operands) => {
                let id = program.params(data.params).subprograms()[0];
                let body = program.subprogram(id).program.clone().unwrap();
                let (outs, more) = evaluate(&body, plain, operands);
                printed.extend(more);
                outs[0]
            }
            (name, operands) => panic!("{name} of {operands:?}"),
        };
        values.insert(data.outvars().next().unwrap(), result);
    }
    (program.outvars().iter().map(|&atom| value(&values, atom)).collect(), printed)
}

fn any_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..OPERATIONS.len(), any::<Index>(), any::<Index>());
    proptest::collection::vec(step, 3..most)
}

proptest! {
    #[test]
    fn random_programs_compute_and_print_the_same(
        steps in any_steps(60),
        body in any_steps(12),
        passes in proptest::sample::subsequence(Pass::ALL.to_vec(), 1..=6),
        inputs in proptest::array::uniform2(-5_i128..5),
    ) {
        let mut t = Text::new(DType::Int64);
        let outs = random_program(&mut t, &body, None);
        let within = t.b.finish(&outs[..1], DebugInfo::default(), EffectsId::NONE).unwrap();
        // Literals of both are numbered together.
        let mut t = Text { plain: t.plain, ..Text::new(DType::Int64) };
        let outs = random_program(&mut t, &steps, Some(&Arc::new(within)));
        let program = Arc::new(t.b.finish(&outs, DebugInfo::default(), EffectsId::NONE).unwrap());
        let expected = evaluate(&program, &t.plain, &inputs);
        let result = done(&program, &passes, &mut t.plain);
        prop_assert_eq!(evaluate(&result, &t.plain, &inputs), expected, "{}\n{}", program, result);
        prop_assert!(result.num_eqns() <= program.num_eqns() + 8 * 60);
    }
}
