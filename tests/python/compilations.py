"""How often XLA compiles."""

from __future__ import annotations

from typing import Any

import jax


class Compiled:
    """How often XLA compiled something within a context."""

    def __enter__(self) -> Compiled:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._seen)
        return self

    def _seen(self, event: str, seconds: float, **_: Any) -> None:
        self.count += event.endswith("backend_compile_duration")

    def __exit__(self, *exc: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._seen)
