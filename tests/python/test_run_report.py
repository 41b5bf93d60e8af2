"""The report of a run: counts that are known, pages that are whole, notes that are bounded."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxide
from alone import run_alone
from jaxide._compat.monitoring import COMPILE, LOAD, LOWER, TRACE
from jaxide._jit import run_log
from jaxide._jit.executables import Outcome
from jaxide._jit.run_log import RUN_LOG, RunLog

pytestmark = pytest.mark.unaudited


@pytest.fixture(autouse=True)
def new_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run that begins with the test, for what is installed in it."""
    jax.clear_caches()
    jaxide.clear_caches()
    jnp.ones(3), jnp.ones(4)  # What they compile is none of the test's.
    RUN_LOG._clear()
    yield
    jaxide.uninstall()


def row_of(name: str, report: jaxide.RunReport | None = None) -> jaxide.RunFunction:
    """The only row of a function."""
    [row] = [row for row in (report or jaxide.report_run()).functions if row.name == name]
    return row


def counts(row: jaxide.RunFunction) -> dict[str, int]:
    """How often something was done, without what was not."""
    names = "traced recorded lowered compiled loaded stored shared".split()
    return {name: getattr(row, name) for name in names if getattr(row, name)}


def test_a_jit_that_is_traced_twice() -> None:
    def twice(x: Any) -> Any:
        return jnp.sin(x) * 2

    jaxide.install()
    step = jax.jit(twice)
    for size in (3, 4, 3, 4):
        step(jnp.ones(size))
    row = row_of("twice")
    assert counts(row) == {"traced": 2, "recorded": 2, "lowered": 2, "compiled": 2}
    assert row.line == f"{__file__}:{twice.__code__.co_firstlineno}" and not row.is_of_jax
    assert min(row.tracing, row.lowering, row.compiling) > 0 == row.loading
    assert row.seconds == row.tracing + row.lowering + row.compiling
    assert not row.left


def test_functions_that_are_made_anew_share_an_executable() -> None:
    def make() -> Any:
        return lambda x: jnp.cos(x) * 3

    jaxide.install()
    for _ in range(3):
        jax.jit(make())(jnp.ones(3))
    assert counts(row_of("<lambda>")) == {
        "traced": 3,
        "recorded": 3,
        "lowered": 1,
        "compiled": 1,
        "shared": 2,
    }


def test_jits_of_jaxide_alone() -> None:
    """They are seen within a context in which a run is recorded, installed or not."""

    def alone(x: Any) -> Any:
        return x * 5

    with RUN_LOG.recording():
        for _ in range(2):
            jaxide.jit(lambda x: alone(x))(jnp.ones(3))
    row = row_of("<lambda>")
    assert counts(row) == {"traced": 2, "recorded": 2, "lowered": 1, "compiled": 1, "shared": 1}


def test_traces_without_an_execution() -> None:
    def traced(x: Any) -> Any:
        return x * 2

    jaxide.install()
    jaxide.make_jaxpr(lambda x: traced(x))(1.0)
    jax.make_jaxpr(lambda x: traced(x))(1.0)
    jax.eval_shape(lambda x: traced(x), 1.0)
    rows = [row for row in jaxide.report_run().functions if row.name == "<lambda>"]
    assert len(rows) == 3  # Each on its own line, which is known.
    for row in rows:
        assert counts(row) == {"traced": 1, "recorded": 1}
        assert row.line.startswith(f"{__file__}:")


def test_what_is_lowered_and_compiled_ahead_of_time() -> None:
    def ahead(x: Any) -> Any:
        return x - 7

    jaxide.install()
    lowered = jax.jit(ahead).lower(jnp.ones(3))
    assert counts(row_of("ahead")) == {"traced": 1, "recorded": 1, "lowered": 1}
    lowered.compile()
    assert counts(row_of("ahead")) == {"traced": 1, "recorded": 1, "lowered": 1, "compiled": 1}


