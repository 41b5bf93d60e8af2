"""Objects that are changed in place, and side effects of functions."""

from __future__ import annotations

import array as arrays
import collections
import copy
import gc
import itertools
import logging
import random
import time
import weakref
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from world.world import array, attribute, item, kind, module

CONTENT = "content of mutable values"
EFFECTS = "side effects of functions"


def filled(array, old, new):
    def change(on):
        array[...] = new if on else old

    return change


@kind(CONTENT)
def numpy_array():
    a = np.full(3, 2.0, np.float32)
    return lambda x: x * a, filled(a, 2.0, 7.0)


@kind(CONTENT)
def numpy_array_of_a_module():
    users = module(
        "import numpy as np\nA = np.full(3, 2.0, 'float32')\ndef f(x):\n  return x * A\n"
    )
    return users.f, filled(users.A, 2.0, 7.0)


@kind(CONTENT)
def large_numpy_array():
    a = np.full((1000, 3), 2.0, np.float32)
    return lambda x: x * a.sum(0), filled(a, 2.0, 7.0)


@kind(CONTENT)
def large_numpy_array_as_constant():
    a = np.full((1000, 3), 2.0, np.float32)
    return lambda x: (x * a)[0], filled(a, 2.0, 7.0)


@kind(CONTENT)
def numpy_array_without_dimensions():
    a = np.array(2.0, np.float32)
    return lambda x: x * a, lambda on: a.fill(7.0 if on else 2.0)


@kind(CONTENT)
def element_of_a_numpy_array():
    a = np.full(3, 2.0, np.float32)
    return lambda x: x * float(a[0]), filled(a, 2.0, 7.0)


@kind(CONTENT)
def view_of_a_numpy_array():
    a = np.full((3, 3), 2.0, np.float32)
    view = a[1]
    return lambda x: x * view, filled(a, 2.0, 7.0)


@kind(CONTENT)
def read_only_view_of_a_numpy_array():
    a = np.full(3, 2.0, np.float32)
    view = a[:]
    view.flags.writeable = False
    return lambda x: x * view, filled(a, 2.0, 7.0)


@kind(CONTENT)
def indices_in_a_numpy_array():
    a = np.array([0, 1, 2])
    return lambda x: x[a], filled(a, [0, 1, 2], [2, 1, 0])


@kind(CONTENT)
def mask_in_a_numpy_array():
    a = np.array([True, True, False])
    return lambda x: x + x[a].sum(), filled(a, [True, True, False], [True, False, False])


@kind(CONTENT)
def shape_of_a_numpy_array():
    a = np.full((3, 1), 2.0, np.float32)

    def change(on):
        if hasattr(a, "_set_shape"):
            a._set_shape((1, 3) if on else (3, 1))
        else:
            a.shape = (1, 3) if on else (3, 1)

    return lambda x: (x * a).sum(0), change


@kind(CONTENT)
def dtype_of_a_numpy_array():
    a = np.full(3, 2.0, np.float32)

    def change(on):
        a.dtype = np.int32 if on else np.float32

    return lambda x: (x * a).astype(jnp.float32), change


@kind(CONTENT)
def structured_numpy_array():
    a = np.zeros(1, [("gain", np.float32)])
    a["gain"] = 2.0
    return lambda x: x * float(a["gain"][0]), lambda on: a["gain"].fill(7.0 if on else 2.0)


@kind(CONTENT)
def bytearray_of_a_closure():
    data = bytearray([2])
    return lambda x: x * data[0], item(data, 0, 7)


@kind(CONTENT)
def memoryview_of_a_closure():
    data = bytearray([2])
    view = memoryview(data)
    return lambda x: x * view[0], item(data, 0, 7)


@kind(CONTENT)
def array_of_the_standard_library():
    data = arrays.array("f", [2.0])
    return lambda x: x * data[0], item(data, 0, 7.0)


