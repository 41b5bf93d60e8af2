"""Programs as Python source code that rebuilds their functions.

Each program becomes a function, each equation a call. A call of a public function of jax is written
only where it was tried and made exactly this equation: same primitive, params, operands and types
of results. Any other equation is written as ``_bind(name, ...)``, with its params spelled out.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxide import _compat, _core
from jaxide._export import python_helpers as helpers
from jaxide._export.expressions import (
    TAKEN,
    Unwritable,
    array,
    dtype,
    expression,
    identifier,
    is_extended,
    literal,
)
from jaxide._export.model import Equation, Params, ProgramModel
from jaxide._native.bounded import Bounded

# Equations that are traced to try calls of programs: so many for each of the program.
TRIED = 8

# Expressions of operands to the expression of a call.
Write = Callable[[Sequence[str]], str]

# Calls that were tried, by all that they depend on.
_TRIED = Bounded(4096)

# Functions of jax.lax that are not called as their primitives are.
NAMES = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}


def text(programs: Sequence[ProgramModel], *, drop_rules: bool, max_literal: float) -> str:
    """Source code of a program and those within it.

    Raises:
      NotImplementedError: an equation cannot be written.
    """
    return _Module(programs, drop_rules, max_literal).text()


def _has_64_bits(programs: Sequence[ProgramModel]) -> bool:
    """Whether a program has types that there are only where ``jax_enable_x64`` is set."""
    names = {"int64", "uint64", "float64", "complex128"}
    dtypes = {
        str(getattr(type_.aval, "dtype", ""))
        for program in programs
        for type_ in [*program.types, *(literal.type for literal in program.literals)]
    }
    return not names.isdisjoint(dtypes)


class _Module:
    def __init__(self, programs: Sequence[ProgramModel], drop_rules: bool, max_literal: float):
        self._programs = programs
        self._drop_rules = drop_rules
        self._max_literal = max_literal
        self._x64 = _has_64_bits(programs)
        # What the source code says is said here too, so that calls can be tried.
        self._scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": lax}
        self._scope |= {name: f for name, f in vars(helpers).items() if name.startswith("_")}
        self._functions = _function_names(programs)
        self._definitions: list[str] = []
        # Wrapped functions that were defined, by what they are.
        self._wrapped: dict[str, str] = {}
        self._calls: dict[Any, tuple[Write, bool]] = {}
        self._sizes: dict[int, int] = {}
        self._budget = TRIED * sum(len(program.equations) for program in programs) + 10_000

    def text(self) -> str:
        with jax.enable_x64(self._x64):
            for place in _innermost_first(self._programs):
                self._define(place)
        main = self._programs[0]
        name = self._functions[0]
        body = "\n\n\n".join(self._definitions)
        x64 = [f"    with jax.enable_x64(True):  # and {name} itself"] if self._x64 else []
        trace = f"jax.make_jaxpr({name})(*ARGUMENTS)"
        lines = [
            f'"""{_plain(main.name)}, rebuilt from its jaxpr by jaxide {version("jaxide")}, jax '
            f"{jax.__version__}.",
            "",
            "The jaxpr again:",
            "",
            *x64,
            f"    {'    ' * bool(x64)}{trace}",
            '"""',
            "",
        ]
        functions = self._used_helpers(body)
        needed = [("functools", "import functools"), ("jax.", "import jax")]
        code = "\n\n\n".join([*functions, body])
        imports = [line for word, line in needed if word in code or word == "jax."]
        imports += ["import jax.numpy as jnp"] * ("jnp." in code)
        imports += ["import numpy as np"] * ("np." in code)
        imports += ["from jax import lax"] * ("lax." in code)
        if "ad." in code:
            imports.append("from jax.interpreters import ad")
        return "\n".join([*lines, *imports, "\n"]) + "\n" + code + "\n"

    def _used_helpers(self, body: str) -> list[str]:
        """The text of the functions that the code calls, and of those that these call."""
        sources = _helper_texts()
        used: set[str] = set()
        pending = [body]
        while pending:
            code = pending.pop()
            for name in sources.keys() - used:
                if f"{name}(" in code:
                    used.add(name)
                    pending.append(sources[name])
        return [text for name, text in sources.items() if name in used]

    # ---- functions -------------------------------------------------------------------------------

    def _define(self, place: int) -> None:
        """Writes the function of a program whose equations' programs are written."""
        program, function = self._programs[place], self._functions[place]
        names = _variable_names(program, set(self._functions))
        atom: Callable[[int], str] = lambda a: names[a] if a >= 0 else self._literal(program, a)
        large = []
        for number, value in enumerate(program.constants):
            written = self._constant(place, number, value)
            if written is None:
                large.append(names[number])
                continue
            names[number] = f"{function}_{names[number]}"
            definition = f"{names[number]} = {written}"
            self._run(definition)
            self._definitions.append(definition)
        lines, last = [], ""
        if large:
            lines.append(f"{', '.join(large)}, = consts")
        for position, eqn in enumerate(program.equations):
            try:
                write, is_list = self._call(program, eqn)
            except Unwritable as reason:
                raise NotImplementedError(
                    f"equation {position} of {program.name} ({eqn.primitive.name}) at {eqn.line} "
                    f"cannot be written as source code: {reason}"
                ) from None
            call = write([atom(a) for a in eqn.inputs])
            outs = [names[out] for out in eqn.outputs]
            if outs:
                targets = ", ".join(outs) + ("," if is_list and len(outs) == 1 else "")
                call = f"{targets} = {call}"
            comment = f"  # {_plain(eqn.line)}" if eqn.line not in (last, "unknown") else ""
            last = eqn.line
            lines.append(call + comment)
        returned = ", ".join(atom(a) for a in program.outputs)
        if place or len(program.outputs) != 1:
            returned = f"({returned},)" if len(program.outputs) == 1 else f"({returned})"
        lines.append(f"return {returned}")
        arguments = [names[var] for var in program.inputs] + (["*", "consts"] if large else [])
        head = f"def {function}({', '.join(arguments)}):"
        x64 = self._x64 and place == 0
        if x64:
            lines = ["with jax.enable_x64(True):", *(f"    {line}" for line in lines)]
        definition = "\n".join([head, *(f"    {line}" for line in lines)])
        if place:
            self._run(definition)
            self._definitions.append(definition)
            return
        try:
            types = [self._type(program.variables[var].type.aval) for var in program.inputs]
        except Unwritable as reason:
            raise NotImplementedError(
                f"the inputs of {program.name} cannot be written as source code: {reason}"
            ) from None
        listed = "".join(f"    {type_},\n" for type_ in types)
        self._definitions += [
            definition,
            f"ARGUMENTS = (\n{listed})" if types else "ARGUMENTS = ()",
        ]

    def _run(self, code: str) -> None:
        exec(compile(code, "<to_python>", "exec"), self._scope)

    def _constant(self, place: int, number: int, value: Any) -> str | None:
        """The expression of a constant; None where it is large, and an argument."""
        describe = f"constant {number} of {self._programs[place].name}"
        if not isinstance(value, (jax.Array, np.ndarray, np.generic)):
            raise NotImplementedError(f"{describe} is no array, but a {type(value).__name__}")
        if math.prod(value.shape) > self._max_literal:
            if place == 0:
                return None
            raise NotImplementedError(
                f"{describe} has {math.prod(value.shape):,} elements, and is of a nested program: "
                "raise max_literal to write it"
            )
        try:
            if isinstance(value, jax.Array) and is_extended(value.dtype):
                impl, data = str(jax.random.key_impl(value)), np.asarray(jax.random.key_data(value))
                return f"jax.random.wrap_key_data({array(data)}, impl={impl!r})"
            written = array(np.asarray(value))
        except Unwritable as reason:
            raise NotImplementedError(f"{describe} cannot be written: {reason}") from None
        return f"_constant({written})" if isinstance(value, jax.Array) else written

    def _literal(self, program: ProgramModel, atom: int) -> str:
        known = program.literals[-1 - atom]
        return literal(known.value, known.type.aval, self._x64)

    def _type(self, aval: Any) -> str:
        """The type of an argument."""
        if not isinstance(aval, jax.core.ShapedArray):
            raise Unwritable(f"the type {aval} is that of no array")
        if not all(isinstance(size, int) for size in aval.shape):
            raise Unwritable(f"the type {aval.str_short()} has a symbolic size")
        if aval.dtype == jax.dtypes.float0:
            raise Unwritable("a value of float0 has no expression")
        if not aval.sharding.mesh.empty:
            raise Unwritable(f"the type {aval.str_short()} has a mesh of this process")
        which = dtype(aval.dtype) if is_extended(aval.dtype) else repr(aval.dtype.name)
        weak = ", weak_type=True" if aval.weak_type else ""
        return f"_array({expression(tuple(aval.shape))}, {which}{weak})"

    # ---- equations -------------------------------------------------------------------------------

    def _call(self, program: ProgramModel, eqn: Equation) -> tuple[Write, bool]:
        """How an equation is written, and whether the call returns several results."""
        key = (
            id(eqn.params),
            *(
                id(program.variables[a].type) if a >= 0 else self._literal(program, a)
                for a in eqn.inputs
            ),
        )
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = self._new_call(program, eqn)
        return known

    def _new_call(self, program: ProgramModel, eqn: Equation) -> tuple[Write, bool]:
        name = eqn.primitive.name
        if name in ("custom_jvp_call", "custom_vjp_call") and not self._drop_rules:
            raise Unwritable(
                "its derivative rule is a function of this process; drop_rules=True leaves it out"
            )
        if not eqn.params.programs:
            key = self._what(program, eqn)
            if key is not None:
                tried: tuple[Write, bool] = _TRIED.get(key, lambda: self._tried_call(program, eqn))
                return tried
        return self._tried_call(program, eqn)

    def _what(self, program: ProgramModel, eqn: Equation) -> Any:
        """All that the call of an equation without programs depends on; None where that cannot be
        said."""
        constants = len(program.constants)
        operands = [
            (a < constants, program.variables[a].type.aval) if a >= 0 else self._literal(program, a)
            for a in eqn.inputs
        ]
        results = [program.variables[out].type.aval for out in eqn.outputs]
        try:
            params = expression(dict(eqn.params.values))
        except Unwritable:
            return None
        return eqn.primitive, params, tuple(operands), tuple(results), self._x64

    def _tried_call(self, program: ProgramModel, eqn: Equation) -> tuple[Write, bool]:
        name = eqn.primitive.name
        candidates = self._with_programs(program, eqn) if eqn.params.programs else _public(eqn)
        if not eqn.params.programs and any(
            0 <= atom < len(program.constants) for atom in eqn.inputs
        ):
            # Public functions look into arrays that are there.
            candidates = []
        cost = 1 + sum(self._size(place) for place in eqn.params.places)
        for write in candidates:
            if cost > self._budget:
                break
            self._budget -= cost
            is_list = self._tried(program, eqn, write)
            if is_list is not None:
                return write, is_list
        if candidates and eqn.params.programs and name in _AS_WELL:
            # What jax itself makes of the call; the equation came from a transformation.
            return candidates[0], True
        return self._bound(program, eqn), eqn.primitive.multiple_results

    def _size(self, place: int) -> int:
        """How many equations a program and those within it have."""
        if place not in self._sizes:
            program = self._programs[place]
            within = (p for eqn in program.equations for p in eqn.params.places)
            # Those within are written before, so that this does not go deep.
            self._sizes[place] = len(program.equations) + sum(map(self._size, within))
        return self._sizes[place]

    def _tried(self, program: ProgramModel, eqn: Equation, write: Write) -> bool | None:
        """Whether a call that makes exactly this equation returns several results; None where it
        makes another one."""
        operands, arguments, avals = [], [], []
        for number, atom in enumerate(eqn.inputs):
            if atom < 0:
                operands.append(self._literal(program, atom))
                continue
            operands.append(f"operand{number}")
            arguments.append(operands[-1])
            avals.append(program.variables[atom].type.aval)
        returned: list[Any] = []
        try:
            call = eval(f"lambda {', '.join(arguments)}: {write(operands)}", self._scope)

            def trial(*args: Any) -> Any:
                returned.append(call(*args))
                return returned[-1]

            made = jax.make_jaxpr(trial)(*map(_struct, avals))
        except Exception:
            return None
        inner = _compat.open_part(made)
        if len(inner.eqns) != 1 or inner.constvars:
            return None
        (only,) = inner.eqns
        variables = iter(inner.invars)
        for atom, operand in zip(eqn.inputs, only.invars, strict=False):
            if atom < 0:
                literal = program.literals[-1 - atom]
                if not hasattr(operand, "val") or operand.aval != literal.type.aval:
                    return None
                if not _same(np.asarray(operand.val), np.asarray(literal.value)):
                    return None
            elif operand is not next(variables, None):
                return None
        types = [program.variables[out].type.aval for out in eqn.outputs]
        is_same = (
            only.primitive is eqn.primitive
            and len(only.invars) == len(eqn.inputs)
            and [var.aval for var in only.outvars] == types
            and list(inner.outvars) == list(only.outvars)
            and _same(dict(only.params), dict(eqn.params.values))
        )
        return isinstance(returned[0], (list, tuple)) if is_same else None

    def _bound(self, program: ProgramModel, eqn: Equation) -> Write:
        """A call of the primitive itself."""
        name = eqn.primitive.name
        try:
            known = helpers._primitive(name)
        except LookupError:
            known = None
        if known is not eqn.primitive:
            raise Unwritable("the primitive cannot be found by its name")
        params = "".join(
            f", {key}={self._param(eqn.params, value)}" for key, value in eqn.params.values.items()
        )
        return lambda operands: f"_bind({', '.join([repr(name), *operands])}{params})"

    def _param(self, params: Params, value: Any) -> str:
        """A param of a primitive; programs in it are traced from their functions."""
        if id(value) in params.programs:
            place = params.programs[id(value)]
            helper = "_jaxpr" if _compat.closed_form(value) is value else "_open_jaxpr"
            if helper == "_open_jaxpr" and self._programs[place].constants:
                raise Unwritable("a nested program has constants")
            types = [
                self._type(self._programs[place].variables[var].type.aval)
                for var in self._programs[place].inputs
            ]
            return f"{helper}({', '.join([self._functions[place], *types])})"
        if type(value) is tuple:
            items = [self._param(params, item) for item in value]
            return f"({', '.join(items)},)" if len(items) == 1 else f"({', '.join(items)})"
        return expression(value)

    # ---- equations that run programs -------------------------------------------------------------

    def _with_programs(self, program: ProgramModel, eqn: Equation) -> list[Write]:
        """Calls of public functions that may make an equation that runs programs."""
        writer = _HIGHER_ORDER.get(eqn.primitive.name)
        if writer is None:
            return _public(eqn)

        def function(key: str) -> str:
            return self._functions[eqn.params.programs[id(eqn.params.values[key])]]

        try:
            written = writer(eqn, eqn.params.values, function)
        except (Unwritable, KeyError, AttributeError):
            return []
        if not isinstance(written, str):
            return [written]
        # A function that is wrapped, once for all equations that are alike.
        if written not in self._wrapped:
            name = f"{function(next(iter(_program_params(eqn))))}_{_suffix(eqn)}"
            while name in self._scope:
                name += "_"
            self._wrapped[written] = name
            definition = f"{name} = {written}"
            self._run(definition)
            self._definitions.append(definition)
        name = self._wrapped[written]
        return [lambda operands: f"{name}({', '.join(operands)})"]


