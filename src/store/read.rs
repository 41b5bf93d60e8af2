//! Bytes as a document.

use std::sync::Arc;

use cranelift_entity::EntityRef;

use super::{
    Array, Document, MAX_DEPTH, MAX_EXPANDED, NO_FRAMES, Object, ReadError, StoredProgram,
    cursor::Cursor,
    element_bytes,
    read_sections::{read_frames, read_names, read_stacks, sections},
};
use crate::ir::{
    ArrayType, Atom, BuildError, Builder, ConstId, ContextId, DType, DeadCode, DebugInfo, Dim,
    Effect, EffectsId, ForeignId, LiteralId, ParamValue, Params, ParamsId, PrimitiveId, Source,
    SourceId, SubprogramId, Type, TypeId, Var,
};

/// A document that was read, and where its objects were.
#[derive(Clone, Debug)]
pub struct ReadDocument<'f> {
    /// The document.
    pub document: Document<'f>,
    /// Where each object begins, from the first byte of the file.
    pub offsets: Vec<u64>,
}

/// For how many values there is room before any of them was read.
const MAX_RESERVED: usize = 64;

/// The document that bytes say.
///
/// # Errors
/// They say none.
pub fn read(file: &[u8]) -> Result<ReadDocument<'_>, ReadError> {
    let [names, frames, stacks, objects, root] = sections(file)?;
    let names = read_names(names)?;
    let frames = read_frames(frames, names.len())?;
    let stacks = read_stacks(stacks, frames.len())?;
    let mut reader = Objects { stacks: stacks.len(), read: Vec::new(), expanded: Vec::new() };
    let offsets = reader.all(objects)?;
    let mut root = root;
    let value = reader.value(&mut root, &[])?.0;
    root.end()?;
    let document = Document { names, frames, stacks, objects: reader.read, root: value };
    Ok(ReadDocument { document, offsets })
}

/// The objects that were read so far.
pub(super) struct Objects<'f> {
    stacks: usize,
    read: Vec<Object<'f>>,
    /// How many values each is, with all that it refers to; a program is one.
    expanded: Vec<u64>,
}

/// A value whose parts are being read.
struct Open<'f> {
    kind: Kind<'f>,
    left: usize,
    parts: Vec<ParamValue>,
    /// Of named parts.
    names: Vec<Box<str>>,
}

#[derive(Clone, Copy)]
enum Kind<'f> {
    Tuple,
    List,
    Dict,
    Named(&'f str),
}

impl Open<'_> {
    fn close(self) -> ParamValue {
        let Self { kind, left: _, parts, names } = self;
        match kind {
            Kind::Tuple => ParamValue::Tuple(parts.into()),
            Kind::List => ParamValue::List(parts.into()),
            Kind::Dict => {
                let mut parts = parts.into_iter();
                let mut entries = Vec::with_capacity(parts.len() / 2);
                while let (Some(key), Some(item)) = (parts.next(), parts.next()) {
                    entries.push((key, item));
                }
                ParamValue::Dict(entries.into())
            }
            Kind::Named(type_name) => ParamValue::Named {
                type_name: type_name.into(),
                fields: names.into_iter().zip(parts).collect(),
            },
        }
    }
}

impl<'f> Objects<'f> {
    /// Objects that are somewhere else, none of them a program.
    pub(super) fn before(expanded: Vec<u64>) -> Self {
        Self { stacks: 0, read: Vec::new(), expanded }
    }

    /// Reads all objects; where each begins.
    fn all(&mut self, mut cursor: Cursor<'f>) -> Result<Vec<u64>, ReadError> {
        let len = cursor.len(3)?;
        let mut offsets = Vec::with_capacity(len);
        for _ in 0..len {
            offsets.push(cursor.offset());
            let (object, expanded) = self.object(&mut cursor)?;
            self.read.push(object);
            self.expanded.push(expanded);
        }
        cursor.end()?;
        Ok(offsets)
    }

