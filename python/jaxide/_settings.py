"""The settings of jaxide: their names, values and meanings, and what is in force.

Each is an argument of ``jaxide.install`` and a variable of the environment. An argument goes before
the environment, the environment before the default. A value is checked in one way, wherever it
comes from. An argument that is none is an error. A variable that is none means a warning, once; the
value that risks least is in force then.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# How captured arrays are given to executables.
CAPTURED = ("auto", "constants", "arguments")
# What may be done with the store.
CACHE_MODES = ("write", "read")
# The loggers that may be named.
LOGGERS = ("retraces",)
# How the name of a report's file may end.
REPORTS = (".html", ".json")

_PREFIX = "JAXIDE_"
# Variables of jaxide's own tests.
_OF_TESTS = "JAXIDE_TEST_"
_MAX_NUMBER = 2**63 - 1


class _Invalid(Exception):
    """A value that a setting cannot have."""


def _count(given: Any) -> int:
    """A whole number that is not negative."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _MAX_NUMBER:
        raise _Invalid
    return given


def _number_of(text: str) -> int:
    # int() takes underscores and the digits of all scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise _Invalid
    return int(text)


_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}


def _flag(given: Any) -> bool:
    if not isinstance(given, bool):
        raise _Invalid
    return given


def _flag_of(text: str) -> bool:
    found = _WORDS.get(text.lower())
    if found is None:
        raise _Invalid
    return found


# What a text of the environment is for settings that are no texts.
_FROM_TEXT: dict[Any, Callable[[str], Any]] = {_count: _number_of, _flag: _flag_of}


def _path(given: Any) -> str:
    try:
        path = os.fspath(given)
        # Whether the file system has such names.
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise _Invalid from None
    if not isinstance(path, str) or not path or "\0" in path:
        raise _Invalid
    return path


def _report(given: Any) -> str:
    path = _path(given)
    if not path.endswith(REPORTS):
        raise _Invalid
    return path


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def choice(given: Any) -> str:
        if not isinstance(given, str) or given not in choices:
            raise _Invalid
        return given

    return choice


def _names(given: Any) -> tuple[str, ...]:
    """Names that are separated by commas, or a sequence of them."""
    if isinstance(given, str):
        given = filter(None, map(str.strip, given.split(",")))
    try:
        found = tuple(dict.fromkeys(given))
    except TypeError:
        raise _Invalid from None
    if not all(isinstance(name, str) for name in found):
        raise _Invalid
    return found


def _loggers(given: Any) -> tuple[str, ...]:
    found = _names(given)
    if not set(found) <= set(LOGGERS):
        raise _Invalid
    return found


class Setting(NamedTuple):
    """A setting.

    Attributes:
      name: the argument of ``jaxide.install``.
      kind: what its value is, in words that complete "it has to be".
      default: its value where nobody says one; None for none.
      means: what it does.
      check: makes its value of what is given.
      careful: its value where the environment's is none.
      ends: whether ``jaxide.uninstall`` ends what an argument said; the process does otherwise.
      is_argument: whether it is an argument; what decides what an import does cannot be one.
    """

    name: str
    kind: str
    default: Any
    means: str
    check: Callable[[Any], Any]
    careful: Any
    ends: bool
    is_argument: bool = True

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return _PREFIX + self.name.upper()

    def checked(self, given: Any, called: str | None = None) -> Any:
        """The value that an argument means.

        Raises:
          ValueError: it is none; ``called`` is the name of the argument where it has another.
        """
        try:
            return self.check(given)
        except _Invalid:
            raise self._wrong(called or self.name, given) from None

    def read(self, text: str) -> Any:
        """The value that a text of the environment means.

        Raises:
          ValueError: it is none.
        """
        try:
            return self.check(_FROM_TEXT.get(self.check, str)(text))
        except _Invalid:
            raise self._wrong(self.variable, text) from None

    def _wrong(self, called: str, given: Any) -> ValueError:
        return ValueError(f"{called} is {self.kind}, got {given!r}")


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "disable",
            "a yes or no (1 or 0)",
            False,
            "jaxide does nothing: every trace, jit and execution is jax's",
            _flag,
            True,
            True,
        ),
        Setting(
            "captured",
            f"one of {', '.join(CAPTURED)}",
            "auto",
            "how captured arrays are given to executables",
            _one_of(CAPTURED),
            "auto",
            True,
        ),
        Setting(
            "audit",
            "a number of replays, 0 for none",
            0,
            "one in so many replays and shared executables is compared with what jax does",
            _count,
            0,
            True,
        ),
        Setting(
            "audit_dir",
            "a folder",
            None,
            "where differences that an audit finds are written; else the folder of temporary files",
            _path,
            None,
            True,
        ),
        Setting(
            "cache_dir",
            "a folder, or :jax: for one beside jax's compilation cache",
            None,
            "the folder of the store; without one, nothing is stored",
            _path,
            None,
            False,
        ),
        Setting(
            "cache_mode",
            f"one of {', '.join(CACHE_MODES)}",
            "write",
            "whether the store is added to, or only read",
            _one_of(CACHE_MODES),
            "read",
            False,
        ),
        Setting(
            "cache_max_bytes",
            "a number of bytes",
            1 << 28,
            "bound of the folder of the store",
            _count,
            1 << 28,
            False,
        ),
        Setting(
            "cache_trust",
            "a yes or no (1 or 0)",
            False,
            "a folder of the store that others may write to is used too",
            _flag,
            False,
            False,
        ),
        Setting(
            "log",
            f"a list of loggers ({', '.join(LOGGERS)})",
            (),
            "what loggers say is printed on stderr",
            _loggers,
            (),
            False,
        ),
        Setting(
            "report",
            f"a file whose name ends in {' or '.join(REPORTS)}",
            None,
            "the report of the run, written when the process ends",
            _report,
            None,
            False,
        ),
        Setting(
            "assume_known",
            "a list of capabilities, or all",
            (),
            "capabilities that are taken as known; for whoever ports jaxide to another jax",
            _names,
            (),
            False,
            is_argument=False,
        ),
    )
}


