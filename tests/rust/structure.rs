//! Structural hash and equality: blind to ids, names and sources, and to nothing else.

use std::convert::Infallible;
use std::sync::Arc;

use jaxide::ir::{
    ArrayType, Atom, Builder, ConstId, DType, DeadCode, DebugInfo, Dim, Effect, EffectsId,
    ForeignId, ParamValue, Params, PrimitiveData, Program, Source, Subprogram, Type, Var,
};
use jaxide::structure::{
    Added, Fingerprint, Nested, Objects, Purpose, Text, equal, fingerprint, steps,
};
use proptest::{collection, prelude::*, sample::Index};

use crate::common::{names, object};

/// A type in few words.
#[derive(Clone, Debug, PartialEq)]
struct AType {
    dtype: u8,
    shape: Vec<u64>,
    weak: bool,
    space: bool,
    reference: bool,
}

#[derive(Clone, Debug)]
enum Operand {
    /// One of the variables there are.
    Var(Index),
    Literal(AType, u32),
}

#[derive(Clone, Debug)]
enum Value {
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
struct AnEqn {
    primitive: u32,
    params: Vec<Value>,
    operands: Vec<Operand>,
    outputs: Vec<AType>,
    effect: Option<(u32, Option<Index>)>,
    context: u32,
}

/// All that counts in a program.
#[derive(Clone, Debug)]
struct Spec {
    consts: Vec<(AType, u32)>,
    invars: Vec<AType>,
    eqns: Vec<AnEqn>,
    outvars: Vec<Operand>,
    effect: Option<u32>,
}

/// All that does not.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// Added to the number of each object, which stands for what it is below this.
    shift: u32,
    /// Rows that nothing refers to come first, and variables that were removed.
    junk: bool,
    source: u32,
}

const KINDS: u32 = 1000;

/// Objects that are what their number says, but for the shift.
#[derive(Clone)]
struct Numbered {
    shift: u32,
}

impl Numbered {
    fn kind(&self, object: ForeignId) -> u32 {
        object.as_u32() - self.shift
    }

