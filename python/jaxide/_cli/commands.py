"""The commands.

jax, rich and what needs them are imported by what uses them: help starts at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import jaxide
from jaxide._cli.cache import cache
from jaxide._cli.completion import TARGET_TYPE, completion
from jaxide._program import checks, files
from jaxide._reports.tables import size

if TYPE_CHECKING:
    from jaxide._cli.targets import Call

# The transformations of jax that are options.
WRAPPERS = ("grad", "vmap", "jit")


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Says on a terminal what takes long."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def say(report: object) -> None:
    """Prints a report: in colour and as wide as a terminal, or as its text."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        console.print(report)
    else:
        click.echo(str(report).rstrip("\n"))


def _shows_colours() -> bool:
    """Whether stdout is a terminal of colours, and nobody wants it without (``NO_COLOR``)."""
    from rich.console import Console

    console = Console()
    return console.color_system is not None and not console.no_color


def _applied(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Notes a transformation, in the order in which they are written."""
    if value:
        ctx.meta.setdefault("jaxide.wrappers", []).append(param.name)


def _of_program(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how a function is traced; what fails is said in a line where the program
    is one of a file."""

    @functools.wraps(command)
    def told(*args: Any, **kwargs: Any) -> Any:
        from jaxide._cli.targets import of_stored_programs

        with of_stored_programs():
            return command(*args, **kwargs)

    options = [
        click.option(
            "--arg",
            "args",
            multiple=True,
            metavar="SPEC",
            help="An argument, in order: a type ('f32[8,128]'), a tree of types "
            "('tree:{\"w\": f32[8,8]}'), an object ('from:MODULE:OBJECT') or a Python value.",
        ),
        click.option(
            "--kwarg", "kwargs", multiple=True, metavar="NAME=SPEC", help="The same by its name."
        ),
        click.option(
            "--static",
            type=click.IntRange(min=0),
            multiple=True,
            metavar="N",
            help="The position of an argument that is static, a Python value.",
        ),
        *(
            click.option(
                f"--{name}",
                is_flag=True,
                expose_value=False,
                callback=_applied,
                help=f"Under jax.{name}; of several the first one is the innermost.",
            )
            for name in WRAPPERS
        ),
        click.option("--x64", is_flag=True, help="With 64-bit types (jax_enable_x64)."),
    ]
    decorated: Callable[..., Any] = told
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _call(ctx: click.Context, options: dict[str, Any]) -> Call:
    """How the function is traced, out of the options of `_of_program`."""
    import jax

    from jaxide._cli.arguments import parse
    from jaxide._cli.targets import Call

    if options.pop("x64"):
        jax.config.update("jax_enable_x64", True)
    args = options.pop("args")
    kwargs = {}
    for text in options.pop("kwargs"):
        name, equals, spec = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"--kwarg {text!r}: expected NAME=SPEC")
        kwargs[name] = parse(spec)
    static = options.pop("static")
    for position in static:
        if position >= len(args):
            raise click.BadParameter(f"--static {position}: there are {len(args)} arguments")
    return Call([parse(a) for a in args], kwargs, static, ctx.meta.get("jaxide.wrappers", ()))


def _program(ctx: click.Context, target: str, options: dict[str, Any]) -> jaxide.Program:
    from jaxide._cli.targets import program_of

    call = _call(ctx, options)
    with doing(f"Tracing {target}"):
        return program_of(target, call)


TARGET = click.argument("target", metavar="MODULE:FUNCTION|FILE", type=TARGET_TYPE)
WRITABLE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(package_name="jaxide")
def cli() -> None:
    """A faster tracer for JAX, and what there is to know of a program without running it.

    A target is a function (MODULE:FUNCTION, or file.py:FUNCTION), traced with the types of its
    arguments, or a program that was stored (Program.save).
    """


cli.add_command(cache)
cli.add_command(completion)


@cli.command()
def demo() -> int:
    """Traces a GPT training step with jax and with jaxide, and compares."""
    from jaxide._cli.demo import run

    return run()


