"""The native core of jaxide. Private: use the ``jaxide`` package."""

from collections.abc import Callable, Mapping, Sequence, Set
from os import PathLike
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, final

__all__ = [
    "Activation",
    "DerivationCache",
    "Found",
    "Graph",
    "HeardWarnings",
    "Parts",
    "PathNames",
    "Place",
    "Rows",
    "Script",
    "Survey",
    "Trust",
    "array_types",
    "as_recorded",
    "audit_counts",
    "clear_audit_counts",
    "clear_barred",
    "clear_fragments",
    "clear_memo",
    "clear_store",
    "cost",
    "critical_path",
    "dead",
    "depends_on",
    "diff",
    "duplicates",
    "effects",
    "environment_variables",
    "extend_world",
    "find",
    "fingerprint_of",
    "forget_opening",
    "fragment_info",
    "graph_of",
    "histogram",
    "initialize",
    "initialize_traces",
    "inspect_store",
    "interpose_function",
    "interpose_instances",
    "interposed_functions",
    "is_installed",
    "is_jax_altered",
    "is_noted_code",
    "is_silent",
    "is_still_promised",
    "is_store_open",
    "is_whole_audited",
    "kept_by_jax",
    "key_items",
    "key_of_code",
    "key_of_program",
    "key_of_value",
    "key_of_whole",
    "keyword_defaults",
    "large_constants",
    "liveness",
    "load",
    "load_shared",
    "lowers_as_ever",
    "may_store_program",
    "memo_len",
    "name_configuration",
    "namespace_fields",
    "new_accumulators",
    "note_code",
    "num_settings_assigned",
    "num_traces",
    "omit_key_item",
    "open_store",
    "optimize",
    "pack_store",
    "plain_types",
    "precision",
    "print_jaxpr",
    "prints_as_ever",
    "promise_derivation",
    "promise_trace",
    "promised_trace",
    "record_whole",
    "refused_whole",
    "result_structs",
    "save",
    "set_audit",
    "set_fragment_bounds",
    "set_known_classes",
    "set_warning_hook",
    "set_world",
    "settle",
    "settle_later",
    "store_info",
    "store_program",
    "store_value",
    "stored_program",
    "stored_value",
    "tables",
    "tell_pointwise",
    "tell_whole_differs",
    "trust_callable",
    "unpack_store",
    "unused_inputs",
    "use_jit_programs",
    "use_whole_traces",
    "used_by",
    "verify_store",
    "watch_function",
    "world_number",
    "write_store",
]

@final
class Activation:
    """A context manager: traces that start inside are recorded by jaxide; those of this thread, or
    of the whole process."""

    def __new__(cls, *, process: bool = False) -> Activation: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exc: object) -> None: ...

@final
class HeardWarnings:
    """While it lives, and has not been closed, the warning hook is told of warnings."""

    def __new__(cls) -> HeardWarnings: ...
    def close(self) -> int:
        """Ends that; again to no effect. How many warnings of native code this thread has issued
        meanwhile, which the hook is not told of."""

@final
class Graph:
    """A finished program and the Python objects behind its ids."""

    def __len__(self) -> int: ...
    def to_jaxpr(self) -> tuple[Any, list[Any]]:
        """A new open jaxpr of the installed jax and the list of its constants."""

    def dump(self) -> str:
        """The program as text with the IR's own names, nested programs included."""

    def fingerprint(self, of: str, objects: Any = None) -> int:
        """128 bits that stand for what the program says: its "structure" (constants by type), its
        "content" (constants by value), or what its "execution" depends on. ``objects`` says what
        the objects of the program are, where it is given."""

    def equals(self, other: Graph, of: str) -> bool:
        """Whether another program is the same but for the names of variables and sources."""

    def steps(self, of: str) -> list[int]:
        """What stands for the program up to each of its equations, those of nested programs before
        the equation that they are in; the inputs are first, the results last."""

    def describe_step(self, of: str, index: int) -> tuple[str, Any]:
        """What is done in one of these steps, in words, and the traceback of its equation."""

    def repeated(self) -> list[tuple[Any, Any]]:
        """Pairs of nested jaxprs that are equal when they are executed: one that can stand for the
        other, and the other."""

    def has_nested_constants(self) -> bool:
        """Whether a nested program has constants."""

    def comparison_skeleton(self) -> tuple[Graph, list[Any]]:
        """As much of the program as comparing it for its execution needs; what lives with it."""

    def violations(self) -> list[str]:
        """Every violated invariant of the IR, as text; empty for a well-formed program."""

    def memory_bytes(self) -> int:
        """Bytes of the arena, nested programs not counted."""