@kind(CONTENT)
def list_of_a_closure():
    data = [2.0]
    return lambda x: x * data[0], item(data, 0, 7.0)


@kind(CONTENT)
def list_that_grows():
    data = [2.0]

    def change(on):
        data.append(7.0) if on else data.pop()

    return lambda x: x * len(data) + sum(data), change


@kind(CONTENT)
def shape_in_a_list():
    data = [3]
    return lambda x: jnp.broadcast_to(x, [*data, 3])[0] + jnp.zeros(data).sum(), item(data, 0, 4)


@kind(CONTENT)
def dict_of_a_closure():
    data = {"gain": 2.0}
    return lambda x: x * data["gain"], item(data, "gain", 7.0)


@kind(CONTENT)
def order_of_a_dict():
    data = {"a": 2.0, "b": 3.0}

    def change(on):
        data["a"] = data.pop("a")
        if not on:
            data["b"] = data.pop("b")

    return lambda x: x * next(iter(data.values())), change


@kind(CONTENT)
def keyword_arguments_in_a_dict():
    data = {"axis": 0}
    return lambda x: x * jnp.outer(x, x).sum(**data), item(data, "axis", 1)


@kind(CONTENT)
def nested_containers():
    data = {"a": [(2.0, {"b": [2.0]})]}
    return lambda x: x * data["a"][0][1]["b"][0], item(data["a"][0][1]["b"], 0, 7.0)


@kind(CONTENT)
def list_within_a_tuple():
    data = ([2.0], 3.0)
    return lambda x: x * data[0][0], item(data[0], 0, 7.0)


@kind(CONTENT)
def set_of_a_closure():
    data = {2}

    def change(on):
        data.add(7) if on else data.discard(7)

    return lambda x: x * len(data) + sum(data), change


@kind(CONTENT)
def deque_of_a_closure():
    data = collections.deque([2.0])
    return lambda x: x * data[0], item(data, 0, 7.0)


@kind(CONTENT)
def default_dict_of_a_closure():
    data = collections.defaultdict(lambda: 2.0)
    return lambda x: x * data["a"], item(data, "a", 7.0), lambda: sorted(data)


@kind(CONTENT)
def chain_map_of_a_closure():
    inner = {"a": 2.0}
    data = collections.ChainMap({}, inner)
    return lambda x: x * data["a"], item(inner, "a", 7.0)


@kind(CONTENT)
def view_of_a_dict():
    inner = {"a": 2.0}
    view = inner.values()
    return lambda x: x * sum(view), item(inner, "a", 7.0)


@kind(CONTENT)
def mapping_proxy_of_a_dict():
    import types

    inner = {"a": 2.0}
    view = types.MappingProxyType(inner)
    return lambda x: x * view["a"], item(inner, "a", 7.0)


@kind(CONTENT)
def simple_namespace():
    import types

    data = types.SimpleNamespace(gain=2.0)
    return lambda x: x * data.gain, attribute(data, "gain", 7.0)


@kind(CONTENT)
def captured_array_is_another():
    holder = [array(2.0)]
    return lambda x: x * holder[0], item(holder, 0, array(7.0))


@kind(CONTENT)
def captured_array_of_another_type():
    holder = [array(2.0)]
    return lambda x: (x * holder[0]).astype("float32"), item(holder, 0, array(2.0, "float16"))


@kind(CONTENT)
def element_of_a_captured_array():
    holder = [array(2.0)]
    return lambda x: x * float(np.asarray(holder[0])[0]), item(holder, 0, array(7.0))


@kind(CONTENT)
def captured_array_is_deleted():
    holder = [array(2.0)]

    def change(on):
        if on:
            holder[0].delete()
        else:
            holder[0] = array(2.0)

    return lambda x: x * holder[0], change


@kind(CONTENT)
def content_of_a_ref():
    ref = jax.new_ref(jnp.full(3, 2.0))

    def change(on):
        ref[...] = array(7.0 if on else 2.0)

    return lambda x: x * ref[...], change


