"""For each item of the key a kind of change that shows when the item is left out."""

NEEDED: dict[str, str] = {
    "callbacks": "callback_is_another_function",
    "captured arrays": "captured_array_of_other_values",
    "classes of captured values": "method_of_a_namedtuple_reads_a_global",
    "code of functions": "code_of_a_function",
    "configuration of jax": "context_enable_x64",
    "content of mutable values": "element_of_a_numpy_array",
    "derivative rules of functions": "rules_of_a_module_read_a_global",
    "functions of numpy": "asarray_of_numpy_within_jax",
    "lines of calls": "line_of_a_differentiated_call",
    "lowering rules": "lowering_registered_anew",
    "modules and classes of jax": "internal_function_of_lax",
    "names that are printed": "name_of_a_function",
    "numbers": "number_as_an_argument",
    "objects among params": "field_of_a_param",
    "pytree registry": "namedtuple_registered_later",
    "repetition of values": "one_argument_twice",
    "rules of primitives": "transposition_reads_a_list",
    "side effects of functions": "counts_in_an_attribute",
    "state of the process": "recursion_limit",
    "texts": "text_as_an_argument",
    "types of values": "type_of_an_argument",
    "what a function reads": "global_variable",
    "what programs say": "program_of_a_loop",
}

# Items of what is not replayed from jax 0.11 on: functions of the user and the rules of the
# backward pass run there, so that nothing shows.
RUN_ON_NEWER_JAX = {
    "classes of captured values",
    "code of functions",
    "content of mutable values",
    "names that are printed",
    "rules of primitives",
    "state of the process",
    "what a function reads",
}
