//! Programs that are made of specifications, so that two can be the same but for what does not count.

use std::convert::Infallible;
use std::sync::Arc;

use jaxide::ir::{
    ArrayType, Atom, Builder, ConstId, DType, DeadCode, DebugInfo, Dim, Effect, EffectsId,
    ForeignId, ParamValue, Params, PrimitiveData, Program, Source, Subprogram, Type, Var,
};
use jaxide::structure::{Fingerprint, Nested, Objects, Purpose, StableHasher, equal};
use proptest::{collection, prelude::*, sample::Index};

use crate::common::{names, object};

/// A type in few words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AType {
    pub(crate) dtype: u8,
    pub(crate) shape: Vec<u64>,
    pub(crate) weak: bool,
    pub(crate) space: bool,
    pub(crate) reference: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// One of the variables there are.
    Var(Index),
    Literal(AType, u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(u64),
    Str(String),
    DType(u8),
    Enum(u8),
    Opaque(u32),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Named(Vec<Value>),
    Program(Box<Spec>),
}

#[derive(Clone, Debug)]
pub(crate) struct AnEqn {
    pub(crate) primitive: u32,
    pub(crate) params: Vec<Value>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) outputs: Vec<AType>,
    pub(crate) effect: Option<(u32, Option<Index>)>,
    pub(crate) context: u32,
}

/// All that counts in a program.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) consts: Vec<(AType, u32)>,
    pub(crate) invars: Vec<AType>,
    pub(crate) eqns: Vec<AnEqn>,
    pub(crate) outvars: Vec<Operand>,
    pub(crate) effect: Option<u32>,
}

/// All that does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Added to the number of each object, which stands for what it is below this.
    pub(crate) shift: u32,
    /// Rows that nothing refers to come first, and variables that were removed.
    pub(crate) junk: bool,
    pub(crate) source: u32,
}

pub(crate) const KINDS: u32 = 1000;

/// Objects that are what their number says, but for the shift.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub(crate) shift: u32,
}

impl Numbered {
    fn kind(&self, object: ForeignId) -> u32 {
        object.as_u32() - self.shift
    }

    fn described(kind: u32) -> Fingerprint {
        let mut hasher = StableHasher::new();
        hasher.number(kind.into());
        hasher.finish()
    }
}

impl Objects for Numbered {
    type Error = Infallible;

    fn nested(&self, subprogram: &Subprogram) -> Result<Nested<Self>, Infallible> {
        let program = subprogram.program.clone().expect("all nested programs are resolved");
        let objects = Self { shift: self.shift };
        Ok(Nested { key: Arc::as_ptr(&program) as usize, program, objects })
    }

    fn describe(&self, object: ForeignId) -> Result<Fingerprint, Infallible> {
        Ok(Self::described(self.kind(object)))
    }

    fn is_executed(&self, _primitive: &PrimitiveData, param: &str) -> bool {
        param != "k1"
    }

    fn describe_constant(&self, value: ConstId) -> Result<Fingerprint, Infallible> {
        Ok(Self::described(value.as_u32() - self.shift))
    }

    fn type_of(&self, _object: ForeignId) -> Result<Option<Type>, Infallible> {
        Ok(None)
    }

    fn same(&self, own: ForeignId, others: &Self, other: ForeignId) -> Result<bool, Infallible> {
        Ok(self.kind(own) == others.kind(other))
    }

    fn same_constant(
        &self,
        own: ConstId,
        others: &Self,
        other: ConstId,
    ) -> Result<bool, Infallible> {
        Ok(own.as_u32() - self.shift == other.as_u32() - others.shift)
    }
}

impl AType {
    pub(crate) fn build(&self) -> Type {
        let dtype = DType::NAMED[usize::from(self.dtype) % DType::NAMED.len()].clone();
        let mut array = ArrayType::new(dtype, self.shape.iter().copied().map(Dim::Static));
        array.weak_type = self.weak;
        array.memory_space = self.space.then(|| "host".into());
        let array = Type::Array(array);
        if self.reference {
            Type::Ref { inner: Box::new(array), memory_space: None, kind: None }
        } else {
            array
        }
    }
}

pub(crate) struct Making {
    pub(crate) builder: Builder,
    pub(crate) noise: Noise,
    pub(crate) vars: Vec<Var>,
    /// Tells apart the jaxprs of one program.
    pub(crate) jaxprs: u32,
}

impl Making {
    fn object(&self, kind: u32) -> ForeignId {
        object(kind + self.noise.shift)
    }

    fn atom(&mut self, operand: &Operand) -> Option<Atom> {
        match operand {
            Operand::Var(_) if self.vars.is_empty() => None,
            Operand::Var(index) => Some(index.get(&self.vars).to_owned().into()),
            Operand::Literal(ty, value) => {
                let ty = self.builder.ty(ty.build());
                let value = self.object(*value);
                Some(self.builder.literal(ty, value).unwrap().into())
            }
        }
    }

