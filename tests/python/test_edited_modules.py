"""Modules that are edited on disk between saving and loading: a loaded program has the rules and
the trees that it was saved with, or none."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxide
from jaxide._native import rule_sources
from jaxide._native.storage import Unstorable
from test_rule_contents import RULED

HEAD = f"""
import dataclasses, functools, gc, importlib, inspect, operator, pydoc, random, types
import jax, jax.numpy as jnp, numpy as np
import edited_library
from importlib import import_module
{RULED}"""
PAIR = """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
"""
HELPER = "FACTOR = VALUE\nif FACTOR < 3: SMALL = True\n"
# Modules of rules. VALUE is another number once the module, or one beside it, is edited.
RULES = {
    "nodes of a class": f"""{PAIR}
jax.tree_util.register_pytree_node(Pair, lambda p: ([p.a * VALUE], None), lambda _, c: Pair(*c, 1))
fun = ruled(lambda: jax.tree.leaves(Pair(1.0, 2.0))[0])
""",
    "fields of a dataclass": """
@dataclasses.dataclass
class Pair:
    a: float
    b: float
jax.tree_util.register_dataclass(Pair, *((["a"], ["b"]) if VALUE < 3 else (["b"], ["a"])))
fun = ruled(lambda: sum(jax.tree.leaves(Pair(2.0, 5.0))))
""",
    "rule of a primitive": """
from jax.extend.core import Primitive
from jax.interpreters import ad
mine_p = Primitive("mine")
mine_p.def_impl(lambda x: x)
mine_p.def_abstract_eval(lambda x: x)
ad.defjvp(mine_p, lambda tangent, x: tangent * VALUE)
fun = ruled(lambda: jax.jvp(mine_p.bind, (1.0,), (1.0,))[1])
""",
    "module that is handed on": """
import edited_helper
def read(module): return module.FACTOR
def scale():
    import edited_helper as own
    return read(own)
fun = ruled(scale)
""",
    "module that is returned": """
import edited_helper
def own():
    import edited_helper
    return edited_helper
fun = ruled(lambda: own().FACTOR)
""",
    "what a module has": """
import edited_helper
def scale():
    import edited_helper
    return 2.0 if hasattr(edited_helper, "SMALL") else 5.0
fun = ruled(scale)
""",
    "package of an import": """
import edited_package.part
def scale():
    import edited_package.part
    return edited_package.FACTOR
fun = ruled(scale)
""",
    "module beside an import": """
import edited_package.part, edited_package.other
def scale():
    import edited_package.part
    return edited_package.other.FACTOR
fun = ruled(scale)
""",
    "module from a package": """
import edited_package.part
def scale():
    from edited_package import part
    return part.FACTOR
fun = ruled(scale)
""",
    "relative import": """
import edited_package.part
fun = ruled(edited_package.part.of_other)
""",
    "import by a text": """
import edited_helper
fun = ruled(lambda: import_module("edited_helper").FACTOR)
""",
    "place in a text": """
import edited_helper
fun = ruled(lambda: pydoc.locate("edited_helper.FACTOR"))
""",
    "variables by a text": """
FACTOR = VALUE
def helper(): return None
fun = ruled(lambda: operator.attrgetter("__globals__")(helper)["FACTOR"])
""",
    "cache that wraps another": """
def shown(): return None
@functools.wraps(shown)
@functools.lru_cache
def kept(): return VALUE
fun = ruled(lambda: kept())
""",
    "cache": """
@functools.lru_cache
def kept(): return VALUE
fun = ruled(lambda: kept())
""",
    "number of numpy's": """
class Number(np.float64):
    def get(self): return VALUE
number = Number(1.0)
fun = ruled(lambda: number.get())
""",
    "random numbers": """
class Numbers(random.Random): pass
numbers = Numbers(int(VALUE))
fun = ruled(lambda: Numbers(numbers.getstate()[1][0]).random() + numbers.random())
""",
    "table that is filled": """