def _program_params(eqn: Equation) -> list[str]:
    return [key for key, value in eqn.params.values.items() if id(value) in eqn.params.programs]


def _suffix(eqn: Equation) -> str:
    return {"jit": "jit", "custom_jvp_call": "primal", "custom_vjp_call": "primal"}.get(
        eqn.primitive.name, "remat"
    )


Values = Any
Function = Callable[[str], str]


def _options(**options: str | None) -> str:
    return "".join(f", {key}={value}" for key, value in options.items() if value is not None)


def _jit(_eqn: Equation, params: Values, function: Function) -> str:
    donated = [n for n, is_donated in enumerate(params["donated_invars"]) if is_donated]
    shardings = {}
    for side in ("in", "out"):
        values = params[f"{side}_shardings"]
        if any(type(value).__name__ != "UnspecifiedValue" for value in values):
            shardings[f"{side}_shardings"] = expression(tuple(values))
    options = _options(
        donate_argnums=expression(tuple(donated)) if donated else None,
        keep_unused="True" if params["keep_unused"] else None,
        inline="True" if _compat.is_inlined(params["inline"]) else None,
        **shardings,
    )
    return f"_jit({function('jaxpr')}, {params['name']!r}{options})"


def _checkpoint(_eqn: Equation, params: Values, function: Function) -> str:
    policy = params["policy"]
    options = _options(
        prevent_cse=None if params["prevent_cse"] is True else expression(params["prevent_cse"]),
        policy=None if policy is None else expression(policy),
    )
    return f"jax.checkpoint({function('jaxpr')}{options})"


