"""Programs in other formats: what they say is what the program says, and readers can read it."""

from __future__ import annotations

import gzip
import html.parser
import json
import os
import pathlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pydot
import pytest
from jax import Array, lax
from py_mini_racer import MiniRacer

import jaxide
from jaxide._export import dot, expressions, pprof
from jaxide._export import html as page_parts
from jaxide._program import files
from rebuilding import assert_rebuilt, rebuilt

# pydot uses old names of pyparsing's.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")

X = jnp.ones((4, 8))
HOSTILE = '</script><img src=x onerror=alert(1)>"\\\n{}@DATA@'


def nested(x: Array) -> tuple[Array, Array]:
    """A loop with a jit and a branch in it, and a while loop."""

    def body(c: Array, _: None) -> tuple[Array, Array]:
        with jax.named_scope("layer/inner"):
            c = lax.cond(c.sum() > 0, jnp.sin, jnp.cos, jnp.where(c > 0, c, 2.0 * c))
        return c, c.sum()

    y, sums = lax.scan(body, x, None, length=3)
    return lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + x, y), sums


def hostile() -> jaxide.Program:
    """A program whose function and scopes have names that are markup, or end strings."""

    def inner(x: Array) -> Array:
        with jax.named_scope(HOSTILE):
            return jnp.sin(x)

    inner.__name__ = inner.__qualname__ = HOSTILE
    return jaxide.trace(jax.jit(inner))(X)


@pytest.fixture(scope="module")
def program() -> jaxide.Program:
    return jaxide.trace(nested)(X)


# ---- files ---------------------------------------------------------------------------------------

FORMATS = ("json", "python", "dot", "html", "pprof", "model_explorer")


@pytest.mark.parametrize("name", FORMATS)
def test_files_have_what_is_returned(
    program: jaxide.Program, name: str, tmp_path: pathlib.Path
) -> None:
    export = getattr(program, f"to_{name}")
    content = export()
    (tmp_path / "old").write_text("old")
    for path in (tmp_path / "new", str(tmp_path / "old")):
        assert export(path) is None
        written = pathlib.Path(path).read_bytes()
        assert (written.decode() if isinstance(content, str) else written) == content
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
    with pytest.raises(OSError, match="missing"):
        export(tmp_path / "missing" / "file")


def test_failing_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        files.write(path, "new")
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "old")


# ---- JSON ----------------------------------------------------------------------------------------


def schema() -> Any:
    return json.loads(resources.files("jaxide._export").joinpath("program.schema.json").read_text())


def checked(program: jaxide.Program, **options: Any) -> Any:
    document = json.loads(program.to_json(**options))
    jsonschema.Draft202012Validator(schema()).validate(document)
    return document


def test_json_says_what_the_program_says(program: jaxide.Program) -> None:
    document = checked(program)
    jsonschema.Draft202012Validator.check_schema(schema())
    text = str(program)
    types = [type_["text"] for type_ in document["types"]]
    for within in document["programs"]:
        names = [f"{name}:{types[type_]}" for name, type_ in within["variables"]]
        ends = [len(within["constants"]) + len(within["inputs"])]
        for eqn in within["equations"]:
            # As in the text, up to the params.
            outs = " ".join(names[out] for out in eqn["outputs"])
            assert f"{outs} = {eqn['primitive']}" in text
            assert eqn["outputs"] == list(range(ends[-1], ends[-1] + len(eqn["outputs"])))
            ends.append(eqn["outputs"][-1] + 1)
            assert eqn["line"] is None or "test_export.py" in eqn["line"]
        assert ends[-1] == len(names)
    main = document["programs"][0]
    assert (main["name"], main["times"]) == ("nested", 1)
    scan, loop = main["equations"]
    body = document["programs"][scan["params"]["jaxpr"]["program"]]
    assert (body["times"], scan["params"]["length"]) == (3, 3)
    assert {e["name_stack"] for e in body["equations"]} >= {"layer/inner"}
    assert {p["scopes"] for p in document["programs"]} == {"", "layer/inner"}
    costs = [eqn["cost"]["flops"] for eqn in main["equations"]]
    assert sum(costs) == program.cost().total.flops
    assert loop["primitive"] == "while"
    more = checked(program, while_trips=10)["programs"][0]["equations"][1]["cost"]["flops"]
    assert more > costs[1]