TABLE = {}
def fill(): TABLE["k"] = lambda: VALUE
fill()
fun = ruled(lambda: TABLE["k"]())
""",
    "member of an object": """
class Own: pass
own = Own()
own.__objclass__ = VALUE
fun = ruled(lambda: own.__objclass__)
""",
}
# Of which nobody can say what they consist of.
LEFT_OUT = {
    *("module that is handed on", "module that is returned", "what a module has"),
    *("import by a text", "cache that wraps another", "number of numpy's"),
    "random numbers",
}
# The classes of trees; the nodes have `a` and `b`, in an order.
TREES = {
    "indexed": """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __getitem__(self, place): return vars(self)["ORDER"[place]]
jax.tree_util.register_pytree_node(Pair, lambda p: ((p[0], p[1]), None), lambda _, c: Pair(*c))
""",
    "added": """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __add__(self, other): return [vars(self)[name] for name in "ORDER"]
jax.tree_util.register_pytree_node(Pair, lambda p: (p + p, None), lambda _, c: Pair(*c))
""",
    "called": """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __call__(self): return [vars(self)[name] for name in "ORDER"]
jax.tree_util.register_pytree_node(Pair, lambda p: (p(), None), lambda _, c: Pair(*c))
""",
    "named by texts": """
class Pair:
    def __init__(self, a, b): self._a, self._b = a, b
    x, y = (property(operator.attrgetter("_" + name)) for name in "ORDER")
def flatten(pair): return [getattr(pair, name) for name in ("x", "y")], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "variables of the class": f"""{PAIR}
    FIELDS = "ORDER"
def flatten(pair): return [vars(pair)[name] for name in vars(type(pair))["FIELDS"]], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "asked": """
class Pair:
    def __init__(self, a, b): self._a, self._b = a, b
    def __getattr__(self, name): return self.__dict__["_" + "ORDER"["ab".index(name)]]
jax.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c))
""",
    "set": """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __setattr__(self, name, value): self.__dict__["ORDER"["ab".index(name)]] = value
def flatten(pair): return (pair.__dict__["a"], pair.__dict__["b"]), None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "of a metaclass": """
class Meta(type):
    @property
    def FIELDS(cls): return "ORDER"
class Pair(metaclass=Meta):
    def __init__(self, a, b): self.a, self.b = a, b
def flatten(pair): return [vars(pair)[name] for name in type(pair).FIELDS], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "metadata": """
@dataclasses.dataclass
class Pair:
    a: float = dataclasses.field(metadata={"place": "ORDER".index("a")})
    b: float = dataclasses.field(metadata={"place": "ORDER".index("b")})
def flatten(pair):
    fields = sorted(dataclasses.fields(pair), key=lambda field: field.metadata["place"])
    return [vars(pair)[field.name] for field in fields], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "after the constructor": """
@dataclasses.dataclass
class Pair:
    a: float
    b: float
    def __post_init__(self): self.a, self.b = (vars(self)[name] for name in "ORDER")
jax.tree_util.register_dataclass(Pair, ["a", "b"], [])
""",
    "own constructor": """
@dataclasses.dataclass(init=False)
class Pair:
    a: float
    b: float
    def __init__(self, a, b): self.a, self.b = (a, b) if "ORDER" == "ab" else (b, a)
jax.tree_util.register_dataclass(Pair, ["a", "b"], [])
""",
    "own fields": """
@dataclasses.dataclass
class Pair:
    a: float
    b: float
    def __setattr__(self, name, value): vars(self)["ORDER"["ab".index(name)]] = value
jax.tree_util.register_dataclass(Pair, ["a", "b"], [])
""",
    "named tuple": """
import collections
class Pair(collections.namedtuple("Pair", "a b")):
    def __new__(cls, a, b): return super().__new__(cls, *("ORDER" == "ab" and (a, b) or (b, a)))
""",
    "callable of a class": f"""{PAIR}
class Flatten:
    def __call__(self, pair):
        return [(jax.tree_util.GetAttrKey(n), vars(pair)[n]) for n in "ORDER"], None
jax.tree_util.register_pytree_with_keys(Pair, Flatten(), lambda _, c: Pair(*c))
""",
    "nodes within": f"""{PAIR}
class Within:
    def __init__(self, pair): self.pair = pair
def within(own): return [vars(own.pair)[name] for name in "ORDER"], None
jax.tree_util.register_pytree_node(Within, within, lambda _, c: None)
jax.tree_util.register_pytree_node(
    Pair, lambda p: (jax.tree.leaves(Within(p)), None), lambda _, c: Pair(*c)
)
""",
    "local import": f"""{PAIR}
import edited_helper
def flatten(pair):
    import edited_helper as own
    return [vars(pair)[name] for name in vars(own)["ORDER_OF"]], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
    "dropped field": """
