use jaxide::ir::{
    Atom, BuildError, Builder, ConstId, ContextId, DeadCode, DebugInfo, Def, EffectsId, Eqn,
    LiteralId, ParamValue, Params, PrimitiveId, Source, SourceId, TypeId, Var, VarData, verify,
};

use crate::common::{Fixture, effect, f32_array, object, params, rich_program};

#[test]
fn equal_values_share_an_id() {
    let mut b = Builder::new(DeadCode::Keep);
    let ty = b.ty(f32_array(&[2]));
    assert_eq!(ty, b.ty(f32_array(&[2])));
    assert_ne!(ty, b.ty(f32_array(&[3])));

    let axis = |value| params(vec![("axis", ParamValue::Int(value))]);
    let first = b.params(axis(0));
    assert_eq!(first, b.params(axis(0)));
    assert_ne!(first, b.params(axis(1)));

    assert_eq!(b.effects(&[]), EffectsId::NONE);
    let (io, read) = (effect("io", None), effect("read", None));
    let first = b.effects(&[io.clone(), read.clone()]);
    assert_eq!(first, b.effects(&[io.clone(), read.clone()]));
    assert_ne!(first, b.effects(&[read.clone(), io.clone()]), "the order counts");
    assert_eq!(b.effect_list(first), [io, read]);

    assert_eq!(b.context(object(9)), b.context(object(9)));
    assert_eq!(b.context_object(ContextId::from_u32(0)), object(9));
}

#[test]
fn a_source_is_shared_by_the_equations_of_a_call() {
    let mut b = Builder::new(DeadCode::Keep);
    let source = |number| Source { traceback: Some(object(number)), name_stack: None };
    let first = b.source(source(4));
    assert_eq!(first, b.source(source(4)));
    assert_ne!(first, b.source(Source { traceback: None, name_stack: Some(object(4)) }));
    assert_ne!(first, b.source(Source { name_stack: Some(object(4)), ..source(4) }));
    // However many there are in between, ids that are equal mean equal sources.
    for number in 0..1_000 {
        let id = b.source(source(number));
        assert_eq!(b.source_data(id), source(number));
        assert_eq!(id, b.source(source(number)));
    }
    assert_eq!(b.source_data(first), source(4));
}

#[test]
fn primitives_and_nested_programs_are_told_apart_by_their_object() {
    let mut b = Builder::new(DeadCode::Keep);
    let sin = b.primitive("sin", false, object(1));
    assert_eq!(sin, b.primitive("renamed", true, object(1)));
    assert_ne!(sin, b.primitive("sin", false, object(2)));
    assert_eq!(&*b.primitive_data(sin).name, "sin");
    assert!(!b.primitive_data(sin).multiple_results);

    let body = b.subprogram(object(1));
    b.resolve_subprogram(body, std::sync::Arc::new(rich_program()));
    assert_eq!(body, b.subprogram(object(1)));
    assert!(b.subprogram_data(body).program.is_some(), "interning again keeps what is resolved");
    let other = b.subprogram(object(2));
    assert_ne!(body, other);
    assert!(b.subprogram_data(other).program.is_none());
}