def _custom(eqn: Equation, params: Values, function: Function) -> str:
    # As jax prints them: the name, and those of the rules.
    shown = {key: value for key, value in eqn.params.shown if isinstance(value, str)}
    kind = "jvp" if eqn.primitive.name == "custom_jvp_call" else "vjp"
    rules = ("jvp",) if kind == "jvp" else ("fwd", "bwd")
    names = ", ".join(repr(shown[key]) for key in ("name", *rules))
    options = _options(symbolic_zeros="True" if params["symbolic_zeros"] else None)
    return f"_without_{kind}({function('call_jaxpr')}, {names}{options})"


def _scan(_eqn: Equation, params: Values, function: Function) -> Write:
    consts, carried = _compat.scan_counts(params)
    carry = consts + carried
    body = function("jaxpr")
    options = _options(
        length=expression(params["length"]),
        reverse="True" if params["reverse"] else None,
        unroll=None if params["unroll"] == 1 else expression(params["unroll"]),
    )

    def write(operands: Sequence[str]) -> str:
        parts = operands[:consts], operands[consts:carry], operands[carry:]
        return f"_scan({', '.join([body, *map(_list, parts)])}{options})"

    return write


def _while(_eqn: Equation, params: Values, function: Function) -> Write:
    conds = params["cond_nconsts"]
    consts = conds + params["body_nconsts"]
    cond, body = function("cond_jaxpr"), function("body_jaxpr")

    def write(operands: Sequence[str]) -> str:
        parts = operands[:conds], operands[conds:consts], operands[consts:]
        own = cond, _list(parts[0]), body, _list(parts[1]), f"({', '.join(parts[2])},)"
        return f"_while_loop({', '.join(own)})"

    return write