def test_json_of_what_json_does_not_have() -> None:
    def function(x: Array) -> Array:
        y = jnp.maximum(x, jnp.inf) * np.float32("nan")
        y = jnp.where(y > 0, y, jnp.take(x, jnp.array([1, 2]), axis=0).sum())
        return y.astype(jnp.bfloat16), jax.random.bits(jax.random.key(1)), jax.nn.relu(x)

    document = checked(jaxide.trace(function)(X))
    text = json.dumps(document)
    for expected in (
        '{"float": "inf"}',
        '{"float": "nan"}',
        '{"dtype": "bfloat16"}',
        '"enum": "GatherScatterMode.',
        '"record": "GatherDimensionNumbers"',
        '"dtype": "key<fry>"',
    ):
        assert expected in text, expected
    assert " at 0x7" not in text


@pytest.mark.parametrize("path", [("version",), ("programs", 0, "variables", 0), ("types", 0)])
def test_the_schema_refuses_other_documents(program: jaxide.Program, path: tuple[Any, ...]) -> None:
    document = json.loads(program.to_json())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "something else"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate(document)


def test_programs_that_several_equations_run_are_there_once() -> None:
    inner = jax.jit(lambda x: jnp.sin(x) * 2.0)
    stock = jax.make_jaxpr(lambda x: inner(lax.map(inner, inner(x)[None])[0]))(X)
    programs = checked(jaxide.from_jaxpr(stock))["programs"]
    assert [p["times"] for p in programs if p["name"] == "lambda"] == [3]


def test_deep_nesting() -> None:
    function = jnp.sin
    for _ in range(110):
        function = jax.checkpoint(function)
    # jax comes close to the recursion limit: nothing of pytest's should be on the stack.
    with ThreadPoolExecutor(1) as alone:
        program = alone.submit(jaxide.trace(function), X).result()
    assert len(checked(program)["programs"]) == 111
    for name in FORMATS:
        assert getattr(program, f"to_{name}")()


def test_while_trips_must_not_be_negative(program: jaxide.Program) -> None:
    for name in ("json", "html", "pprof"):
        with pytest.raises(ValueError, match="while_trips must not be negative, got -1"):
            getattr(program, f"to_{name}")(while_trips=-1)


# ---- Python --------------------------------------------------------------------------------------


def literals(x: Array) -> Any:
    with jax.enable_x64(True):
        wide = x.astype(jnp.float64) + 0.1
    return (
        x * 2 + 0.1 + np.float32(0.1) + jnp.bfloat16(1.5).astype(jnp.float32),
        jnp.maximum(x, -jnp.inf) + np.float32("nan"),
        (x > 0) & True,
        lax.convert_element_type(x, jnp.bfloat16) * 3,
        wide,
        x.astype(jnp.int8) // 3,
        (x + 1j) * 2j,
    )


def constants(x: Array) -> Any:
    small, host = jnp.arange(3.0), np.ones((4, 8), np.float16)
    return x + host, small, jnp.zeros((0, 2)), jax.random.split(jax.random.key(3)), x * small[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nested": nested,
    "literals": literals,
    "constants": constants,
    "grad": jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()),
    "batched": jax.vmap(lambda x: jnp.sort(jnp.cumsum(x))[2:5] @ jnp.ones((3, 2))),
    "loop_with_constants": lambda x: lax.while_loop(
        lambda c, limit=x.sum() + 9: c.sum() < limit, lambda c, step=x * 2: c + step, x
    ),
    "named_as_python": lambda x: [x + n for n in range(400)],
    "nothing": lambda: (),
    "donated": jax.jit(lambda x: x * 2, donate_argnums=0, keep_unused=True),
}