    pub(super) fn object(&self, cursor: &mut Cursor<'f>) -> Result<(Object<'f>, u64), ReadError> {
        let offset = cursor.offset();
        Ok(match cursor.byte()? {
            0 => {
                let class = cursor.text()?.into();
                let (fields, expanded) = self.value(cursor, &[])?;
                if expanded > MAX_EXPANDED {
                    let what = format!("an object is made of more than {MAX_EXPANDED} values");
                    return Err(cursor.error_at(offset, what));
                }
                (Object::Record { class, fields }, expanded)
            }
            1 => (Object::Array(array(cursor)?), 1),
            2 => (Object::Program(self.program(cursor)?), 1),
            3 => {
                let offset = cursor.offset();
                let program = self.reference(cursor)?;
                let Some(Object::Program(stored)) = self.read.get(program.index()) else {
                    return Err(cursor.error_at(offset, format!("{program} is no program")));
                };
                let expected = stored.program.constvars().len();
                let offset = cursor.offset();
                let len = cursor.len(1)?;
                if len != expected {
                    let what = format!("{len} values for {expected} constants");
                    return Err(cursor.error_at(offset, what));
                }
                let mut consts = Vec::with_capacity(len);
                for _ in 0..len {
                    consts.push(self.reference(cursor)?);
                }
                (Object::Closed { program, consts: consts.into() }, 1)
            }
            other => return Err(cursor.error_at(offset, format!("no object is of kind {other}"))),
        })
    }

    /// An object that was read before.
    fn reference(&self, cursor: &mut Cursor<'f>) -> Result<ForeignId, ReadError> {
        cursor.index(self.expanded.len(), "object").map(ForeignId::new)
    }

    fn optional_reference(&self, cursor: &mut Cursor<'f>) -> Result<Option<ForeignId>, ReadError> {
        let place = cursor.index(self.expanded.len() + 1, "object")?;
        Ok(place.checked_sub(1).map(ForeignId::new))
    }

    /// The traceback of a source.
    fn traceback(&self, cursor: &mut Cursor<'f>) -> Result<Option<ForeignId>, ReadError> {
        let offset = cursor.offset();
        let number = cursor.u32()?;
        let Some(stack) = number.checked_sub(1).map(ForeignId::from_u32) else { return Ok(None) };
        if stack.index() >= self.stacks && stack != NO_FRAMES {
            let what = format!("stack {} does not exist: there are {}", stack.index(), self.stacks);
            return Err(cursor.error_at(offset, what));
        }
        Ok(Some(stack))
    }

    /// A value, and how many it is with all that it refers to.
    pub(super) fn value(
        &self,
        cursor: &mut Cursor<'f>,
        subprograms: &[SubprogramId],
    ) -> Result<(ParamValue, u64), ReadError> {
        let mut open: Vec<Open<'f>> = Vec::new();
        let mut expanded: u64 = 0;
        loop {
            if let Some(outer) = open.last_mut()
                && matches!(outer.kind, Kind::Named(_))
            {
                outer.names.push(cursor.text()?.into());
            }
            let offset = cursor.offset();
            let mut value = match cursor.byte()? {
                kind @ 12..=15 => {
                    if open.len() + 1 >= MAX_DEPTH {
                        let what = format!("values are nested more than {MAX_DEPTH} deep");
                        return Err(cursor.error_at(offset, what));
                    }
                    let kind = match kind {
                        12 => Kind::Tuple,
                        13 => Kind::List,
                        14 => Kind::Dict,
                        _ => Kind::Named(cursor.text()?),
                    };
                    let (each, bytes) = match kind {
                        Kind::Tuple | Kind::List => (1, 1),
                        Kind::Dict => (2, 2),
                        Kind::Named(_) => (1, 2),
                    };
                    let left = cursor.len(bytes)? * each;
                    // What is nested says a number each time, of the same bytes.
                    let parts = Vec::with_capacity(left.min(MAX_RESERVED));
                    let own = Open { kind, left, parts, names: Vec::new() };
                    if left > 0 {
                        expanded = expanded.saturating_add(1);
                        open.push(own);
                        continue;
                    }
                    own.close()
                }
                kind => self.plain_value(cursor, kind, offset, subprograms)?,
            };
            let own = match &value {
                ParamValue::Opaque(object) => self.expanded[object.index()],
                _ => 0,
            };
            expanded = expanded.saturating_add(own).saturating_add(1);
            // What was read is the next part of what is open, which may be complete by that.
            loop {
                let Some(mut outer) = open.pop() else { return Ok((value, expanded)) };
                outer.parts.push(value);
                outer.left -= 1;
                if outer.left > 0 {
                    open.push(outer);
                    break;
                }
                value = outer.close();
            }
        }
    }