_HIGHER_ORDER: dict[str, Callable[[Equation, Values, Function], str | Write]] = {
    "jit": _jit,
    "checkpoint": _checkpoint,
    "remat2": _checkpoint,
    "custom_jvp_call": _custom,
    "custom_vjp_call": _custom,
    "scan": _scan,
    "while": _while,
}
# Equations with params that have no expression, for which a public call has to do.
_AS_WELL = {"jit", "custom_jvp_call", "custom_vjp_call"}


def _list(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


# ---- public functions --------------------------------------------------------------------------


def _public(eqn: Equation) -> list[Write]:
    """Calls of public functions that may make an equation."""
    name, params = eqn.primitive.name, eqn.params.values
    special = _SPECIAL.get(name)
    found = []
    if special is not None:
        with contextlib.suppress(Unwritable, KeyError, IndexError):
            found.append(special(params))
    function_name = NAMES.get(name, name.replace("-", "_"))
    for module, alias in ((lax, "lax"), (lax.linalg, "lax.linalg")):
        function = getattr(module, function_name, None)
        if callable(function):
            found += _with_params(function, f"{alias}.{function_name}", params)
    return found


def _with_params(function: Any, name: str, params: Any) -> list[Write]:
    """Calls of a function with the params that it takes and that are not its defaults."""
    try:
        known = _parameters(function)
    except (TypeError, ValueError):
        return []
    given = []
    for key, value in params.items():
        if key in known and not _same(known[key], value):
            try:
                given.append(f"{key}={expression(value, is_public=True)}")
            except Unwritable:
                return []
    return [
        lambda operands: f"{name}({', '.join([*operands, *given])})",
        lambda operands: f"{name}({', '.join([_list(operands), *given])})",
    ]


@functools.cache
def _parameters(function: Any) -> dict[str, Any]:
    """The defaults of a function's parameters."""
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}


