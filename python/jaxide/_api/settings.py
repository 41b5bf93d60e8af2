"""The settings in force, and where they come from: ``settings``."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxide import _settings
from jaxide._reports.tables import Fitted, Shown, as_text, table


@dataclasses.dataclass(frozen=True)
class SettingValue:
    """A setting, and its value that is in force.

    Attributes:
      name: the argument of :func:`jaxide.install`.
      variable: the variable of the environment.
      value: the value in force.
      source: where it comes from: "argument", "environment" or "default".
      default: its value where nobody says one.
      is_argument: whether :func:`jaxide.install` takes it.
      means: what it does.
    """

    name: str
    variable: str
    value: Any
    source: str
    default: Any
    is_argument: bool
    means: str


class Settings(tuple[SettingValue, ...], Shown):
    """All settings; prints as a table."""

    __slots__ = ()

    __str__ = as_text

    def __repr__(self) -> str:
        said = [f"{s.name}={s.value!r} ({s.source})" for s in self if s.source != "default"]
        return f"<jaxide.Settings: {', '.join(said) or 'all defaults'}>"

    def __rich__(self) -> Fitted:
        def cells(setting: SettingValue) -> tuple[str, ...]:
            source = setting.source if setting.source != "default" else ""
            shown = _settings.shown(setting.value)
            return setting.name, shown, source, setting.variable, setting.means

        columns = ("setting", "value", "from", "variable", "what it does")
        return table(columns, self, cells, texts=5, most=len(self), prose="what it does")


def settings() -> Settings:
    """All settings: the values in force, and where each comes from.

    An argument of :func:`jaxide.install` goes before the environment, the environment before the
    default (``docs/settings.md``). ``python -m jaxide doctor`` prints the same.

    Example:
      >>> {setting.name: setting.default for setting in jaxide.settings()}["cache_mode"]
      'write'

    Returns:
      A tuple of :class:`SettingValue`, which prints as a table.
    """
    return Settings(
        SettingValue(
            setting.name,
            setting.variable,
            *_settings.in_force(setting.name),
            setting.default,
            setting.is_argument,
            setting.means,
        )
        for setting in _settings.SETTINGS.values()
    )
