//! Types of variables and literals: the abstract values of jax.

use std::{fmt, mem::size_of};

use smallvec::SmallVec;

use super::ids::ForeignId;

macro_rules! dtypes {
    ($($variant:ident $name:literal $short:literal,)+) => {
        /// An element type, of numpy, of `ml_dtypes` or an extended one.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum DType {
            $(#[doc = concat!("`", $name, "`, printed `", $short, "`.")] $variant,)+
            /// Any other dtype, by name: PRNG keys (`key<fry>`) and other extended dtypes.
            Extended(Box<str>),
        }

        impl DType {
            /// Every dtype that has a variant of its own.
            pub const NAMED: &[Self] = &[$(Self::$variant),+];

            /// The full name, as in `float32`.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Extended(name) => name,
                }
            }

            /// The name as jax prints it in a type, as in `f32`.
            pub fn short_name(&self) -> &str {
                match self {
                    $(Self::$variant => $short,)+
                    Self::Extended(name) => name,
                }
            }

            /// How many bits an element takes. Of PRNG keys those of their words; of other extended
            /// dtypes nothing is known.
            pub fn bits(&self) -> u128 {
                match self {
                    Self::Bool => 8,
                    Self::Int1 | Self::UInt1 => 1,
                    Self::Int2 | Self::UInt2 => 2,
                    Self::Int4 | Self::UInt4 | Self::Float4E2M1Fn => 4,
                    Self::Float6E2M3Fn | Self::Float6E3M2Fn => 6,
                    Self::Int8
                    | Self::UInt8
                    | Self::Float8E3M4
                    | Self::Float8E4M3
                    | Self::Float8E4M3B11Fnuz
                    | Self::Float8E4M3Fn
                    | Self::Float8E4M3Fnuz
                    | Self::Float8E5M2
                    | Self::Float8E5M2Fnuz
                    | Self::Float8E8M0Fnu => 8,
                    Self::Int16 | Self::UInt16 | Self::BFloat16 | Self::Float16 => 16,
                    Self::Int32 | Self::UInt32 | Self::Float32 => 32,
                    Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 64,
                    Self::Complex128 => 128,
                    Self::Float0 => 0,
                    Self::String => 0,
                    Self::Extended(name) => match &**name {
                        "key<fry>" => 64,
                        "key<rbg>" | "key<urbg>" => 128,
                        _ => 0,
                    },
                }
            }

            /// The dtype of a full name; a name without a variant of its own is an extended dtype.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)+
                    _ => Self::Extended(name.into()),
                }
            }
        }
    };
}

dtypes! {
    Bool "bool" "bool",
    Int1 "int1" "i1",
    Int2 "int2" "i2",
    Int4 "int4" "i4",
    Int8 "int8" "i8",
    Int16 "int16" "i16",
    Int32 "int32" "i32",
    Int64 "int64" "i64",
    UInt1 "uint1" "u1",
    UInt2 "uint2" "u2",
    UInt4 "uint4" "u4",
    UInt8 "uint8" "u8",
    UInt16 "uint16" "u16",
    UInt32 "uint32" "u32",
    UInt64 "uint64" "u64",
    Float4E2M1Fn "float4_e2m1fn" "f4_e2m1fn",
    Float6E2M3Fn "float6_e2m3fn" "f6_e2m3fn",
    Float6E3M2Fn "float6_e3m2fn" "f6_e3m2fn",
    Float8E3M4 "float8_e3m4" "f8_e3m4",
    Float8E4M3 "float8_e4m3" "f8_e4m3",
    Float8E4M3B11Fnuz "float8_e4m3b11fnuz" "f8_e4m3b11fnuz",
    Float8E4M3Fn "float8_e4m3fn" "f8_e4m3fn",
    Float8E4M3Fnuz "float8_e4m3fnuz" "f8_e4m3fnuz",
    Float8E5M2 "float8_e5m2" "f8_e5m2",
    Float8E5M2Fnuz "float8_e5m2fnuz" "f8_e5m2fnuz",
    Float8E8M0Fnu "float8_e8m0fnu" "f8_e8m0fnu",
    BFloat16 "bfloat16" "bf16",
    Float16 "float16" "f16",
    Float32 "float32" "f32",
    Float64 "float64" "f64",
    Complex64 "complex64" "c64",
    Complex128 "complex128" "c128",
    Float0 "float0" "float0",
    String "StringDType128" "StringDType128",
}

impl DType {
    /// Whether it is that of integers.
    pub fn is_integer(&self) -> bool {
        matches!(
            self,
            Self::Int1
                | Self::Int2
                | Self::Int4
                | Self::Int8
                | Self::Int16
                | Self::Int32
                | Self::Int64
                | Self::UInt1
                | Self::UInt2
                | Self::UInt4
                | Self::UInt8
                | Self::UInt16
                | Self::UInt32
                | Self::UInt64
        )
    }