@kind(CONTENT)
def iterator_is_consumed():
    state = [iter(range(2, 1000))]

    def change(on):
        next(state[0])

    return lambda x: x * next(state[0]), change


@kind(CONTENT)
def generator_is_consumed():
    def numbers():
        n = 2.0
        while True:
            yield n
            n += 1

    generator = numbers()
    return lambda x: x * next(generator), lambda on: next(generator)


@kind(CONTENT)
def weak_reference_dies():
    class Own:
        gain = 7.0

    state = {"own": Own()}
    reference = weakref.ref(state["own"])

    def change(on):
        if on:
            del state["own"]
            gc.collect()
        else:
            state["own"] = Own()

    return lambda x: x * 2 if reference() is None else x * reference().gain, change


@kind(CONTENT)
def weak_dictionary():
    class Own:
        pass

    state = {"own": Own()}
    known = weakref.WeakKeyDictionary({state["own"]: 1})

    def change(on):
        if on:
            del state["own"]
            gc.collect()
        else:
            state["own"] = Own()
            known[state["own"]] = 1

    return lambda x: x * (2 + len(known)), change


@kind(CONTENT)
def finalizer_of_an_object():
    state = {"gain": 2.0}

    class Own:
        def __del__(self):
            state["gain"] = 7.0

    kept = [Own()]

    def change(on):
        if on:
            kept.clear()
            gc.collect()
        else:
            state["gain"] = 2.0

    return lambda x: x * state["gain"], change


# ---- side effects ----


def _effect(statement: str, observe: str, before: str = ""):
    """A function of a module that leaves something behind.

    That is taken away after each trace, so that what the function reads is the same each time.
    """
    users = module(
        f"import numpy as np, collections, itertools, jax.numpy as jnp\nG = 2.0\n{before}\n"
        f"def g(x):\n  {statement}\n  return x * G\ndef f(x):\n  return jnp.sin(g(x))\n"
    )
    seen = compile(observe, "observed", "eval")
    values = {name: vars(users).get(name) for name in ("M", "N")}
    kept = {n: v if isinstance(v, Iterator) else copy.copy(v) for n, v in values.items()}

    def observed():
        left = copy.copy(eval(seen, vars(users)))
        for name, value in kept.items():
            _put_back(users, name, value)
        vars(users.g).clear()
        return left

    return users.f, attribute(users, "G", 7.0), observed


def _put_back(users, name, value):
    """Gives a variable, or what is in it, its first value."""
    now = getattr(users, name, None)
    match value:
        case np.ndarray():
            now[...] = value
        case list():
            now[:] = value
        case dict() | set():
            now.clear()
            now.update(value)
        case collections.deque():
            now.clear()
            now.extend(value)
        case int():
            setattr(users, name, value)
        case type():
            value.n = 0
        case _ if type(value).__name__ == "C" and hasattr(value, "__dict__"):
            vars(now).clear()


@kind(EFFECTS)
def counts_in_a_numpy_array():
    return _effect("N[0] += 1", "N.tolist()", "N = np.zeros(1, int)")


@kind(EFFECTS)
def counts_in_a_numpy_array_by_add():
    return _effect("np.add(N, 1, out=N)", "N.tolist()", "N = np.zeros(1, int)")


@kind(EFFECTS)
def counts_in_a_numpy_array_by_fill():
    return _effect("N.fill(N[0] + 1)", "N.tolist()", "N = np.zeros(1, int)")


@kind(EFFECTS)
def counts_by_at():
    return _effect("np.add.at(N, 0, 1)", "N.tolist()", "N = np.zeros(1, int)")


@kind(EFFECTS)
def counts_in_a_list():
    return _effect("N.append(1)", "len(N)", "N = []")


