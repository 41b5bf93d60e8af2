//! Files that were altered by somebody who knows the format, and random documents: for tests.

#![allow(clippy::cast_possible_truncation)] // of documents that are small

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Array, Document, Frame, HEADER_BYTES, MAGIC, MAX_STACK, NO_FRAMES, Object, SECTION_BYTES,
    SECTIONS, Stack, StoredProgram, VERSION,
};
use crate::ir::{
    ArrayType, Atom, BuildError, Builder, ConstId, DType, DeadCode, DebugInfo, Dim, Effect,
    EffectsId, ForeignId, ParamValue, Params, ParamsId, Source, SubprogramId, Type, TypeId, Var,
};

/// Makes the header of altered bytes right again: all of it but for the lengths of the sections, where
/// these fit.
pub fn seal(file: &mut [u8]) {
    if file.len() < HEADER_BYTES {
        return;
    }
    let len = file.len() as u64;
    file[..8].copy_from_slice(&MAGIC);
    file[8..12].copy_from_slice(&VERSION.to_le_bytes());
    file[12..16].copy_from_slice(&5_u32.to_le_bytes());
    file[16..24].copy_from_slice(&len.to_le_bytes());
    let mut start = HEADER_BYTES;
    for place in 0..SECTIONS.len() {
        let entry = 24 + place * SECTION_BYTES;
        let mut own = [0; 8];
        own.copy_from_slice(&file[entry + 8..entry + 16]);
        let left = file.len() - start;
        let is_last = place + 1 == SECTIONS.len();
        let given = usize::try_from(u64::from_le_bytes(own)).unwrap_or(usize::MAX);
        let len = if is_last { left } else { given.min(left) };
        let checksum = xxh3_64(&file[start..start + len]);
        file[entry..entry + 8].copy_from_slice(&(place as u64 + 1).to_le_bytes());
        file[entry + 8..entry + 16].copy_from_slice(&(len as u64).to_le_bytes());
        file[entry + 16..entry + 24].copy_from_slice(&checksum.to_le_bytes());
        start += len;
    }
    let checksum = xxh3_64(&file[..HEADER_BYTES - 8]);
    file[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// A document that some bytes choose; every one can be written.
pub fn any_document(choices: &[u8]) -> Document<'static> {
    let mut choices = Choices(choices);
    let names: Vec<_> = (0..=choices.up_to(4)).map(|n| format!("{n}.py").into()).collect();
    let any_name = |choices: &mut Choices<'_>| choices.up_to(names.len() as u32 - 1);
    let mut frames = vec![];
    for _ in 0..=choices.up_to(4) {
        let [file, function] = [any_name(&mut choices), any_name(&mut choices)];
        let location = [choices.up_to(300), choices.up_to(3), choices.up_to(300), choices.up_to(3)];
        frames.push(Frame { file, function, location });
    }
    let mut stacks: Vec<Stack> = vec![];
    for place in 0..choices.up_to(6).min(MAX_STACK) {
        let frame = choices.up_to(frames.len() as u32 - 1);
        let caller = choices.up_to(place).checked_sub(1);
        stacks.push(Stack { caller, frame });
    }
    // Something that everything can refer to.
    let first = Object::Record { class: "first".into(), fields: ParamValue::None };
    let mut objects = vec![first];
    for _ in 0..choices.up_to(12) {
        let object = any_object(&mut choices, &objects, stacks.len() as u32);
        objects.push(object);
    }
    let root = any_value(&mut choices, objects.len() as u32, &[], 0);
    Document { names, frames, stacks, objects, root }
}

/// Bytes that choose; zeros when they are used up.
struct Choices<'c>(&'c [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// A number that is at most `most`.
    fn up_to(&mut self, most: u32) -> u32 {
        let byte = u32::from(self.byte());
        let number = if most < 256 { byte } else { byte << 8 | u32::from(self.byte()) };
        number % (most + 1)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn text(&mut self) -> Box<str> {
        let len = self.up_to(3);
        (0..len).map(|_| char::from(b'a' + self.byte() % 26)).collect()
    }

    fn optional_text(&mut self) -> Option<Box<str>> {
        self.flag().then(|| self.text())
    }

    fn dtype(&mut self) -> DType {
        match self.up_to(DType::NAMED.len() as u32) as usize {
            named if named < DType::NAMED.len() => DType::NAMED[named].clone(),
            _ => DType::Extended("key<fry>".into()),
        }
    }

    fn object(&mut self, num_objects: u32) -> ForeignId {
        ForeignId::from_u32(self.up_to(num_objects - 1))
    }
}

fn any_object(
    choices: &mut Choices<'_>,
    objects: &[Object<'static>],
    stacks: u32,
) -> Object<'static> {
    let num_objects = objects.len() as u32;
    match choices.up_to(3) {
        0 => Object::Record {
            class: String::from(choices.text()).into(),
            fields: any_value(choices, num_objects, &[], 0),
        },
        1 => {
            let shape = [u64::from(choices.up_to(3)), u64::from(choices.up_to(3))];
            let data = (0..shape[0] * shape[1]).map(|_| choices.byte()).collect::<Vec<_>>();
            Object::Array(Array { dtype: DType::Int8, shape: shape.into(), data: data.into() })
        }
        2 => Object::Program(any_program(choices, objects, stacks)),
        _ => {
            let is_program = |&place: &usize| matches!(objects[place], Object::Program(_));
            match (0..objects.len()).rev().find(is_program) {
                None => Object::Program(any_program(choices, objects, stacks)),
                Some(place) => {
                    let Object::Program(stored) = &objects[place] else { unreachable!() };
                    let consts = stored.program.constvars().iter();
                    let program = ForeignId::from_u32(place as u32);
                    let consts = consts.map(|_| choices.object(num_objects)).collect();
                    Object::Closed { program, consts }
                }
            }
        }
    }
}

fn any_value(
    choices: &mut Choices<'_>,
    num_objects: u32,
    subprograms: &[SubprogramId],
    depth: u32,
) -> ParamValue {
    let kind = choices.up_to(if depth < 4 { 17 } else { 11 });
    let item = |choices: &mut Choices<'_>| any_value(choices, num_objects, subprograms, depth + 1);
    match kind {
        0 => ParamValue::None,
        1 => ParamValue::Bool(choices.flag()),
        2 => ParamValue::Int(choices.number().cast_signed()),
        3 => ParamValue::Int(i64::from(choices.byte()) - 128),
        4 => ParamValue::BigInt("-9223372036854775809".into()),
        5 => ParamValue::Float(choices.number()),
        6 => ParamValue::Complex(choices.number(), choices.number()),
        7 => ParamValue::Str(choices.text()),
        8 => ParamValue::Bytes([choices.byte(), choices.byte()].into()),
        9 => ParamValue::DType(choices.dtype()),
        10 => ParamValue::Dim(choices.text()),
        11 => ParamValue::Enum { type_name: choices.text(), member: choices.text() },
        12 => ParamValue::Tuple((0..choices.up_to(3)).map(|_| item(choices)).collect()),
        13 => ParamValue::List((0..choices.up_to(3)).map(|_| item(choices)).collect()),
        14 => ParamValue::Dict(
            (0..choices.up_to(3)).map(|_| (item(choices), item(choices))).collect(),
        ),
        15 => {
            let fields = (0..choices.up_to(3)).map(|_| (choices.text(), item(choices))).collect();
            ParamValue::Named { type_name: choices.text(), fields }
        }
        16 if !subprograms.is_empty() => {
            ParamValue::Program(subprograms[choices.up_to(subprograms.len() as u32 - 1) as usize])
        }
        _ => ParamValue::Opaque(choices.object(num_objects)),
    }
}

fn any_type(choices: &mut Choices<'_>, num_objects: u32) -> Type {
    let mut ty = match choices.up_to(3) {
        0 => Type::Token,
        1 => Type::Opaque { name: choices.text(), object: choices.object(num_objects) },
        _ => {
            let dtype = choices.dtype();
            let dims = (0..choices.up_to(5)).map(|_| {
                if choices.flag() {
                    Dim::Static(choices.number())
                } else {
                    Dim::Symbolic("n".into())
                }
            });
            let mut array = ArrayType::new(dtype, dims.collect::<Vec<_>>());
            array.weak_type = choices.flag();
            array.sharding = choices.optional_text();
            array.manual_axis_type = choices.optional_text();
            array.memory_space = choices.optional_text();
            array.layout = choices.optional_text();
            Type::Array(array)
        }
    };
    for _ in 0..choices.up_to(2) {
        let (memory_space, kind) = (choices.optional_text(), choices.optional_text());
        ty = Type::Ref { inner: Box::new(ty), memory_space, kind };
    }
    ty
}

fn any_params(
    choices: &mut Choices<'_>,
    builder: &mut Builder,
    num_objects: u32,
    subprograms: &[SubprogramId],
    order: &mut Vec<Box<[u32]>>,
) -> ParamsId {
    let entries = (0..choices.up_to(3)).map(|place| {
        let name = format!("p{place}").into();
        (name, any_value(choices, num_objects, subprograms, 0))
    });
    let entries: Vec<_> = entries.collect();
    let len = entries.len() as u32;
    let id = builder.params(Params::new(entries).unwrap_or_default());
    if id.as_u32() as usize == order.len() {
        let by = choices.byte();
        order.push((0..len).map(|place| (place + u32::from(by)) % len).collect());
    }
    id
}

fn any_program(
    choices: &mut Choices<'_>,
    objects: &[Object<'static>],
    stacks: u32,
) -> StoredProgram {
    build_program(choices, objects, stacks).expect("a program of what is there")
}

#[allow(clippy::too_many_lines)] // one step for each table
fn build_program(
    choices: &mut Choices<'_>,
    objects: &[Object<'static>],
    stacks: u32,
) -> Result<StoredProgram, BuildError> {
    let num_objects = objects.len() as u32;
    let mut builder = Builder::new(DeadCode::Keep);
    let mut subprograms = Vec::new();
    let programs = objects.iter().enumerate().filter_map(|(place, object)| match object {
        Object::Program(stored) => Some((ForeignId::from_u32(place as u32), stored)),
        _ => None,
    });
    for (object, stored) in programs {
        if choices.flag() && subprograms.len() < 2 {
            let id = builder.subprogram(object);
            builder.resolve_subprogram(id, stored.program.clone());
            subprograms.push(id);
        }
    }
    let types: Vec<TypeId> = (0..=choices.up_to(3))
        .map(|_| {
            let ty = any_type(choices, num_objects);
            builder.ty(ty)
        })
        .collect();
    let any_type =
        |choices: &mut Choices<'_>| types[choices.up_to(types.len() as u32 - 1) as usize];
    let mut atoms: Vec<Atom> = Vec::new();
    let mut num_vars = 0;
    for place in 0..choices.up_to(2) {
        let var = builder.constvar(any_type(choices), ConstId::from_u32(place))?;
        builder.retain(var);
        atoms.push(var.into());
        num_vars += 1;
    }
    for _ in 0..choices.up_to(3) {
        atoms.push(builder.invar(any_type(choices))?.into());
        num_vars += 1;
    }
    for _ in 0..choices.up_to(2) {
        atoms.push(builder.literal(any_type(choices), choices.object(num_objects))?.into());
    }
    let (mut param_order, mut no_effects) = (Vec::new(), Vec::new());
    for _ in 0..choices.up_to(8) {
        let object = choices.object(num_objects);
        let primitive = builder.primitive("op", true, object);
        if primitive.as_u32() as usize == no_effects.len() {
            no_effects.push(any_value(choices, num_objects, &subprograms, 3));
        }
        let params = any_params(choices, &mut builder, num_objects, &subprograms, &mut param_order);
        let mut operands = Vec::new();
        for _ in 0..choices.up_to(3).min(atoms.len() as u32) {
            operands.push(atoms[choices.up_to(atoms.len() as u32 - 1) as usize]);
        }
        let effects = if choices.up_to(3) == 0 {
            let input = operands.iter().find_map(|atom| atom.as_var());
            builder.effects(&[Effect { name: choices.text(), input, object }])
        } else {
            EffectsId::NONE
        };
        let traceback = match choices.up_to(stacks + 1) {
            0 => None,
            number if number > stacks => Some(NO_FRAMES),
            number => Some(ForeignId::from_u32(number - 1)),
        };
        let name_stack = choices.flag().then(|| choices.object(num_objects));
        let source = builder.source(Source { traceback, name_stack });
        let context = builder.context(choices.object(num_objects));
        let outputs: Vec<_> = (0..choices.up_to(2)).map(|_| any_type(choices)).collect();
        let eqn = builder.eqn(primitive, params, &operands, &outputs, effects, source, context)?;
        for var in builder.eqn_data(eqn).outvars() {
            atoms.push(var.into());
            num_vars += 1;
        }
    }
    let mut outvars = Vec::new();
    for _ in 0..choices.up_to(3).min(atoms.len() as u32) {
        outvars.push(atoms[choices.up_to(atoms.len() as u32 - 1) as usize]);
    }
    let names = DebugInfo {
        traced_for: choices.text(),
        func_src_info: choices.text(),
        arg_names: choices.flag().then(|| vec![choices.text()]),
        result_paths: choices.flag().then(|| vec![choices.text()]),
    };
    let program = builder.finish(&outvars, names, EffectsId::NONE)?;
    let mut chosen = |_: &u32| choices.up_to(7) == 0;
    let dropped = (0..num_vars).filter(&mut chosen).map(Var::from_u32).collect();
    let shared = (0..num_vars).filter(&mut chosen).map(|var| (Var::from_u32(var), var)).collect();
    Ok(StoredProgram {
        program: Arc::new(program),
        is_high: choices.flag(),
        param_order,
        no_effects,
        dropped,
        shared,
    })
}