    fn value(&mut self, value: &Value) -> ParamValue {
        match value {
            Value::None => ParamValue::None,
            Value::Bool(value) => ParamValue::Bool(*value),
            Value::Int(value) => ParamValue::Int(*value),
            Value::Float(bits) => ParamValue::Float(*bits),
            Value::Str(text) => ParamValue::Str(text.as_str().into()),
            Value::DType(index) => {
                let index = usize::from(*index) % DType::NAMED.len();
                ParamValue::DType(DType::NAMED[index].clone())
            }
            Value::Enum(member) => {
                ParamValue::Enum { type_name: "Mode".into(), member: format!("M{member}").into() }
            }
            Value::Opaque(kind) => ParamValue::Opaque(self.object(*kind)),
            Value::Tuple(items) => {
                ParamValue::Tuple(items.iter().map(|item| self.value(item)).collect())
            }
            Value::List(items) => {
                ParamValue::List(items.iter().map(|item| self.value(item)).collect())
            }
            Value::Dict(entries) => ParamValue::Dict(
                entries.iter().map(|(k, v)| (self.value(k), self.value(v))).collect(),
            ),
            Value::Named(items) => {
                let field = |(index, item)| (format!("f{index}").into(), self.value(item));
                let fields = items.iter().enumerate().map(field).collect();
                ParamValue::Named { type_name: "Numbers".into(), fields }
            }
            Value::Program(spec) => {
                self.jaxprs += 1;
                let jaxpr = object(self.noise.shift + KINDS + self.jaxprs);
                let id = self.builder.subprogram(jaxpr);
                self.builder.resolve_subprogram(id, spec.build(self.noise));
                ParamValue::Program(id)
            }
        }
    }
}

impl Spec {
    pub(crate) fn build(&self, noise: Noise) -> Arc<Program> {
        let builder = Builder::new(DeadCode::Keep);
        let mut make = Making { builder, noise, vars: Vec::new(), jaxprs: 0 };
        if noise.junk {
            make.builder.ty(ArrayType::new(DType::Complex64, [Dim::Static(77)]).into());
            make.builder.params(Params::new(vec![("junk".into(), ParamValue::None)]).unwrap());
            let ty = make.builder.ty(ArrayType::new(DType::Int8, []).into());
            let gone = make.builder.constvar(ty, ConstId::from_u32(noise.shift + 999)).unwrap();
            make.builder.retain(gone);
            make.builder.release(gone, &mut Vec::new());
        }
        for (ty, value) in &self.consts {
            let ty = make.builder.ty(ty.build());
            let value = ConstId::from_u32(value + noise.shift);
            let var = make.builder.constvar(ty, value).unwrap();
            make.builder.retain(var);
            make.vars.push(var);
        }
        for ty in &self.invars {
            let ty = make.builder.ty(ty.build());
            let var = make.builder.invar(ty).unwrap();
            make.vars.push(var);
        }
        for eqn in &self.eqns {
            let primitive = make.object(eqn.primitive);
            let name = format!("p{}", eqn.primitive);
            let primitive = make.builder.primitive(&name, true, primitive);
            let entries = eqn.params.iter().enumerate();
            let entries = entries.map(|(i, value)| (format!("k{i}").into(), make.value(value)));
            let entries = entries.collect();
            let params = make.builder.params(Params::new(entries).unwrap());
            let operands: Vec<_> =
                eqn.operands.iter().filter_map(|operand| make.atom(operand)).collect();
            let types: Vec<_> = eqn.outputs.iter().map(|ty| make.builder.ty(ty.build())).collect();
            let effects = eqn.effect.as_ref().map_or(EffectsId::NONE, |(kind, input)| {
                let vars = (!make.vars.is_empty()).then_some(&make.vars);
                let input = input.and_then(|input| vars.map(|vars| *input.get(vars)));
                let object = make.object(*kind);
                make.builder.effects(&[Effect { name: "io".into(), input, object }])
            });
            let source = Source { traceback: Some(object(noise.source)), name_stack: None };
            let source = make.builder.source(source);
            let context = make.object(eqn.context);
            let context = make.builder.context(context);
            let id = make
                .builder
                .eqn(primitive, params, &operands, &types, effects, source, context)
                .unwrap();
            for var in make.builder.eqn_data(id).outvars() {
                make.builder.retain(var);
                make.vars.push(var);
            }
        }
        let outvars: Vec<_> = self.outvars.iter().filter_map(|out| make.atom(out)).collect();
        let effects = self.effect.map_or(EffectsId::NONE, |kind| {
            let object = make.object(kind);
            make.builder.effects(&[Effect { name: "io".into(), input: None, object }])
        });
        let debug = DebugInfo {
            traced_for: format!("{}", noise.source).into(),
            arg_names: Some(names(&["x"])),
            ..DebugInfo::default()
        };
        Arc::new(make.builder.finish(&outvars, debug, effects).unwrap())
    }