@cli.command()
@click.option("--changes", is_flag=True, help="With the places in jax that are not known.")
@click.option("--json", "as_json", is_flag=True, help="As data.")
def doctor(changes: bool, as_json: bool) -> None:
    """Says what jaxide does with the installed jax, what it leaves to jax and why; the settings."""
    status, settings = jaxide.status(), jaxide.settings()
    if as_json:
        found = {**dataclasses.asdict(status), "settings": [*map(dataclasses.asdict, settings)]}
        click.echo(json.dumps(found, indent=2))
        return
    say(status)
    say(settings)
    for capability in status.capabilities if changes else ():
        for place in capability.changed:
            click.echo(f"{capability.name}: {place}")


@cli.command()
@TARGET
@_of_program
@click.option("--optimize", is_flag=True, help="After all passes (Program.optimize).")
@click.option("--max-depth", type=click.IntRange(min=0), help="How deep nested programs are shown.")
@click.option("--max-eqns", type=click.IntRange(min=0), help="How many equations of each program.")
@click.option(
    "--collapse", multiple=True, metavar="NAME", help="A primitive or nested program not shown."
)
@click.option("--source-info", is_flag=True, help="With the line of each equation.")
@click.option("--name-stack", is_flag=True, help="With the name scopes of each equation.")
@click.option("--effects", is_flag=True, help="With effects.")
@click.option("--width", type=click.IntRange(min=20), help="Characters in a line.")
@click.option("--color/--no-color", default=None, help="Colours; by default on a terminal.")
@click.pass_context
def show(ctx: click.Context, /, target: str, **options: Any) -> None:
    """Prints the program, as jax does."""
    program = _program(ctx, target, options)
    if options.pop("optimize"):
        with doing("Optimizing"):
            program = program.optimize()
    color, width = options.pop("color"), options.pop("width")
    settings = {"print_effects": options.pop("effects"), **options}
    if width is not None:
        settings["width"] = width
    settings["use_color"] = _shows_colours() if color is None else color
    settings["collapse"] = list(settings["collapse"])
    try:
        text = program.pretty(**settings)
    except NotImplementedError as error:
        raise click.UsageError(str(error)) from None
    click.echo(text, color=True)