@final
class Script:
    """Notes what the interposed calls of this thread return, then answers the same calls from the
    list: the cost of the user's own code."""

    def __new__(cls) -> Script: ...
    def __enter__(self) -> Script: ...
    def play(self) -> None:
        """From now on calls are answered, from the first one on."""

    def __len__(self) -> int: ...
    def __exit__(self, *_exc: object) -> None: ...

def fingerprint_of(jaxpr: Any, purpose: str) -> int:
    """The fingerprint of any jaxpr, as :meth:`Graph.fingerprint`. Raises TypeError for anything
    else."""

def graph_of(jaxpr: Any) -> Graph:
    """The graph of any jaxpr, closed or open. Raises TypeError for anything else."""

def initialize(namespace: Any) -> type:
    """Takes the objects of jax. Returns the type of jaxprs that nobody has read."""

def initialize_traces(
    make_trampoline: Callable[[str, Callable[..., Any]], tuple[Any, CodeType] | None],
) -> tuple[type, type]:
    """Makes the types of tracers and traces. A function for which ``make_trampoline`` returns None
    is left to jax."""

def namespace_fields() -> list[tuple[str, str]]:
    """The fields of the namespace that ``initialize`` reads, and the class of each."""

def clear_memo() -> None:
    """Forgets all remembered abstract evaluation."""

def set_audit(every: int) -> int:
    """Of how many replays one is audited from now on, 0 for none; what it was before."""

def audit_counts() -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    """Of replays and of abstract evaluations what was seen, audited and different; and how many
    audited calls had other objects that are structurally equal."""

def clear_audit_counts() -> None:
    """Counts audits anew."""

def clear_barred() -> None:
    """Lets barred callables be remembered again, for tests."""

def memo_len() -> int:
    """How many outcomes of abstract evaluation are remembered."""

def interpose_function(
    name: str,
    function: Any,
    copy: Any,
    make_code: Callable[[Callable[..., Any]], CodeType],
    positional: int,
    varargs: bool,
    keywords: tuple[str, ...],
    varkeywords: bool,
    types_only: bool,
) -> None:
    """Catches the calls of a function of jax while a trace of ours may run."""

@final
class DerivationCache:
    """Stands in for a function of jax whose results jax keeps by a program and a key."""

    def __new__(cls, name: str, path: str, stock: Callable[..., Any]) -> DerivationCache: ...
    def __call__(self, jaxpr: Any, /, *key: Any) -> Any:
        """Makes twins of what is known for a program that says the same, else runs the function."""

@final
class Parts:
    """Stands in for a function of jax that keeps the parts of programs that it makes."""

    def __new__(cls, path: str, stock: Callable[..., Any]) -> Parts: ...
    def __call__(self, jaxpr: Any, /, *key: Any) -> Any:
        """Runs the function, and notes what it has made of which program."""

def trust_callable(callable: Any) -> None:
    """Lets an object that lives as long as the process be an argument of remembered calls."""

def tell_pointwise(functions: Sequence[str], primitives: frozenset[Any], broadcast: Any) -> None:
    """Tells which functions and primitives compute element by element, and which primitive brings
    an operand to a shape. Before functions are interposed."""

def interpose_instances(name: str, class_: type, /) -> None:
    """Interposes the calls of the instances of a class of jax, while a trace of jaxide may run."""

def interposed_functions() -> list[Any]:
    """The functions that are interposed while a trace of ours may run."""

def fragment_info() -> dict[str, Any]:
    """The state of the expansion cache; `jaxide.cache_info` makes an object of it."""

def clear_fragments() -> None:
    """Forgets all fragments and starts counting anew."""