def _call_of(function: str, *arguments: str) -> Write:
    return lambda operands: f"{function}({', '.join([*operands, *arguments])})"


def _key_impl(params: Any) -> str:
    return repr(params["impl"].name)


_SPECIAL: dict[str, Callable[[Any], Write]] = {
    "iota": lambda p: _call_of(
        "lax.broadcasted_iota",
        dtype(p["dtype"], is_public=True),
        expression(p["shape"]),
        expression(p["dimension"]),
    ),
    "dynamic_slice": lambda p: (
        lambda operands: (
            f"lax.dynamic_slice({operands[0]}, {_list(operands[1:])}, "
            f"{expression(p['slice_sizes'])})"
        )
    ),
    "dynamic_update_slice": lambda p: (
        lambda operands: (
            f"lax.dynamic_update_slice({operands[0]}, {operands[1]}, {_list(operands[2:])})"
        )
    ),
    "argmax": lambda p: _call_of(
        "lax.argmax", str(p["axes"][0]), dtype(p["index_dtype"], is_public=True)
    ),
    "argmin": lambda p: _call_of(
        "lax.argmin", str(p["axes"][0]), dtype(p["index_dtype"], is_public=True)
    ),
    "top_k": lambda p: _call_of("lax.top_k", str(p["k"])),
    "copy": lambda p: _call_of("jnp.copy"),
    "name": lambda p: _call_of("jax.ad_checkpoint.checkpoint_name", repr(p["name"])),
    "psum": lambda p: _call_of("lax.psum", expression(p["axes"])),
    "pmax": lambda p: _call_of("lax.pmax", expression(p["axes"])),
    "pmin": lambda p: _call_of("lax.pmin", expression(p["axes"])),
    "device_put": lambda p: _call_of("jax.device_put"),
    "empty": lambda p: _call_of("lax.empty", expression(p["shape"]), dtype(p["dtype"])),
    "random_seed": lambda p: _call_of("jax.random.key", f"impl={_key_impl(p)}"),
    "random_wrap": lambda p: _call_of("jax.random.wrap_key_data", f"impl={_key_impl(p)}"),
    "random_unwrap": lambda p: _call_of("jax.random.key_data"),
    "random_split": lambda p: _call_of("jax.random.split", expression(p["shape"])),
    "random_fold_in": lambda p: _call_of("jax.random.fold_in"),
}