#[test]
fn a_finished_program_reads_back() {
    let p = rich_program();
    let eqns: Vec<Eqn> = p.eqns().collect();
    assert_eq!(eqns.len(), p.num_eqns());
    assert_eq!(p.num_eqns(), 3);

    let (x, weights, cell) = (Var::from_u32(0), Var::from_u32(1), Var::from_u32(2));
    assert_eq!(p.invars(), [x, cell]);
    assert_eq!(p.constvars(), [(weights, ConstId::from_u32(0))]);
    assert_eq!(p.eqn_invars(eqns[0]), [Atom::var(x), Atom::var(weights)]);
    assert_eq!(p.eqn_outvars(eqns[1]).collect::<Vec<_>>(), [Var::from_u32(4), Var::from_u32(5)]);
    assert_eq!(p.eqn_outvars(eqns[2]).len(), 0);
    assert_eq!(p.var(weights).def, Def::Constvar(ConstId::from_u32(0)));
    assert_eq!(p.var(Var::from_u32(5)).def, Def::Eqn(eqns[1]));
    assert_eq!(p.ty(p.var_type(cell)).to_string(), "Ref{f32[8,3]}");
    assert_eq!(p.ty(p.atom_type(p.outvars()[2])).to_string(), "f32[]");

    let scan = &p[eqns[1]];
    assert_eq!(&*p.primitive(scan.primitive).name, "scan");
    assert_eq!(p.source(scan.source).name_stack, Some(object(52)));
    assert_eq!(p.context(scan.context), object(60));
    let Some(&ParamValue::Program(body)) = p.params(scan.params).get("jaxpr") else {
        panic!("the body of the scan is a program");
    };
    assert_eq!(p.subprogram(body).object, object(80));
    assert_eq!(p.effect_list(p.effects())[0].input, Some(cell));
    assert_eq!(&*p.debug_info().traced_for, "jit");
    assert_eq!(p.literal(LiteralId::from_u32(0)).object, object(70));
}

#[test]
fn what_is_not_a_program_is_refused_and_changes_nothing() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let (ty, source, context, single) = (f.ty, f.source, f.context, f.single);
    let x = f.invar();
    let dead = f.unary(x);
    f.release(dead);
    let params = f.builder.params(Params::default());
    let of_unknown = f.builder.effects(&[effect("read", Some(Var::from_u32(99)))]);
    let before = f.builder.clone().finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();

    let unknown = |table, id: &str, len| BuildError::UnknownId { table, id: id.into(), len };
    let b = &mut f.builder;
    let none = EffectsId::NONE;
    let far = 99;
    let refusals = [
        (
            b.eqn(single, params, &[Var::from_u32(far).into()], &[ty], none, source, context),
            BuildError::UnknownVar(Var::from_u32(far)),
        ),
        // Its own output is not defined yet: the next variable.
        (
            b.eqn(single, params, &[Var::from_u32(2).into()], &[ty], none, source, context),
            BuildError::UnknownVar(Var::from_u32(2)),
        ),
        (
            b.eqn(single, params, &[x.into(), dead.into()], &[ty], none, source, context),
            BuildError::RemovedVar(dead),
        ),
        (
            b.eqn(single, params, &[LiteralId::from_u32(0).into()], &[ty], none, source, context),
            unknown("literals", "lit0", 0),
        ),
        (
            b.eqn(single, params, &[], &[TypeId::from_u32(far)], none, source, context),
            unknown("types", "ty99", 1),
        ),
        (
            b.eqn(PrimitiveId::from_u32(far), params, &[], &[ty], none, source, context),
            unknown("primitives", "prim99", 2),
        ),
        (
            b.eqn(single, jaxide::ir::ParamsId::from_u32(far), &[], &[ty], none, source, context),
            unknown("parameter lists", "params99", 1),
        ),
        (
            b.eqn(single, params, &[], &[ty], EffectsId::from_u32(far), source, context),
            unknown("effect lists", "eff99", 2),
        ),
        (
            b.eqn(single, params, &[], &[ty], of_unknown, source, context),
            BuildError::UnknownVar(Var::from_u32(far)),
        ),
        (
            b.eqn(single, params, &[], &[ty], none, SourceId::from_u32(far), context),
            unknown("sources", "src99", 1),
        ),
        (
            b.eqn(single, params, &[], &[ty], none, source, ContextId::from_u32(far)),
            unknown("contexts", "ctx99", 1),
        ),
        (
            b.eqn(single, params, &[], &[], none, source, context),
            BuildError::OutputCount { primitive: single, found: 0 },
        ),
        (
            b.eqn(single, params, &[], &[ty, ty], none, source, context),
            BuildError::OutputCount { primitive: single, found: 2 },
        ),
    ];
    for (result, error) in refusals {
        assert_eq!(result, Err(error));
    }
    let far_type = TypeId::from_u32(far);
    assert_eq!(b.invar(far_type), Err(unknown("types", "ty99", 1)));
    assert_eq!(b.constvar(far_type, ConstId::from_u32(0)), Err(unknown("types", "ty99", 1)));
    assert_eq!(b.literal(far_type, object(0)), Err(unknown("types", "ty99", 1)));
    // A definition has 30 bits for the number of a constant.
    let too_large = ConstId::from_u32(1 << 30);
    let too_many = BuildError::TooMany { what: "constants", limit: 1 << 30 };
    assert_eq!(b.constvar(ty, too_large), Err(too_many));
    assert!(b.clone().constvar(ty, ConstId::from_u32((1 << 30) - 1)).is_ok());

    let after = f.builder.finish(&[], DebugInfo::default(), none).unwrap();
    assert_eq!(before.to_string(), after.to_string());
    assert_eq!(before.num_vars(), after.num_vars());
}