    pub(crate) fn nested(&self, noise: Noise) -> Nested<Numbered> {
        let program = self.build(noise);
        let objects = Numbered { shift: noise.shift };
        Nested { key: Arc::as_ptr(&program) as usize, program, objects }
    }
}

pub(crate) fn a_type() -> impl Strategy<Value = AType> {
    let shape = collection::vec(0..4_u64, 0..3);
    (0..30_u8, shape, any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1)).prop_map(
        |(dtype, shape, weak, space, reference)| AType { dtype, shape, weak, space, reference },
    )
}

pub(crate) fn an_operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        4 => any::<Index>().prop_map(Operand::Var),
        1 => (a_type(), 0..9_u32).prop_map(|(ty, value)| Operand::Literal(ty, value)),
    ]
}

pub(crate) fn a_value(depth: u32) -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        (-3..3_i64).prop_map(Value::Int),
        any::<u64>().prop_map(Value::Float),
        "[a-c]{0,3}".prop_map(Value::Str),
        (0..30_u8).prop_map(Value::DType),
        (0..3_u8).prop_map(Value::Enum),
        (0..9_u32).prop_map(Value::Opaque),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = || a_value(depth - 1);
    prop_oneof![
        6 => leaf,
        1 => collection::vec(inner(), 0..3).prop_map(Value::Tuple),
        1 => collection::vec(inner(), 0..3).prop_map(Value::List),
        1 => collection::vec((inner(), inner()), 0..2).prop_map(Value::Dict),
        1 => collection::vec(inner(), 1..3).prop_map(Value::Named),
        1 => a_spec(depth - 1).prop_map(|spec| Value::Program(Box::new(spec))),
    ]
    .boxed()
}

pub(crate) fn an_eqn(depth: u32) -> impl Strategy<Value = AnEqn> {
    (
        0..5_u32,
        collection::vec(a_value(depth), 0..3),
        collection::vec(an_operand(), 0..4),
        collection::vec(a_type(), 0..3),
        proptest::option::weighted(0.2, (0..5_u32, proptest::option::of(any::<Index>()))),
        0..3_u32,
    )
        .prop_map(|(primitive, params, operands, outputs, effect, context)| AnEqn {
            primitive,
            params,
            operands,
            outputs,
            effect,
            context,
        })
}

pub(crate) fn a_spec(depth: u32) -> BoxedStrategy<Spec> {
    (
        collection::vec((a_type(), 0..9_u32), 0..3),
        collection::vec(a_type(), 0..4),
        collection::vec(an_eqn(depth), 0..if depth == 2 { 12 } else { 3 }),
        collection::vec(an_operand(), 0..4),
        proptest::option::weighted(0.2, 0..5_u32),
    )
        .prop_map(|(consts, invars, eqns, outvars, effect)| Spec {
            consts,
            invars,
            eqns,
            outvars,
            effect,
        })
        .boxed()
}

pub(crate) fn some_noise() -> impl Strategy<Value = Noise> {
    (0..50_u32, any::<bool>(), 0..9_u32).prop_map(|(shift, junk, source)| Noise {
        shift: shift * 2 * KINDS,
        junk,
        source,
    })
}

pub(crate) fn are_equal(one: &Spec, another: &Spec, noise: [Noise; 2], purpose: Purpose) -> bool {
    let Ok(equal) = equal(one.nested(noise[0]), another.nested(noise[1]), purpose);
    equal
}

/// A program with one field changed, and whether it is another one for sure; `which` picks the field.
pub(crate) fn mutated(
    spec: &Spec,
    which: Index,
    other: &AnEqn,
    ty: &AType,
) -> Option<(Spec, bool)> {
    let mut new = spec.clone();
    let differs = match which.index(5 + 6 * spec.eqns.len()) {
        0 => {
            new.invars.push(ty.clone());
            true
        }
        1 => std::mem::replace(new.invars.first_mut()?, ty.clone()) != *ty,
        2 => std::mem::replace(&mut new.consts.first_mut()?.0, ty.clone()) != *ty,
        3 => {
            new.effect = Some(spec.effect.map_or(0, |kind| kind + 1));
            true
        }
        4 => {
            new.outvars.push(Operand::Literal(ty.clone(), 0));
            true
        }
        field => {
            let eqn = &mut new.eqns[(field - 5) / 6];
            match (field - 5) % 6 {
                0 => std::mem::replace(&mut eqn.primitive, other.primitive) != other.primitive,
                1 => {
                    eqn.params.clone_from(&other.params);
                    false
                }
                2 => {
                    eqn.operands.push(Operand::Literal(ty.clone(), 0));
                    true
                }
                3 => {
                    eqn.outputs.push(ty.clone());
                    true
                }
                4 => {
                    let kind = other.effect.as_ref().map(|(kind, _)| *kind);
                    let own = eqn.effect.as_ref().map(|(kind, _)| *kind);
                    eqn.effect.clone_from(&other.effect);
                    own != kind
                }
                _ => std::mem::replace(&mut eqn.context, other.context) != other.context,
            }
        }
    };
    Some((new, differs))
}
