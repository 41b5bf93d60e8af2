"""How much it is to read the text of symbolic dimensions, which jax multiplies out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Of texts that are read together: characters, terms and powers that are multiplied out.
MAX_SIZE = 4096
# Of a value: its degree, and the bits of its numbers.
MAX_WEIGHT = 1 << 16
# jax compares each constraint with those before.
MAX_CONSTRAINTS = 64

_TOKEN = re.compile(r"\w+|\S")


class _Size(NamedTuple):
    """At most how large a value is."""

    terms: int = 1
    weight: int = 0


class _Group:
    """A sum that is being read: its terms, the product at its end, and the last factor there."""

    def __init__(self) -> None:
        self.terms, self.weight = 0, 0
        self.product, self.factor = _Size(), _Size()


class _TooLarge(Exception):
    pass


class _Reader:
    """Reads texts as jax does, and only counts."""

    def __init__(self) -> None:
        self._left = MAX_SIZE

    def read(self, text: str) -> None:
        """Counts a text.

        Raises:
          _TooLarge: it is too much.
        """
        groups, before = [_Group()], ""
        for token in _TOKEN.findall(text):
            group = groups[-1]
            if token == "(":
                groups.append(_Group())
            elif token == ")":
                self._end_term(groups.pop())
                groups = groups or [_Group()]
                groups[-1].factor = _Size(max(1, group.terms), group.weight)
            elif token == "*":
                self._multiply(group)
            elif before == "^":
                group.factor = self._power(group.factor, _number(token) or 0)
            elif token.isidentifier() or token[0].isalnum():
                number = _number(token)
                group.factor = _Size(1, 1 if number is None else number.bit_length())
            elif token != "^":
                self._end_term(group)
            before = token
        for group in groups:
            self._end_term(group)

    def _power(self, size: _Size, power: int) -> _Size:
        self._count(power)
        # Before it is computed: a power of a sum has more terms than any number of use.
        if power * (size.terms.bit_length() - 1) > MAX_SIZE.bit_length():
            raise _TooLarge
        return self._checked(_Size(size.terms**power, size.weight * power))

    def _multiply(self, group: _Group) -> None:
        product, factor = group.product, group.factor
        made = _Size(product.terms * factor.terms, product.weight + factor.weight)
        group.product, group.factor = self._checked(made), _Size()

    def _end_term(self, group: _Group) -> None:
        self._multiply(group)
        group.terms += group.product.terms
        group.weight = max(group.weight, group.product.weight)
        group.product = _Size()

    def _checked(self, size: _Size) -> _Size:
        if size.weight > MAX_WEIGHT:
            raise _TooLarge
        self._count(size.terms - 1)
        return size

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooLarge


def _number(token: str) -> int | None:
    try:
        return int(token)
    except ValueError:
        return None


def is_small(texts: Sequence[str]) -> bool:
    """Whether texts that are read together, of a dimension or of the constraints of a scope, are
    read in a short time."""
    if len(texts) > MAX_CONSTRAINTS or sum(map(len, texts)) > MAX_SIZE:
        return False
    reader = _Reader()
    try:
        for text in texts:
            reader.read(text)
    except _TooLarge:
        return False
    return True