@kind(EFFECTS)
def counts_in_an_item_of_a_list():
    return _effect("N[0] += 1", "N", "N = [0]")


@kind(EFFECTS)
def counts_by_adding_a_list():
    return _effect("n = N; n += [1]", "len(N)", "N = []")


@kind(EFFECTS)
def counts_in_a_dict():
    return _effect("N['n'] = N.get('n', 0) + 1", "N", "N = {}")


@kind(EFFECTS)
def counts_by_update():
    return _effect("N.update(n=N.get('n', 0) + 1)", "N", "N = {}")


@kind(EFFECTS)
def counts_by_setdefault():
    return _effect("N.setdefault(len(N), 1)", "N", "N = {}")


@kind(EFFECTS)
def counts_in_a_set():
    return _effect("N.add(len(N))", "len(N)", "N = set()")


@kind(EFFECTS)
def counts_in_a_deque():
    return _effect("N.append(1)", "len(N)", "N = collections.deque()")


@kind(EFFECTS)
def counts_in_a_counter():
    return _effect("N['n'] += 1", "dict(N)", "N = collections.Counter()")


@kind(EFFECTS)
def counts_in_an_attribute():
    return _effect("N.n = N.n + 1", "N.n", "class N: n = 0")


@kind(EFFECTS)
def counts_by_setattr():
    return _effect("setattr(N, 'n', N.n + 1)", "N.n", "class N: n = 0")


@kind(EFFECTS)
def counts_in_an_attribute_of_the_function():
    return _effect("g.n = getattr(g, 'n', 0) + 1", "getattr(g, 'n', 0)")


@kind(EFFECTS)
def counts_in_a_global():
    return _effect("global N; N = N + 1", "N", "N = 0")


@kind(EFFECTS)
def counts_by_globals():
    return _effect("globals()['N'] += 1", "N", "N = 0")


@kind(EFFECTS)
def counts_by_itertools():
    return _effect("next(N)", "repr(N)", "N = itertools.count()")


@kind(EFFECTS)
def counts_by_a_generator():
    return _effect("next(N)", "M", "M = []\nN = (M.append(i) for i in itertools.count())")


@kind(EFFECTS)
def counts_by_a_method():
    return _effect("N.tick()", "N.n", "class C:\n  n = 0\n  def tick(self): self.n += 1\nN = C()")


@kind(EFFECTS)
def counts_by_a_property():
    return _effect(
        "N.tick",
        "N.n",
        "class C:\n  n = 0\n  @property\n  def tick(self): self.n += 1\nN = C()",
    )


@kind(EFFECTS)
def counts_by_an_operator():
    return _effect(
        "N + 1", "N.n", "class C:\n  n = 0\n  def __add__(self, o): self.n += 1\nN = C()"
    )


@kind(EFFECTS)
def counts_by_a_property_of_a_namedtuple():
    return _effect(
        "N.tick",
        "M",
        "from typing import NamedTuple\nM = []\nclass C(NamedTuple):\n  a: int\n  @property\n"
        "  def tick(self): M.append(1)\nN = C(1)",
    )


@kind(EFFECTS)
def counts_by_iteration():
    return _effect(
        "[*N]",
        "M",
        "M = []\nclass C(tuple):\n  def __iter__(self): M.append(1); return iter(())\nN = C()",
    )


@kind(EFFECTS)
def counts_by_indexing():
    return _effect(
        "N[0]", "M", "M = []\nclass C(dict):\n  def __missing__(self, k): M.append(k)\nN = C()"
    )


@kind(EFFECTS)
def counts_by_formatting():
    return _effect(
        "f'{N}'", "M", "M = []\nclass C:\n  def __str__(self): M.append(1); return ''\nN = C()"
    )


@kind(EFFECTS)
def counts_by_map():
    return _effect("[*map(M.append, [1])]", "len(M)", "M = []")