def open_store(
    folder: PathLike[str],
    salt: bytes,
    packages: list[str],
    is_writable: bool,
    max_bytes: int,
    records: Any,
    maker: Any,
    names: Any,
) -> None:
    """Opens the store in a folder. A thread computes the fingerprint of the installation."""

def name_configuration() -> None:
    """Names what is configured now, where there is a store: the first trace finds the name."""

def write_store(closes: bool) -> tuple[int, int]:
    """Writes what was learnt, and closes the store if need be; how many entries and bytes."""

def store_info() -> dict[str, Any] | None:
    """What the open store has, and what was found in it; None where there is none."""

def is_silent(function: Callable[[], Any]) -> bool:
    """Whether a function gives no warning. Nobody hears those that it gives."""

def is_store_open() -> bool:
    """Whether there is a store, which this thread asks."""

def key_of_value(words: bytes) -> int | None:
    """The key of words that mean the same in every process, for the current configuration; None
    where the store is not asked."""

def key_of_program(request: Any) -> int | None:
    """The key of the program to which a request for one of a jit of jax's own leads; None where the
    store is not asked."""

def stored_program(key: int) -> tuple[Any, Any] | None:
    """The program that the store has under a key, and what is beside it; None where it has none."""

def may_store_program(key: int, program: Any) -> bool:
    """Whether the store may keep a program under a key, and does not have it."""

def store_program(key: int, program: Any, beside: Any) -> None:
    """Has the store keep a program under a key, and what is beside it, once it is written."""

def stored_value(key: int, is_beside: bool = False) -> Any:
    """The value that the store has under a key; None where it has none. It counts as found or
    missing unless it is beside what a trace asks for."""

def store_value(key: int, value: Any) -> None:
    """Has the store keep a value of numbers, texts and tuples, once it is written."""

def key_of_whole(
    function: Any, args: tuple[Any, Any], traced: int, context: Any, again: bool
) -> int | None:
    """The key of a function that is traced as a whole, for positional and named arguments in which
    types stand for so many arrays; None where it has none. ``again`` says that it was just
    traced."""

def refused_whole() -> str | None:
    """Why the function that was asked for last has no key; None where it has one."""

def key_of_code(code: Any) -> int | None:
    """The key of what code reads; None where there is no store."""

def record_whole(
    trace: Callable[[], tuple[Any, Any]],
) -> tuple[tuple[Any, Any], list[Any] | None]:
    """What ``trace`` comes to, and what was derived from programs meanwhile; None where it may not
    be stored."""

def as_recorded(load: Callable[[], Any]) -> Any:
    """Calls ``load``, which has jax make programs, as if a trace were under way."""

def settle_later(settle: Callable[[], None]) -> None:
    """Has ``settle`` be called before the next trace begins."""

def settle() -> None:
    """Calls what was to be called before the next trace begins."""

def promise_derivation(function: str, program: Any, result: Any) -> None:
    """Has a function say ``result`` when jax asks it for what it makes of a program next."""

def promise_trace(function: Any, result: tuple[Any, Any], fits: Callable[[Any], bool]) -> None:
    """Has jax come to ``result`` when it traces a function next, or one that is called so, for
    arguments of which ``fits`` says that they are meant."""

def promised_trace(*given: Any) -> Any:
    """What was promised, when jax traces a function; else ``NotImplemented``."""

def use_whole_traces(trace: Callable[..., Any]) -> None:
    """Has jax come to what ``trace`` says of a function when it traces the function."""

def use_jit_programs(
    traced: Callable[..., Any], forget: Callable[[Any], None], tell_all: Callable[[], None]
) -> None:
    """Has jax come to what ``traced`` says of a function when it traces the function; calls
    ``forget`` when jax forgets the programs of one, and ``tell_all`` when jax is to be left
    alone."""

def num_traces() -> int:
    """How many functions jax was to trace while anything of jaxide's was active."""