    /// A value that has no others in it.
    fn plain_value(
        &self,
        cursor: &mut Cursor<'f>,
        kind: u8,
        offset: u64,
        subprograms: &[SubprogramId],
    ) -> Result<ParamValue, ReadError> {
        Ok(match kind {
            0 => ParamValue::None,
            1 => ParamValue::Bool(false),
            2 => ParamValue::Bool(true),
            3 => ParamValue::Int(cursor.signed()?),
            4 => {
                let offset = cursor.offset();
                let digits = cursor.text()?;
                let unsigned = digits.strip_prefix('-').unwrap_or(digits);
                // As many digits as Python reads.
                let is_number = (19..=4300).contains(&unsigned.len())
                    && unsigned.bytes().all(|byte| byte.is_ascii_digit())
                    && !unsigned.starts_with('0')
                    && digits.parse::<i64>().is_err();
                if !is_number {
                    return Err(cursor.error_at(offset, "this is no integer of more than 64 bits"));
                }
                ParamValue::BigInt(digits.into())
            }
            5 => ParamValue::Float(u64::from_le_bytes(cursor.array()?)),
            6 => {
                let real = u64::from_le_bytes(cursor.array()?);
                ParamValue::Complex(real, u64::from_le_bytes(cursor.array()?))
            }
            7 => ParamValue::Str(cursor.text()?.into()),
            8 => ParamValue::Bytes(cursor.bytes()?.into()),
            9 => ParamValue::DType(DType::from_name(cursor.text()?)),
            10 => ParamValue::Dim(cursor.text()?.into()),
            11 => {
                let type_name = cursor.text()?.into();
                ParamValue::Enum { type_name, member: cursor.text()?.into() }
            }
            16 => ParamValue::Program(subprograms[cursor.index(subprograms.len(), "program")?]),
            17 => ParamValue::Opaque(self.reference(cursor)?),
            other => return Err(cursor.error_at(offset, format!("no value is of kind {other}"))),
        })
    }

    fn program(&self, cursor: &mut Cursor<'f>) -> Result<StoredProgram, ReadError> {
        let is_high = cursor.flag()?;
        let names = debug_info(cursor)?;
        let mut builder = Builder::new(DeadCode::Keep);
        let tables = self.tables(cursor, &mut builder)?;
        for place in 0..cursor.len(1)? {
            let offset = cursor.offset();
            let ty = tables.types[cursor.index(tables.types.len(), "type")?];
            builder.constvar(ty, ConstId::new(place)).map_err(refused(cursor, offset))?;
        }
        for _ in 0..cursor.len(1)? {
            let offset = cursor.offset();
            let ty = tables.types[cursor.index(tables.types.len(), "type")?];
            builder.invar(ty).map_err(refused(cursor, offset))?;
        }
        let (mut operands, mut outputs) = (Vec::new(), Vec::new());
        let num_eqns = cursor.len(7)?;
        builder.reserve(num_eqns);
        for _ in 0..num_eqns {
            tables.eqn(cursor, &mut builder, &mut operands, &mut outputs)?;
        }
        tables.atoms(cursor, builder.num_vars(), &mut operands)?;
        let offset = cursor.offset();
        let own = tables.effects[cursor.index(tables.effects.len(), "list of effects")?];
        let num_vars = builder.num_vars();
        let program = builder.finish(&operands, names, own).map_err(refused(cursor, offset))?;

        let dropped = ascending(cursor, num_vars, 1, |_| Ok(()))?;
        let shared = ascending(cursor, num_vars, 2, Cursor::u32)?;
        Ok(StoredProgram {
            program: Arc::new(program),
            is_high,
            param_order: tables.param_order,
            no_effects: tables.no_effects,
            dropped: dropped.into_iter().map(|(var, ())| var).collect(),
            shared,
        })
    }

