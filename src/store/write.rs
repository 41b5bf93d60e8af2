//! A document as bytes.

use cranelift_entity::EntityRef;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Array, Document, Frame, HEADER_BYTES, MAGIC, MAX_DEPTH, Object, SECTIONS, Stack, StoredProgram,
    VERSION,
    cursor::{put_bytes, put_len, put_number, zigzag},
};
use crate::ir::{
    ArrayType, Atom, AtomKind, DType, DebugInfo, Dim, ForeignId, ParamValue, Params, Program, Type,
};

/// Why a document has no bytes: it is none, by a fault of who made it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Values are nested in each other more than [`MAX_DEPTH`] deep.
    #[error("values are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// Variables or constants of a program are not numbered in their order.
    #[error("the variables of a program are not numbered in their order")]
    Unordered,
    /// Params of a program have not been spelled out.
    #[error("params of a program are not known yet")]
    Deferred,
}

/// The bytes of a document.
///
/// # Errors
/// The document is not well-formed.
pub fn write(document: &Document<'_>) -> Result<Vec<u8>, WriteError> {
    let Document { names, frames, stacks, objects, root } = document;
    let mut sections = SECTIONS.map(|_| Vec::new());
    let [own_names, own_frames, own_stacks, own_objects, own_root] = &mut sections;
    put_len(own_names, names.len());
    for name in names {
        put_bytes(own_names, name.as_bytes());
    }
    put_len(own_frames, frames.len());
    for &Frame { file, function, location } in frames {
        for number in [file, function].into_iter().chain(location) {
            put_number(own_frames, number.into());
        }
    }
    put_len(own_stacks, stacks.len());
    for &Stack { caller, frame } in stacks {
        put_number(own_stacks, caller.map_or(0, |caller| u64::from(caller) + 1));
        put_number(own_stacks, frame.into());
    }
    put_len(own_objects, objects.len());
    for object in objects {
        put_object(own_objects, object)?;
    }
    put_value(own_root, root, 0)?;
    Ok(file(&sections))
}

fn file(sections: &[Vec<u8>]) -> Vec<u8> {
    let len = HEADER_BYTES + sections.iter().map(Vec::len).sum::<usize>();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(u32::to_le_bytes(SECTIONS.len().try_into().unwrap_or(u32::MAX)));
    bytes.extend((len as u64).to_le_bytes());
    for (kind, section) in (1_u64..).zip(sections) {
        bytes.extend(kind.to_le_bytes());
        bytes.extend((section.len() as u64).to_le_bytes());
        bytes.extend(xxh3_64(section).to_le_bytes());
    }
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes.extend(sections.iter().flatten());
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_bytes(bytes, text.as_bytes());
}

fn put_flag(bytes: &mut Vec<u8>, flag: bool) {
    bytes.push(flag.into());
}

fn put_optional<T>(bytes: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_flag(bytes, value.is_some());
    if let Some(value) = value {
        put(bytes, value);
    }
}

fn put_id(bytes: &mut Vec<u8>, id: impl EntityRef) {
    put_len(bytes, id.index());
}

pub(super) fn put_object(bytes: &mut Vec<u8>, object: &Object<'_>) -> Result<(), WriteError> {
    match object {
        Object::Record { class, fields } => {
            bytes.push(0);
            put_text(bytes, class);
            put_value(bytes, fields, 0)?;
        }
        Object::Array(Array { dtype, shape, data }) => {
            bytes.push(1);
            put_text(bytes, dtype.name());
            put_len(bytes, shape.len());
            for &size in shape {
                put_number(bytes, size);
            }
            put_bytes(bytes, data);
        }
        Object::Program(program) => {
            bytes.push(2);
            put_program(bytes, program)?;
        }
        Object::Closed { program, consts } => {
            bytes.push(3);
            put_id(bytes, *program);
            put_len(bytes, consts.len());
            for &value in consts {
                put_id(bytes, value);
            }
        }
    }
    Ok(())
}