def test_functions_of_one_name_are_told_apart() -> None:
    jaxide.install()
    one, other = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)

    def step(x: Any) -> Any:
        return x + 1

    first = step

    def step(x: Any) -> Any:  # type: ignore[no-redef]
        return x + 2

    for size in (3, 4):
        jax.jit(first)(jnp.ones(size)), jax.jit(step)(jnp.ones(size))
    one(jnp.ones(3)), other(jnp.ones(3))
    rows = [row for row in jaxide.report_run().functions if row.name == "step"]
    lines = {f"{__file__}:{each.__code__.co_firstlineno}" for each in (first, step)}
    assert {row.line for row in rows} == lines
    assert [counts(row)["compiled"] for row in rows] == [2, 2]


def test_what_is_within_a_trace_is_noted_with_it() -> None:
    """Traces within others are none of their own, replays are not noted."""
    heard: list[tuple[Any, ...]] = []
    hear = lambda *event: heard.append(event)

    def inner(x: Any) -> Any:
        return jnp.tanh(x)

    def outer(x: Any) -> Any:
        for _ in range(50):
            x = jax.jit(inner)(jnp.sin(x) + jnp.where(x > 0, x, 1.0))
        return x

    jaxide.install()
    x = jnp.ones(3)
    from jaxide._compat import monitoring

    monitoring.listen(hear)
    try:
        jax.jit(outer)(x)
    finally:
        monitoring.leave(hear)
    assert [kind for kind, name, *_ in heard if name == "outer"] == [TRACE, LOWER, COMPILE]
    assert not [row for row in jaxide.report_run().functions if row.name == "inner"]
    assert jaxide.cache_info().hits > 50


def test_why_executables_are_not_looked_for() -> None:
    def profiled(x: Any) -> Any:
        return x * 11

    jaxide.install()
    with jax.enable_pgle(True) if hasattr(jax, "enable_pgle") else distributed_debug():
        jax.jit(profiled)(jnp.ones(3))
    assert row_of("profiled").left == {"profiling or debugging of jax is on": 1}


def distributed_debug() -> Any:
    from jax._src import config

    return config.distributed_debug(True)


def test_a_run_that_is_recorded_in_parts() -> None:
    def within(x: Any) -> Any:
        return x * 13

    with jaxide.accelerated():
        jax.jit(within)(jnp.ones(3))
    jax.jit(lambda x: x * 17)(jnp.ones(3))  # Nobody notes this one.
    with jaxide.accelerated(), jaxide.accelerated():
        jax.jit(within)(jnp.ones(4))
    report = jaxide.report_run()
    assert counts(row_of("within", report))["traced"] == 2
    assert not [row for row in report.functions if row.name == "<lambda>"]
    assert 0 < report.recorded < report.seconds
    times = report.times
    spent = times.tracing + times.lowering + times.compiling + times.loading + times.rest
    assert spent == pytest.approx(report.recorded)


def test_nothing_was_recorded() -> None:
    report = jaxide.report_run()
    assert (report.began, report.recorded, report.functions, report.spans) == (None, 0, (), ())
    assert "Nothing was recorded" in str(report)
    assert "Nothing was recorded" in (report.to_html() or "")
    assert json.loads(report.to_json() or "")["began"] is None


def test_jax_is_as_it_was() -> None:
    from jax._src import monitoring

    before = monitoring.get_event_duration_listeners()
    jaxide.install()
    assert len(monitoring.get_event_duration_listeners()) == len(before) + 1
    with jaxide.accelerated():
        jaxide.install()
    jaxide.uninstall()
    assert monitoring.get_event_duration_listeners() == before


def test_threads_begin_and_end_as_they_like() -> None:
    """Notes are taken as long as somebody wants that, and by nobody twice."""
    from jax._src import monitoring

    before = monitoring.get_event_duration_listeners()

    def work() -> None:
        for _ in range(300):
            with RUN_LOG.recording(), RUN_LOG.recording():
                assert RUN_LOG._since is not None

    threads = [threading.Thread(target=work) for _ in range(6)]
    with RUN_LOG.recording():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(monitoring.get_event_duration_listeners()) == len(before) + 1
    assert monitoring.get_event_duration_listeners() == before
    assert (RUN_LOG._wanted, RUN_LOG._since) == (0, None)