@cli.command()
@TARGET
@_of_program
@click.option(
    "--while-trips",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How often while loops run.",
)
@click.option(
    "--by",
    type=click.Choice(["scope", "line", "primitive", "program"]),
    help="Only by name scope, line, primitive or nested program, and all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="As data.")
@click.pass_context
def cost(
    ctx: click.Context,
    /,
    target: str,
    while_trips: int,
    by: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Says what executing the program costs: flops and bytes, by primitive, line and name scope."""
    program = _program(ctx, target, options)
    report = program.cost(while_trips=while_trips)
    if as_json:
        shares = report.shares(by) if by else ()
        shown = list(map(dataclasses.asdict, shares)) if by else dataclasses.asdict(report)
        click.echo(json.dumps(shown, indent=2))
    elif by == "scope" and not report.by_scope:
        click.echo("no equation is in a name scope (jax.named_scope, modules of flax)")
    else:
        say(report if by is None else report.table(by))


@cli.command("hash")
@TARGET
@_of_program
@click.option("--content", is_flag=True, help="Constants by their values.")
@click.option("--expect", metavar="HEX", help="Fails with status 1 where the hash is another.")
@click.pass_context
def hash_(
    ctx: click.Context, /, target: str, content: bool, expect: str | None, **options: Any
) -> int:
    """Prints the hash of what the program says, the same on every machine."""
    if expect is not None and re.fullmatch(r"(0x)?[0-9a-fA-F]{1,32}", expect) is None:
        raise click.BadParameter(f"--expect {expect!r} is no hexadecimal number of 128 bits")
    program = _program(ctx, target, options)
    found = program.content_hash if content else program.structural_hash
    click.echo(f"{found:032x}")
    if expect is None or int(expect, 16) == found:
        return 0
    click.echo(f"expected {int(expect, 16):032x}", err=True)
    return 1


@cli.command()
@TARGET
@click.argument("other", metavar="MODULE:FUNCTION|FILE", type=TARGET_TYPE)
@_of_program
@click.option(
    "--other-arg",
    "other_args",
    multiple=True,
    metavar="SPEC",
    help="An argument of the second function, where they are not those of the first.",
)
@click.option("--html", type=WRITABLE, metavar="FILE", help="Writes a page.")
@click.option("--stat", is_flag=True, help="Only how much differs, and in which name scopes.")
@click.option("--repeats", is_flag=True, help="All equations, those that differ alike too.")
@click.pass_context
def diff(
    ctx: click.Context,
    /,
    target: str,
    other: str,
    other_args: tuple[str, ...],
    html: Path | None,
    stat: bool,
    repeats: bool,
    **options: Any,
) -> int:
    """Says where two programs differ; with status 1 if they do.

    The same arguments and transformations hold for both functions; a stored program has none.
    """
    from jaxide._cli.arguments import parse
    from jaxide._cli.targets import Call, in_one_line, is_stored, program_of

    call = _call(ctx, options)
    second = dataclasses.replace(call, args=[parse(a) for a in other_args]) if other_args else call
    with doing("Tracing"):
        programs = [
            program_of(name, Call() if is_stored(name) else how)
            for name, how in ((target, call), (other, second))
        ]
    with doing("Comparing"):
        found = programs[0].diff(programs[1])
    if html is not None:
        with in_one_line(html):
            files.write(html, found.html())
    if repeats and not stat:
        click.echo(found.pretty(repeats=True))
    else:
        say(found.stat() if stat else found)
    return 1 if found else 0


# By the suffix of the file: how a program is written into it.
FORMATS: dict[str, Callable[[Any, Path], object]] = {
    ".html": lambda program, path: program.to_html(path),
    ".dot": lambda program, path: program.to_dot(path),
    ".py": lambda program, path: program.to_python(path),
    ".json": lambda program, path: program.to_json(path),
    ".pb.gz": lambda program, path: program.to_pprof(path),
}
STORED = ".jaxide"


@cli.command()
@TARGET
@_of_program
@click.option("-o", "--output", type=WRITABLE, required=True, metavar="FILE", help="Where to.")
@click.option(
    "--drop",
    type=click.Choice(checks.DROPPABLE),
    multiple=True,
    help="What a stored program is to be without, whether it has a form or not.",
)
@click.pass_context
def report(
    ctx: click.Context, /, target: str, output: Path, drop: tuple[str, ...], **options: Any
) -> None:
    """Writes the program to a file, as what the file's name ends in.

    \b
    .html    a page with costs, memory and source lines
    .dot     a graph for Graphviz
    .py      Python code that makes the program again
    .json    data
    .pb.gz   a profile for pprof
    .jaxide  the program itself, which every command takes
    """

    from jaxide._cli.targets import in_one_line

    def save(program: Any, path: Path) -> None:
        program.save(path, drop=drop)

    formats = {**FORMATS, STORED: save}
    write = next((w for suffix, w in formats.items() if output.name.endswith(suffix)), None)
    if write is None:
        raise click.BadParameter(f"{output}: a name must end in one of {', '.join(formats)}")
    if drop and not output.name.endswith(STORED):
        raise click.BadParameter(f"--drop is for a stored program ({STORED}), not for {output}")
    program = _program(ctx, target, options)
    with doing(f"Writing {output}"), in_one_line(output):
        write(program, output)
    if output.name.endswith(STORED):
        for text in jaxide.load(output).left_out:
            click.echo(f"{output}: {text}", err=True)


@cli.command()
@TARGET
@_of_program
@click.option(
    "--donate",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="The number of an input that may be overwritten.",
)
@click.option("--fused", is_flag=True, help="As XLA fuses elementwise equations.")
@click.option("--json", "as_json", is_flag=True, help="As data.")
@click.pass_context
def liveness(
    ctx: click.Context,
    /,
    target: str,
    donate: tuple[int, ...],
    fused: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Says which values are alive at once: the peak of memory, and what is alive there."""
    program = _program(ctx, target, options)
    for position in donate:
        if position >= len(program.in_avals):
            said = f"--donate {position}: the program has {len(program.in_avals)} inputs"
            raise click.BadParameter(said)
    report = program.liveness(donate=donate, fused=fused)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report), indent=2, default=str))
    else:
        say(report)