# ---- helpers -----------------------------------------------------------------------------------


def _same(a: Any, b: Any) -> bool:
    """Whether params say the same."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        # Rules that were left out are functions that are made anew.
        return a.keys() == b.keys() and all(
            _same(a[key], b[key]) or (callable(a[key]) and key in _RULES) for key in a
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if (fields := _compat.flat_trees().get(type(a))) is not None:
        return all(_same(getattr(a, name), getattr(b, name)) for name in fields)
    if _compat.is_jaxpr(a):
        return bool(_core.graph_of(a).equals(_core.graph_of(b), "content"))
    if isinstance(a, (np.ndarray, np.generic)):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    try:
        return bool(a == b)
    except Exception:
        return False


_RULES = {"jvp_jaxpr_fun", "jvp", "fwd", "bwd", "fwd_jaxpr_thunk", "out_trees"}


def _struct(aval: Any) -> Any:
    """What is traced as an argument of a type."""
    sharding = getattr(aval, "sharding", None)
    if sharding is not None and sharding.mesh.empty:
        sharding = None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)


def _innermost_first(programs: Sequence[ProgramModel]) -> list[int]:
    """The places of programs, those that others run before these."""
    order: dict[int, None] = {}
    pending = [(0, False)]
    while pending:
        place, is_done = pending.pop()
        if place in order:
            continue
        if is_done:
            order[place] = None
            continue
        pending.append((place, True))
        distinct = {id(eqn.params): eqn.params for eqn in programs[place].equations}
        for params in reversed(distinct.values()):
            pending += [(within, False) for within in reversed(params.places)]
    return list(order)


def _function_names(programs: Sequence[ProgramModel]) -> list[str]:
    """Identifiers of the programs' functions, each another one."""
    names: list[str] = []
    taken: set[str] = {"ARGUMENTS", "consts"}
    for program in programs:
        base = name = identifier(program.name)
        # Two letters and less are names of variables.
        if len(name) < 3:
            base = name = f"{base}_program"
        number = 1
        while name in taken or name in vars(helpers):
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names.append(name)
    return names


def _variable_names(program: ProgramModel, taken: set[str]) -> list[str]:
    taken = taken | TAKEN | {"consts", "operand"}
    return [f"{v.name}_" if v.name in taken else v.name for v in program.variables]


def _plain(text: str) -> str:
    """A text that can be in a comment or a docstring."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable.replace("\\", "/").replace('"""', "'''")


@functools.cache
def _helper_texts() -> dict[str, str]:
    """The text of each function of the helpers, in their order."""
    functions = {
        name: inspect.unwrap(value)
        for name, value in vars(helpers).items()
        if getattr(inspect.unwrap(value), "__module__", None) == helpers.__name__
    }
    return {name: inspect.getsource(function).rstrip() for name, function in functions.items()}