@dataclasses.dataclass
class Pair:
    a: float
    b: float
    c: str = "ORDER"
jax.tree_util.register_dataclass(Pair, ["a", "b"], [], drop_fields=["c"])
""",
    "computed fields": """
class Swapped:
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, own, owner): return vars(own)["ORDER"["ab".index(self.name)]]
    def __set__(self, own, value): vars(own)[self.name] = value
class Pair:
    a, b = Swapped(), Swapped()
    def __init__(self, a, b): self.a, self.b = a, b
edited_library.register(Pair, ["a", "b"])
""",
    "method for a library": """
class Pair(edited_library.Node):
    def names(self): return "ORDER"
""",
    "attribute for a library": """
class Pair(edited_library.Node):
    FIELDS = "ORDER"
""",
    "set for a library": """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
edited_library.register_with(Pair, {"ORDER"})
""",
    "dispatched": f"""{PAIR}
@functools.singledispatch
def flatten(pair): raise TypeError
@flatten.register(Pair)
def _(pair): return [vars(pair)[name] for name in "ORDER"], None
jax.tree_util.register_pytree_node(Pair, flatten, lambda _, c: Pair(*c))
""",
}
# In a folder of installed packages.
LIBRARY = """
import jax

class Node:
    FIELDS = "ab"
    def __init__(self, a, b): self.a, self.b = a, b
    def __init_subclass__(cls):
        make = lambda _, children: cls(*children)
        jax.tree_util.register_pytree_node(cls, lambda node: (node.taken(), None), make)
    def names(self): return self.FIELDS
    def taken(self): return [vars(self)[name] for name in self.names()]

def register(cls, names):
    flatten = lambda node: ([getattr(node, name) for name in names], None)
    jax.tree_util.register_pytree_node(cls, flatten, lambda _, children: cls(*children))

def register_with(cls, names):
    flatten = lambda node: ([vars(node)[name] for name in min(names)], None)
    jax.tree_util.register_pytree_node(cls, flatten, lambda _, children: cls(*children))
