"""``Program``: a traced program, owned by Rust."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
from jax.api_util import shaped_abstractify

from jaxide import _compat, _core, _settings
from jaxide._native import program_files
from jaxide._program import checks, files
from jaxide._program.passes import optimize
from jaxide._reports import queries, tables
from jaxide._reports.cost import CostReport, Share, cost_report
from jaxide._reports.diff import MAX_CONTEXT, Diff
from jaxide._reports.equations import Equation
from jaxide._reports.liveness import LivenessReport, donations
from jaxide._reports.queries import Constant, CriticalPath, Dependencies, PrecisionReport, Uses

if TYPE_CHECKING:
    from jaxide._export import model

Path = str | os.PathLike[str]

# Of each program, in a notebook.
SHOWN_EQNS = 40
# How equations of nested programs are counted.
Nested = Literal["once", "each call", "none"]


class Program:
    """A program of jax operations, held in Rust.

    Made by :func:`jaxide.trace`, :func:`jaxide.from_jaxpr` or :func:`jaxide.load`. A call executes
    it through jax. ``str`` is the text of its jaxpr, ``len`` the number of its equations, and
    ``==`` says whether two programs are structurally equal, with equal constants.

    Example:
      >>> program = jaxide.trace(lambda x, y: jnp.sin(x) * y)(jnp.ones(3), jnp.ones(3))
      >>> print(program)
      { lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sin a; d:f32[3] = mul c b in (d,) }
      >>> len(program)
      2
      >>> program(jnp.zeros(3), jnp.ones(3))
      Array([0., 0., 0.], dtype=float32)

    With a jax that jaxide does not know, or under ``JAXIDE_DISABLE=1``, a program has its jaxpr,
    its text and its call. Everything else raises ``NotImplementedError``.
    """

    def __init__(self) -> None:
        raise TypeError("make a Program with jaxide.trace(...) or jaxide.from_jaxpr(...)")

    _graph: _core.Graph | None
    _in_tree: Any
    _out_tree: Any
    _left_out: tuple[str, ...]

    @classmethod
    def _of(cls, jaxpr: Any, in_tree: Any = None, out_tree: Any = None) -> Program:
        """The program of a closed jaxpr; the trees of its arguments and results where known."""
        self = object.__new__(cls)
        # Where jaxprs of this jax cannot be read, the jaxpr is all there is.
        self._graph = _core.graph_of(jaxpr) if _compat.reads_programs() else None
        if self._graph is None or in_tree is not None:
            self.jaxpr = jaxpr
        self._in_tree, self._out_tree = in_tree, out_tree
        self._left_out = ()
        return self

    @classmethod
    def _of_file(cls, content: bytes) -> Program:
        """The program of a file."""
        # A pickle may be the first that asks for anything of jaxide.
        if not _compat.reads_programs():
            raise unknown_jax()
        found = program_files.of_bytes(_compat.program_files(), content)
        self = cls._of(found.jaxpr, found.in_tree, found.out_tree)
        self._left_out = found.left_out
        return self

    def _to_file(self, drop: Collection[str] = (), complete: bool = False) -> bytes:
        trees = (self._in_tree, self._out_tree)
        jaxpr = self._checked_jaxpr()
        return program_files.to_bytes(_compat.program_files(), jaxpr, trees, drop, complete)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what :meth:`save` writes."""
        return Program._of_file, (self._to_file(),)

    def __copy__(self) -> Program:
        """The program itself, which cannot change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """The program itself, which cannot change."""
        return self

    @property
    def left_out(self) -> tuple[str, ...]:
        """What a loaded program cannot do, because the file does not have it or it is not here.

        Example:
          >>> jaxide.load("step.jaxide").left_out  # doctest: +SKIP
          ('scale.<locals>.<lambda>, the bwd of custom_vjp_call, was left out when the program was
          stored',)
        """
        return self._left_out

    @cached_property
    def jaxpr(self) -> Any:
        """The program as a ``ClosedJaxpr`` of the installed jax; its equations become Python
        objects when somebody reads them.
        """
        assert self._graph is not None
        return _compat.close(*self._graph.to_jaxpr())

    @property
    def in_avals(self) -> list[Any]:
        """The types of the inputs, one by one, as avals of jax."""
        avals: list[Any] = self.jaxpr.in_avals
        return avals

    @property
    def out_avals(self) -> list[Any]:
        """The types of the outputs, one by one, as avals of jax."""
        avals: list[Any] = self.jaxpr.out_avals
        return avals

    @cached_property
    def structural_hash(self) -> int:
        """The hash of the program's content, its constants by their types: 128 bits as an ``int``.

        The same in every process and on every machine, whatever variables are called and wherever
        the code is; equal for programs that can share an executable. ``docs/structure.md`` says
        what counts. A hash finds candidates, ``==`` decides.
        """
        return self._read_graph().fingerprint("structure")

    @property
    def content_hash(self) -> int:
        """As :attr:`structural_hash`, with the constants by their values, as they are now."""
        return self._read_graph().fingerprint("content")

    def _read_graph(self) -> _core.Graph:
        if self._graph is None:
            raise unknown_jax()
        return self._graph

    def __eq__(self, other: object) -> bool:
        """Whether the programs are structurally equal: the same except for the names of variables,
        sources, and names of arguments and results. Constants count by their values, functions by
        identity.
        """
        if not isinstance(other, Program):
            return NotImplemented
        if self is other:
            return True
        return self._read_graph().equals(other._read_graph(), "content")

    def __hash__(self) -> int:
        return hash(self.structural_hash)

    def __len__(self) -> int:
        """The number of equations, those of nested programs not counted."""
        return len(self.jaxpr.eqns if self._graph is None else self._graph)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        """The text of the jaxpr, as jax prints it."""
        text = None if self._graph is None else _compat.printing().text(self._graph)
        return str(self.jaxpr) if text is None else text

    def pretty(
        self,
        *,
        max_depth: int | None = None,
        max_eqns: int | None = None,
        collapse: Sequence[str] = (),
        **settings: Any,
    ) -> str:
        """The text of a program with parts left out, for programs that are too large to read whole.

        Variables have the names that they have in the whole text; equations that are left out are
        counted.

        Example:
          >>> program = jaxide.trace(lambda x, y: jnp.sin(x) * y)(jnp.ones(3), jnp.ones(3))
          >>> print(program.pretty(max_eqns=1))
          { lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sin a; ... 1 equation ... in (d,) }

        Args:
          max_depth: how deep the nested programs that are shown are nested: none at 0.
          max_eqns: how many equations of each program are shown, the first and the last ones.
          collapse: names of primitives (``"scan"``) and of nested programs (``"_where"``), whose
            equations are not shown.
          **settings: those of ``Jaxpr.pretty_print``: ``source_info``, ``print_shapes``,
            ``custom_pp_eqn_rules``, ``name_stack``, ``print_effects``, ``width``, ``use_color``,
            ``separable_lines``, ``annotation_prefix``.

        Returns:
          The text.

        Raises:
          TypeError: there is no such setting, or a name is no text.
          ValueError: a limit is negative, or nothing that is shown has a name of ``collapse``.
          NotImplementedError: a part is to be left out of a program that jax prints, because jax
            prints a primitive in it by a function that sees more than its params, or this jax
            prints in a way that is not known.
        """
        max_depth = None if max_depth is None else checks.natural("max_depth", max_depth)
        max_eqns = None if max_eqns is None else checks.natural("max_eqns", max_eqns)
        if "width" in settings:
            # More than a number of C holds is as wide as can be.
            settings["width"] = min(checks.natural("width", settings["width"]), 2**31 - 1)
        collapse = checks.names("collapse", collapse)

        def printed(names: Sequence[str]) -> str | None:
            return _compat.printing().text(
                self._read_graph(),
                max_depth=max_depth,
                max_eqns=max_eqns,
                collapse=names,
                **settings,
            )

        text = printed(collapse)
        if text is not None:
            unknown = [name for name in collapse if name not in self.histogram()]
            if unknown and text == printed(()):
                said = ", ".join(map(repr, unknown))
                raise ValueError(f"collapse: no equation with a program in it is called {said}")
            return text
        if max_depth is not None or max_eqns is not None or collapse:
            is_known = _compat.capabilities.has("printing")
            why = (
                "an equation in it is printed by a function that sees more than its params"
                if is_known
                else f"how jax {jax.__version__} prints is not known"
            )
            raise NotImplementedError(
                f"this program is printed by jax, which leaves nothing out: {why}"
            )
        return str(self.jaxpr.pretty_print(**settings))

    def _repr_html_(self) -> str:
        """What a notebook shows: the text, of large programs the first and the last equations."""
        try:
            # In a notebook jax prints in the colours of a terminal.
            text = self.pretty(max_eqns=SHOWN_EQNS, max_depth=1, use_color=False)
        except NotImplementedError:
            text = repr(self)
        return tables.as_html(f"{self!r}\n{text}")

    def __repr__(self) -> str:
        return f"<jaxide.Program: {len(self.in_avals)} inputs, {len(self)} equations>"

    def cost(self, *, while_trips: int = 1) -> CostReport:
        """What executing the program costs, its equations one by one: flops, transcendental
        functions, bytes read and written; by primitive, line, name scope and nested program.

        A ``scan`` counts as often as it is long, of branches the most expensive one, a kernel as it
        estimates itself. ``docs/cost.md`` has the formulas and their sources.

        Example:
          >>> program = jaxide.trace(lambda x, y: x * y)(jnp.ones(8), jnp.ones(8))
          >>> program.cost().total
          Cost(flops=8, transcendentals=0, bytes_read=64, bytes_written=32)

        Args:
          while_trips: how often ``while`` loops run, because the program does not say it.

        Returns:
          A :class:`CostReport`, which prints as tables.

        Raises:
          ValueError: ``while_trips`` is negative.
        """
        _check_trips(while_trips)
        return cost_report(self._read_graph(), while_trips)

    def by_line(self, *, while_trips: int = 1) -> Sequence[Share]:
        """The costs of the lines of the user's code, the most expensive first; as :meth:`cost`.

        Args:
          while_trips: how often ``while`` loops run.

        Returns:
          A sequence of :class:`Share`: the line, how often its equations run, and their cost.

        Raises:
          ValueError: ``while_trips`` is negative.
        """
        return self.cost(while_trips=while_trips).lines

    def diff(self, other: Program, *, context: int = 3) -> Diff:
        """Where another program differs from this one: equations that it lacks, has besides, has
        otherwise or has elsewhere. Nested programs are compared as well.

        ``docs/structure.md`` says what counts, ``docs/diff.md`` how programs are aligned.

        Example:
          >>> old, new = (jaxide.trace(f)(1.0) for f in (jnp.sin, jnp.cos))
          >>> [(found.kind, found.old, found.new) for found in old.diff(new).differences]
          [('primitive', 'sin', 'cos')]

        Args:
          other: the other program, the new one of the two.
          context: how many equations around those that differ are shown.

        Returns:
          A :class:`Diff`; empty, and false, exactly where the programs are equal. It prints as
          text.

        Raises:
          TypeError: ``other`` is no program, ``context`` no integer.
          ValueError: ``context`` is negative.
        """
        if not isinstance(other, Program):
            raise TypeError(f"other must be a jaxide.Program, got {type(other).__name__}")
        if isinstance(context, bool) or not isinstance(context, int):
            raise TypeError(f"context must be an int, got {type(context).__name__}")
        if context < 0:
            raise ValueError(f"context must not be negative, got {context}")
        return Diff._of(self._read_graph(), other._read_graph(), context=min(context, MAX_CONTEXT))

    def optimize(
        self,
        passes: Sequence[str] | None = None,
        *,
        allow_reassociation: bool = False,
        max_folded: int = 16,
        inline: Sequence[str] | None = None,
        max_inlined: int = 8,
    ) -> Program:
        """A program that computes the same in fewer equations.

        Results are the same bits, with one exception. Where a jit was inlined and the program is
        executed equation by equation, XLA compiles the equations one by one.

        Effects stay, each in its place among the others. Inputs, their names and trees, and the
        names of results are the same; the remaining equations keep their lines. ``docs/passes.md``
        lists the rules and says why they hold.

        Example:
          >>> program = jaxide.trace(jax.jit(lambda x: x * 1 + 0))(jnp.arange(3))
          >>> len(program), len(program.optimize())
          (1, 0)

        Args:
          passes: names of passes, which run in turn until none of them finds anything:
            ``"inline"``, ``"copies"``, ``"algebra"``, ``"fold"``, ``"cse"``, ``"dce"``. By default
            all of them.
          allow_reassociation: whether results may be rounded otherwise than before.
          max_folded: how many elements the result of an equation on literals may have that is
            computed now.
          inline: the names of the jits that are inlined. By default all of them.
          max_inlined: how many equations a jit's program may have that is inlined at several
            places.

        Returns:
          The optimized program; this very program where there is nothing to do.

        Raises:
          TypeError: ``passes`` or ``inline`` is a string.
          ValueError: there is no such pass, or a limit is negative.
        """
        graph = self._read_graph()
        optimized = optimize(
            graph,
            _compat.open_part(self.jaxpr).debug_info,
            passes,
            allow_reassociation=allow_reassociation,
            max_folded=max_folded,
            inline=inline,
            max_inlined=max_inlined,
        )
        if optimized is graph:
            return self
        jaxpr = _compat.close(*optimized.to_jaxpr())
        return Program._of(jaxpr, self._in_tree, self._out_tree)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        drop: Collection[str] = (),
        complete: bool = False,
    ) -> None:
        """Writes the program to a file, which :func:`jaxide.load` reads.

        Python code has no form in a file. Derivative rules and classes of trees are stored by name,
        where a module has them; what has no name is left out, and the loaded program says so
        (:attr:`left_out`). The file is written whole or not at all. ``docs/storage.md`` has the
        format.

        Example:
          >>> program.save("step.jaxide")  # doctest: +SKIP

        Args:
          path: the file; one that is there is replaced.
          drop: what is left out in any case. ``"rules"``: functions that transformations call
            (derivative and batching rules); the loaded program computes, transforming it is an
            error. ``"callbacks"``: functions that are called while it is executed; then a
            ``debug.callback`` does nothing, and any other is an error. ``"trees"``: the structure
            of arguments and results, where it is not of standard containers; the loaded program
            takes its inputs one by one and returns a list.
          complete: whether it is an error if anything else would be left out.

        Raises:
          StorageError: something cannot be stored; names the equation and its line.
          ValueError: a name in ``drop`` is unknown.
          OSError: the file cannot be written.
        """
        files.write(checks.path("path", path), self._to_file(checks.droppable(drop), complete))

    def _checked_jaxpr(self) -> Any:
        self._read_graph()
        return self.jaxpr

    def _read_model(self, while_trips: int = 1) -> Sequence[model.ProgramModel]:
        """The program and those within as data."""
        # What writes programs in other formats takes long to import.
        from jaxide._export import model

        _check_trips(while_trips)
        return model.read(self._read_graph(), while_trips)

    @overload
    def to_json(self, path: None = None, *, while_trips: int = 1) -> str: ...

    @overload
    def to_json(self, path: Path, *, while_trips: int = 1) -> None: ...

    def to_json(self, path: Path | None = None, *, while_trips: int = 1) -> str | None:
        """The program as JSON, of which ``docs/export.md`` has the schema.

        Args:
          path: where it is written; where none is given, it is returned.
          while_trips: how often ``while`` loops run, for the costs of equations.

        Returns:
          The text, or None where a path is given.

        Raises:
          ValueError: ``while_trips`` is negative.
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import json

        return files.deliver(json.text(self._read_model(while_trips)), path)

    @overload
    def to_python(
        self, path: None = None, *, drop_rules: bool = False, max_literal: float = 64
    ) -> str: ...

    @overload
    def to_python(
        self, path: Path, *, drop_rules: bool = False, max_literal: float = 64
    ) -> None: ...

    def to_python(
        self, path: Path | None = None, *, drop_rules: bool = False, max_literal: float = 64
    ) -> str | None:
        """Source code that rebuilds the function: tracing it gives the same jaxpr.

        Each program becomes a function. Each equation becomes a call of ``jax.lax`` or another
        public function that makes exactly that equation, or of its primitive. ``ARGUMENTS`` are the
        types to trace the function with. Constants of more than ``max_literal`` elements are an
        argument ``consts``.

        Args:
          path: where it is written; where none is given, it is returned.
          drop_rules: leaves out derivative rules, which are functions of this process. A function
            whose rule was left out cannot be differentiated.
          max_literal: how many elements a constant may have that is written into the code.

        Returns:
          The text, or None where a path is given.

        Raises:
          NotImplementedError: an equation cannot be written, because a part of it is of this
            process only: a callback, a derivative rule, a mesh of devices. Names the equation and
            its line.
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import python

        text = python.text(self._read_model(), drop_rules=drop_rules, max_literal=max_literal)
        return files.deliver(text, path)

    @overload
    def to_dot(
        self,
        path: None = None,
        *,
        max_depth: int | Literal["auto"] | None = "auto",
        max_eqns: int | Literal["auto"] | None = "auto",
    ) -> str: ...

    @overload
    def to_dot(
        self,
        path: Path,
        *,
        max_depth: int | Literal["auto"] | None = "auto",
        max_eqns: int | Literal["auto"] | None = "auto",
    ) -> None: ...

    def to_dot(
        self,
        path: Path | None = None,
        *,
        max_depth: int | Literal["auto"] | None = "auto",
        max_eqns: int | Literal["auto"] | None = "auto",
    ) -> str | None:
        """The program as a graph for Graphviz: a node for each equation, a cluster for each
        program.

        A graph of a large program is cut to about 300 nodes, which Graphviz lays out within
        seconds. The graph's label says what is left out.

        Args:
          path: where it is written; where none is given, it is returned.
          max_depth: how deep the nested programs that are shown are nested: none at 0, all with
            None. By default as deep as the graph stays small.
          max_eqns: how many equations of each program are shown, the first and the last ones; all
            with None. By default all, unless the graph is too large at any depth.

        Returns:
          The text, or None where a path is given.

        Raises:
          ValueError: a limit is negative, or a word but ``"auto"``.
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import dot

        return files.deliver(dot.text(self._read_model(), max_depth, max_eqns), path)

    @overload
    def to_html(self, path: None = None, *, while_trips: int = 1) -> str: ...

    @overload
    def to_html(self, path: Path, *, while_trips: int = 1) -> None: ...

    def to_html(self, path: Path | None = None, *, while_trips: int = 1) -> str | None:
        """The program as a page for a browser, in one file that needs nothing else.

        Args:
          path: where it is written; where none is given, it is returned.
          while_trips: how often ``while`` loops run, for the costs of equations.

        Returns:
          The text, or None where a path is given.

        Raises:
          ValueError: ``while_trips`` is negative.
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import html

        programs = self._read_model(while_trips)
        page = html.text(programs, self.cost(while_trips=while_trips), self.liveness())
        return files.deliver(page, path)

    @overload
    def to_pprof(self, path: None = None, *, while_trips: int = 1) -> bytes: ...

    @overload
    def to_pprof(self, path: Path, *, while_trips: int = 1) -> None: ...

    def to_pprof(self, path: Path | None = None, *, while_trips: int = 1) -> bytes | None:
        """The costs of the program as a profile for ``pprof``, by the user's calls.

        Args:
          path: where it is written; where none is given, it is returned.
          while_trips: how often ``while`` loops run.

        Returns:
          The gzipped ``profile.proto``, or None where a path is given.

        Raises:
          ImportError: the package ``protobuf`` is not installed.
          ValueError: ``while_trips`` is negative.
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import pprof

        return files.deliver(pprof.profile(self._read_model(while_trips)), path)

    @overload
    def to_model_explorer(self, path: None = None) -> str: ...

    @overload
    def to_model_explorer(self, path: Path) -> None: ...

    def to_model_explorer(self, path: Path | None = None) -> str | None:
        """The program as JSON for Google's Model Explorer, which opens it as a file.

        Args:
          path: where it is written; where none is given, it is returned.

        Returns:
          The text, or None where a path is given.

        Raises:
          OSError: the file cannot be written; an earlier file stays.
        """
        from jaxide._export import model_explorer

        return files.deliver(model_explorer.text(self._read_model()), path)

    def liveness(self, donate: Iterable[int] = (), *, fused: bool = False) -> LivenessReport:
        """Which values are alive when, if the equations run in their order: the bytes around each
        equation, the most at any time and the values that take them, the last use of each variable.

        A value takes its bytes from the equation that defines it to the last one that needs it;
        inputs and constants take theirs all the time. Updates, loops and operations on elements
        write over values that nobody else needs; reshapes take no bytes. See ``docs/liveness.md``.

        Example:
          >>> program = jaxide.trace(lambda x: jnp.sin(x) * 2)(jnp.ones(1000))
          >>> program.liveness().peak, program.liveness(donate=[0]).peak
          (8000, 4000)

        Args:
          donate: positions of inputs, counted one by one, whose bytes may be written over after
            their last use.
          fused: whether values that are computed element by element are computed where they are
            needed, as compilers do. They then take no bytes, and their operands are needed for
            longer.

        Returns:
          A :class:`LivenessReport`, all sizes in bytes. It prints as a table.

        Raises:
          ValueError: there is no such input.
        """
        return LivenessReport._of(self._read_graph(), donations(donate, len(self.in_avals)), fused)

    def histogram(self, *, nested: Nested = "once") -> dict[str, int]:
        """How many equations of each primitive there are, the most frequent first.

        Example:
          >>> program = jaxide.trace(lambda x: jnp.sin(jnp.sin(x)) * 2)(1.0)
          >>> program.histogram()
          {'sin': 2, 'mul': 1}

        Args:
          nested: how equations of nested programs count: ``"once"``, however many equations run
            their program; as often as equations run it, a loop once (``"each call"``); or not at
            all (``"none"``).

        Returns:
          Counts by name of the primitive.

        Raises:
          ValueError: there is no such way to count.
        """
        return dict(_core.histogram(self._read_graph(), nested))

    def find(
        self,
        primitive: str | None = None,
        *,
        dtype: Any = None,
        shape: Sequence[int | str] | None = None,
        line: str | None = None,
        name_scope: str | None = None,
    ) -> Sequence[Equation]:
        """The equations, nested ones included, that meet every given condition; each once, in
        order.

        Example:
          >>> program = jaxide.trace(lambda x, y: jnp.sin(x) * y)(jnp.ones(3), jnp.ones(3))
          >>> [equation.path for equation in program.find("sin", shape=(3,))]
          [(0,)]

        Args:
          primitive: the name of the primitive.
          dtype: that of a result: a dtype or its name (``"float32"``, ``"key<fry>"``).
          shape: that of the same result; symbolic sizes as texts.
          line: a line of the user's code (``"train.py:7"``), or a file (``"train.py"``).
          name_scope: scopes of ``jax.named_scope`` around it, as in ``"layer/attention"``.

        Returns:
          A sequence of :class:`Equation`, which are made when they are looked at.
        """
        sizes = None if shape is None else checks.sizes(shape)
        return queries.find(self._read_graph(), primitive, dtype, sizes, line, name_scope)

    def depends_on(self, output: int) -> Dependencies:
        """The inputs, constants and equations that an output depends on, those of nested programs
        included.

        An output of a nested program depends on the operands that it is made of there, not on all
        of them. A loop is followed until nothing is added. A read of a Ref depends on all earlier
        writes to it.

        Example:
          >>> program = jaxide.trace(lambda x, y: (x + 1, y * 2))(1.0, 2.0)
          >>> program.depends_on(1).inputs
          (1,)

        Args:
          output: the position of the output, counted from 0.

        Returns:
          The :class:`Dependencies`.

        Raises:
          IndexError: there is no such output.
        """
        count = len(self.out_avals)
        return queries.depends_on(
            self._read_graph(), checks.position("output", output, count, "output")
        )

    def used_by(self, position: int) -> Uses:
        """The outputs and equations that depend on an input; the other way round of
        :meth:`depends_on`.

        Example:
          >>> program = jaxide.trace(lambda x, y: (x + 1, y * 2))(1.0, 2.0)
          >>> program.used_by(0).outputs
          (0,)

        Args:
          position: the position of the input, counted from 0.

        Returns:
          The :class:`Uses`.

        Raises:
          IndexError: there is no such input.
        """
        count = len(self.in_avals)
        return queries.used_by(
            self._read_graph(), checks.position("position", position, count, "input")
        )

    def unused_inputs(self) -> list[int]:
        """The positions of inputs that no output depends on, and nothing with an effect."""
        return _core.unused_inputs(self._read_graph())

    def dead(self) -> Sequence[Equation]:
        """The equations, nested ones included, that no output depends on, and nothing with an
        effect.

        Returns:
          A sequence of :class:`Equation`. Equations inside a dead equation are not listed again.
        """
        return queries.dead(self._read_graph())

    def critical_path(
        self,
        by: Literal["equations", "operations", "bytes"] = "equations",
        *,
        while_trips: int = 1,
    ) -> CriticalPath:
        """The longest chain of equations each of which needs a result of the one before.

        Example:
          >>> program = jaxide.trace(lambda x, y: jnp.sin(x) + jnp.sin(y))(1.0, 2.0)
          >>> program.critical_path().length, program.critical_path().parallelism
          (2, 1.5)

        Args:
          by: what makes a chain long: its number of equations, their flops and transcendental
            functions, or the bytes that they read and write, as :meth:`cost` counts them.
          while_trips: how often ``while`` loops run, because the program does not say it.

        Returns:
          The :class:`CriticalPath`.

        Raises:
          ValueError: there is no such measure, or ``while_trips`` is negative.
        """
        _check_trips(while_trips)
        return queries.critical_path(self._read_graph(), by, while_trips)

    def duplicates(self) -> Sequence[Sequence[Equation]]:
        """Groups of equations of one program that compute the same value: the same primitive with
        the same params on the same values.

        Returns:
          A sequence of groups of :class:`Equation`. Equations with effects are in none, nor are
          those that draw from XLA's own random generator.
        """
        return queries.duplicates(self._read_graph())

    def large_constants(self, min_bytes: int = 1 << 20) -> list[Constant]:
        """The captured arrays of the program and of its nested programs, the largest first.

        Args:
          min_bytes: arrays of fewer bytes are left out; 1 MiB by default.

        Returns:
          A list of :class:`Constant`: type, bytes, first use.
        """
        return queries.large_constants(self._read_graph(), max(0, min_bytes))

    def precision(self) -> PrecisionReport:
        """Where the program changes the precision of numbers: conversions, ``reduce_precision``,
        and contractions whose results are of another type than their operands.

        Returns:
          A :class:`PrecisionReport`, which prints as a table.
        """
        return queries.precision(self._read_graph())

    def effects(self) -> dict[str, Sequence[Equation]]:
        """The equations that have each effect, those that run a program with the effect included.

        Returns:
          Sequences of :class:`Equation` by name of the effect: ``"IO"``, ``"OrderedIO"``,
          ``"Debug"``, ``"Read"``, ``"Write"``, ``"Accum"`` ...
        """
        return queries.effects(self._read_graph())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Executes the program.

        A program made by :func:`jaxide.trace` takes the arguments it was traced with, static ones
        left out, and returns the result of the function. A program made by
        :func:`jaxide.from_jaxpr` takes its inputs one by one and returns a list.

        Raises:
          TypeError: the arguments have not the structure, the number or the types of the inputs.
        """
        flat, results = self._flatten(args, kwargs)
        try:
            out = _compat.evaluate(self.jaxpr, flat)
        except Exception as error:
            for what in self._left_out:
                error.add_note(f"jaxide: {what}")
            raise
        return results(out)

    def _flatten(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """The inputs, one by one, checked against the types of the program, and what gives its
        results their structure."""
        results: Callable[[Sequence[Any]], Any] = list
        if self._in_tree is not None:
            flat, tree = jax.tree.flatten((args, kwargs))
            if not _compat.is_structure(tree, self._in_tree):
                is_alike = str(tree) == str(self._in_tree)
                hint = ", where a class is registered with jax in another way" if is_alike else ""
                raise TypeError(
                    "this program was traced with arguments of structure "
                    f"{self._in_tree}, got {tree}{hint}"
                )
            if self._out_tree is not None:
                results = _compat.results(self._out_tree, tree)
        elif kwargs:
            raise TypeError(f"this program takes no keyword arguments, got {sorted(kwargs)}")
        else:
            flat = list(args)
        if len(flat) != len(self.in_avals):
            raise TypeError(f"this program takes {len(self.in_avals)} arguments, got {len(flat)}")
        for position, (value, aval) in enumerate(zip(flat, self.in_avals, strict=True)):
            _check_input(position, value, aval)
        return flat, results


def load(path: str | os.PathLike[str]) -> Program:
    """Reads the program that :meth:`Program.save` wrote to a file.

    Nothing in the file is executed, and memory and time are bounded by its length. The file may
    have been written on another machine or with another jax, as long as the installed jax has the
    primitives.

    Example:
      >>> program = jaxide.load("step.jaxide")  # doctest: +SKIP

    Args:
      path: the file.

    Returns:
      The program, equal to the one that was saved but for what it says was
      :attr:`~Program.left_out`. Classes and rules are those of modules that somebody has imported.

    Raises:
      StorageError: the file is not a stored program, was altered, or needs what is not here; names
        the byte.
      OSError: the file cannot be read.
      NotImplementedError: jaxide does not know the installed jax, or is switched off.
    """
    content = program_files.read_file(checks.path("path", path))
    return Program._of_file(content)


def unknown_jax() -> NotImplementedError:
    """What is raised for programs of a jax that the native half does not know."""
    if _settings.is_disabled():
        said_by = _settings.said_by("disable")
        return checks.SwitchedOff(f"jaxide is switched off by {said_by}")
    return NotImplementedError(
        f"jaxide does not know jax {jax.__version__}: programs of {_compat.SUPPORTED} "
        "can be hashed and compared"
    )


def _check_trips(while_trips: int) -> None:
    checks.natural("while_trips", while_trips)


def _check_input(position: int, value: Any, aval: Any) -> None:
    """Refuses a value that is not of the type of its input."""
    if not isinstance(aval, jax.core.ShapedArray):
        return
    try:
        given = shaped_abstractify(value)
    except TypeError as error:
        raise TypeError(f"argument {position} of the program must be {aval}: {error}") from None
    static = all(isinstance(dim, int) for dim in aval.shape)
    if given.dtype != aval.dtype or (static and given.shape != aval.shape):
        raise TypeError(
            f"argument {position} of the program must be {aval.str_short()}, "
            f"got {given.str_short()}"
        )
