//! Builders of the programs that tests share.

use jaxide::ir::{
    ArrayType, Atom, Builder, ConstId, ContextId, DType, DeadCode, DebugInfo, Dim, Effect,
    EffectsId, Eqn, ForeignId, ParamValue, Params, PrimitiveId, Program, Source, SourceId,
    SubprogramId, Type, TypeId, Var,
};

pub(crate) fn object(number: u32) -> ForeignId {
    ForeignId::from_u32(number)
}

pub(crate) fn f32_array(shape: &[u64]) -> Type {
    ArrayType::new(DType::Float32, shape.iter().copied().map(Dim::Static)).into()
}

pub(crate) fn params(entries: Vec<(&str, ParamValue)>) -> Params {
    let entries = entries.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Params::new(entries).unwrap()
}

pub(crate) fn effect(name: &str, input: Option<Var>) -> Effect {
    Effect { name: name.into(), input, object: object(90) }
}

pub(crate) fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|&name| name.into()).collect()
}

/// A builder with what every equation needs, so that a test only says what it is about.
pub(crate) struct Fixture {
    pub(crate) builder: Builder,
    pub(crate) ty: TypeId,
    pub(crate) source: SourceId,
    pub(crate) context: ContextId,
    /// A primitive with a single result.
    pub(crate) single: PrimitiveId,
    /// A primitive with a list of results.
    pub(crate) multiple: PrimitiveId,
}

impl Fixture {
    pub(crate) fn new(dce: DeadCode) -> Self {
        let mut builder = Builder::new(dce);
        Self {
            ty: builder.ty(f32_array(&[3])),
            source: builder.source(Source::default()),
            context: builder.context(object(0)),
            single: builder.primitive("sin", false, object(1)),
            multiple: builder.primitive("split", true, object(2)),
            builder,
        }
    }

    pub(crate) fn invar(&mut self) -> Var {
        let var = self.builder.invar(self.ty).unwrap();
        self.builder.retain(var);
        var
    }

    pub(crate) fn constvar(&mut self, value: u32) -> Var {
        let var = self.builder.constvar(self.ty, ConstId::from_u32(value)).unwrap();
        self.builder.retain(var);
        var
    }

    /// Appends an equation and takes a handle on each output, as a trace does.
    pub(crate) fn eqn(&mut self, invars: &[Var], outputs: usize, effects: EffectsId) -> Eqn {
        let params = self.builder.params(Params::default());
        let invars: Vec<_> = invars.iter().copied().map(Atom::var).collect();
        let primitive = if outputs == 1 { self.single } else { self.multiple };
        let types = vec![self.ty; outputs];
        let eqn = self
            .builder
            .eqn(primitive, params, &invars, &types, effects, self.source, self.context)
            .unwrap();
        for var in self.builder.eqn_data(eqn).outvars() {
            self.builder.retain(var);
        }
        eqn
    }

    /// Appends an equation with one output, and returns that.
    pub(crate) fn unary(&mut self, invar: Var) -> Var {
        let eqn = self.eqn(&[invar], 1, EffectsId::NONE);
        self.builder.outvars_of(eqn).0
    }

    /// Releases one handle; the constants that went.
    pub(crate) fn release(&mut self, var: Var) -> Vec<ConstId> {
        let mut dropped = Vec::new();
        self.builder.release(var, &mut dropped);
        dropped
    }

    pub(crate) fn finish(self, outvars: &[Var]) -> Program {
        let outvars: Vec<_> = outvars.iter().copied().map(Atom::var).collect();
        self.builder.finish(&outvars, DebugInfo::default(), EffectsId::NONE).unwrap()
    }
}

/// A program with something in every table:
///
/// `v0` is an input, `v1` a constant, `v2` a reference that is an input, `v3`, `v4` and `v5` are
/// outputs of `eqn0`, `eqn1` (two outputs, a nested program) and there is an equation with an
/// effect and no outputs, `eqn2`.
pub(crate) fn rich_program() -> Program {
    let mut b = Builder::new(DeadCode::Keep);
    let array = b.ty(f32_array(&[8, 3]));
    let scalar = b.ty(f32_array(&[]));
    let reference =
        b.ty(Type::Ref { inner: Box::new(f32_array(&[8, 3])), memory_space: None, kind: None });
    let source = b.source(Source { traceback: Some(object(50)), name_stack: None });
    let other_source =
        b.source(Source { traceback: Some(object(51)), name_stack: Some(object(52)) });
    let context = b.context(object(60));
    let none = b.params(Params::default());

    let x = b.invar(array).unwrap();
    let weights = b.constvar(array, ConstId::from_u32(0)).unwrap();
    let cell = b.invar(reference).unwrap();
    let half = b.literal(scalar, object(70)).unwrap();

    let mul = b.primitive("mul", false, object(1));
    let operands = [x.into(), weights.into()];
    b.eqn(mul, none, &operands, &[array], EffectsId::NONE, source, context).unwrap();

    let body = b.subprogram(object(80));
    b.resolve_subprogram(body, std::sync::Arc::new(identity_program()));
    b.subprogram(object(81));
    let scan = b.primitive("scan", true, object(2));
    let scan_params = b.params(params(vec![
        ("length", ParamValue::Int(4)),
        ("jaxpr", ParamValue::Program(body)),
        ("reverse", ParamValue::Bool(false)),
    ]));
    let carry = Var::from_u32(3).into();
    let operands = [carry, half.into()];
    b.eqn(scan, scan_params, &operands, &[array, scalar], EffectsId::NONE, other_source, context)
        .unwrap();

    let write = b.effects(&[effect("write", Some(cell)), effect("io", None)]);
    let swap = b.primitive("addupdate", true, object(3));
    let operands = [cell.into(), Var::from_u32(4).into()];
    b.eqn(swap, none, &operands, &[], write, source, context).unwrap();

    let debug = DebugInfo {
        traced_for: "jit".into(),
        func_src_info: "step at train.py:7".into(),
        arg_names: Some(names(&["x", "cell"])),
        result_paths: Some(names(&["result[0]", "result[1]", "result[2]"])),
    };
    b.finish(&[Var::from_u32(4).into(), x.into(), half.into()], debug, write).unwrap()
}

/// The program that returns its only input.
pub(crate) fn identity_program() -> Program {
    let mut fixture = Fixture::new(DeadCode::Keep);
    let x = fixture.invar();
    fixture.finish(&[x])
}

/// A program whose only nested program is the one given.
pub(crate) fn enclosing(nested: Program) -> (Program, SubprogramId) {
    let mut builder = Builder::new(DeadCode::Keep);
    let id = builder.subprogram(object(1));
    builder.resolve_subprogram(id, std::sync::Arc::new(nested));
    (builder.finish(&[], DebugInfo::default(), EffectsId::NONE).unwrap(), id)
}