@pytest.mark.filterwarnings("ignore:.*(truncated|requested in|ComplexWarning)")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_source_code_gives_the_same_jaxpr(name: str) -> None:
    arguments = () if name == "nothing" else (X,)
    assert_rebuilt(jaxide.trace(FUNCTIONS[name])(*arguments))


def test_source_code_computes_the_same(program: jaxide.Program) -> None:
    function, arguments = rebuilt(program.to_python())
    for own, expected in zip(function(X), program(X), strict=True):
        np.testing.assert_array_equal(own, expected)
    assert [(a.shape, a.dtype) for a in arguments] == [((4, 8), jnp.float32)]


def test_source_code_calls_public_functions(program: jaxide.Program) -> None:
    text = program.to_python()
    for expected in (
        "_scan(body",
        "_while_loop(cond",
        "lax.sin(",
        "lax.select_n(",
        "_jit(where, '_where')",
    ):
        assert expected in text, expected
    assert "test_export.py" in text
    # No public function makes a `cond` alone.
    assert set(re.findall(r"= _bind\('(\w+)'", text)) == {"cond"}


def test_names_that_were_there_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function at the address of another that had a name has none."""

    def helper() -> Callable[..., Any]:
        return lambda x: x

    expressions._public_names.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(jnp, "patched", helper(), raising=False)
        assert expressions.public_name(jnp.sin) == "jnp.sin"
    for function in [helper() for _ in range(1000)]:
        with pytest.raises(expressions.Unwritable):
            expressions.public_name(function)
    expressions._public_names.cache_clear()


def test_large_constants_are_arguments() -> None:
    table = np.arange(100.0, dtype=np.float32)
    program = jaxide.trace(lambda x: x.sum() + table)(X)
    function, arguments = rebuilt(program.to_python())
    made = jax.make_jaxpr(lambda *args: function(*args, consts=[table]))(*arguments)
    assert str(made) == str(program)
    whole, _ = rebuilt(program.to_python(max_literal=100))
    np.testing.assert_array_equal(whole(X), program(X))
    inner = jaxide.trace(lambda x: lax.map(lambda v: v + table[0], x))(X)
    assert_rebuilt(inner)


def test_rules_are_refused_or_left_out() -> None:
    program = jaxide.trace(lambda x: jax.nn.relu(x) + 1.0)(X)
    with pytest.raises(NotImplementedError, match=r"equation 0 of .*custom_jvp_call.*drop_rules"):
        program.to_python()
    function, arguments = rebuilt(program.to_python(drop_rules=True))
    assert str(jax.make_jaxpr(function)(*arguments)) == str(program)
    np.testing.assert_array_equal(function(X), program(X))
    with pytest.raises(NotImplementedError, match="the derivative rule jvp was left out"):
        jax.grad(lambda x: function(x).sum())(X)


def test_callbacks_are_refused_with_their_line() -> None:
    program = jaxide.trace(lambda x: jax.pure_callback(np.sin, x, x))(X)
    with pytest.raises(NotImplementedError, match=r"\(pure_callback\) at .*test_export.py:\d+"):
        program.to_python()


def test_hostile_names_are_no_code() -> None:
    assert_rebuilt(hostile())


# ---- Graphviz ------------------------------------------------------------------------------------


def graph_of(text: str) -> tuple[set[str], list[tuple[str, str]], dict[str, str]]:
    """Nodes, edges and the labels of clusters, as pydot reads them."""
    (graph,) = pydot.graph_from_dot_data(text)
    nodes: set[str] = set()
    labels = {}
    for cluster in graph.get_subgraphs():
        labels[cluster.get_name()] = cluster.get_label()
        nodes |= {node.get_name() for node in cluster.get_nodes()}
    return nodes, [(e.get_source(), e.get_destination()) for e in graph.get_edges()], labels


def test_dot(program: jaxide.Program) -> None:
    document = json.loads(program.to_json())
    nodes, edges, clusters = graph_of(program.to_dot())
    assert len(clusters) == len(document["programs"])
    assert sum("e" in node for node in nodes) == sum(
        len(p["equations"]) for p in document["programs"]
    )
    assert {end for edge in edges for end in edge} <= nodes
    operands = 0
    for within in document["programs"]:
        lists = [eqn["inputs"] for eqn in within["equations"]]
        operands += sum(len({a for a in atoms if isinstance(a, int)}) for atoms in lists)
        operands += sum(isinstance(a, int) for a in within["outputs"])
    assert sum("e" in end or "o" in end for _, end in edges) >= operands


def chain(length: int) -> jaxide.Program:
    def function(x: Array) -> Array:
        for _ in range(length):
            x = jax.jit(lambda y: lax.sin(lax.cos(y)))(x)
        return lax.neg(x)

    return jaxide.trace(function)(X)


def test_dot_of_a_large_program_is_cut_to_what_can_be_laid_out() -> None:
    # Each jit has a program of its own: 100 clusters of four nodes.
    bodies = [jax.jit(lambda y, n=n: lax.sin(lax.cos(y * n))) for n in range(100)]
    program = jaxide.trace(lambda x: [body(x) for body in bodies])(X)
    text = program.to_dot()
    nodes, edges, clusters = graph_of(text)
    assert len(clusters) == 1 and len(nodes) <= dot.MAX_NODES
    assert {end for edge in edges for end in edge} <= nodes
    said = (
        "nested programs deeper than 0 are single nodes: 300 equations; "
        "to_dot(max_depth=None) shows all"
    )
    assert text.startswith(f"// {said}\n") and f'label="{said}"' in text
    everything = program.to_dot(max_depth=None)
    assert len(graph_of(everything)[2]) == 101 and "//" not in everything
    assert "single nodes" in program.to_dot(max_depth=0)


def test_dot_of_many_equations_has_the_first_and_the_last_ones() -> None:
    program = chain(1_000)
    text = program.to_dot()
    nodes, edges, _ = graph_of(text)
    assert dot.MAX_NODES - 10 <= len(nodes) <= dot.MAX_NODES + 1
    assert {end for edge in edges for end in edge} <= nodes
    assert {"p0e0", "p0hidden", "p0e1000"} <= nodes
    hidden = 1_001 - sum(node.startswith("p0e") for node in nodes)
    assert f"... {hidden} equations ..." in text
    assert f"{hidden} equations between them are not; to_dot(max_eqns=None) shows all" in text
    # One edge into those that are hidden, one out of them.
    assert sum("p0hidden" in edge for edge in edges if "p1" not in "".join(edge)) == 2
    few, _, _ = graph_of(program.to_dot(max_depth=0, max_eqns=3))
    assert {node for node in few if "e" in node} == {"p0e0", "p0e1", "p0e1000", "p0hidden"}
    assert len(graph_of(program.to_dot(max_depth=0))[0]) == 1_003
    none, _, _ = graph_of(program.to_dot(max_depth=0, max_eqns=0))
    assert none == {"p0v0", "p0hidden", "p0o0"}


@pytest.mark.parametrize("name", ["max_depth", "max_eqns"])
def test_dot_refuses_other_limits(program: jaxide.Program, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        program.to_dot(**{name: -1})
    with pytest.raises(ValueError, match=f"{name} must be a number, None or 'auto', got 'all'"):
        program.to_dot(**{name: "all"})


def test_dot_depth(program: jaxide.Program) -> None:
    counts = [len(graph_of(program.to_dot(max_depth=depth))[2]) for depth in (0, 1, 2, 99)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == len(graph_of(program.to_dot())[2]) > counts[1]
    with pytest.raises(ValueError, match="max_depth must not be negative, got -1"):
        program.to_dot(max_depth=-1)


def test_hostile_names_are_no_graph() -> None:
    assert len(graph_of(hostile().to_dot())[2]) == 2


# ---- pprof ---------------------------------------------------------------------------------------


def read_profile(content: bytes) -> Any:
    return pprof.profile_class().FromString(gzip.decompress(content))


def test_profiles_say_what_programs_cost(program: jaxide.Program) -> None:
    total = program.cost(while_trips=5).total
    content = program.to_pprof(while_trips=5)
    assert content == program.to_pprof(while_trips=5)
    profile = read_profile(content)
    strings = list(profile.string_table)
    assert strings[0] == ""
    assert [(strings[t.type], strings[t.unit]) for t in profile.sample_type] == [
        ("flops", "count"),
        ("transcendentals", "count"),
        ("bytes", "bytes"),
    ]
    sums = [sum(sample.value[n] for sample in profile.sample) for n in range(3)]
    assert sums == [total.flops, total.transcendentals, total.bytes_accessed]
    functions = {f.id: f for f in profile.function}
    locations = {loc.id: loc for loc in profile.location}
    stacks = []
    for sample in profile.sample:
        lines = [locations[at].line[0] for at in sample.location_id]
        stacks.append([strings[functions[line.function_id].name] for line in lines])
    sine = next(stack for stack in stacks if stack[0] == "sin")
    # The primitive, what runs it with its scopes, and the user's calls.
    own = [name for name in sine if name != "test_profiles_say_what_programs_cost"]
    assert own[:6] == ["sin", "cond", "inner", "layer", "nested.<locals>.body", "scan"]
    assert own[6] == "nested"
    named = [f for f in profile.function if strings[f.name].startswith("nested")]
    assert {strings[f.filename] for f in named} == {nested.__code__.co_filename}


# ---- Model Explorer ------------------------------------------------------------------------------


def test_model_explorer(program: jaxide.Program) -> None:
    document = json.loads(program.to_model_explorer())
    main = document["graphs"][0]
    ids = [node["id"] for node in main["nodes"]]
    assert len(ids) == len(set(ids))
    for node in main["nodes"]:
        # The fields of Model Explorer's GraphNode.
        assert node.keys() <= {
            "id", "label", "namespace", "subgraphIds", "attrs", "incomingEdges",
            "outputsMetadata",
        }  # fmt: skip
        for edge in node["incomingEdges"]:
            assert edge["sourceNodeId"] in ids
        assert all(isinstance(a["value"], str) for a in node.get("attrs", ()))
    names = {node["namespace"] for node in main["nodes"]}
    assert any("layer/inner" in name for name in names)
    labels = [node["label"] for node in main["nodes"]]
    assert {"scan", "while", "cond", "sin", "cos", "input", "output"} <= set(labels)


def test_model_explorer_links_programs_that_several_equations_run() -> None:
    inner = jax.jit(jnp.sin)
    document = json.loads(jaxide.trace(lambda x: inner(inner(x)))(X).to_model_explorer())
    first, second = document["graphs"]
    linked = [node["subgraphIds"] for node in first["nodes"] if "subgraphIds" in node]
    assert linked == [[second["id"]]] * 2


# ---- HTML ----------------------------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    """Which elements a page has, and what is in its data."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.data = ""
        self._is_data = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._is_data = ("id", "data") in attrs
        assert not {"src", "href"} & {name for name, _ in attrs}, "the page loads something"

    def handle_endtag(self, tag: str) -> None:
        self._is_data = False

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data


