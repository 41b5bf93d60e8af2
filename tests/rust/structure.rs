//! Structural hash and equality: blind to ids, names and sources, and to nothing else.

use jaxide::structure::{Added, Fingerprint, Purpose, fingerprint, steps};
use proptest::{prelude::*, sample::Index};

use crate::specs::{
    AType, AnEqn, Noise, Operand, Spec, Value, a_spec, a_type, an_eqn, are_equal, mutated,
    some_noise,
};

const BOTH: [Purpose; 2] = [Purpose::Structure, Purpose::Content];

fn hash(spec: &Spec, noise: Noise, purpose: Purpose) -> Fingerprint {
    let Ok(own) = fingerprint(spec.nested(noise), purpose);
    own
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
