"""Rules of a module that is edited between saving and loading: a loaded program has the rule that
it was saved with, or none."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import jax
import pytest

import jaxide

# Makes a function with a rule.
RULED = """
def ruled(scale):
    @jax.custom_jvp
    def fun(x):
        return jnp.sin(x)
    fun.defjvp(lambda primals, tangents: (jnp.sin(*primals), tangents[0] * scale()))
    return fun
"""
HEAD = f"""
import array, collections, dataclasses, decimal, enum, fractions, functools, types, typing
import jax, jax.numpy as jnp, numpy as np
{RULED}"""
HEAD += """
class Flag(enum.IntFlag):
    A = 1

class Config(typing.NamedTuple):
    k: float

@dataclasses.dataclass(frozen=True)
class Data:
    k: float

class Slots:
    __slots__ = ("__k",)
    def __init__(self, k): self.__k = k
    def get(self): return self.__k

class Base:
    k = FACTOR

class Ordered(enum.Enum):
    if FACTOR < 3:
        A, B = 2.0, 5.0
    else:
        B, A = 5.0, 2.0

class Floating(float, enum.Enum):
    def __new__(cls, name):
        made = float.__new__(cls, FACTOR)
        made._value_ = name
        return made
    A = "a"

def helper(): return further()
def further(): return FACTOR

class Generic(typing.Generic[typing.TypeVar("T")]):
    k: "float" = FACTOR
    @property
    def of(self): return self.k
    @functools.cached_property
    def cached(self): return self.k
    @staticmethod
    def static(): return FACTOR
    @classmethod
    def own(cls): return cls.k

def sub(base, *args, **attributes):
    return type("Sub", (base,), attributes)(*args)

if FACTOR < 3:
    pow = None