"""
TREES_LEFT_OUT = {"local import"}
Write = Callable[..., Any]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the module and those beside it, and imports them anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("edited")]:
            del sys.modules[name]

    def make(content: str, *, value: str = "2.0", order: str = "ab", head: str = "") -> Any:
        forget()
        importlib.invalidate_caches()
        helper = f"{HELPER}ORDER_OF = '{order}'\n"
        of_other = "from . import other\ndef of_other(): return other.FACTOR\n"
        files = {
            "edited.py": content,
            "edited_helper.py": helper,
            "edited_package/__init__.py": HELPER,
            "edited_package/part.py": HELPER + of_other,
            "edited_package/other.py": HELPER,
            "site-packages/edited_library.py": LIBRARY,
        }
        for folder in ("edited_package", "site-packages"):
            (tmp_path / folder).mkdir(exist_ok=True)
        for name, text in files.items():
            written = text.replace("VALUE", value).replace("ORDER", order)
            (tmp_path / name).write_text(f"{head}{written}")
        return importlib.import_module("edited")

    yield make
    forget()


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str, write: Write) -> None:
    content = HEAD + RULES[name]
    module = write(content)
    program = jaxide.trace(lambda x: module.fun(x))(1.0)
    gradient = float(jax.grad(program)(1.0))
    stored = pickle.dumps(program)
    write(content, head="# What it is for.\n\n")
    again = pickle.loads(stored)
    assert bool(again.left_out) is (name in LEFT_OUT), again.left_out
    if not again.left_out:
        assert float(jax.grad(again)(1.0)) == gradient
    module = write(content, value="5.0")
    assert float(jax.grad(lambda x: module.fun(x))(1.0)) != gradient
    again = pickle.loads(stored)
    assert again.left_out
    with pytest.raises(jaxide.StorageError, match=r"changed since|was left out"):
        jax.grad(again)(1.0)


@pytest.mark.parametrize("name", TREES)
def test_trees(name: str, write: Write) -> None:
    def use(pair: Any) -> Any:
        first, second = jax.tree.leaves(pair)
        return first - 10 * second, jax.tree.map(lambda x: x + 1, pair)

    content = HEAD + TREES[name]
    module = write(content)
    make = lambda: module.Pair(3.0, 7.0)
    stored = pickle.dumps(jaxide.trace(use)(make()))
    module = write(content, head="# What it is for.\n\n")
    again = pickle.loads(stored)
    assert bool(again.left_out) is (name in TREES_LEFT_OUT), again.left_out
    if not again.left_out:
        assert jax.tree.leaves(again(make())) == jax.tree.leaves(use(make()))
    write(content, order="ba")
    again = pickle.loads(stored)
    assert "the structure of arguments and results" in again.left_out[0]


@pytest.mark.parametrize("use", ["argument", "result"])
def test_a_library_that_has_its_fields_in_another_order(use: str, write: Write) -> None:
    """What is installed counts by name; numpyro has such fields in the order of a set."""
    make = write(f"{HEAD}class Pair(edited_library.Node): pass\n").Pair
    fun = (lambda pair: pair.a) if use == "argument" else (lambda x: make(x, x + 1))
    args = (make(3.0, 7.0),) if use == "argument" else (3.0,)
    stored = pickle.dumps(jaxide.trace(fun)(*args))
    again = pickle.loads(stored)
    assert not again.left_out
    assert jax.tree.leaves(again(*args)) == jax.tree.leaves(fun(*args))
    make.__mro__[1].FIELDS = "ba"
    again = pickle.loads(stored)
    error: Any = TypeError if use == "argument" else jaxide.StorageError
    with pytest.raises(error, match="in another way"):
        again(*args)


def test_sources_of_all_modules_that_are_imported(write: Write, tmp_path: Path) -> None:
    """Whatever a rule's module imports anywhere counts, and nothing beside."""
    unseen = "def unseen():\n    from edited_package import other\n"
    content = f"{HEAD}{unseen}fun = ruled(lambda: 2.0)\n"
    stored = pickle.dumps(jaxide.trace(write(content).fun)(1.0))
    write(content, value="2.0", order="ba")  # `edited_helper` alone has the order
    assert not pickle.loads(stored).left_out
    (tmp_path / "edited_package" / "other.py").write_text("FACTOR = 3.0\n")
    again = pickle.loads(stored)
    assert again.left_out
    with pytest.raises(jaxide.StorageError, match="has changed since the program was stored"):
        jax.grad(again)(1.0)


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": "from . import part, other"},  # the package of the rule's module runs
        {"part.py": "from edited_package import *", "__init__.py": "__all__ = ['other', 'part']"},
        {"part.py": "def later():\n    import edited_package.other"},
        {"part.py": "from .within import what", "within.py": "from edited_package import other"},
    ],
)
def test_sources(files: dict[str, str], write: Write, tmp_path: Path) -> None:
    """Of all that is imported, whether it was or not."""
    write("")
    folder = tmp_path / "edited_package"
    for name, content in files.items():
        (folder / name).write_text(content)
    filters = [*warnings.filters]
    before = rule_sources.digest(["edited_package.part"])
    importlib.import_module("edited_package.other")
    assert rule_sources.digest(["edited_package.part"]) == before
    content = (folder / "other.py").read_text()
    (folder / "other.py").write_text(f"# Comments do not count.\n\n{content}")
    assert rule_sources.digest(["edited_package.part"]) == before
    (folder / "other.py").write_text("FACTOR = '\\d'\n")
    with warnings.catch_warnings(action="error"):
        assert rule_sources.digest(["edited_package.part"]) != before
    assert {*warnings.filters} >= {*filters}