/// A value, what it is made of after it.
pub(super) fn put_value(
    bytes: &mut Vec<u8>,
    value: &ParamValue,
    depth: usize,
) -> Result<(), WriteError> {
    if depth == MAX_DEPTH {
        return Err(WriteError::TooDeep);
    }
    match value {
        ParamValue::None => bytes.push(0),
        ParamValue::Bool(false) => bytes.push(1),
        ParamValue::Bool(true) => bytes.push(2),
        ParamValue::Int(number) => {
            bytes.push(3);
            put_number(bytes, zigzag(*number));
        }
        ParamValue::BigInt(digits) => {
            bytes.push(4);
            put_text(bytes, digits);
        }
        ParamValue::Float(bits) => {
            bytes.push(5);
            bytes.extend(bits.to_le_bytes());
        }
        ParamValue::Complex(real, imaginary) => {
            bytes.push(6);
            bytes.extend(real.to_le_bytes());
            bytes.extend(imaginary.to_le_bytes());
        }
        ParamValue::Str(text) => {
            bytes.push(7);
            put_text(bytes, text);
        }
        ParamValue::Bytes(content) => {
            bytes.push(8);
            put_bytes(bytes, content);
        }
        ParamValue::DType(dtype) => {
            bytes.push(9);
            put_text(bytes, dtype.name());
        }
        ParamValue::Dim(expression) => {
            bytes.push(10);
            put_text(bytes, expression);
        }
        ParamValue::Enum { type_name, member } => {
            bytes.push(11);
            put_text(bytes, type_name);
            put_text(bytes, member);
        }
        ParamValue::Tuple(items) | ParamValue::List(items) => {
            bytes.push(if matches!(value, ParamValue::Tuple(_)) { 12 } else { 13 });
            put_len(bytes, items.len());
            for item in items {
                put_value(bytes, item, depth + 1)?;
            }
        }
        ParamValue::Dict(entries) => {
            bytes.push(14);
            put_len(bytes, entries.len());
            for (key, item) in entries {
                put_value(bytes, key, depth + 1)?;
                put_value(bytes, item, depth + 1)?;
            }
        }
        ParamValue::Named { type_name, fields } => {
            bytes.push(15);
            put_text(bytes, type_name);
            put_len(bytes, fields.len());
            for (name, item) in fields {
                put_text(bytes, name);
                put_value(bytes, item, depth + 1)?;
            }
        }
        ParamValue::Program(id) => {
            bytes.push(16);
            put_id(bytes, *id);
        }
        ParamValue::Opaque(id) => {
            bytes.push(17);
            put_id(bytes, *id);
        }
    }
    Ok(())
}

fn put_type(bytes: &mut Vec<u8>, ty: &Type) -> Result<(), WriteError> {
    // Refs to refs are made of what they refer to, last.
    let mut ty = ty;
    for _ in 0..MAX_DEPTH {
        match ty {
            Type::Array(array) => {
                bytes.push(0);
                put_array_type(bytes, array);
                return Ok(());
            }
            Type::Ref { inner, memory_space, kind } => {
                bytes.push(1);
                put_optional(bytes, memory_space.as_deref(), put_text);
                put_optional(bytes, kind.as_deref(), put_text);
                ty = inner;
            }
            Type::Token => {
                bytes.push(2);
                return Ok(());
            }
            Type::Opaque { name, object } => {
                bytes.push(3);
                put_text(bytes, name);
                put_id(bytes, *object);
                return Ok(());
            }
        }
    }
    Err(WriteError::TooDeep)
}

fn put_array_type(bytes: &mut Vec<u8>, ty: &ArrayType) {
    let ArrayType { dtype, shape, weak_type, sharding, manual_axis_type, memory_space, layout } =
        ty;
    put_dtype(bytes, dtype);
    put_len(bytes, shape.len());
    for dim in shape {
        match dim {
            Dim::Static(size) => {
                bytes.push(0);
                put_number(bytes, *size);
            }
            Dim::Symbolic(expression) => {
                bytes.push(1);
                put_text(bytes, expression);
            }
        }
    }
    put_flag(bytes, *weak_type);
    for field in [sharding, manual_axis_type, memory_space, layout] {
        put_optional(bytes, field.as_deref(), put_text);
    }
}

fn put_dtype(bytes: &mut Vec<u8>, dtype: &DType) {
    put_text(bytes, dtype.name());
}

fn put_program(bytes: &mut Vec<u8>, stored: &StoredProgram) -> Result<(), WriteError> {
    let StoredProgram { program, is_high, param_order, no_effects, dropped, shared } = stored;
    if !is_ordered(program) {
        return Err(WriteError::Unordered);
    }
    put_flag(bytes, *is_high);
    put_debug_info(bytes, program.debug_info());
    put_tables(bytes, program, param_order, no_effects)?;
    put_graph(bytes, program);

    put_len(bytes, dropped.len());
    for &var in dropped {
        put_id(bytes, var);
    }
    put_len(bytes, shared.len());
    for &(var, number) in shared {
        put_id(bytes, var);
        put_number(bytes, number.into());
    }
    Ok(())
}