    /// What the equations of a program refer to.
    fn tables(&self, cursor: &mut Cursor<'f>, builder: &mut Builder) -> Result<Tables, ReadError> {
        let len = cursor.len(1)?;
        let mut types = Vec::with_capacity(len);
        for _ in 0..len {
            types.push(builder.ty(self.ty(cursor)?));
        }
        let len = cursor.len(1)?;
        let mut subprograms = Vec::with_capacity(len);
        for _ in 0..len {
            subprograms.push(self.subprogram(cursor, builder)?);
        }
        let len = cursor.len(4)?;
        let mut primitives = Vec::with_capacity(len);
        let mut no_effects = Vec::with_capacity(len);
        for place in 0..len {
            let offset = cursor.offset();
            let name = cursor.text()?;
            let multiple_results = cursor.flag()?;
            let object = self.reference(cursor)?;
            let primitive = builder.primitive(name, multiple_results, object);
            if primitive.index() != place {
                return Err(cursor.error_at(offset, format!("{name} is there twice")));
            }
            primitives.push(primitive);
            no_effects.push(self.value(cursor, &subprograms)?.0);
        }
        let len = cursor.len(1)?;
        let mut params = Vec::with_capacity(len);
        let mut param_order = Vec::with_capacity(len);
        for place in 0..len {
            let offset = cursor.offset();
            let (row, order) = self.params(cursor, &subprograms)?;
            let row = builder.params(row);
            if row.index() != place {
                return Err(cursor.error_at(offset, "the same params are there twice"));
            }
            params.push(row);
            param_order.push(order);
        }
        let len = cursor.len(1)?;
        let mut effects = Vec::with_capacity(len.saturating_add(1));
        effects.push(EffectsId::NONE);
        for _ in 0..len {
            let list = self.effects(cursor)?;
            effects.push(builder.effects(&list));
        }
        let len = cursor.len(2)?;
        let mut sources = Vec::with_capacity(len);
        for _ in 0..len {
            let traceback = self.traceback(cursor)?;
            let name_stack = self.optional_reference(cursor)?;
            sources.push(builder.source(Source { traceback, name_stack }));
        }
        let len = cursor.len(1)?;
        let mut contexts = Vec::with_capacity(len);
        for _ in 0..len {
            contexts.push(builder.context(self.reference(cursor)?));
        }
        let len = cursor.len(2)?;
        let mut literals = Vec::with_capacity(len);
        for _ in 0..len {
            let offset = cursor.offset();
            let ty = types[cursor.index(types.len(), "type")?];
            let object = self.reference(cursor)?;
            literals.push(builder.literal(ty, object).map_err(refused(cursor, offset))?);
        }

        Ok(Tables {
            types,
            primitives,
            no_effects,
            params,
            param_order,
            effects,
            sources,
            contexts,
            literals,
        })
    }

    fn subprogram(
        &self,
        cursor: &mut Cursor<'f>,
        builder: &mut Builder,
    ) -> Result<SubprogramId, ReadError> {
        let offset = cursor.offset();
        let object = self.reference(cursor)?;
        let open = match self.read.get(object.index()) {
            Some(Object::Closed { program, .. }) => self.read.get(program.index()),
            other => other,
        };
        let Some(Object::Program(nested)) = open else {
            return Err(cursor.error_at(offset, format!("{object} is no program")));
        };
        let id = builder.subprogram(object);
        builder.resolve_subprogram(id, nested.program.clone());
        Ok(id)
    }