@pytest.mark.parametrize(
    "content",
    ["no Python", "x = " + "-" * 9000 + "1", "x = y" + ".z" * 20000, "\0"],
    ids=["words", "signs", "attributes", "zero"],
)
def test_sources_that_cannot_be_read(content: str, write: Write, tmp_path: Path) -> None:
    write("")
    (tmp_path / "edited_package" / "other.py").write_text(content)
    with pytest.raises(Unstorable, match="is no code of this Python"):
        rule_sources.digest(["edited_package.part"])


def test_folders_of_modules_have_no_source(write: Write, tmp_path: Path) -> None:
    """Such as are packages without ``__init__.py``, imported or not."""
    write("")
    (tmp_path / "edited_folder").mkdir()
    (tmp_path / "edited_folder" / "one.py").write_text("x = 1")
    (tmp_path / "edited_package" / "other.py").write_text("import edited_folder.one")
    before = rule_sources.digest(["edited_package.part"])
    importlib.import_module("edited_folder.one")
    assert rule_sources.digest(["edited_package.part"]) == before


def test_finders_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the address of another that is gone is another one."""

    class Finder:
        def __init__(self, origin: str) -> None:
            self.origin = origin

        def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
            is_known = name == "edited_nowhere"
            return (
                importlib.machinery.ModuleSpec(name, None, origin=self.origin) if is_known else None
            )

    others = [*sys.meta_path]
    for origin in map(str, range(5)):
        monkeypatch.setattr(sys, "meta_path", [*others, Finder(origin)])
        found = rule_sources._spec("edited_nowhere")
        assert found is not None and found.origin == origin


def test_sources_that_are_no_code(write: Write, tmp_path: Path) -> None:
    content = f"{HEAD}def unseen(): import edited_helper\nfun = ruled(lambda: 2.0)\n"
    module = write(content)
    (tmp_path / "edited_helper.py").write_text("no Python")
    assert pickle.loads(pickle.dumps(jaxide.trace(module.fun)(1.0))).left_out


@pytest.mark.parametrize(
    ("package", "name", "found"),
    [
        ("", "a.b", ["a", "a.b"]),
        ("p.q", "a", ["a"]),
        ("p.q", ".", ["p", "p.q"]),
        ("p.q", ".a", ["p", "p.q", "p.q.a"]),
        ("p.q", "..a.b", ["p", "p.a", "p.a.b"]),
    ],
)
def test_names_of_imports(package: str, name: str, found: list[str]) -> None:
    assert rule_sources.places(package, name) == found
    if name.strip("."):
        assert importlib.util.resolve_name(name, package) == found[-1]


def test_modules_that_wait_are_not_run(write: Write) -> None:
    """Names of rules are looked for in all modules."""
    write("ran = True\n")
    del sys.modules["edited"]
    spec = importlib.util.find_spec("edited")
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["edited"] = module
    spec.loader.exec_module(module)
    assert type(module) is not types.ModuleType
    fun = jax.custom_jvp(lambda x: x)
    fun.defjvp(lambda primals, tangents: (*primals, *tangents))
    assert pickle.loads(pickle.dumps(jaxide.trace(fun)(1.0))).left_out
    assert type(module) is not types.ModuleType
