"""Alarms of a timer that tests set."""

from __future__ import annotations

import signal


def end_alarms() -> None:
    """Ignored first: a handler that is still due sets the timer again, one that another thread is
    told of comes later, and an alarm after the interpreter has given its handlers up ends the
    process."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
