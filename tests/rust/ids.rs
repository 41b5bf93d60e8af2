use cranelift_entity::{EntityList, ListPool};
use jaxide::ir::{Atom, AtomKind, EffectsId, Eqn, LiteralId, Program, SubprogramId, Var};
use proptest::prelude::*;

#[test]
fn ids_are_spelled_with_their_table() {
    assert_eq!(Var::from_u32(3).to_string(), "v3");
    assert_eq!(format!("{:?}", Eqn::from_u32(0)), "eqn0");
    assert_eq!(SubprogramId::from_u32(12).to_string(), "sub12");
    assert_eq!(EffectsId::NONE.to_string(), "eff0");
    assert_eq!(Atom::from(Var::from_u32(7)).to_string(), "v7");
    assert_eq!(format!("{:?}", Atom::from(LiteralId::from_u32(7))), "lit7");
}

#[test]
fn an_atom_is_four_bytes() {
    assert_eq!(size_of::<Atom>(), 4);
}

#[test]
fn programs_go_between_threads() {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Program>();
}

proptest! {
    #[test]
    fn an_atom_gives_back_what_it_was_made_of(index in 0..(1_u32 << 31) - 1) {
        let var = Var::from_u32(index);
        prop_assert_eq!(Atom::var(var).kind(), AtomKind::Var(var));
        prop_assert_eq!(Atom::var(var).as_var(), Some(var));
        prop_assert_eq!(Atom::var(var).as_literal(), None);
        let literal = LiteralId::from_u32(index);
        prop_assert_eq!(Atom::literal(literal).kind(), AtomKind::Literal(literal));
        prop_assert_eq!(Atom::literal(literal).as_literal(), Some(literal));
        prop_assert_eq!(Atom::literal(literal).as_var(), None);
        prop_assert_ne!(Atom::var(var), Atom::literal(literal));
    }
}

#[test]
fn the_last_atoms_survive_an_entity_list() {
    let last_var = Var::from_u32(u32::try_from(Atom::MAX_VARS - 1).unwrap());
    let last_literal = LiteralId::from_u32(u32::try_from(Atom::MAX_LITERALS - 1).unwrap());
    let atoms = [Atom::var(last_var), Atom::literal(last_literal)];
    let mut pool = ListPool::new();
    let list = EntityList::from_slice(&atoms, &mut pool);
    assert_eq!(list.as_slice(&pool), atoms);
    assert_eq!(atoms[0].as_var(), Some(last_var));
    assert_eq!(atoms[1].as_literal(), Some(last_literal));
}
