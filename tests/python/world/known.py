"""Pairs that are known to differ, each with the reason; one that does not differ any more fails."""

from world.client import Pair

_EFFECTS = "changes of lists, dicts and arrays that a module has are taken for computations"
_TEXTS = "the text of an array depends on the print options"


def _between(reason: str, program: str, *kinds: str) -> dict[str, tuple[Pair, str]]:
    return {kind: (Pair(kind, program, "between"), reason) for kind in kinds}


KNOWN: dict[str, tuple[Pair, str]] = {
    **_between(
        _EFFECTS,
        "simplest",
        "counts_by_a_key_of_sorted",
        "counts_by_adding_a_list",
        "counts_by_map",
        "counts_by_setdefault",
        "counts_by_update",
        "counts_in_a_dict",
        "counts_in_a_list",
        "counts_in_a_numpy_array",
        "counts_in_a_numpy_array_by_fill",
        "counts_in_an_item_of_a_list",
        "counts_within_a_comprehension",
    ),
    **_between(_TEXTS, "simplest", "print_options_of_numpy"),
}