def bare_script() -> MiniRacer:
    """The script of a page, in an engine without a document."""
    engine = MiniRacer()
    for name in page_parts.SCRIPTS:
        engine.eval(resources.files("jaxide._export").joinpath(name).read_text())
    return engine


def script(page: str) -> MiniRacer:
    """The script of a page with its data, in an engine without a document."""
    engine = bare_script()
    engine.eval(f"const model = new Model({Reader(page).data}); const rows = new Rows(model);")
    return engine


def test_the_page_is_the_same_markup_for_any_program(program: jaxide.Program) -> None:
    expected = Reader(program.to_html())
    page = hostile().to_html()
    assert Reader(page).tags == expected.tags
    assert json.loads(Reader(page).data)["programs"][1]["name"] == HOSTILE.strip("<>")


def test_the_page_is_a_document_and_says_how_often_programs_run() -> None:
    def body(carry: Array, _: None) -> tuple[Array, None]:
        return jnp.sin(carry), None

    page = jaxide.trace(lambda x: lax.scan(body, x, None, length=7)[0])(1.0).to_html()
    assert page.startswith("<!doctype html>")
    programs = json.loads(Reader(page).data)["programs"]
    assert [program["times"] for program in programs] == [1, 7]


def test_rows_are_the_equations_of_the_text(program: jaxide.Program) -> None:
    engine = script(program.to_html())
    engine.eval("rows.expand()")
    texts = json.loads(
        engine.eval(
            "JSON.stringify(rows.rows.filter(r => r.kind === 'equation')"
            ".map(r => model.equation(r.place, r.eqn).map(p => p[1]).join('')))"
        )
    )
    text = " ".join(str(program).split())
    for row in texts:
        assert row.partition("[")[0].partition(" = ")[0] in text
    assert sum(row.count(" = sin ") for row in texts) == 1
    assert len(texts) == sum(len(p["equations"]) for p in json.loads(program.to_json())["programs"])