    fn ty(&self, cursor: &mut Cursor<'f>) -> Result<Type, ReadError> {
        let text = |cursor: &mut Cursor<'f>| cursor.text().map(Box::from);
        let mut refs = Vec::new();
        let mut ty = loop {
            let offset = cursor.offset();
            match cursor.byte()? {
                0 => break Type::Array(array_type(cursor)?),
                1 if refs.len() + 1 == MAX_DEPTH => {
                    return Err(cursor.error_at(offset, "types are nested too deeply"));
                }
                1 => refs.push((cursor.optional(text)?, cursor.optional(text)?)),
                2 => break Type::Token,
                3 => {
                    let name = cursor.text()?.into();
                    break Type::Opaque { name, object: self.reference(cursor)? };
                }
                other => {
                    return Err(cursor.error_at(offset, format!("no type is of kind {other}")));
                }
            }
        };
        for (memory_space, kind) in refs.into_iter().rev() {
            ty = Type::Ref { inner: Box::new(ty), memory_space, kind };
        }
        Ok(ty)
    }

    /// Params, and where each is in the order in which they were written.
    fn params(
        &self,
        cursor: &mut Cursor<'f>,
        subprograms: &[SubprogramId],
    ) -> Result<(Params, Box<[u32]>), ReadError> {
        let offset = cursor.offset();
        let len = cursor.len(2)?;
        let mut entries = Vec::with_capacity(len);
        for _ in 0..len {
            let name: Box<str> = cursor.text()?.into();
            entries.push((name, self.value(cursor, subprograms)?.0));
        }
        let mut by_name: Vec<usize> = (0..len).collect();
        by_name.sort_by(|&one, &other| entries[one].0.cmp(&entries[other].0));
        let mut order = vec![0; len];
        for (sorted, &written) in (0_u32..).zip(&by_name) {
            order[written] = sorted;
        }
        let params =
            Params::new(entries).map_err(|error| cursor.error_at(offset, error.to_string()))?;
        Ok((params, order.into()))
    }

    fn effects(&self, cursor: &mut Cursor<'f>) -> Result<Vec<Effect>, ReadError> {
        let len = cursor.len(3)?;
        let mut list = Vec::with_capacity(len);
        for _ in 0..len {
            let name = cursor.text()?.into();
            let input = cursor.index(Atom::MAX_VARS, "variable")?.checked_sub(1).map(Var::new);
            list.push(Effect { name, input, object: self.reference(cursor)? });
        }
        Ok(list)
    }
}

/// The rows of a program that its equations refer to.
struct Tables {
    types: Vec<TypeId>,
    primitives: Vec<PrimitiveId>,
    /// What stands for no effects, for each primitive.
    no_effects: Vec<ParamValue>,
    params: Vec<ParamsId>,
    /// Where the entries of each row of params are in it, in the order in which they were written.
    param_order: Vec<Box<[u32]>>,
    effects: Vec<EffectsId>,
    sources: Vec<SourceId>,
    contexts: Vec<ContextId>,
    literals: Vec<LiteralId>,
}

impl Tables {
    /// An equation; `operands` and `outputs` are only room.
    fn eqn(
        &self,
        cursor: &mut Cursor<'_>,
        builder: &mut Builder,
        operands: &mut Vec<Atom>,
        outputs: &mut Vec<TypeId>,
    ) -> Result<(), ReadError> {
        let offset = cursor.offset();
        let primitive = self.primitives[cursor.index(self.primitives.len(), "primitive")?];
        let params = self.params[cursor.index(self.params.len(), "params")?];
        let effects = self.effects[cursor.index(self.effects.len(), "list of effects")?];
        let source = self.sources[cursor.index(self.sources.len(), "source")?];
        let context = self.contexts[cursor.index(self.contexts.len(), "context")?];
        self.atoms(cursor, builder.num_vars(), operands)?;
        let len = cursor.len(1)?;
        outputs.clear();
        for _ in 0..len {
            outputs.push(self.types[cursor.index(self.types.len(), "type")?]);
        }
        builder
            .eqn(primitive, params, operands, outputs, effects, source, context)
            .map_err(refused(cursor, offset))?;
        Ok(())
    }

