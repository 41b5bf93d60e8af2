//! Parameters of equations: canonical, comparable values.

use std::{fmt, mem::size_of_val};

use thiserror::Error;

use super::{
    ids::{ForeignId, SubprogramId},
    types::DType,
};

/// The value of one parameter. Two values are equal where they are the same bits: floats compare by
/// representation, so that a NaN is equal to itself and `-0.0` differs from `0.0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ParamValue {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A larger integer, in decimal.
    BigInt(Box<str>),
    /// The bits of a float.
    Float(u64),
    /// The bits of the real and the imaginary part.
    Complex(u64, u64),
    /// A text.
    Str(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// An element type.
    DType(DType),
    /// A symbolic dimension, in its printed form.
    Dim(Box<str>),
    /// A member of an enumeration.
    Enum {
        /// The name of the enumeration.
        type_name: Box<str>,
        /// The name of the member.
        member: Box<str>,
    },
    /// A tuple.
    Tuple(Box<[ParamValue]>),
    /// A list.
    List(Box<[ParamValue]>),
    /// A mapping, in the order of its entries.
    Dict(Box<[(ParamValue, ParamValue)]>),
    /// A record with named fields, in the order of its declaration.
    Named {
        /// The name of its type.
        type_name: Box<str>,
        /// Its fields.
        fields: Box<[(Box<str>, ParamValue)]>,
    },
    /// A nested program.
    Program(SubprogramId),
    /// Any other object of the embedding.
    Opaque(ForeignId),
}

impl ParamValue {
    /// A float, by its bits.
    pub fn float(value: f64) -> Self {
        Self::Float(value.to_bits())
    }

    /// A complex number, by its bits.
    pub fn complex(real: f64, imaginary: f64) -> Self {
        Self::Complex(real.to_bits(), imaginary.to_bits())
    }

    /// This value with other objects, which `of` says, in the place of those in it.
    #[must_use]
    pub fn with_objects(&self, of: &mut impl FnMut(ForeignId) -> ForeignId) -> Self {
        let all = |items: &[Self], of: &mut _| -> Box<[Self]> {
            items.iter().map(|item| item.with_objects(of)).collect()
        };
        match self {
            Self::Tuple(items) => Self::Tuple(all(items, of)),
            Self::List(items) => Self::List(all(items, of)),
            Self::Dict(entries) => {
                let entry = |(key, item): &(Self, Self)| {
                    let key = key.with_objects(of);
                    (key, item.with_objects(of))
                };
                Self::Dict(entries.iter().map(entry).collect())
            }
            Self::Named { type_name, fields } => {
                let field = |(name, item): &(Box<str>, Self)| (name.clone(), item.with_objects(of));
                Self::Named {
                    type_name: type_name.clone(),
                    fields: fields.iter().map(field).collect(),
                }
            }
            Self::Opaque(object) => Self::Opaque(of(*object)),
            plain => plain.clone(),
        }
    }

    /// Calls `visit` for this value and every value inside it.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        let mut pending = vec![self];
        while let Some(value) = pending.pop() {
            visit(value);
            match value {
                Self::Tuple(items) | Self::List(items) => pending.extend(items),
                Self::Dict(entries) => {
                    pending.extend(entries.iter().flat_map(|(key, value)| [key, value]));
                }
                Self::Named { type_name: _, fields } => {
                    pending.extend(fields.iter().map(|(_, value)| value));
                }
                Self::None
                | Self::Bool(_)
                | Self::Int(_)
                | Self::BigInt(_)
                | Self::Float(_)
                | Self::Complex(..)
                | Self::Str(_)
                | Self::Bytes(_)
                | Self::DType(_)
                | Self::Dim(_)
                | Self::Enum { .. }
                | Self::Program(_)
                | Self::Opaque(_) => {}
            }
        }
    }

    /// The value in the notation of Python, where `say` has no words for it or for what is in it.
    pub fn spelled<'a>(
        &'a self,
        say: &'a dyn Fn(&ParamValue) -> Option<String>,
    ) -> impl fmt::Display + 'a {
        Spelled { value: self, say }
    }

    /// Bytes owned outside the value itself.
    fn heap_bytes(&self) -> usize {
        let mut total = 0;
        self.walk(&mut |value| {
            total += match value {
                Self::BigInt(text) | Self::Str(text) | Self::Dim(text) => text.len(),
                Self::DType(DType::Extended(name)) => name.len(),
                Self::Bytes(bytes) => bytes.len(),
                Self::Enum { type_name, member } => type_name.len() + member.len(),
                Self::Tuple(items) | Self::List(items) => size_of_val::<[_]>(items),
                Self::Dict(entries) => size_of_val::<[_]>(entries),
                Self::Named { type_name, fields } => {
                    let names: usize = fields.iter().map(|(name, _)| name.len()).sum();
                    type_name.len() + size_of_val::<[_]>(fields) + names
                }
                _ => 0,
            };
        });
        total
    }
}

/// In the notation of Python.
impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spelled(&|_| None).fmt(f)
    }
}

