//! Each invariant, broken in a program with everything: all violations are found, and no others.

use std::sync::Arc;

use jaxide::ir::{
    Atom, Builder, ConstId, ContextId, DeadCode, DebugInfo, Def, EffectsId, Eqn, LiteralId,
    ParamValue, ParamsId, Place, PrimitiveId, Program, SourceId, TypeId, Var, VarData, Violation,
    ViolationKind, testing::UncheckedEdit, verify,
};

use crate::common::{effect, enclosing, names, object, rich_program};

fn v(number: u32) -> Var {
    Var::from_u32(number)
}

fn eqn(number: u32) -> Eqn {
    Eqn::from_u32(number)
}

fn edited(edit: impl FnOnce(&mut UncheckedEdit<'_>)) -> Program {
    let mut program = rich_program();
    edit(&mut UncheckedEdit(&mut program));
    program
}

/// What is wrong with the rich program after an edit.
fn broken(edit: impl FnOnce(&mut UncheckedEdit<'_>)) -> Vec<ViolationKind> {
    let violations = verify(&edited(edit)).unwrap_err();
    assert!(violations.iter().all(|violation| violation.path.is_empty()));
    violations.into_iter().map(|violation| violation.kind).collect()
}

fn out_of_range(place: Place, id: &str) -> ViolationKind {
    ViolationKind::OutOfRange { place, id: id.into() }
}

fn not_defined(place: Place, var: Var) -> ViolationKind {
    ViolationKind::NotDefined { place, var }
}

#[test]
fn a_program_from_the_builder_is_valid() {
    assert_eq!(verify(&rich_program()), Ok(()));
}

#[test]
fn i1_ids_are_in_range() {
    let place = Place::Eqn(eqn(0));
    let found = broken(|e| e.eqn(eqn(0)).primitive = PrimitiveId::from_u32(9));
    assert_eq!(found, [out_of_range(place, "prim9")]);
    let found = broken(|e| e.eqn(eqn(0)).params = ParamsId::from_u32(9));
    assert_eq!(found, [out_of_range(place, "params9")]);
    let found = broken(|e| e.eqn(eqn(0)).source = SourceId::from_u32(9));
    assert_eq!(found, [out_of_range(place, "src9")]);
    let found = broken(|e| e.eqn(eqn(0)).context = ContextId::from_u32(9));
    assert_eq!(found, [out_of_range(place, "ctx9")]);
    let found = broken(|e| e.eqn(eqn(0)).effects = EffectsId::from_u32(9));
    assert_eq!(found, [out_of_range(Place::Effect(eqn(0)), "eff9")]);

    let found = broken(|e| e.eqn_invars(eqn(0))[1] = Atom::var(v(9)));
    assert_eq!(found, [out_of_range(Place::Operand(eqn(0), 1), "v9")]);
    let found = broken(|e| e.eqn_invars(eqn(0))[0] = Atom::literal(LiteralId::from_u32(9)));
    assert_eq!(found, [out_of_range(Place::Operand(eqn(0), 0), "lit9")]);
    let found = broken(|e| e.outvars()[2] = Atom::var(v(9)));
    assert_eq!(found, [out_of_range(Place::Outvar(2), "v9")]);

    let found =
        broken(|e| e.set_var(v(3), VarData { ty: TypeId::from_u32(9), def: Def::Eqn(eqn(0)) }));
    assert_eq!(found, [out_of_range(Place::Var(v(3)), "ty9")]);
    let found = broken(|e| e.literal(LiteralId::from_u32(0)).ty = TypeId::from_u32(9));
    assert_eq!(found, [out_of_range(Place::Literal(LiteralId::from_u32(0)), "ty9")]);
    let found = broken(|e| e.constvars()[0].0 = v(9));
    assert_eq!(found[0], out_of_range(Place::Constvar(0), "v9"));
    let found = broken(|e| e.invars()[1] = v(9));
    assert_eq!(found[0], out_of_range(Place::Invar(1), "v9"));

    let found = broken(|e| e.set_effects(EffectsId::from_u32(9)));
    assert_eq!(found, [out_of_range(Place::ProgramEffects, "eff9")]);
    let found = broken(|e| {
        let effects = e.add_effects(&[effect("read", Some(v(9)))]);
        e.set_effects(effects);
    });
    assert_eq!(found, [out_of_range(Place::ProgramEffects, "v9")]);

    let nested = ParamValue::Program(jaxide::ir::SubprogramId::from_u32(9));
    let branches = ParamValue::Tuple([ParamValue::None, nested].into());
    let found = broken(|e| {
        e.add_params(vec![("branches".into(), branches)]);
    });
    assert_eq!(found, [out_of_range(Place::Params(ParamsId::from_u32(2)), "sub9")]);
}

#[test]
fn i2_outputs_are_variables_of_one_equation() {
    let found = broken(|e| e.eqn(eqn(1)).num_outvars = 4);
    assert_eq!(found, [out_of_range(Place::Eqn(eqn(1)), "v6")]);
    let found = broken(|e| e.eqn(eqn(1)).num_outvars = u32::MAX);
    assert_eq!(found, [out_of_range(Place::Eqn(eqn(1)), "v6")]);

    let found = broken(|e| e.eqn(eqn(1)).first_outvar = v(3));
    let twice = ViolationKind::DefinedTwice { var: v(3), first: eqn(0), second: eqn(1) };
    let lost = ViolationKind::NotAtDef { var: v(5), def: Def::Eqn(eqn(1)) };
    assert_eq!(found, [twice, lost]);
}

#[test]
fn i3_definitions_agree_both_ways() {
    let wrong = |var, expected, found| ViolationKind::WrongDef { var, expected, found };
    let set_def = |var, def| {
        broken(|e| {
            let ty = e.0.var_type(var);
            e.set_var(var, VarData { ty, def });
        })
    };
    let found = set_def(v(4), Def::Eqn(eqn(0)));
    assert_eq!(found, [wrong(v(4), Def::Eqn(eqn(1)), Def::Eqn(eqn(0)))]);
    let found = set_def(v(0), Def::Removed);
    assert_eq!(found, [wrong(v(0), Def::Invar, Def::Removed)]);
    let found = broken(|e| e.constvars()[0].1 = ConstId::from_u32(7));
    let (seven, zero) = (ConstId::from_u32(7), ConstId::from_u32(0));
    assert_eq!(found, [wrong(v(1), Def::Constvar(seven), Def::Constvar(zero))]);

    let found = broken(|e| e.constvars().push((v(1), zero)));
    assert_eq!(found, [ViolationKind::ListedTwice { var: v(1) }]);

    let found = broken(|e| e.constvars().clear());
    let lost = ViolationKind::NotAtDef { var: v(1), def: Def::Constvar(zero) };
    assert_eq!(found, [lost, not_defined(Place::Operand(eqn(0), 1), v(1))]);

    let found = broken(|e| {
        e.invars().pop();
        e.debug_info().arg_names = None;
    });
    let lost = ViolationKind::NotAtDef { var: v(2), def: Def::Invar };
    let uses = [
        not_defined(Place::Effect(eqn(2)), v(2)),
        not_defined(Place::Operand(eqn(2), 0), v(2)),
        not_defined(Place::ProgramEffects, v(2)),
    ];
    assert_eq!(found[0], lost);
    assert_eq!(found[1..], uses);
}

#[test]
fn i4_operands_are_defined_before() {
    let found = broken(|e| e.eqn_invars(eqn(0))[0] = Atom::var(v(4)));
    assert_eq!(found, [not_defined(Place::Operand(eqn(0), 0), v(4))]);
    let found = broken(|e| e.eqn_invars(eqn(1))[0] = Atom::var(v(5)));
    assert_eq!(found, [not_defined(Place::Operand(eqn(1), 0), v(5))], "its own output");
}

#[test]
fn i5_outputs_of_the_program_are_defined() {
    let found = broken(|e| {
        e.eqn(eqn(1)).num_outvars = 1;
        e.outvars()[1] = Atom::var(v(5));
    });
    let lost = ViolationKind::NotAtDef { var: v(5), def: Def::Eqn(eqn(1)) };
    assert_eq!(found, [lost, not_defined(Place::Outvar(1), v(5))]);
}

#[test]
fn i6_effects_act_on_what_is_defined() {
    let found = broken(|e| e.eqn(eqn(0)).effects = e.add_effects(&[effect("read", Some(v(3)))]));
    assert_eq!(found, [not_defined(Place::Effect(eqn(0)), v(3))]);
    let later = edited(|e| e.eqn(eqn(1)).effects = e.add_effects(&[effect("read", Some(v(3)))]));
    assert_eq!(verify(&later), Ok(()));
}

#[test]
fn i7_a_single_result_is_one_output() {
    let found = broken(|e| e.eqn(eqn(0)).num_outvars = 0);
    let count =
        ViolationKind::OutputCount { eqn: eqn(0), primitive: PrimitiveId::from_u32(0), found: 0 };
    let lost = ViolationKind::NotAtDef { var: v(3), def: Def::Eqn(eqn(0)) };
    assert_eq!(found, [lost, count, not_defined(Place::Operand(eqn(1), 0), v(3))]);
}

#[test]
fn i8_parameters_are_sorted() {
    let entry = |name: &str| (name.into(), ParamValue::None);
    let unsorted = |name: &str| ViolationKind::UnsortedParams {
        params: ParamsId::from_u32(2),
        name: name.into(),
    };
    let found = broken(|e| {
        e.add_params(vec![entry("a"), entry("c"), entry("b")]);
    });
    assert_eq!(found, [unsorted("b")]);
    let found = broken(|e| {
        e.add_params(vec![entry("a"), entry("a")]);
    });
    assert_eq!(found, [unsorted("a")]);
}

#[test]
fn i9_nested_programs_are_verified() {
    let broken = edited(|e| e.set_effects(EffectsId::from_u32(9)));
    let (inner, inner_id) = enclosing(broken);
    let mut builder = Builder::new(DeadCode::Keep);
    let ids = [1, 2, 3].map(|number| builder.subprogram(object(number)));
    builder.resolve_subprogram(ids[1], Arc::new(rich_program()));
    builder.resolve_subprogram(ids[2], Arc::new(inner));
    let outer = builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();

    let violations = verify(&outer).unwrap_err();
    let text = "in sub2.sub0: I1: an effect of the program refers to eff9, which does not exist";
    assert_eq!(violations[0].to_string(), text);
    let kind = out_of_range(Place::ProgramEffects, "eff9");
    assert_eq!(violations, [Violation { path: vec![ids[2], inner_id], kind }]);
}

#[test]
fn i10_names_are_as_many_as_what_they_name() {
    let found = broken(|e| {
        *e.debug_info() = DebugInfo {
            arg_names: Some(names(&["x"])),
            result_paths: Some(names(&[])),
            ..DebugInfo::default()
        };
    });
    let count = |what, expected, found| ViolationKind::NameCount { what, expected, found };
    assert_eq!(found, [count("argument names", 2, 1), count("result paths", 3, 0)]);
}

#[test]
fn all_violations_are_reported_at_once() {
    let program = edited(|e| {
        e.eqn(eqn(0)).source = SourceId::from_u32(9);
        e.eqn(eqn(0)).num_outvars = 3;
        e.eqn_invars(eqn(0))[0] = Atom::var(v(5));
        e.eqn(eqn(2)).first_outvar = v(0);
        e.eqn(eqn(2)).num_outvars = 1;
        e.eqn(eqn(2)).primitive = PrimitiveId::from_u32(9);
        e.invars().push(v(0));
        e.constvars()[0].1 = ConstId::from_u32(7);
        e.outvars()[0] = Atom::literal(LiteralId::from_u32(9));
        e.set_effects(EffectsId::from_u32(9));
        e.add_params(vec![("b".into(), ParamValue::None), ("a".into(), ParamValue::None)]);
    });
    let violations = verify(&program).unwrap_err();
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