def test_rows_open_and_close(program: jaxide.Program) -> None:
    engine = script(program.to_html())
    # The program, its two equations, its end.
    assert engine.eval("rows.length") == 4
    engine.eval("rows.toggle(1)")
    opened = engine.eval("rows.length")
    assert opened > 4
    assert engine.eval("rows.at(2).kind") == "program"
    assert engine.eval("rows.parent(2)") == 1
    engine.eval("rows.toggle(1)")
    assert engine.eval("rows.length") == 4
    engine.eval("rows.expand()")
    assert engine.eval("rows.length") > opened
    engine.eval("rows.collapse()")
    assert engine.eval("rows.length") == 4


def test_search_finds_equations_within(program: jaxide.Program) -> None:
    engine = script(program.to_html())
    found = json.loads(engine.eval("JSON.stringify(model.search('SIN  layer'))"))
    primitives = []
    for place, eqn in found:
        index = engine.eval(f"rows.reveal({place}, {eqn})")
        row = f"rows.at({index})"
        assert engine.eval(f"[{row}.place, {row}.eqn].join()") == f"{place},{eqn}"
        primitives.append(engine.eval(f"model.primitive({place}, {eqn})"))
    # A branch of the first is called as the second.
    assert primitives == ["cond", "sin"]
    assert engine.eval("model.search('nowhere').length") == 0
    assert engine.eval("model.search(' ').length") == 0
    pieces = engine.eval("JSON.stringify(marked('a <b> SIN', ['sin', '<b>']))")
    assert json.loads(pieces) == [["a ", False], ["<b>", True], [" ", False], ["SIN", True]]


