use jaxide::ir::{ArrayType, DType, Dim, Type};

use crate::common::{f32_array, object};

#[test]
fn names_and_dtypes_correspond() {
    for dtype in DType::NAMED {
        assert_eq!(&DType::from_name(dtype.name()), dtype);
    }
    let key = DType::from_name("key<fry>");
    assert_eq!(key, DType::Extended("key<fry>".into()));
    assert_eq!((key.name(), key.short_name()), ("key<fry>", "key<fry>"));
}

/// jax derives the short name from numpy's by these replacements, in this order.
#[test]
fn short_names_follow_the_rule_of_jax() {
    for dtype in DType::NAMED.iter().filter(|dtype| **dtype != DType::Float0) {
        let short = dtype.name().replace("float", "f").replace("uint", "u");
        let short = short.replace("int", "i").replace("complex", "c");
        assert_eq!(dtype.short_name(), short);
    }
    // numpy's name of float0 is `void`, which jax replaces in the printed type.
    assert_eq!(DType::Float0.short_name(), "float0");
}

#[test]
fn types_print_as_in_a_jaxpr() {
    let symbolic = ArrayType::new(DType::Int32, [Dim::Static(2), Dim::Symbolic("2*n".into())]);
    assert_eq!(Type::from(symbolic).to_string(), "i32[2,2*n]");
    assert_eq!(f32_array(&[]).to_string(), "f32[]");

    let weak = ArrayType { weak_type: true, ..ArrayType::new(DType::Float32, []) };
    assert_eq!(weak.to_string(), "f32[]");

    let placed = ArrayType {
        sharding: Some("x,None".into()),
        manual_axis_type: Some("V:x".into()),
        memory_space: Some("host".into()),
        layout: Some("tiled".into()),
        ..ArrayType::new(DType::BFloat16, [Dim::Static(8)])
    };
    assert_eq!(placed.to_string(), "bf16<host>[8]{x,None}{V:x}{tiled}");

    let reference =
        |memory_space| Type::Ref { inner: Box::new(f32_array(&[4])), memory_space, kind: None };
    assert_eq!(reference(None).to_string(), "Ref{f32[4]}");
    assert_eq!(reference(Some("vmem".into())).to_string(), "Ref<vmem>{f32[4]}");
    assert_eq!(Type::Token.to_string(), "Tok");
    assert_eq!(Type::Opaque { name: "Box{}".into(), object: object(1) }.to_string(), "Box{}");
}

#[test]
fn everything_that_jax_tracks_distinguishes_types() {
    let plain = ArrayType::new(DType::Float32, [Dim::Static(2)]);
    let text: Option<Box<str>> = Some("x".into());
    let variants = [
        plain.clone(),
        ArrayType { dtype: DType::Float64, ..plain.clone() },
        ArrayType { shape: [Dim::Symbolic("2".into())].into_iter().collect(), ..plain.clone() },
        ArrayType { weak_type: true, ..plain.clone() },
        ArrayType { sharding: text.clone(), ..plain.clone() },
        ArrayType { manual_axis_type: text.clone(), ..plain.clone() },
        ArrayType { memory_space: text.clone(), ..plain.clone() },
        ArrayType { layout: text, ..plain },
    ];
    for (i, a) in variants.iter().enumerate() {
        for (j, b) in variants.iter().enumerate() {
            assert_eq!(a == b, i == j, "{a:?} and {b:?}");
        }
    }
}
