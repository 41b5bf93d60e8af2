use insta::assert_snapshot;
use jaxide::ir::{DType, DuplicateParam, ParamValue, Params, SubprogramId};
use proptest::{collection, prelude::*};

use crate::common::{object, params};

#[test]
fn parameters_are_sorted_and_found_by_name() {
    let params = params(vec![
        ("dimension_numbers", ParamValue::Int(1)),
        ("axis", ParamValue::Int(2)),
        ("shape", ParamValue::Int(3)),
    ]);
    let names: Vec<_> = params.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["axis", "dimension_numbers", "shape"]);
    assert_eq!(params.get("shape"), Some(&ParamValue::Int(3)));
    assert_eq!(params.get("sharding"), None);
    assert_eq!((params.len(), params.is_empty()), (3, false));
}

#[test]
fn a_parameter_given_twice_is_refused() {
    let entries = vec![
        ("b".into(), ParamValue::Int(1)),
        ("a".into(), ParamValue::None),
        ("b".into(), ParamValue::Int(1)),
    ];
    assert_eq!(Params::new(entries), Err(DuplicateParam("b".into())));
}

#[test]
fn floats_are_compared_by_their_bits() {
    assert_eq!(ParamValue::float(f64::NAN), ParamValue::float(f64::NAN));
    assert_ne!(ParamValue::float(0.0), ParamValue::float(-0.0));
    assert_ne!(ParamValue::float(1.0), ParamValue::Int(1));
    assert_ne!(ParamValue::Bool(true), ParamValue::Int(1));
    assert_ne!(ParamValue::complex(0.0, 0.0), ParamValue::complex(0.0, -0.0));
}

#[test]
fn every_kind_of_value_has_a_text() {
    let values = vec![
        ("a", ParamValue::None),
        ("b", ParamValue::Bool(true)),
        ("c", ParamValue::Int(-3)),
        ("d", ParamValue::BigInt("18446744073709551616".into())),
        ("e", ParamValue::float(1.0)),
        ("f", ParamValue::complex(0.5, -1.0)),
        ("g", ParamValue::Str("a \"text\"".into())),
        ("h", ParamValue::Bytes([b'x', 0, 255].into())),
        ("i", ParamValue::DType(DType::BFloat16)),
        ("j", ParamValue::Dim("2*n".into())),
        ("k", ParamValue::Enum { type_name: "FftType".into(), member: "RFFT".into() }),
        ("l", ParamValue::Tuple([ParamValue::Int(1)].into())),
        ("m", ParamValue::Tuple([ParamValue::Int(1), ParamValue::Int(2)].into())),
        ("n", ParamValue::List([ParamValue::None, ParamValue::Bool(false)].into())),
        ("o", ParamValue::Dict([(ParamValue::Int(1), ParamValue::None)].into())),
        (
            "p",
            ParamValue::Named {
                type_name: "ConvDimensionNumbers".into(),
                fields: [("lhs_spec".into(), ParamValue::Int(0)), ("out".into(), ParamValue::None)]
                    .into(),
            },
        ),
        ("q", ParamValue::Program(SubprogramId::from_u32(4))),
        ("r", ParamValue::Opaque(object(5))),
    ];
    let lines: Vec<_> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    assert_snapshot!(lines.join("\n"));
    assert_eq!(params(values[..2].to_vec()).to_string(), "[a=None b=True]");
    assert_eq!(Params::default().to_string(), "");
}

/// Values of any shape, a few levels deep.
fn any_value() -> impl Strategy<Value = ParamValue> {
    let leaf = prop_oneof![
        Just(ParamValue::None),
        any::<bool>().prop_map(ParamValue::Bool),
        any::<i64>().prop_map(ParamValue::Int),
        any::<f64>().prop_map(ParamValue::float),
        "[a-z]{0,3}".prop_map(|text| ParamValue::Str(text.into())),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(|items| ParamValue::Tuple(items.into())),
            collection::vec(inner.clone(), 0..4).prop_map(|items| ParamValue::List(items.into())),
            collection::vec((inner.clone(), inner), 0..3)
                .prop_map(|entries| ParamValue::Dict(entries.into())),
        ]
    })
}

proptest! {
    #[test]
    fn the_order_of_construction_does_not_matter(
        entries in collection::btree_map("[a-c]{1,3}", any_value(), 0..6),
        seed in any::<u64>(),
    ) {
        let entries: Vec<(Box<str>, _)> =
            entries.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let mut rotated = entries.clone();
        if !rotated.is_empty() {
            let by = usize::try_from(seed).unwrap() % rotated.len();
            rotated.rotate_left(by);
        }
        let params = Params::new(entries.clone()).unwrap();
        prop_assert_eq!(&params, &Params::new(rotated).unwrap());
        for (name, value) in &entries {
            prop_assert_eq!(params.get(name), Some(value));
        }
    }

    #[test]
    fn walking_visits_every_value(value in any_value()) {
        fn count(value: &ParamValue) -> usize {
            1 + match value {
                ParamValue::Tuple(items) | ParamValue::List(items) => items.iter().map(count).sum(),
                ParamValue::Dict(entries) => {
                    entries.iter().map(|(key, value)| count(key) + count(value)).sum()
                }
                _ => 0,
            }
        }
        let mut visited = 0;
        value.walk(&mut |_| visited += 1);
        prop_assert_eq!(visited, count(&value));
    }
}