def kept_by_jax(name: str, ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns where jax need not trace a function with a name for it; None otherwise,
    and jax keeps nothing then."""

def is_still_promised() -> bool:
    """Whether nobody has asked for what was promised."""

def is_whole_audited() -> bool:
    """Whether what the store has is to be compared with what jax does."""

def tell_whole_differs(name: str, replayed: str, real: str) -> None:
    """Says that the store has something else of a function than jax has traced."""

def forget_opening() -> None:
    """Forgets a store that is being opened: in a child process nobody opens it."""

def inspect_store(folder: PathLike[str], salt: bytes, packages: list[str]) -> dict[str, Any]:
    """What a folder has, of the installation and in all."""

def verify_store(folder: PathLike[str], salt: bytes, packages: list[str]) -> list[tuple[Path, str]]:
    """The segments of the installation that cannot be read, each with the reason."""

def clear_store(folder: PathLike[str]) -> int:
    """Removes what a folder has, of all installations; how many files."""

def pack_store(folder: PathLike[str], salt: bytes, packages: list[str]) -> tuple[bytes, int]:
    """One segment with all entries for the installation, and how many these are."""

def unpack_store(folder: PathLike[str], salt: bytes, packages: list[str], packed: bytes) -> int:
    """Puts such a segment into a folder; how many entries it has."""

def new_accumulators(invars: list[Any], first: int, length: int) -> list[Any] | None:
    """jax's accumulators for the cotangents of so many variables; None where one is of a Ref."""

def plain_types(
    arguments: tuple[Any, ...],
    array: type,
    single_device_sharding: type,
    plain_type: Callable[[Any], Any],
) -> tuple[Any, ...] | None:
    """The types of arguments: of an array on one device its own, of others what ``plain_type``
    says; None where that is None for one of them."""

def array_types(values: list[Any]) -> tuple[Any, ...] | None:
    """The types of values; None where one of them is neither traced nor an array, or its type is
    not that of an array."""

def result_structs(types: tuple[Any, ...], varies: bool) -> list[Any] | None:
    """The ``ShapeDtypeStruct`` for each type, a new one; None where one of them is not that of an
    array. ``varies`` is the setting ``_check_vma``."""

def optimize(
    graph: Graph,
    debug_info: Any,
    settings: dict[str, Any],
    helpers: Any,
) -> Graph:
    """The graph with passes done to it, itself where they find nothing; ``debug_info`` is its
    jaxpr's, ``settings`` are those of ``Program.optimize``, and ``helpers`` is what they call
    of Python's."""

def cost(root: Graph, trips: int, line: Callable[[Any], str | None]) -> dict[str, Any]:
    """What executing the program costs; loops of which nobody knows it run `trips` times. `line`
    says on which line of the user's code a traceback is."""

def diff(
    one: Graph, another: Graph, *, of: str, context: int, limit: int | None, names: bool
) -> dict[str, Any]:
    """Where another program differs from one, compared as in `Graph.equals`: `limit` differences,
    with `context` equations around them, printed with the `names` that they have in the text of
    their whole program, or in words, when the `Rows` among them are looked at."""

@final
class Rows:
    """Equations that differ in two programs, with some around them."""

    def __len__(self) -> int: ...
    def records(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The rows from one position up to another. Raises IndexError where there are not so many,
        and what printing objects of the programs raises."""

@final
class Found:
    """Equations that were found."""

    def __len__(self) -> int: ...
    def records(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The records of equations from one position up to another. Raises IndexError where there
        are not so many."""

def find(
    root: Graph,
    primitive: str | None,
    dtype: str | None,
    shape: Sequence[int | str] | None,
    name_scope: str | None,
    is_wanted: Callable[[Any], bool] | None,
) -> Found:
    """The equations that are as asked, of whose traceback `is_wanted` is true."""

def depends_on(root: Graph, output: int) -> dict[str, Any]:
    """What an output depends on. Raises IndexError where there is no such output."""

def used_by(root: Graph, input: int) -> tuple[list[int], Found]:
    """What an input is used for. Raises IndexError where there is no such input."""

def unused_inputs(root: Graph) -> list[int]:
    """The positions of inputs that no output and no effect depends on."""

def dead(root: Graph) -> Found:
    """The equations that no output and no effect depends on."""

def critical_path(root: Graph, by: str, trips: int) -> tuple[int, int, Found]:
    """The longest chain of equations: its length, that of all one after another, the equations."""

def duplicates(root: Graph) -> tuple[list[int], Found]:
    """The groups of equations that compute the same thing: how many each has, and all of them, one
    group after another."""

def large_constants(root: Graph, least: int) -> list[dict[str, Any]]:
    """The constants that take at least so many bytes, the largest first."""

def liveness(root: Graph, donated: list[bool], fused: bool) -> dict[str, Any]:
    """What is alive when; of the inputs those are given back that are donated."""

def precision(root: Graph) -> list[dict[str, Any]]:
    """What is done to the precision of numbers."""

def effects(root: Graph) -> list[tuple[str, Found]]:
    """The kinds of effects, and the equations that have each."""

def histogram(root: Graph, nested: str) -> list[tuple[str, int]]:
    """How many equations of each primitive there are, the most frequent first."""

def print_jaxpr(
    jaxpr: Any,
    *,
    source_info: bool,
    print_shapes: bool,
    custom_rules: bool,
    name_stack: bool,
    print_effects: bool,
    width: int,
    use_color: bool,
    separable_lines: bool,
    annotation_prefix: str,
    max_depth: int | None,
    max_eqns: int | None,
    collapse: list[str],
) -> str | None:
    """A jaxpr, or a graph, as jax prints it; None where something in it is printed by a function
    of jax that sees more than it."""

def tables(root: Graph, trips: int) -> list[dict[str, Any]]:
    """A program and its nested programs, each once, the outermost one first, for other formats."""

def set_fragment_bounds(per_callable: int, entries: int, bytes: int) -> None:
    """Changes the bounds of the expansion cache."""

def save(root: Any, records: Any, programs: list[tuple[int, Any]] | None = None) -> bytes:
    """The bytes of a value, and of all programs that it refers to; ``records`` says what objects
    are. Each program is added to ``programs``, with its place among the objects."""

def load(file: bytes, objects: Any, programs: dict[int, Any] | None = None) -> Any:
    """The value that bytes say, with all programs that it refers to; ``objects`` makes objects of
    records. Programs are added to ``programs`` by their places."""

def load_shared(
    file: bytes, objects: Any, origins: Mapping[int, Any], programs: Mapping[int, Any]
) -> Any:
    """As ``load``, of derivations, which jax knows from then on; ``origins`` says which programs
    are of jits of jax's, and ``programs`` are those that there are, by their places."""

def set_world(survey: Survey, judge: Any) -> None:
    """Takes what jax's modules have, and what says how that differs: an object with the method
    ``look``."""

def extend_world() -> tuple[dict[str, ModuleType], bool] | None:
    """Looks at modules that were imported since the last time.

    Returns:
      The modules that are new to who asks, by name, and whether none is still being imported; None
      where somebody else is looking.
    """

@final
class Trust:
    """Tells what is of jax, of Python, or of what jax is built on.

    Args:
      plain: classes whose instances have no functions in them and are nobody's.
      packages: whose classes are nobody else's.
      imported: packages besides of which jax imports modules.
      partial: the class of partial applications; no class where somebody has replaced it.
      is_file_of_library: whether the code of a file is of jax, of Python, or of what jax is built
        on.
    """

    def __new__(
        cls,
        plain: frozenset[type],
        packages: Set[str],
        imported: Set[str],
        partial: Any,
        is_file_of_library: Callable[[str], bool],
    ) -> Trust: ...
    def functions_of(self, value: Any) -> list[FunctionType]:
        """The Python functions that a callable is made of: through partial applications, methods,
        jits and functions with derivative rules."""

    def is_foreign(self, value: Any) -> bool:
        """Whether somebody else has put a value in a module, class or registry of jax: code, or an
        instance of a class, that is neither of jax nor of what jax is built on."""

@final
class PathNames:
    """Names of places in trees, as jax's ``stock`` makes them of ``keystr``, which is one of
    ``globals``: natively where all keys are of ``classes``, those of dicts, of sequences, and of
    attributes."""

    def __new__(
        cls,
        stock: Callable[[Any], str],
        globals: dict[str, Any],
        classes: tuple[type, type, type],
    ) -> PathNames: ...
    def __call__(self, path: Any) -> str:
        """The name of a path."""

    def after(self, prefix: str, paths: Any) -> tuple[str, ...]:
        """The names of paths, each after a prefix."""

    def of_leaves(self, prefix: str, leaves: Any) -> tuple[str, ...]:
        """As ``after``, for pairs of a path and a leaf."""

@final
class Place:
    """A dict that functions of jax look into."""

    @property
    def kind(self) -> str:
        """``modules``, ``module``, ``class``, ``registry`` or ``instance``."""

    @property
    def name(self) -> str: ...
    @property
    def entries(self) -> Mapping[Any, Any]:
        """What it has."""

    @property
    def foreign(self) -> list[Any]:
        """Keys of what was not made by jax."""

    def note_filled(self) -> None:
        """Notes that functions of its module change a registry: new entries that are no rules are
        state."""

@final
class Survey:
    """Takes in the modules that functions of jax look into, when they are imported. Used by one at
    a time.

    Args:
      trust: what is jax's own.
      packages: packages whose modules, classes and registries are taken in.
      beside: other modules that are taken in, without their classes.
      skipped: names that are no definitions, in modules: the objects themselves.
      lowering: modules whose registries say how programs are lowered: tables within are taken in.
      started: modules, and names of theirs that the start of a backend assigns, or
        adds to.
      primitive: the class of jax's primitives.
      instances: classes whose instances count by their attributes.
      modules: ``sys.modules``.
    """

    def __new__(
        cls,
        trust: Trust,
        packages: Sequence[str],
        beside: Set[str],
        skipped: Sequence[str],
        lowering: Sequence[str],
        started: Set[tuple[str, str]],
        primitive: type,
        instances: Sequence[type],
        modules: dict[str, Any],
    ) -> Survey: ...
    @property
    def places(self) -> dict[int, Place]:
        """What was taken in, by numbers."""

    def changes(self, place: Place, missing: Any) -> list[list[Any]]:
        """What differs in a place from what it had, as far as that may count: keys, what they refer
        to, and what they referred to; ``missing`` where there is nothing."""

def note_code(function: Any, code: CodeType) -> None:
    """Notes a code that jaxide will give to a function of jax."""

def is_noted_code(function: FunctionType, code: CodeType) -> bool:
    """Whether a code is one that jaxide gives to this function of jax."""

def is_installed() -> bool:
    """Whether all traces of the process are recorded by jaxide."""

def is_jax_altered() -> bool:
    """Whether somebody has changed jax in a way that may affect anything: all is left to stock.
    Whoever has given a function that jaxide steps into another code is warned."""

def prints_as_ever() -> bool:
    """Whether nobody has changed what texts of programs depend on."""

def lowers_as_ever() -> int | None:
    """Whether programs are lowered and executed as ever: nothing of jax or of what it lowers with
    differs. Then, how often something was found to differ, or to have been changed and put back;
    else None."""

def watch_function(function: FunctionType) -> None:
    """Has the judge of the world told when a function that is not jax's is given other code,
    defaults or names. The function is kept alive."""

def keyword_defaults(function: FunctionType) -> dict[str, Any] | None:
    """``__kwdefaults__``, for who does not change them: they are not watched for that."""

def num_settings_assigned() -> int:
    """How often settings were assigned for all threads, since jaxide traced first."""

def world_number() -> int | None:
    """Names how jax differs from what it was: 0 where it does not, None where anything may be
    affected."""

def set_known_classes(known: Any) -> None:
    """Takes what ``jaxide._native.classes`` says of named tuples and enums."""

def set_warning_hook(hook: Callable[[Any, Any, int, bool], bool]) -> None:
    """Takes the function that is told of warnings: of the text, the category, the level, and
    whether other options say whom the warning concerns. It says whether nobody else is to hear it.
    """

def environment_variables(names: Sequence[str]) -> list[str | None]:
    """The values of variables of the process's environment; None for those that are not set."""

def key_items() -> list[str]:
    """The names of the items of the key of a replay."""

def omit_key_item(name: str) -> None:
    """Leaves an item out of the keys that this process writes from now on. For tests.

    Raises:
      ValueError: there is no such item.
    """