/// A value in the notation of Python, parts of it in words of the embedding.
struct Spelled<'a> {
    value: &'a ParamValue,
    say: &'a dyn Fn(&ParamValue) -> Option<String>,
}

impl fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = |f: &mut fmt::Formatter<'_>, items: &[ParamValue]| {
            separated(f, items, |f, item| item.spelled(self.say).fmt(f))
        };
        if let Some(said) = (self.say)(self.value) {
            return f.write_str(&said);
        }
        match self.value {
            ParamValue::None => f.write_str("None"),
            ParamValue::Bool(true) => f.write_str("True"),
            ParamValue::Bool(false) => f.write_str("False"),
            ParamValue::Int(value) => value.fmt(f),
            ParamValue::BigInt(digits) => digits.fmt(f),
            ParamValue::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            ParamValue::Complex(real, imaginary) => {
                write!(f, "({:?}{:+?}j)", f64::from_bits(*real), f64::from_bits(*imaginary))
            }
            ParamValue::Str(text) => write!(f, "{text:?}"),
            ParamValue::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            ParamValue::DType(dtype) => f.write_str(dtype.name()),
            ParamValue::Dim(expression) => expression.fmt(f),
            ParamValue::Enum { type_name, member } => write!(f, "{type_name}.{member}"),
            ParamValue::Tuple(values) => {
                f.write_str("(")?;
                items(f, values)?;
                f.write_str(if values.len() == 1 { ",)" } else { ")" })
            }
            ParamValue::List(values) => {
                f.write_str("[")?;
                items(f, values)?;
                f.write_str("]")
            }
            ParamValue::Dict(entries) => {
                f.write_str("{")?;
                separated(f, entries, |f, (key, value)| {
                    write!(f, "{}: {}", key.spelled(self.say), value.spelled(self.say))
                })?;
                f.write_str("}")
            }
            ParamValue::Named { type_name, fields } => {
                write!(f, "{type_name}(")?;
                separated(f, fields, |f, (name, value)| {
                    write!(f, "{name}={}", value.spelled(self.say))
                })?;
                f.write_str(")")
            }
            ParamValue::Program(program) => program.fmt(f),
            ParamValue::Opaque(object) => object.fmt(f),
        }
    }
}

/// Writes `items` with `, ` between them.
fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut write_item: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_item(f, item)?;
    }
    Ok(())
}

/// A parameter was named twice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("parameter `{0}` is given twice")]
pub struct DuplicateParam(pub Box<str>);

/// The parameters of an equation, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params(Content);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Content {
    Known(Box<[(Box<str>, ParamValue)]>),
    Deferred(ForeignId),
}

impl Default for Params {
    fn default() -> Self {
        Self(Content::Known(Box::default()))
    }
}

impl Params {
    /// Parameters that the embedding has not spelled out yet. Until it does, they are equal to
    /// those of the same object, and read as none.
    pub fn deferred(object: ForeignId) -> Self {
        Self(Content::Deferred(object))
    }

    /// The embedding's object of deferred parameters.
    pub fn deferred_object(&self) -> Option<ForeignId> {
        match self.0 {
            Content::Known(_) => None,
            Content::Deferred(object) => Some(object),
        }
    }

    fn entries(&self) -> &[(Box<str>, ParamValue)] {
        match &self.0 {
            Content::Known(entries) => entries,
            Content::Deferred(_) => &[],
        }
    }

    /// Sorts the parameters by name.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new(mut entries: Vec<(Box<str>, ParamValue)>) -> Result<Self, DuplicateParam> {
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(DuplicateParam(pair[0].0.clone())),
            None => Ok(Self(Content::Known(entries.into()))),
        }
    }

    /// Takes the parameters as they are, for tests of what a verifier must find.
    pub(super) fn new_unchecked(entries: Vec<(Box<str>, ParamValue)>) -> Self {
        Self(Content::Known(entries.into()))
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&ParamValue> {
        let entries = self.entries();
        let index = entries.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        Some(&entries[index].1)
    }

    /// The parameters by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &ParamValue)> {
        self.entries().iter().map(|(name, value)| (&**name, value))
    }

    /// The programs among them, in their order.
    pub fn subprograms(&self) -> Vec<SubprogramId> {
        let mut found = Vec::new();
        for (_, value) in self.iter() {
            value.walk(&mut |value| {
                if let ParamValue::Program(id) = value {
                    found.push(*id);
                }
            });
        }
        found
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Bytes owned outside the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        let entries = self.entries();
        let content = entries.iter().map(|(name, value)| name.len() + value.heap_bytes());
        size_of_val::<[_]>(entries) + content.sum::<usize>()
    }
}

/// As in a jaxpr: `[a=1 b=f32]`, and nothing where there are none; deferred ones as their object.
impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = self.deferred_object() {
            return write!(f, "[**{object}]");
        }
        if self.is_empty() {
            return Ok(());
        }
        f.write_str("[")?;
        for (index, (name, value)) in self.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{name}={value}")?;
        }
        f.write_str("]")
    }
}