OWN = {"abs": lambda x: FACTOR}
"""
# What a rule has, and what it does with that.
VALUES = {
    "number": ("FACTOR", "V"),
    "numpy's number": ("np.float64(FACTOR)", "float(V)"),
    "numpy's integer": ("np.uint8(FACTOR)", "int(V)"),
    "of numpy": ("np.sqrt(FACTOR)", "float(V) ** 2"),
    "array": ("np.array([FACTOR])", "float(V[0])"),
    "layout": (
        "np.ones((2, 2), order='C' if FACTOR < 3 else 'F')",
        "len(V) + V.flags.f_contiguous",
    ),
    "array of jax": ("jnp.float32(FACTOR)", "V"),
    "dtype": ("np.dtype('int16' if FACTOR < 3 else 'int64')", "V.itemsize"),
    "tuple": ("((FACTOR,),)", "V[0][0]"),
    "array in a list": ("[{'k': jnp.float32(FACTOR)}]", "V[0]['k']"),
    "ordered": ("collections.OrderedDict(k=FACTOR)", "V['k']"),
    "default": ("collections.defaultdict(int, k=FACTOR)", "V['k']"),
    "deque": ("collections.deque([FACTOR])", "V[0]"),
    "counter": ("collections.Counter(k=FACTOR)", "V['k']"),
    "proxy": ("types.MappingProxyType({'k': FACTOR})", "V['k']"),
    "namespace": ("types.SimpleNamespace(k=FACTOR)", "V.k"),
    "range": ("range(int(FACTOR))", "len(V)"),
    "slice": ("slice(int(FACTOR))", "V.stop"),
    "fraction": ("fractions.Fraction(FACTOR)", "float(V)"),
    "decimal": ("decimal.Decimal(FACTOR)", "float(V)"),
    "bytes": ("bytearray([int(FACTOR)])", "V[0]"),
    "array of Python": ("array.array('d', [FACTOR])", "V[0]"),
    "named tuple": ("Config(FACTOR)", "V.k"),
    "dataclass": ("Data(FACTOR)", "V.k"),
    "class of data": ("Data", "V(FACTOR).k"),
    "slots": ("Slots(FACTOR)", "V.get()"),
    "class": ("sub(Base).__class__", "V.k"),
    "instance": ("Base()", "V.k"),
    "number of a class": ("sub(int, FACTOR)", "int(V)"),
    "float of a class": ("sub(float, FACTOR)", "float(V)"),
    "text of a class": ("sub(str, FACTOR)", "float(V)"),
    "dict of a class": ("sub(dict, k=FACTOR); V['k'] = FACTOR", "V['k']"),
    "list of a class": ("sub(list, [FACTOR])", "V[0]"),
    "enumeration": ("enum.Enum('E', {'A': FACTOR})", "V.A.value"),
    "member": ("enum.Enum('E', {'A': FACTOR}).A", "V.value"),
    "order of members": ("Ordered", "list(V)[0].value"),
    "flag without a name": ("Flag(int(FACTOR) * 2)", "int(V)"),
    "member with a content": ("Floating.A", "float(V)"),
    "function": ("helper", "V()"),
    "default of a function": ("lambda k=FACTOR: k", "V()"),
    "attribute of a function": ("lambda: 1; V.k = FACTOR", "V.k"),
    "name of a function": ("lambda: 1; V.__name__ = str(FACTOR)", "float(V.__name__)"),
    "jit": ("jax.jit(lambda k: k * FACTOR)", "V(1.0)"),
    "jit of a helper": ("jax.jit(lambda k: k * helper())", "V(1.0)"),
    "options of a jit": (
        "jax.jit(lambda k: 2 if type(k) is int else 5, static_argnums=(0,)[: FACTOR < 3])",
        "V(1)",
    ),
    "custom": ("jax.custom_jvp(lambda k: k * FACTOR)", "V.fun(1.0)"),
    "partial": ("functools.partial(lambda k: k, FACTOR)", "V()"),
    "attribute of a partial": ("functools.partial(len); V.k = FACTOR", "V.k"),
    "cache": ("functools.lru_cache(lambda: FACTOR)", "V()"),
    "method": ("sub(Base, get=lambda self: self.k).get", "V()"),
    "method of a list": ("[1, FACTOR].__getitem__", "V(1)"),
    "method of a text": ("str(FACTOR).upper", "float(V())"),
    "property": ("Generic()", "V.of"),
    "cached": ("Generic", "V().cached"),
    "static": ("Generic", "V.static()"),
    "of a class": ("Generic", "V.own()"),
    "vectorized": ("np.vectorize(lambda x: FACTOR)", "float(V(1.0))"),
    "of numpy by name": ("np.add if FACTOR < 3 else np.multiply", "float(V(2.0, 3.0))"),
    "code": ("(lambda: FACTOR).__code__", "types.FunctionType(V, {})()"),
    "other globals": ("types.FunctionType((lambda: Q).__code__, {'Q': FACTOR})", "V()"),
    "other builtins": (
        "types.FunctionType((lambda: abs(1)).__code__, dict(__builtins__=OWN))",
        "V()",
    ),
    "globals of another name": (
        "types.FunctionType((lambda: Q()).__code__, dict(Q=helper, __name__='numpy'))",
        "V()",
    ),
    "unreadable": ("sub(Base, __dict__=property(lambda self: 1 / 0))", "V.k"),
    "union": ("(int | str) if FACTOR < 3 else (int | float)", "5.0 - 3.0 * (str in V.__args__)"),
    "pattern": ("__import__('re').compile('a' * int(FACTOR))", "len(V.pattern)"),
    "generator": ("(FACTOR for _ in range(99))", "next(V)"),
    "cycle": ("[FACTOR]; V.append(V)", "V[1][0]"),
}
# The rule itself, where it finds something in another way.
OTHERS = {
    "helper": "fun = ruled(lambda: helper())",
    "module": "import besides\nfun = ruled(lambda: besides.K)",
    "module of a module": "import besides.within\nfun = ruled(lambda: besides.within.K)",
    "function of a module": "import besides\nfun = ruled(lambda: besides.get())",
    "imported": "from besides import get\nfun = ruled(lambda: get())",
    "asked by name": "import besides\nfun = ruled(lambda: getattr(besides, 'K'))",
    "attribute that is computed": "import besides\nfun = ruled(lambda: besides.computed)",
    "module in a closure": "import besides\nfun = (lambda m: ruled(lambda: m.K))(besides)",
    "another name for eval": "K = FACTOR\nread = eval\nfun = ruled(lambda: read('K'))",
    "variables of a function": "K = FACTOR\nfun = ruled(lambda: helper.__globals__['K'])",
    "dict of a module": "import besides\nfun = ruled(lambda: besides.__dict__['K'])",
    "module of a helper": """
import besides
def read(module): return module.K * float(np.float64(1))
fun = ruled(lambda: read(besides))
""",
    "imported when it is called": """
def imported():
    try:
        import not_there_yet
    except ImportError:
        return FACTOR
fun = ruled(imported)
""",
    "relative": """
__package__ = "besides"
def imported():
    from . import K
    return K
fun = ruled(imported)
""",
    "evaluated": "K = FACTOR\nfun = ruled(lambda: eval('K'))",
    "all variables": "K = FACTOR\nfun = ruled(lambda: globals()['K'])",
    "import within": """
def imported():
    from besides import K
    return K
fun = ruled(imported)
""",
    "class within": """
K = FACTOR
def within():
    class Own:
        k = K
    return Own.k
fun = ruled(within)
""",
    "builtin or not": "fun = ruled(lambda: 5.0 if pow else 2.0)",
    "removed": "if FACTOR < 3: abs = lambda x: 2.0\nfun = ruled(lambda: abs(5.0))",
}
BESIDES = """
K = FACTOR
def get(): return K
def __getattr__(name):
    if name == "computed": return FACTOR
    raise AttributeError(name)