class InForce(NamedTuple):
    """A value and where it comes from: "argument", "environment" or "default"."""

    value: Any
    source: str


# What arguments say. Replaced as a whole: whoever reads it needs no lock.
_arguments: Mapping[str, Any] = {}
# Variables and texts of which a warning has said that they are none.
_said: set[tuple[str, str]] = set()


def checked_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of arguments, without those that are None.

    Raises:
      ValueError: one is none; the message names the argument.
    """
    return {
        name: SETTINGS[name].checked(value) for name, value in given.items() if value is not None
    }


@contextlib.contextmanager
def arguments(values: Mapping[str, Any]) -> Iterator[None]:
    """Puts checked values in force; takes them back where what is done with them fails."""
    before = _arguments
    _set_arguments({**before, **values})
    try:
        yield
    except BaseException:
        # What another thread has said meanwhile stays.
        now = {name: value for name, value in _arguments.items() if name not in values}
        now |= {name: before[name] for name in values if name in before}
        _set_arguments(now)
        raise


def _set_arguments(values: Mapping[str, Any]) -> None:
    global _arguments
    _arguments = values
    _settle()


def forget_arguments() -> None:
    """Takes back what arguments said, as far as ``jaxide.uninstall`` ends it."""
    _set_arguments({name: v for name, v in _arguments.items() if not SETTINGS[name].ends})


def in_force(name: str) -> InForce:
    """The value of a setting that is in force now, and where it comes from."""
    if name in _arguments:
        return InForce(_arguments[name], "argument")
    setting = SETTINGS[name]
    text = os.environ.get(setting.variable, "").strip()
    if not text:
        return InForce(setting.default, "default")
    try:
        return InForce(setting.read(text), "environment")
    except ValueError as error:
        _say_once(setting, text, str(error))
        return InForce(setting.careful, "environment")


def value(name: str) -> Any:
    """The value of a setting that is in force now."""
    return in_force(name).value


def said_by(name: str) -> str:
    """Who has said the value of a setting, in words for a message."""
    source = in_force(name).source
    return SETTINGS[name].variable if source == "environment" else f"install({name}=...)"


def _say_once(setting: Setting, text: str, error: str) -> None:
    if (setting.variable, text) in _said:
        return
    _said.add((setting.variable, text))
    warnings.warn(f"{error}; in force is: {shown(setting.careful)}", stacklevel=2)


def shown(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = ", ".join(value)
    return "none" if value in (None, "") else str(value)


def check_environment() -> None:
    """Warns of variables whose values are none, and of those that look like settings and are none,
    with the nearest names."""
    for name in SETTINGS:
        in_force(name)
    known = [setting.variable for setting in SETTINGS.values()]
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(_PREFIX) and not name.startswith(_OF_TESTS) and name not in known
    )
    if not unknown:
        return
    from difflib import get_close_matches

    # The prefix, which all have, makes none nearer.
    ends = [name.removeprefix(_PREFIX) for name in known]
    said = []
    for name in unknown:
        near = get_close_matches(name.removeprefix(_PREFIX), ends, n=1)
        said.append(f"{name} (is {_PREFIX}{near[0]} meant?)" if near else name)
    warnings.warn(f"no setting of jaxide: {', '.join(said)}", stacklevel=2)


def is_disabled() -> bool:
    """Whether all is left to jax. Asked before each trace: the environment is read once."""
    return _is_disabled


def _settle() -> None:
    global _is_disabled
    _is_disabled = bool(value("disable"))


_is_disabled = False
_settle()