    /// Whether it is that of integers or truth values.
    pub fn is_integral(&self) -> bool {
        *self == Self::Bool || self.is_integer()
    }

    /// Whether arithmetic on it is that of IEEE 754.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::BFloat16 | Self::Float16 | Self::Float32 | Self::Float64)
    }

    /// Whether it is that of complex numbers.
    pub fn is_complex(&self) -> bool {
        matches!(self, Self::Complex64 | Self::Complex128)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short_name())
    }
}

/// The size of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Static(u64),
    /// A symbolic expression, in its printed form.
    Symbolic(Box<str>),
}

impl From<u64> for Dim {
    fn from(size: u64) -> Self {
        Self::Static(size)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(size) => size.fmt(f),
            Self::Symbolic(expression) => expression.fmt(f),
        }
    }
}

/// The type of an array. What jax has by default is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// The element type.
    pub dtype: DType,
    /// The sizes of the dimensions.
    pub shape: SmallVec<[Dim; 4]>,
    /// Whether the dtype gives way to another in type promotion. It is part of the type.
    pub weak_type: bool,
    /// A sharding over a mesh.
    pub sharding: Option<Box<str>>,
    /// How the array varies over the manual axes of a mesh.
    pub manual_axis_type: Option<Box<str>>,
    /// A memory space other than the device's.
    pub memory_space: Option<Box<str>>,
    /// A layout in memory.
    pub layout: Option<Box<str>>,
}

impl ArrayType {
    /// A strongly typed array with everything else at its default.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().collect(),
            weak_type: false,
            sharding: None,
            manual_axis_type: None,
            memory_space: None,
            layout: None,
        }
    }

    fn heap_bytes(&self) -> usize {
        let Self { dtype, shape, weak_type: _, sharding, manual_axis_type, memory_space, layout } =
            self;
        let name = if let DType::Extended(name) = dtype { name.len() } else { 0 };
        let spilled = if shape.spilled() { shape.capacity() * size_of::<Dim>() } else { 0 };
        let symbols: usize = shape
            .iter()
            .map(|dim| if let Dim::Symbolic(text) = dim { text.len() } else { 0 })
            .sum();
        let texts: usize = [sharding, manual_axis_type, memory_space, layout]
            .into_iter()
            .flatten()
            .map(|text| text.len())
            .sum();
        name + spilled + symbols + texts
    }
}

/// As jax prints it, `f32<host>[8,n]`, followed by whatever else is not the default.
impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, shape, weak_type: _, sharding, manual_axis_type, memory_space, layout } =
            self;
        dtype.fmt(f)?;
        if let Some(space) = memory_space {
            write!(f, "<{space}>")?;
        }
        f.write_str("[")?;
        for (axis, dim) in shape.iter().enumerate() {
            if axis > 0 {
                f.write_str(",")?;
            }
            dim.fmt(f)?;
        }
        f.write_str("]")?;
        for text in [sharding, manual_axis_type, layout].into_iter().flatten() {
            write!(f, "{{{text}}}")?;
        }
        Ok(())
    }
}

/// The type of a variable or a literal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// An array.
    Array(ArrayType),
    /// A mutable reference.
    Ref {
        /// The type of what it holds.
        inner: Box<Type>,
        /// Where it lives.
        memory_space: Option<Box<str>>,
        /// What kind of reference it is.
        kind: Option<Box<str>>,
    },
    /// A token, which orders effects.
    Token,
    /// Any other abstract value, which the embedding understands.
    Opaque {
        /// Its printed form.
        name: Box<str>,
        /// The embedding's object.
        object: ForeignId,
    },
}

impl Type {
    /// Bytes owned outside the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Array(array) => array.heap_bytes(),
            Self::Ref { inner, memory_space, kind } => {
                let texts = [memory_space, kind].into_iter().flatten().map(|text| text.len());
                size_of::<Self>() + inner.heap_bytes() + texts.sum::<usize>()
            }
            Self::Token => 0,
            Self::Opaque { name, object: _ } => name.len(),
        }
    }
}

impl From<ArrayType> for Type {
    fn from(array: ArrayType) -> Self {
        Self::Array(array)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(array) => array.fmt(f),
            Self::Ref { inner, memory_space: Some(space), kind: _ } => {
                write!(f, "Ref<{space}>{{{inner}}}")
            }
            Self::Ref { inner, memory_space: None, kind: _ } => write!(f, "Ref{{{inner}}}"),
            Self::Token => f.write_str("Tok"),
            Self::Opaque { name, object: _ } => name.fmt(f),
        }
    }
}
