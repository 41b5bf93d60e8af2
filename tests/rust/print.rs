use std::sync::Arc;

use insta::assert_snapshot;
use jaxide::ir::{
    Atom, Builder, DeadCode, DebugInfo, EffectsId, ParamValue, Params, Program, Source, Var,
};
use jaxide::print::{Limits, Options, Plain, Settings, TooDeep, print};
use proptest::prelude::*;

use crate::common::{Fixture, f32_array, object, params, rich_program};

fn text(program: Program) -> String {
    with(program, Settings::default(), Limits::default(), Options::default())
}

fn with(program: Program, settings: Settings, limits: Limits, options: Options) -> String {
    print(&Plain::from(Arc::new(program)), settings, limits, options).unwrap()
}

fn chain(length: u32) -> Program {
    let mut fixture = Fixture::new(DeadCode::Keep);
    let mut last = fixture.invar();
    for _ in 0..length {
        last = fixture.unary(last);
    }
    fixture.finish(&[last])
}

/// A program with one equation for each of these, which has it as a param.
fn calling(programs: &[Arc<Program>]) -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[3]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let call = b.primitive("call", false, object(1));
    let mut last = b.invar(ty).unwrap();
    for (number, program) in programs.iter().enumerate() {
        let id = b.subprogram(object(10 + u32::try_from(number).unwrap()));
        b.resolve_subprogram(id, program.clone());
        let entries = vec![
            ("body", ParamValue::Program(id)),
            ("name", ParamValue::Str("inner".into())),
            ("pair", ParamValue::Tuple(vec![ParamValue::Program(id); 2].into())),
        ];
        let params = b.params(params(entries));
        let eqn =
            b.eqn(call, params, &[last.into()], &[ty], EffectsId::NONE, source, context).unwrap();
        last = b.outvars_of(eqn).0;
    }
    b.finish(&[last.into()], DebugInfo::default(), EffectsId::NONE).unwrap()
}

#[test]
fn a_short_program_is_one_line() {
    assert_eq!(text(chain(1)), "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }");
    assert_eq!(text(chain(0)), "{ lambda ; a:f32[3]. let  in (a,) }");
}

#[test]
fn everything() {
    let all =
        Settings { print_shapes: true, source_info: true, name_stack: true, print_effects: true };
    assert_snapshot!(with(rich_program(), all, Limits::default(), Options::default()));
}

#[test]
fn programs_that_occur_twice_are_defined_first() {
    let inner = Arc::new(chain(2));
    let large = Arc::new(chain(11));
    assert_snapshot!(text(calling(&[inner.clone(), large, inner])));
}

#[test]
fn what_nothing_refers_to_has_no_name() {
    let mut fixture = Fixture::new(DeadCode::Keep);
    let x = fixture.invar();
    fixture.unary(x);
    let y = fixture.unary(x);
    assert_eq!(
        text(fixture.finish(&[y])),
        "{ lambda ; a:f32[3]. let _:f32[3] = sin a; b:f32[3] = sin a in (b,) }"
    );
}

#[test]
fn names_go_on_with_two_letters() {
    let printed = text(chain(60));
    assert!(printed.contains("z:f32[3] = sin y\n    ba:f32[3] = sin z\n"));
}

#[test]
fn what_is_left_out_is_counted() {
    let limits = |max_depth, max_eqns| Limits { max_depth, max_eqns, ..Limits::default() };
    let shown = |limits| {
        with(calling(&[Arc::new(chain(3))]), Settings::default(), limits, Options::default())
    };
    assert_snapshot!(shown(limits(Some(0), None)));
    assert_snapshot!(shown(limits(None, Some(1))));
    let collapse = Limits { collapse: ["call".into()].into_iter().collect(), ..Limits::default() };
    assert_eq!(shown(collapse), shown(limits(Some(0), None)));
    let deep = shown(limits(Some(1), Some(3)));
    assert_eq!(deep, text(calling(&[Arc::new(chain(3))])));
}

#[test]
fn programs_that_are_nested_too_deeply() {
    let mut program = chain(1);
    for _ in 0..400 {
        let mut b = Builder::new(DeadCode::Keep);
        let ty = b.ty(f32_array(&[3]));
        let (source, context) = (b.source(Source::default()), b.context(object(0)));
        let call = b.primitive("call", false, object(1));
        let x = b.invar(ty).unwrap();
        let id = b.subprogram(object(2));
        b.resolve_subprogram(id, Arc::new(program));
        let params = b.params(params(vec![("body", ParamValue::Program(id))]));
        b.eqn(call, params, &[x.into()], &[ty], EffectsId::NONE, source, context).unwrap();
        program = b.finish(&[x.into()], DebugInfo::default(), EffectsId::NONE).unwrap();
    }
    let printed = print(
        &Plain::from(Arc::new(program)),
        Settings::default(),
        Limits::default(),
        Options::default(),
    );
    assert_eq!(printed, Err(TooDeep));
}

/// A program of equations with several operands and results.
fn wide(counts: &[(usize, usize)]) -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[128, 256]));
    let (source, context) = (b.source(Source::default()), b.context(object(0)));
    let split = b.primitive("split", true, object(1));
    let none = b.params(Params::default());
    let mut vars: Vec<Var> = vec![b.invar(ty).unwrap()];
    for &(operands, results) in counts {
        let operands: Vec<Atom> = (0..operands).map(|i| vars[i % vars.len()].into()).collect();
        let eqn = b
            .eqn(split, none, &operands, &vec![ty; results], EffectsId::NONE, source, context)
            .unwrap();
        vars.extend(b.eqn_data(eqn).outvars());
    }
    let outvars: Vec<Atom> = vars.iter().copied().map(Atom::var).collect();
    b.finish(&outvars, DebugInfo::default(), EffectsId::NONE).unwrap()
}

proptest! {
    /// Widths move line ends, and nothing else.
    #[test]
    fn widths_say_the_same(counts in prop::collection::vec((0..12_usize, 0..12_usize), 0..5), width in 0..200_i64) {
        let words = |width| {
            let options = Options { width, ..Options::default() };
            let printed = with(wide(&counts), Settings::default(), Limits::default(), options);
            printed.replace(';', " ").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        prop_assert_eq!(words(width), words(80));
    }

    /// Without the codes, coloured text is the text.
    #[test]
    fn colours_say_the_same(counts in prop::collection::vec((0..12_usize, 0..12_usize), 0..5), width in 0..200_i64) {
        let printed = |colored| {
            let options = Options { width, colored, ..Options::default() };
            with(wide(&counts), Settings::default(), Limits::default(), options)
        };
        let mut plain = String::new();
        for (position, part) in printed(true).split('\x1b').enumerate() {
            plain.push_str(if position == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        prop_assert_eq!(plain, printed(false));
    }
}