def test_live_bytes_are_a_column() -> None:
    x = np.ones(10, np.float32)
    inner = jax.jit(lambda y: jnp.sin(y) * 2 + jnp.cos(y))
    program = jaxide.trace(lambda x: inner(x).sum())(x)
    engine = script(program.to_html())
    live = json.loads(engine.eval("JSON.stringify(model.programs.map((program) => program.live))"))
    # Within: a sine, which is doubled where it is; a cosine beside it. Around it: the input.
    assert live == [[120, 84], [40, 40, 80, 80]]
    assert live[0] == list(program.liveness().during)
    assert engine.eval("model.most.live") == 120


def test_live_bytes_of_what_is_not_run_as_it_is() -> None:
    """A scatter does what its program says to each element."""
    program = jaxide.trace(lambda x: x.at[0].add(1.0))(np.ones(10, np.float32))
    live = {own.name: own.live for own in program._read_model()}
    assert None in live.values()
    engine = script(program.to_html())
    assert engine.eval("model.programs.filter((program) => program.live === null).length") == 1


def test_live_bytes_are_those_at_the_peak() -> None:
    """A program that two equations run, once in the bytes of its operand."""
    inner = jax.jit(lambda y: jnp.sin(y) * 2)
    x = np.ones(10, np.float32)
    program = jaxide.trace(lambda x: inner(inner(x)))(x)
    (_, within) = program._read_model()
    assert within.live == [40, 40]