#[test]
fn a_program_does_not_end_in_what_it_does_not_have() {
    let mut f = Fixture::new(DeadCode::RemoveUnreferenced);
    let x = f.invar();
    let dead = f.unary(x);
    f.release(dead);
    let of_dead = f.builder.effects(&[effect("read", Some(dead))]);
    let finish = |outvars: &[Atom], effects| {
        f.builder.clone().finish(outvars, DebugInfo::default(), effects).map(|_| ())
    };
    let far = Var::from_u32(9);
    assert_eq!(finish(&[far.into()], EffectsId::NONE), Err(BuildError::UnknownVar(far)));
    assert_eq!(finish(&[dead.into()], EffectsId::NONE), Err(BuildError::RemovedVar(dead)));
    assert_eq!(finish(&[], of_dead), Err(BuildError::RemovedVar(dead)));
    assert_eq!(finish(&[x.into()], EffectsId::NONE), Ok(()));
}

#[test]
fn errors_are_sentences() {
    let errors = [
        BuildError::UnknownVar(Var::from_u32(3)),
        BuildError::RemovedVar(Var::from_u32(3)),
        BuildError::UnknownId { table: "types", id: "ty9".into(), len: 2 },
        BuildError::OutputCount { primitive: PrimitiveId::from_u32(1), found: 2 },
        BuildError::TooMany { what: "variables", limit: Atom::MAX_VARS },
    ];
    insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
}

#[test]
fn inputs_may_follow_equations() {
    let mut f = Fixture::new(DeadCode::Keep);
    let x = f.invar();
    let y = f.unary(x);
    let late = f.invar();
    let p = {
        let z = f.unary(late);
        f.finish(&[y, z])
    };
    assert_eq!(p.invars(), [x, late]);
    assert_eq!(p.var(late), VarData { ty: p.var_type(x), def: Def::Invar });
    assert_eq!(verify(&p), Ok(()));
}

#[test]
fn an_equation_takes_about_sixty_bytes() {
    // A power of two, where the doubling of the operand pool leaves no slack.
    let equations = 1 << 17;
    let mut f = Fixture::new(DeadCode::Keep);
    let mut x = f.invar();
    let empty = f.builder.clone().finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();
    for _ in 0..equations {
        x = f.unary(x);
    }
    let p = f.finish(&[x]);
    let bytes = p.memory_bytes() - empty.memory_bytes();
    assert!(bytes <= 60 * equations, "{bytes} bytes for {equations} equations");
    assert!(bytes >= 56 * equations, "not everything is counted: {bytes} bytes");
}

#[test]
fn a_finished_program_has_no_slack() {
    // One more than a power of two, after which a table has doubled.
    let inputs = 1025;
    let mut f = Fixture::new(DeadCode::Keep);
    let empty = f.builder.clone().finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap();
    for _ in 0..inputs {
        f.invar();
    }
    let bytes = f.finish(&[]).memory_bytes() - empty.memory_bytes();
    assert_eq!(bytes, inputs * (8 + 4), "a variable and an entry in the list of inputs");
}