/// What equations and variables refer to by id.
fn put_tables(
    bytes: &mut Vec<u8>,
    program: &Program,
    param_order: &[Box<[u32]>],
    no_effects: &[ParamValue],
) -> Result<(), WriteError> {
    let types: Vec<&Type> = program.types().map(|(_, ty)| ty).collect();
    put_len(bytes, types.len());
    for ty in types {
        put_type(bytes, ty)?;
    }
    put_len(bytes, program.subprograms().len());
    for (_, subprogram) in program.subprograms() {
        put_id(bytes, subprogram.object);
    }
    put_len(bytes, program.primitives().len());
    for (place, (_, primitive)) in program.primitives().enumerate() {
        put_text(bytes, &primitive.name);
        put_flag(bytes, primitive.multiple_results);
        put_id(bytes, primitive.object);
        put_value(bytes, no_effects.get(place).unwrap_or(&ParamValue::None), 0)?;
    }
    put_len(bytes, program.all_params().len());
    for (place, (_, params)) in program.all_params().enumerate() {
        put_params(bytes, params, param_order.get(place).map_or(&[], |order| order))?;
    }
    // The first list of effects is that of none.
    put_len(bytes, program.effect_lists().len().saturating_sub(1));
    for (_, list) in program.effect_lists().skip(1) {
        put_len(bytes, list.len());
        for effect in list {
            put_text(bytes, &effect.name);
            put_len(bytes, effect.input.map_or(0, |input| input.index() + 1));
            put_id(bytes, effect.object);
        }
    }
    put_len(bytes, program.sources().len());
    for (_, source) in program.sources() {
        for id in [source.traceback, source.name_stack] {
            put_len(bytes, id.map_or(0, |id: ForeignId| id.index() + 1));
        }
    }
    put_len(bytes, program.contexts().len());
    for (_, context) in program.contexts() {
        put_id(bytes, context);
    }
    let literals = program.literal_ids();
    put_len(bytes, literals.len());
    for literal in literals {
        let literal = program.literal(literal);
        put_id(bytes, literal.ty);
        put_id(bytes, literal.object);
    }
    Ok(())
}

/// The inputs, equations and outputs.
fn put_graph(bytes: &mut Vec<u8>, program: &Program) {
    let constvars = program.constvars().iter().map(|&(var, _)| var);
    let inputs = [constvars.collect::<Vec<_>>(), program.invars().to_vec()];
    for vars in inputs {
        put_len(bytes, vars.len());
        for var in vars {
            put_id(bytes, program.var_type(var));
        }
    }
    put_len(bytes, program.num_eqns());
    for eqn in program.eqns() {
        let data = program.eqn(eqn);
        put_id(bytes, data.primitive);
        put_id(bytes, data.params);
        put_id(bytes, data.effects);
        put_id(bytes, data.source);
        put_id(bytes, data.context);
        put_atoms(bytes, program.eqn_invars(eqn));
        put_number(bytes, data.num_outvars.into());
        for var in data.outvars() {
            put_id(bytes, program.var_type(var));
        }
    }
    put_atoms(bytes, program.outvars());
    put_id(bytes, program.effects());
}

/// Whether variables and constants are numbered in their order.
fn is_ordered(program: &Program) -> bool {
    let mut next = 0;
    let mut follows = |index: usize| {
        next += 1;
        index + 1 == next
    };
    let constvars = program.constvars().iter().enumerate();
    constvars
        .into_iter()
        .all(|(place, (var, value))| follows(var.index()) && value.index() == place)
        && program.invars().iter().all(|var| follows(var.index()))
        && program.eqns().all(|eqn| program.eqn_outvars(eqn).all(|var| follows(var.index())))
}

fn put_atoms(bytes: &mut Vec<u8>, atoms: &[Atom]) {
    put_len(bytes, atoms.len());
    for atom in atoms {
        let (index, is_literal) = match atom.kind() {
            AtomKind::Var(var) => (var.index(), 0),
            AtomKind::Literal(literal) => (literal.index(), 1),
        };
        put_number(bytes, (index as u64) << 1 | is_literal);
    }
}

fn put_params(bytes: &mut Vec<u8>, params: &Params, order: &[u32]) -> Result<(), WriteError> {
    if params.deferred_object().is_some() {
        return Err(WriteError::Deferred);
    }
    let mut entries: Vec<(&str, &ParamValue)> = params.iter().collect();
    if order.len() == entries.len() {
        let of = |place: &u32| entries.get(*place as usize).copied();
        if let Some(ordered) = order.iter().map(of).collect() {
            entries = ordered;
        }
    }
    put_len(bytes, entries.len());
    for (name, value) in entries {
        put_text(bytes, name);
        put_value(bytes, value, 0)?;
    }
    Ok(())
}

fn put_debug_info(bytes: &mut Vec<u8>, info: &DebugInfo) {
    let DebugInfo { traced_for, func_src_info, arg_names, result_paths } = info;
    put_text(bytes, traced_for);
    put_text(bytes, func_src_info);
    for names in [arg_names, result_paths] {
        put_optional(bytes, names.as_ref(), |bytes, names| {
            put_len(bytes, names.len());
            for name in names {
                put_text(bytes, name);
            }
        });
    }
}