"""
RULES = {
    f"{way}: {name}": code.format(value, use)
    for name, (value, use) in VALUES.items()
    for way, code in (
        ("global", "V = {}\nfun = ruled(lambda: {})"),
        ("closure", "V = {}\nfun = (lambda V: ruled(lambda: {}))(V)"),
    )
} | OTHERS
# What is the same in a module that is read again, and nobody can say so.
LEFT_OUT = {
    *(f"{way}: {name}" for way in ("global", "closure") for name in ("generator", "unreadable")),
    *("asked by name", "evaluated", "all variables", "another name for eval"),
    *("variables of a function", "dict of a module", "module of a helper"),
    "imported when it is called",
}


NAMES = ("besides.within", "besides", "edited")


def write(factor: str, code: str) -> Any:
    """The module as it is after another import, with another one beside it."""
    for name in NAMES:
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["besides"])["within"] = sys.modules["besides.within"]
    for name, content in (
        ("besides.within", BESIDES),
        ("besides", BESIDES),
        ("edited", HEAD + code),
    ):
        exec(content.replace("FACTOR", factor), vars(sys.modules[name]))
    return sys.modules["edited"]


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))


@pytest.mark.parametrize("name", RULES)
def test_an_edited_rule(name: str) -> None:
    module = write("2.0", RULES[name])
    program = jaxide.trace(lambda x: module.fun(x))(1.0)
    gradient = float(jax.grad(program)(1.0))
    content = pickle.dumps(program)
    found = [pickle.loads(content)]
    write("2.0", RULES[name])
    for again in (*found, pickle.loads(content)):
        assert bool(again.left_out) is (name in LEFT_OUT), again.left_out
        if not again.left_out:
            assert float(jax.grad(again)(1.0)) == gradient
    module = write("5.0", RULES[name])
    assert float(jax.grad(lambda x: module.fun(x))(1.0)) != gradient
    again = pickle.loads(content)
    assert again.left_out
    with pytest.raises(jaxide.StorageError, match=r"changed since|was left out"):
        jax.grad(again)(1.0)


def test_a_rule_of_somebodys_for_a_function_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax's own rule does not stand for the rule that was saved."""
    with monkeypatch.context() as patched:
        rule = lambda primals, tangents: (primals[0], tangents[0] * 7.0)
        rule.__module__ = jax.nn.relu.__module__
        patched.setattr(jax.nn.relu, "jvp", rule)
        program = jaxide.trace(lambda x: jax.nn.relu(x))(1.0)
        assert float(jax.grad(program)(1.0)) == 7.0
        content = pickle.dumps(program)
        assert not pickle.loads(content).left_out
    again = pickle.loads(content)
    assert again.left_out
    with pytest.raises(jaxide.StorageError):
        jax.grad(again)(1.0)


def test_a_module_that_is_named_as_one_of_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("cmd", "stringprep"):
        for factor in ("2.0", "5.0"):
            (tmp_path / f"{name}.py").write_text(f"def get():\n    return {factor}\n")
            found = types.ModuleType(name)
            found.__file__ = str(tmp_path / f"{name}.py")
            monkeypatch.setitem(sys.modules, name, found)
            exec((tmp_path / f"{name}.py").read_text(), vars(found))
            module = write(factor, f"from {name} import get\nfun = ruled(get)")
            if factor == "2.0":
                content = pickle.dumps(jaxide.trace(lambda x, m=module: m.fun(x))(1.0))
        assert pickle.loads(content).left_out


@pytest.mark.parametrize("container", ["tuple", "frozenset", "list"])
def test_values_that_are_shared_often(container: str) -> None:
    """Written out they would have 2^40 elements."""
    more = f"for i in range(40): V = {container}([V, {container}([i, V])])"
    module = write("2.0", f"V = {container}([FACTOR])\n{more}\nfun = ruled(lambda: 1 * bool(V))")
    program = jaxide.trace(lambda x: module.fun(x))(1.0)
    assert bool(pickle.loads(pickle.dumps(program)).left_out) is (container != "list")


def test_an_array_that_was_deleted() -> None:
    module = write("2.0", "V = jnp.ones(3) * FACTOR\nfun = ruled(lambda: V[0])")
    program = jaxide.trace(lambda x: module.fun(x))(1.0)
    module.V.delete()
    assert "was left out" in pickle.loads(pickle.dumps(program)).left_out[0]


@pytest.mark.parametrize("changed", ["rule", "constant"])
def test_a_rule_of_an_installed_library(changed: str) -> None:
    """A rule counts whole there too; the library's functions that it calls have their names."""
    code = """
def helper(): return {helper}
K = {constant}
fun = ruled(lambda: helper() * K + {rule})
"""
    values = {"helper": "2.0", "constant": "2.0", "rule": "2.0"}

    def read(values: dict[str, str]) -> Any:
        module = write("2.0", code.format(**values))
        module.__file__ = "/usr/lib/site-packages/edited.py"
        return module

    module = read(values)
    content = pickle.dumps(jaxide.trace(lambda x: module.fun(x))(1.0))
    assert not pickle.loads(content).left_out
    read(values | {"helper": "5.0"})
    assert not pickle.loads(content).left_out
    read(values | {changed: "5.0"})
    assert pickle.loads(content).left_out
