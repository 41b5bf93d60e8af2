use insta::assert_snapshot;

use crate::common::{enclosing, rich_program};

#[test]
fn a_program_with_everything() {
    assert_snapshot!(rich_program());
}

#[test]
fn nested_programs_follow() {
    assert_snapshot!(enclosing(rich_program()).0);
}