def test_outlines_keep_peaks() -> None:
    engine = bare_script()
    engine.eval("const values = Array.from({length: 100000}, (_, n) => n === 77777 ? 9 : n % 3)")
    points = json.loads(engine.eval("JSON.stringify(outline(values, 800.5))"))
    assert (len(points), max(points)) == (800, 9)
    assert points.index(9) == 77777 * 800 // 100000
    assert json.loads(engine.eval("JSON.stringify(outline([3, 1], 800))")) == [3, 1]


def evaluated(engine: MiniRacer, expression: str) -> Any:
    return json.loads(engine.eval(f"JSON.stringify({expression})"))


def scoped(p: Any, x: Array) -> Array:
    with jax.named_scope("model"):
        with jax.named_scope("dense"):
            x = x @ p["w"]
        with jax.named_scope("act"):
            x = jax.nn.relu(x)
    return x - 1.0


@pytest.fixture(scope="module")
def of_scopes() -> jaxide.Program:
    grad = jax.value_and_grad(lambda p, x: scoped(p, x).sum())
    return jaxide.trace(grad)({"w": jnp.ones((8, 3))}, X)


def test_the_page_has_what_the_reports_say(of_scopes: jaxide.Program) -> None:
    engine, report = script(of_scopes.to_html()), of_scopes.cost()
    found = evaluated(engine, "model.data.cost")
    for name, shares in (
        ("scopes", report.by_scope),
        ("lines", report.lines),
        ("primitives", report.by_primitive.values()),
    ):
        assert found[name] == [
            [
                share.name,
                share.times,
                share.cost.flops,
                share.cost.transcendentals,
                share.cost.bytes_accessed,
                share.parameters,
            ]
            for share in shares
        ]
    assert [row[5] for row in found["scopes"] if row[0] == "model/dense"] == [24]
    assert found["total"][2] == report.total.flops
    alive, liveness = evaluated(engine, "model.alive()"), of_scopes.liveness()
    assert [value["bytes"] for value in alive] == [value.bytes for value in liveness.alive]
    assert evaluated(engine, "model.data.memory.peak") == liveness.peak
    for own, value in zip(alive, liveness.alive, strict=True):
        assert own["type"] == value.aval
        if value.equation is None:
            assert own["at"] is None and own["groups"][0] == f"{value.kind}s"
        else:
            place, eqn = own["at"]
            assert engine.eval(f"model.primitive({place}, {eqn})") == value.equation.primitive
    names = {own["name"]: own["groups"] for own in alive if own["kind"] == "input"}
    assert names["p['w']"] == ["inputs", "p", "['w']"]


def test_values_of_nested_programs_lead_to_their_equations() -> None:
    """The peak is in the second of two branches."""

    def large(x: Array) -> Array:
        return jnp.broadcast_to(jnp.sin(x), (100, *x.shape)).sum(0)

    program = jaxide.trace(lambda x: lax.cond(x.sum() > 0, jnp.cos, large, x))(X)
    engine = script(program.to_html())
    place, eqn = evaluated(engine, "model.data.memory.at")
    peak = program.liveness().peak_at
    assert engine.eval(f"model.primitive({place}, {eqn})") == peak.primitive
    assert engine.eval(f"model.line({place}, {eqn})") == peak.line