@kind(EFFECTS)
def counts_by_a_key_of_sorted():
    return _effect("sorted([1], key=lambda v: M.append(v) or 0)", "len(M)", "M = []")


@kind(EFFECTS)
def counts_by_a_bound_method():
    return _effect("tick(1)", "len(M)", "M = []\ntick = M.append")


@kind(EFFECTS)
def counts_by_a_bound_method_of_an_array():
    return _effect("tick(M[0] + 1)", "M.tolist()", "M = np.zeros(1)\ntick = M.fill")


@kind(EFFECTS)
def counts_within_a_comprehension():
    return _effect("[M.append(v) for v in (1,)]", "len(M)", "M = []")


@kind(EFFECTS)
def counts_by_pop():
    return _effect("M.pop()", "len(M)", "M = [0] * 10000")


@kind(EFFECTS)
def counts_by_deletion():
    return _effect("del M[0]", "len(M)", "M = [0] * 10000")


@kind(EFFECTS)
def counts_by_reduction_with_a_keyword():
    return _effect("np.sum(M, out=N)", "N.tolist()", "M = np.ones(3)\nN = np.zeros(())")


@kind(EFFECTS)
def counts_in_a_ref_of_jax():
    return _effect("N[...] += 1", "0", "import jax\nN = jax.new_ref(jnp.zeros(()))")


@kind(EFFECTS)
def random_numbers_of_python():
    rng = random.Random(0)
    return lambda x: x * rng.random(), lambda on: rng.random(), lambda: repr(rng.getstate())


@kind(EFFECTS)
def random_numbers_of_the_module():
    random.seed(0)
    return lambda x: x * random.random(), lambda on: random.seed(int(on)), random.getstate


@kind(EFFECTS)
def random_numbers_of_numpy():
    np.random.seed(0)
    return (
        lambda x: x * np.random.rand(),
        lambda on: np.random.seed(int(on)),
        lambda: np.random.get_state()[2],
    )


@kind(EFFECTS)
def random_generator_of_numpy():
    rng = np.random.default_rng(0)
    return lambda x: x * rng.random(), lambda on: rng.random(), lambda: rng.bit_generator.state


@kind(EFFECTS)
def the_clock():
    now = itertools.count()
    users = module("import time\ndef f(x):\n  return x * time.clock_gettime(0)\n")
    time.clock_gettime = lambda clock: next(now)
    return users.f, lambda on: next(now), lambda: repr(now)


@kind(EFFECTS)
def prints():
    import io
    import sys

    sys.stdout = io.StringIO()
    users = module("G = 2.0\ndef f(x):\n  print('called', G)\n  return x * G\n")
    return users.f, attribute(users, "G", 7.0), lambda: sys.stdout.getvalue()


@kind(EFFECTS)
def logs():
    import io

    stream = io.StringIO()
    logger = logging.getLogger("world")
    logger.addHandler(logging.StreamHandler(stream))
    users = module(
        "import logging\nG = 2.0\ndef f(x):\n"
        "  logging.getLogger('world').warning('called')\n  return x * G\n"
    )
    return users.f, attribute(users, "G", 7.0), stream.getvalue


@kind(EFFECTS)
def warns():
    users = module(
        "import warnings\nG = 2.0\ndef f(x):\n  warnings.warn('called')\n  return x * G\n"
    )
    return users.f, attribute(users, "G", 7.0)


@kind(EFFECTS)
def reads_a_file():
    import tempfile

    file = tempfile.NamedTemporaryFile("w+", delete=False)

    def write(text):
        file.seek(0)
        file.write(text)
        file.flush()

    write("2.0")

    def f(x):
        with open(file.name) as source:
            return x * float(source.read())

    return f, lambda on: write("7.0" if on else "2.0")


@kind(EFFECTS)
def reads_an_open_file():
    import io

    file = io.StringIO("\n".join(map(str, range(5000))))
    return lambda x: x * float(file.readline()), lambda on: file.readline(), file.tell