    fn atoms(
        &self,
        cursor: &mut Cursor<'_>,
        num_vars: usize,
        atoms: &mut Vec<Atom>,
    ) -> Result<(), ReadError> {
        let len = cursor.len(1)?;
        atoms.clear();
        for _ in 0..len {
            let offset = cursor.offset();
            let number = cursor.number()?;
            let index = usize::try_from(number >> 1).unwrap_or(usize::MAX);
            let atom = if number & 1 == 0 {
                (index < num_vars).then(|| Atom::var(Var::new(index)))
            } else {
                self.literals.get(index).map(|&literal| Atom::literal(literal))
            };
            atoms.push(atom.ok_or_else(|| {
                let kind = if number & 1 == 0 { "variable" } else { "literal" };
                cursor.error_at(offset, format!("{kind} {index} is not defined"))
            })?);
        }
        Ok(())
    }
}

/// What a refusal of the builder is.
fn refused(cursor: &Cursor<'_>, offset: u64) -> impl Fn(BuildError) -> ReadError {
    let error = cursor.error_at(offset, "");
    move |refusal| ReadError { what: refusal.to_string().into(), ..error.clone() }
}

/// Variables in ascending order, and what is said of each.
fn ascending<'f, T>(
    cursor: &mut Cursor<'f>,
    num_vars: usize,
    item_bytes: usize,
    read: impl Fn(&mut Cursor<'f>) -> Result<T, ReadError>,
) -> Result<Vec<(Var, T)>, ReadError> {
    let len = cursor.len(item_bytes)?;
    let mut found: Vec<(Var, T)> = Vec::with_capacity(len);
    for _ in 0..len {
        let offset = cursor.offset();
        let var = Var::new(cursor.index(num_vars, "variable")?);
        if found.last().is_some_and(|&(last, _)| last >= var) {
            return Err(cursor.error_at(offset, format!("{var} is not in order")));
        }
        found.push((var, read(cursor)?));
    }
    Ok(found)
}

fn debug_info(cursor: &mut Cursor<'_>) -> Result<DebugInfo, ReadError> {
    let names = |cursor: &mut Cursor<'_>| {
        let len = cursor.len(1)?;
        let mut names: Vec<Box<str>> = Vec::with_capacity(len);
        for _ in 0..len {
            names.push(cursor.text()?.into());
        }
        Ok(names)
    };
    Ok(DebugInfo {
        traced_for: cursor.text()?.into(),
        func_src_info: cursor.text()?.into(),
        arg_names: cursor.optional(names)?,
        result_paths: cursor.optional(names)?,
    })
}

fn array_type(cursor: &mut Cursor<'_>) -> Result<ArrayType, ReadError> {
    let dtype = DType::from_name(cursor.text()?);
    let len = cursor.len(2)?;
    let mut shape = Vec::with_capacity(len);
    for _ in 0..len {
        let offset = cursor.offset();
        shape.push(match cursor.byte()? {
            0 => Dim::Static(cursor.number()?),
            1 => Dim::Symbolic(cursor.text()?.into()),
            other => return Err(cursor.error_at(offset, format!("no size is of kind {other}"))),
        });
    }
    let mut ty = ArrayType::new(dtype, shape);
    ty.weak_type = cursor.flag()?;
    let fields = [&mut ty.sharding, &mut ty.manual_axis_type, &mut ty.memory_space, &mut ty.layout];
    for field in fields {
        *field = cursor.optional(|cursor| cursor.text().map(Box::from))?;
    }
    Ok(ty)
}

fn array<'f>(cursor: &mut Cursor<'f>) -> Result<Array<'f>, ReadError> {
    let dtype = DType::from_name(cursor.text()?);
    let len = cursor.len(1)?;
    let mut shape = Vec::with_capacity(len);
    for _ in 0..len {
        shape.push(cursor.number()?);
    }
    let offset = cursor.offset();
    let data = cursor.bytes()?;
    if let Some(element) = element_bytes(&dtype) {
        let expected = shape.iter().try_fold(element, |bytes, &size| bytes.checked_mul(size));
        if expected != Some(data.len() as u64) {
            let what = format!("{} bytes are not an array {shape:?} of {dtype}", data.len());
            return Err(cursor.error_at(offset, what));
        }
    }
    Ok(Array { dtype, shape: shape.into(), data: data.into() })
}
