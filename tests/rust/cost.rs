use std::sync::Arc;

use jaxide::analysis::{Cost, NoEstimates, Report, Trips, cost};
use jaxide::ir::{
    Builder, DeadCode, DebugInfo, EffectsId, Eqn, ParamValue, Params, Program, Source, TypeId, Var,
};

use crate::common::{f32_array, object, params};

fn report(program: Program, trips: Trips) -> Report {
    cost(&Arc::new(program), trips, &NoEstimates)
}

/// A program of primitives with these names and params, each on the last result.
fn chain(eqns: Vec<(&str, Vec<(&str, Value)>)>) -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let ty: TypeId = b.ty(f32_array(&[3, 4]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let mut last: Var = b.invar(ty).unwrap();
    for (number, (name, entries)) in eqns.into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        let primitive = b.primitive(name, false, object(100 + number));
        let mut values = Vec::new();
        for (place, (name, value)) in entries.into_iter().enumerate() {
            let mut nested = |program: &Arc<Program>, at: usize| {
                let at = u32::try_from(10 * place + at).unwrap();
                let id = b.subprogram(object(1000 + 100 * number + at));
                b.resolve_subprogram(id, program.clone());
                ParamValue::Program(id)
            };
            let value = match value {
                Value::Int(value) => ParamValue::Int(value),
                Value::Program(program) => nested(&program, 0),
                Value::Programs(programs) => {
                    let values: Vec<_> =
                        programs.iter().enumerate().map(|(at, p)| nested(p, at)).collect();
                    ParamValue::Tuple(values.into())
                }
            };
            values.push((name, value));
        }
        let params = if values.is_empty() { Params::default() } else { params(values) };
        let params = b.params(params);
        let eqn = b
            .eqn(primitive, params, &[last.into()], &[ty], EffectsId::NONE, source, context)
            .unwrap();
        last = b.outvars_of(eqn).0;
    }
    b.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap()
}

enum Value {
    Int(i64),
    Program(Arc<Program>),
    Programs(Vec<Arc<Program>>),
}

const NEG: Cost = Cost { flops: 12, transcendentals: 0, bytes_read: 48, bytes_written: 48 };
const SIN: Cost = Cost { flops: 0, transcendentals: 12, bytes_read: 48, bytes_written: 48 };

fn body() -> Arc<Program> {
    Arc::new(chain(vec![("neg", vec![]), ("sin", vec![])]))
}

#[test]
fn equations_add_up() {
    let report = report(chain(vec![("neg", vec![]), ("sin", vec![]), ("neg", vec![])]), Trips(1));
    assert_eq!(report.total, NEG + SIN + NEG);
    assert_eq!(report.by_primitive["neg"].times, 2);
    assert_eq!(report.by_primitive["neg"].cost, NEG + NEG);
}

#[test]
fn loops_of_known_length() {
    let program =
        chain(vec![("scan", vec![("jaxpr", Value::Program(body())), ("length", Value::Int(5))])]);
    let report = report(program, Trips(1));
    assert_eq!(report.total, (NEG + SIN) * 5);
    assert_eq!(report.programs[1].times, 5);
    assert_eq!(report.programs[1].each, NEG + SIN);
    assert!(report.loops.is_empty());
}

#[test]
fn loops_of_unknown_length() {
    let condition = Arc::new(chain(vec![("sin", vec![])]));
    let entries =
        vec![("body_jaxpr", Value::Program(body())), ("cond_jaxpr", Value::Program(condition))];
    let report = report(chain(vec![("while", entries)]), Trips(7));
    assert_eq!(report.total, (NEG + SIN) * 7 + SIN * 8);
    assert_eq!(report.loops, [(0, Eqn::from_u32(0))]);
}

#[test]
fn the_most_expensive_branch_counts() {
    let small = Arc::new(chain(vec![("neg", vec![])]));
    let entries = vec![("branches", Value::Programs(vec![small, body()]))];
    let report = report(chain(vec![("cond", entries)]), Trips(1));
    assert_eq!(report.total, NEG + SIN);
    assert_eq!(report.branches[0].costs, [NEG, NEG + SIN]);
    assert_eq!(report.by_primitive["neg"].times, 1);
}

#[test]
fn unknown_primitives_are_listed_as_often_as_they_run() {
    let within = Arc::new(chain(vec![("mystery", vec![]), ("mystery", vec![])]));
    let program =
        chain(vec![("scan", vec![("jaxpr", Value::Program(within)), ("length", Value::Int(3))])]);
    let report = report(program, Trips(1));
    assert_eq!(report.unknown["mystery"], 6);
    assert_eq!(report.total, Cost::default());
}

#[test]
fn params_that_are_not_as_they_should_be() {
    for primitive in ["dot_general", "conv_general_dilated", "scan", "while", "cond", "sort", "fft"]
    {
        let report = report(chain(vec![(primitive, vec![])]), Trips(1));
        assert_eq!(report.unknown[primitive], 1, "{primitive}");
    }
}

#[test]
fn programs_within_programs_are_read_once() {
    // 2^40 runs of the innermost one.
    let mut program = body();
    for _ in 0..40 {
        let entries = vec![("jaxpr", Value::Program(program)), ("length", Value::Int(2))];
        program = Arc::new(chain(vec![("scan", entries)]));
    }
    let report = cost(&program, Trips(1), &NoEstimates);
    assert_eq!(report.total, (NEG + SIN) * (1 << 40));
    assert_eq!(report.programs.len(), 41);
}

#[test]
fn what_is_too_much_to_count_is_the_most_there_is() {
    let mut program = body();
    for _ in 0..4 {
        let entries = vec![("jaxpr", Value::Program(program)), ("length", Value::Int(i64::MAX))];
        program = Arc::new(chain(vec![("scan", entries)]));
    }
    assert_eq!(cost(&program, Trips(1), &NoEstimates).total.flops, u128::MAX);
}