FORGETFUL = """
import jax, jaxide
jaxide.install()
jax.monitoring.clear_event_listeners()
jaxide.uninstall()
jaxide.install()
jax.jit(lambda x: x + 1)(1.0)
print(jaxide.report_run().functions[0].compiled)
"""


def test_somebody_has_jax_forget_all_listeners() -> None:
    assert run_alone(FORGETFUL).stdout == "1\n"


# Times


Event = tuple[str, str, float, float]


def noted(monkeypatch: pytest.MonkeyPatch, *events: Event) -> run_log.RunNotes:
    """The notes of events: kind, name, when they are over, and how long they took."""
    now = [0.0]
    monkeypatch.setattr(run_log, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    log = RunLog()
    with log.recording():
        for kind, name, end, seconds in events:
            now[0] = end
            log._heard(kind, name, None, seconds, False)
        return log.notes()


def test_seconds_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span within another one takes its seconds from it."""
    notes = noted(
        monkeypatch,
        (TRACE, "before", 1.0, 1.0),
        (COMPILE, "inner", 3.0, 0.25),
        (LOWER, "other", 4.0, 0.5),
        # It began when the first one was over, as far as the clock says.
        (TRACE, "outer", 11.0, 10.0),
        (TRACE, "next", 12.0, 0.0),
    )
    seconds = {row.name: row.seconds for row in notes.functions}
    assert seconds == {"before": 1.0, "inner": 0.25, "other": 0.5, "outer": 9.25, "next": 0.0}
    times = jaxide.RunTimes(tracing=10.25, lowering=0.5, compiling=0.25, loading=0.0, rest=1.0)
    assert notes.times == times


def test_an_executable_that_is_loaded_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = noted(
        monkeypatch,
        (LOAD, "", 1.0, 0.25),
        (COMPILE, "loaded", 1.25, 1.0),
        (LOAD, "", 2.0, 0.25),  # jax does not say of what.
        (COMPILE, "compiled", 4.0, 1.0),
    )
    rows = {row.name: (counts(row), row.loading, row.compiling) for row in notes.functions}
    assert rows["loaded"] == ({"loaded": 1}, 1.0, 0.0)
    assert rows["compiled"] == ({"compiled": 1}, 0.0, 1.0)


# Bounds, threads


def test_notes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {
        "MAX_FUNCTIONS": 10,
        "MAX_SPANS": 20,
        "MAX_NAMES": 15,
        "MAX_OPEN": 30,
        "MAX_PENDING": 40,
    }
    for name, bound in bounds.items():
        monkeypatch.setattr(run_log, name, bound)
    log = RunLog()
    log.begin()
    outcome = Outcome(False, True, 0, "because", 0.0, 0.0, None)
    try:
        for number in range(500):
            place = f"f{number} at {'x' * 10_000}:{number}"
            log._heard(TRACE, f"f{number}", place, 1e-9 * number, True)
            log.executed(place, outcome._replace(reason=f"{number}" * 1000))
            log.executed("f0 at x:0", outcome._replace(reason=f"because of {number}"))
            assert len(log._pending) <= 40
        notes = log.notes()
        assert len(notes.functions) == 11 and len(notes.spans) == 20 and notes.num_spans == 500
        others = next(row for row in notes.functions if row.name == run_log.OTHERS)
        assert others.traced == 491 and sum(row.traced for row in notes.functions) == 500
        # The longest are kept.
        assert min(span.seconds for span in notes.spans) == pytest.approx(480e-9)
        assert len(log._places) <= 15 and len(log._thread.work.over) <= 32
        assert all(len(row.left) <= run_log.MAX_REASONS for row in notes.functions)
        assert max(len(span.line) for span in notes.spans) <= run_log.MAX_TEXT
    finally:
        log.end()


def test_threads() -> None:
    jaxide.install()
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        barrier.wait()
        for size in (5, 6, 7):

            def threaded(x: Any) -> Any:
                return x * number

            jax.jit(threaded)(jnp.ones(size + 10 * number))

    threads = [threading.Thread(target=work, args=(n,), name=f"worker {n}") for n in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        jaxide.report_run()
    report = jaxide.report_run()
    row = row_of("threaded", report)
    assert (row.traced, row.lowered, row.compiled) == (18, 18, 18)
    mine = [span for span in report.spans if span.name == "threaded"]
    assert {span.thread for span in mine} == {thread.name for thread in threads}
    assert len(mine) == 54
    page = report.to_html() or ""
    assert all(f"<figcaption>{thread.name}</figcaption>" in page for thread in threads)


# The page


class Reader(html.parser.HTMLParser):
    """The tags and the texts of a page; each tag that is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        elif tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


def test_the_page_has_what_the_report_has(tmp_path: Path) -> None:
    def paged(x: Any) -> Any:
        return jnp.sin(x) * 19

    jaxide.install(captured="constants")
    for size in (3, 4):
        jax.jit(paged)(jnp.ones(size))
    report = jaxide.report_run(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert page == report.to_html()
    cells = Reader(page).cells
    [row] = [row for row in cells if row[0] == "paged" and row[1].endswith(tuple("0123456789"))][:1]
    assert row[2:7] == ["2", "2", "2", "2", "0"]
    assert ["captured", "constants", "argument", "JAXIDE_CAPTURED"] in [row[:4] for row in cells]
    assert page.count("<rect ") >= 5 + report.num_spans
    jaxide.report_run(str(tmp_path / "run.json"))
    found = json.loads((tmp_path / "run.json").read_text())
    assert [each["name"] for each in found["functions"]] == [f.name for f in report.functions]
    assert found["versions"]["jax"] == jax.__version__
    assert len(found["spans"]) == report.num_spans


def test_only_what_is_meant_may_run() -> None:
    page = jaxide.report_run().to_html() or ""
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in page
    assert " style=" not in page and " onclick=" not in page
    assert "://" not in page.replace("http://www.w3.org", "")


HOSTILE = '</script><script>alert("x")</script>&amp;<b>[/red]@TITLE@ at @BODY@'


def test_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(x: Any) -> Any:
        return x * 23

    hostile.__name__ = hostile.__qualname__ = HOSTILE
    monkeypatch.setattr(sys, "argv", [HOSTILE, "\ud800"])
    monkeypatch.setenv("JAXIDE_AUDIT_DIR", HOSTILE)
    jaxide.install()
    thread = threading.Thread(target=lambda: jax.jit(hostile)(jnp.ones(3)), name=HOSTILE)
    thread.start()
    thread.join()
    report = jaxide.report_run()
    page = report.to_html() or ""
    page.encode()
    reader = Reader(page)
    assert (reader.tags.count("b"), reader.tags.count("script")) == (5, 1)
    assert any(HOSTILE.partition(" at ")[0] in cell for row in reader.cells for cell in row)
    assert HOSTILE.partition(" at ")[0] in str(report)
    assert "<b>[/red]" not in report._repr_html_()
    assert json.loads(report.to_json() or "")["command"] == [HOSTILE, "\ud800"]


def test_shown() -> None:
    def shown(x: Any) -> Any:
        return x * 29

    jaxide.install()
    jax.jit(shown)(jnp.ones(3))
    report = jaxide.report_run()
    assert re.search(r"shown +\S*test_run_report\.py:\d+ +1 +1 +1 +1 +0 +0 ", str(report))
    assert re.fullmatch(r"<jaxide\.RunReport: .* s, \d+ functions?, \d+ spans>", repr(report))
    assert "shown" in report._repr_html_()


# Files


@pytest.mark.parametrize("name", ["run.txt", "run", "run.html.gz", ""])
def test_names_of_files_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path is a file whose name ends in \.html or \.json"):
        jaxide.report_run(tmp_path / name if name else name)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing" / "run.html"
    with pytest.raises(FileNotFoundError, match=re.escape(str(missing))):
        jaxide.report_run(missing)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(IsADirectoryError):
        jaxide.report_run(tmp_path / "folder.html")
    file = tmp_path / "run.html"
    file.write_text("before")

    def fails(*_: Any) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no space"):
            jaxide.report_run(file)
    assert file.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"run.html", "folder.html"}


# The end of a process

EXIT = """
import os, sys
import jax, jax.numpy as jnp, jaxide

def ended(x):
    return x * 31

jaxide.install()
jax.jit(ended)(jnp.ones(3))
"""


def ended(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", EXIT + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        check=False,
    )


def names_in(file: Path) -> list[str]:
    found = json.loads(file.read_text())
    return [f["name"] for f in found["functions"] if not f["is_of_jax"]]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("", 0),
        ("raise KeyError('x')", 1),
        ("sys.exit(7)", 7),
        ("jaxide.uninstall(); jax.jit(lambda x: x)(1.0)", 0),
        ("os.chdir('/')", 0),
    ],
)
def test_the_report_is_written_when_the_process_ends(
    script: str, status: int, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    done = ended(script, JAXIDE_REPORT=str(file))
    assert done.returncode == status, done.stderr
    assert "jaxide" not in done.stderr
    assert "ended" in names_in(file)
    assert list(tmp_path.iterdir()) == [file]


def test_the_argument_goes_before_the_environment(tmp_path: Path) -> None:
    script = f"jaxide.install(report={str(tmp_path / 'argument.html')!r})"
    assert not ended(script, JAXIDE_REPORT=str(tmp_path / "environment.html")).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["argument.html"]
    assert "ended" in (tmp_path / "argument.html").read_text()


def test_a_process_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    assert ended("os._exit(3)", JAXIDE_REPORT=str(tmp_path / "run.json")).returncode == 3
    assert not list(tmp_path.iterdir())


FORK = """
import json
child = os.fork()
if not child:
    def forked(x):
        return x * 37
    jax.make_jaxpr(forked)(1.0)
    jaxide.report_run(os.environ["CHILD"])
    sys.exit(0)
os.waitpid(child, 0)
print(os.path.exists(os.environ["JAXIDE_REPORT"]))
"""


def test_a_child_has_a_run_of_its_own(tmp_path: Path) -> None:
    """It writes no report when it ends: the file is its parent's."""
    parent, child = tmp_path / "parent.json", tmp_path / "child.json"
    done = ended(FORK, JAXIDE_REPORT=str(parent), CHILD=str(child))
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert names_in(parent) == ["ended"] and names_in(child) == ["forked"]


def test_a_report_that_cannot_be_written_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "run.html"
    done = ended("", JAXIDE_REPORT=str(file))
    assert (
        done.returncode == 0 and "no report is written: JAXIDE_REPORT names a file" in done.stderr
    )
    file.parent.mkdir()
    done = ended(f"os.rmdir({str(file.parent)!r})", JAXIDE_REPORT=str(file))
    assert done.returncode == 0 and "the report of the run was not written" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_jaxide(tmp_path: Path) -> None:
    """Where jaxide is switched off, jax's own traces are in the report."""
    file = tmp_path / "run.json"
    done = ended("", JAXIDE_REPORT=str(file), JAXIDE_DISABLE="1")
    assert done.returncode == 0, done.stderr
    [row] = [row for row in json.loads(file.read_text())["functions"] if row["name"] == "ended"]
    names = "traced recorded lowered compiled shared".split()
    assert [row[name] for name in names] == [1, 0, 1, 1, 0]


STORED = """
import sys
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
import jaxide
jaxide.install(cache_dir=":jax:", cache_mode="write", report=sys.argv[2])
def kept(x):
    return jnp.sin(x) * 41
jax.jit(kept)(jnp.ones(3))
"""


def test_a_store_in_a_second_process(tmp_path: Path) -> None:
    (tmp_path / "compiled").mkdir(mode=0o700)
    found = []
    for name in ("first.json", "second.json"):
        done = subprocess.run(
            [sys.executable, "-c", STORED, str(tmp_path / "compiled"), str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads((tmp_path / name).read_text())
        [row] = [row for row in report["functions"] if row["name"] == "kept"]
        names = "traced lowered compiled loaded stored".split()
        found.append([row[name] for name in names])
        assert (row["loading"] > 0) == (row["loaded"] > 0)
    assert found == [[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]]
    assert report["store"]["hits"] > 0 and report["times"]["loading"] > 0