def test_equations_have_lines_and_scopes_of_the_users_modules() -> None:
    from flax import linen

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            return jax.nn.relu(linen.Dense(3)(x))

    model, x = Model(), jnp.ones((2, 4))
    params = model.init(jax.random.key(0), x)
    programs = jaxide.trace(jax.grad(lambda p, x: model.apply(p, x).sum()))(params, x)._read_model()
    assert len(programs) > 1
    equations = [eqn for program in programs for eqn in program.equations]
    assert all(eqn.line.startswith(__file__) for eqn in equations), [e.line for e in equations]
    scopes = {eqn.scope for eqn in equations}
    assert {"Model", "Model/Dense_0"} <= scopes and not any("jvp" in scope for scope in scopes)


# Name, runs, flops, transcendentals, bytes and parameters.
SCOPES = [["a", 1, 6, 0, 0, 3], ["a/b", 1, 4, 0, 0, 2], ["c", 1, 3, 0, 0, 0]]
TREE = f"scopeTree({json.dumps(SCOPES)}, ['', 1, 10, 0, 0], FLOPS)"


def test_flame_graphs_are_as_wide_as_what_they_show() -> None:
    engine = bare_script()
    engine.eval(
        f"const tree = {TREE}; const names = (bs) => bs.map((b) => [b.node.name, b.left, b.width])"
    )
    assert evaluated(engine, "names(flameBoxes(tree, 100))") == [
        ["program", 0, 100],
        ["a", 0, 60],
        ["c", 60, 30],
        ["outside of all scopes", 90, 10],
        ["b", 0, 40],
    ]
    # What is around the one that is looked at is as wide.
    engine.eval("const b = tree.children.get('a').children.get('b')")
    assert evaluated(engine, "names(flameBoxes(b, 100))") == [
        ["program", 0, 100],
        ["a", 0, 100],
        ["b", 0, 100],
    ]
    # Too narrow to be seen.
    assert evaluated(engine, "names(flameBoxes(tree, 5)).map((box) => box[0])") == [
        "program", "a", "c", "b",
    ]  # fmt: skip
    assert evaluated(engine, "names(flameBoxes(node('nothing', []), 100))") == [["nothing", 0, 100]]


def test_lines_are_files_functions_and_numbers() -> None:
    engine = bare_script()
    expected = {
        "/a/train.py:7 (loss)": ["/a/train.py", "loss", "line 7"],
        "C:\\a b.py:12 (f.<locals>.<lambda>)": ["C:\\a b.py", "f.<locals>.<lambda>", "line 12"],
        "train.py:7": ["train.py", "line 7"],
        "unknown": ["unknown"],
    }
    for line, parts in expected.items():
        assert evaluated(engine, f"lineParts({json.dumps(line)})") == parts


def test_tables_are_sorted_and_keep_what_has_no_value_last() -> None:
    engine = bare_script()
    engine.eval("const rows = [['b', 2], ['a', null], ['c', 10]]")
    order = "sorted(rows, (row) => row[{}], {}).map((row) => row[0]).join('')"
    assert engine.eval(order.format(1, "true")) == "cba"
    assert engine.eval(order.format(1, "false")) == "bca"
    assert engine.eval(order.format(0, "false")) == "abc"
    assert engine.eval("rows.map((row) => row[0]).join('')") == "bac"


def test_shares_are_percentages() -> None:
    engine = bare_script()
    shares = "[[1, 1], [0, 5], [1, 3], [1, 30], [1, 99999], [1, 0]].map((p) => percent(...p))"
    assert evaluated(engine, shares) == ["100%", "0%", "33%", "3.3%", "<0.1%", ""]


def test_large_programs_are_one_table() -> None:
    """Nothing in the page grows but its data, in columns."""

    def sines(length: int) -> jaxide.Program:
        def function(x: Array) -> Array:
            for _ in range(length):
                x = lax.sin(x)
            return x

        return jaxide.trace(function)(X)

    small, large = (sines(n).to_html() for n in (10, 1_010))
    assert len(large) - len(small) < 60 * 1_000