    fn described(kind: u32) -> Fingerprint {
        let mut text = Text::new();
        text.number(kind.into());
        text.finish()
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
    fn build(&self) -> Type {
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

struct Making {
    builder: Builder,
    noise: Noise,
    vars: Vec<Var>,
    /// Tells apart the jaxprs of one program.
    jaxprs: u32,
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
    fn build(&self, noise: Noise) -> Arc<Program> {
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

    fn nested(&self, noise: Noise) -> Nested<Numbered> {
        let program = self.build(noise);
        let objects = Numbered { shift: noise.shift };
        Nested { key: Arc::as_ptr(&program) as usize, program, objects }
    }
}

fn a_type() -> impl Strategy<Value = AType> {
    let shape = collection::vec(0..4_u64, 0..3);
    (0..30_u8, shape, any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1)).prop_map(
        |(dtype, shape, weak, space, reference)| AType { dtype, shape, weak, space, reference },
    )
}

fn an_operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        4 => any::<Index>().prop_map(Operand::Var),
        1 => (a_type(), 0..9_u32).prop_map(|(ty, value)| Operand::Literal(ty, value)),
    ]
}

fn a_value(depth: u32) -> BoxedStrategy<Value> {
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

fn an_eqn(depth: u32) -> impl Strategy<Value = AnEqn> {
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

fn a_spec(depth: u32) -> BoxedStrategy<Spec> {
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

fn some_noise() -> impl Strategy<Value = Noise> {
    (0..50_u32, any::<bool>(), 0..9_u32).prop_map(|(shift, junk, source)| Noise {
        shift: shift * 2 * KINDS,
        junk,
        source,
    })
}

const BOTH: [Purpose; 2] = [Purpose::Structure, Purpose::Content];

fn hash(spec: &Spec, noise: Noise, purpose: Purpose) -> Fingerprint {
    let Ok(own) = fingerprint(spec.nested(noise), purpose);
    own
}

fn are_equal(one: &Spec, another: &Spec, noise: [Noise; 2], purpose: Purpose) -> bool {
    let Ok(equal) = equal(one.nested(noise[0]), another.nested(noise[1]), purpose);
    equal
}

/// A program with one field changed, and whether it is another one for sure; `which` picks the field.
fn mutated(spec: &Spec, which: Index, other: &AnEqn, ty: &AType) -> Option<(Spec, bool)> {
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

/// What a program reads as, ids and names left out: the oracle of equality.
fn reads(spec: &Spec) -> String {
    let quiet = Noise { shift: 0, junk: false, source: 0 };
    let program = spec.build(quiet);
    let outputs = program.eqns().flat_map(|eqn| program.eqn_outvars(eqn));
    let vars = program.invars().iter().copied().chain(outputs);
    let types = vars.map(|var| format!("{:?}", program.ty(program.var_type(var))));
    program.to_string() + &types.collect::<String>()
}

proptest! {
    #[test]
    fn ids_names_and_sources_do_not_count(
        spec in a_spec(2), one in some_noise(), another in some_noise()
    ) {
        for constants in BOTH {
            prop_assert_eq!(hash(&spec, one, constants), hash(&spec, another, constants));
            prop_assert!(are_equal(&spec, &spec, [one, another], constants));
        }
    }

    #[test]
    fn every_field_counts(
        spec in a_spec(2),
        which in any::<Index>(),
        other in an_eqn(2),
        ty in a_type(),
        one in some_noise(),
        another in some_noise(),
    ) {
        let Some((new, differs)) = mutated(&spec, which, &other, &ty) else { return Ok(()) };
        let is_same = are_equal(&spec, &new, [one, another], Purpose::Content);
        let hashes = [hash(&spec, one, Purpose::Content), hash(&new, another, Purpose::Content)];
        prop_assert_eq!(is_same, hashes[0] == hashes[1]);
        // A change of the specification may be none of the program.
        if differs || reads(&spec) != reads(&new) {
            prop_assert!(!is_same);
        }
        prop_assert_eq!(is_same, are_equal(&new, &spec, [another, one], Purpose::Content));
    }

    #[test]
    fn different_programs_differ(
        spec in a_spec(1), other in a_spec(1), one in some_noise(), another in some_noise()
    ) {
        let is_same = are_equal(&spec, &other, [one, another], Purpose::Content);
        let (a, b) = (hash(&spec, one, Purpose::Content), hash(&other, another, Purpose::Content));
        prop_assert_eq!(is_same, a == b);
        if reads(&spec) != reads(&other) {
            prop_assert!(!is_same);
        }
    }

    #[test]
    fn steps_part_where_programs_do(
        spec in a_spec(2),
        which in any::<Index>(),
        ty in a_type(),
        one in some_noise(),
        another in some_noise(),
    ) {
        let prints = |spec: &Spec, noise| -> Vec<Fingerprint> {
            let Ok(steps) = steps(spec.nested(noise), Purpose::Content);
            steps.into_iter().map(|step| step.fingerprint).collect()
        };
        let own = prints(&spec, one);
        prop_assert_eq!(&own, &prints(&spec, another));
        prop_assert_eq!(*own.last().unwrap(), hash(&spec, one, Purpose::Content));
        if spec.eqns.is_empty() {
            return Ok(());
        }
        let mut new = spec.clone();
        let changed = which.index(spec.eqns.len());
        new.eqns[changed].operands.push(Operand::Literal(ty, 0));
        let Ok(all) = steps(spec.nested(one), Purpose::Content);
        let other = prints(&new, another);
        let parting = own.iter().zip(&other).position(|(a, b)| a != b).unwrap();
        let Added::Eqn(eqn) = all[parting].added else { panic!("no equation") };
        prop_assert_eq!(eqn.as_u32() as usize, changed);
        prop_assert_eq!(all[parting].program.key, all[0].program.key);
    }

    #[test]
    fn constants_are_inputs_of_what_is_executed(
        spec in a_spec(1), noise in some_noise(), other in some_noise(), value in 0..9_u32
    ) {
        let mut lifted = spec.clone();
        let mut inputs: Vec<_> = lifted.consts.drain(..).map(|(ty, _)| ty).collect();
        inputs.append(&mut lifted.invars);
        lifted.invars = inputs;
        let pair = [noise, other];
        prop_assert!(are_equal(&spec, &lifted, pair, Purpose::Execution));
        prop_assert_eq!(
            hash(&spec, noise, Purpose::Execution),
            hash(&lifted, other, Purpose::Execution)
        );
        let mut new = spec.clone();
        let Some(eqn) = new.eqns.first_mut() else { return Ok(()) };
        let Some(unexecuted) = eqn.params.get_mut(1) else { return Ok(()) };
        *unexecuted = Value::Opaque(value + 100);
        prop_assert!(are_equal(&spec, &new, pair, Purpose::Execution));
        prop_assert!(!are_equal(&spec, &new, pair, Purpose::Content));
        prop_assert_eq!(
            hash(&spec, noise, Purpose::Execution),
            hash(&new, other, Purpose::Execution)
        );
    }

    #[test]
    fn values_of_constants_count_where_asked(spec in a_spec(1), noise in some_noise()) {
        let mut new = spec.clone();
        let Some((_, value)) = new.consts.first_mut() else { return Ok(()) };
        *value += 1;
        let pair = [noise, noise];
        prop_assert_eq!(hash(&spec, noise, Purpose::Structure), hash(&new, noise, Purpose::Structure));
        prop_assert!(are_equal(&spec, &new, pair, Purpose::Structure));
        prop_assert_ne!(
            hash(&spec, noise, Purpose::Content),
            hash(&new, noise, Purpose::Content)
        );
        prop_assert!(!are_equal(&spec, &new, pair, Purpose::Content));
    }
}

/// The hash is persisted: whoever changes it has to change its version, and this number.
#[test]
fn the_hash_is_stable() {
    let ty = AType { dtype: 28, shape: vec![2, 3], weak: false, space: false, reference: false };
    let spec = Spec {
        consts: vec![(ty.clone(), 4)],
        invars: vec![ty.clone()],
        eqns: vec![AnEqn {
            primitive: 1,
            params: vec![Value::Int(-1), Value::Tuple(vec![Value::Str("a".into()), Value::None])],
            operands: vec![Operand::Literal(ty.clone(), 2)],
            outputs: vec![ty],
            effect: Some((3, None)),
            context: 0,
        }],
        outvars: vec![],
        effect: None,
    };
    let noise = Noise { shift: 0, junk: true, source: 1 };
    let [by_type, by_value] = BOTH.map(|constants| format!("{:?}", hash(&spec, noise, constants)));
    insta::assert_snapshot!(format!("{by_type} {by_value}"));
}
