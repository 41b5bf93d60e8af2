"""What is kept by key stays whole, whoever uses it at the same time."""

from __future__ import annotations

from alone import run_alone
from jaxide._native.bounded import Bounded, touch, trim

THREADS = """
import random, sys, threading
from jaxide._native.bounded import Bounded, touch, trim

sys.setswitchinterval(1e-6)

class Key:  # compared in Python, where threads change places
    def __init__(self, value):
        self.value = value
    def __hash__(self):
        return self.value
    def __eq__(self, other):
        return self.value == other.value

values, computed = {}, Bounded(8)
wrong = []

def use(seed):
    numbers = random.Random(seed)
    for _ in range(4000):
        number = numbers.randrange(12)
        key = Key(number), 1
        if values.get(key, number) != number or computed.get(key, lambda: number) != number:
            wrong.append(number)
        values[key] = number
        touch(values, key)
        trim(values, 8)

threads = [threading.Thread(target=use, args=(seed,)) for seed in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
trim(values, 8)
assert not wrong and len(values) == 8, (wrong, values)
"""


def test_threads_that_compare_keys_in_python() -> None:
    """With an ``OrderedDict`` the process died of a segmentation fault."""
    run_alone(THREADS)


def test_the_first_goes_first() -> None:
    values = dict.fromkeys("abcd", 0)
    touch(values, "a")
    touch(values, "z")
    trim(values, 2)
    assert list(values) == ["d", "a"]


def test_a_value_is_computed_once() -> None:
    computed = Bounded(2)
    asked: list[str] = []
    for key in "aababcca":
        computed.get(key, lambda key=key: asked.append(key))  # type: ignore[misc]
    assert asked == ["a", "b", "c", "a"]


def test_a_key_without_a_hash() -> None:
    assert Bounded(2).get([], lambda: 1) == 1