@cli.command()
@TARGET
@click.argument("primitive", required=False)
@_of_program
@click.option("--dtype", metavar="DTYPE", help="Only with a result of this dtype ('float32').")
@click.option("--shape", metavar="SIZES", help="Only with a result of this shape ('8,128').")
@click.option("--line", metavar="FILE[:LINE]", help="Only of a line of the user's code, or a file.")
@click.option("--name-scope", metavar="SCOPE", help="Only within name scopes ('layer/attention').")
@click.option("--count", is_flag=True, help="Only says how many there are.")
@click.pass_context
def find(
    ctx: click.Context, /, target: str, primitive: str | None, count: bool, **options: Any
) -> int:
    """Finds equations, nested ones too, by their primitive, types, line and name scope.

    With status 1 where there are none.
    """
    where = {name: options.pop(name) for name in ("dtype", "shape", "line", "name_scope")}
    if where["shape"] is not None:
        sizes = [size.strip() for size in where["shape"].split(",") if size.strip()]
        where["shape"] = [int(size) if size.isdecimal() else size for size in sizes]
    program = _program(ctx, target, options)
    try:
        found = program.find(primitive, **where)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    if count:
        click.echo(len(found))
    else:
        for equation in found:
            click.echo(str(equation))
    return 0 if found else 1


@cli.command()
@TARGET
@_of_program
@click.option("-o", "--output", type=WRITABLE, metavar="FILE", help="Stores the new program.")
@click.pass_context
def optimize(ctx: click.Context, /, target: str, output: Path | None, **options: Any) -> None:
    """Says what all passes make of the program (Program.optimize): its equations and its cost."""
    from jaxide._cli.targets import in_one_line

    program = _program(ctx, target, options)
    with doing("Optimizing"):
        optimized = program.optimize()
    both = program, optimized
    rows = {
        "equations": [f"{sum(each.histogram().values()):,}" for each in both],
        "flops": [f"{each.cost().total.flops:,}" for each in both],
        "accessed": [size(each.cost().total.bytes_accessed) for each in both],
        "peak": [size(each.liveness().peak) for each in both],
    }
    for name, (before, after) in rows.items():
        click.echo(f"{name:<9}  {before:>20} -> {after}")
    if output is not None:
        with in_one_line(output):
            optimized.save(output)


@cli.command()
@TARGET
@_of_program
@click.option("--rounds", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As data.")
@click.pass_context
def bench(ctx: click.Context, /, target: str, rounds: int, as_json: bool, **options: Any) -> int:
    """Measures how long jax and jaxide take to trace the function again.

    They take turns; the ratio is the median of those of neighbours. With status 1 where the two
    programs are printed differently.
    """
    import jax
    from rich.console import Console
    from rich.progress import Progress

    from jaxide._cli.targets import function_of, trace
    from jaxide._cli.timing import pairwise_ratio, warm_retraces

    call = _call(ctx, options)
    function = function_of(target, call)
    makers = jax.make_jaxpr, jaxide.make_jaxpr
    with doing(f"Tracing {target}"):
        made = [trace(target, function, call, maker) for maker in makers]
    same = str(made[0]) == str(made[1])
    tracers = [functools.partial(maker, static_argnums=tuple(call.static)) for maker in makers]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Measuring", total=2 * (rounds + 1))
        stock, ours = warm_retraces(
            tracers,
            function,
            call.args,
            kwargs=call.kwargs,
            rounds=rounds,
            read=lambda _: progress.advance(task),
        )
    result = {
        "equations": len(jaxide.from_jaxpr(made[1])),
        "jax_ms": statistics.median(stock) * 1e3,
        "jaxide_ms": statistics.median(ours) * 1e3,
        "ratio": pairwise_ratio(stock, ours),
        "identical": same,
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(
            f"{result['equations']:,} equations: jax {result['jax_ms']:.2f} ms, "
            f"jaxide {result['jaxide_ms']:.2f} ms, {result['ratio']:.1f} times as fast; "
            f"texts {'identical' if same else 'DIFFERENT'}"
        )
    return 0 if same else 1
