"""Auditing: what is remembered is compared with what jax does, and a difference has consequences."""

import gc
import json
import os
import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from jaxide import _audit, _core

X = jnp.arange(3.0)


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Nothing is audited, remembered or barred; files go to a folder of the test's."""
    monkeypatch.setenv("JAXIDE_AUDIT_DIR", str(tmp_path))
    before = _audit.audit_every(0)
    jax.clear_caches()
    jaxide.clear_caches()
    kept = _audit.audit_report()
    jaxide.clear_audit()
    yield
    _audit.unbar()
    jaxide.clear_caches()
    jaxide.clear_audit()
    _audit.restore(kept)
    _audit.audit_every(before)


def traced(fun, *args):
    return str(jaxide.make_jaxpr(lambda *args: fun(*args))(*args))


def stock(fun, *args):
    return str(jax.make_jaxpr(lambda *args: fun(*args))(*args))


def warm(fun, *args):
    for _ in range(4):
        text = traced(fun, *args)
    assert text == stock(fun, *args)


def plant(fun, *args, name="name", value="planted"):
    """Changes a param of what is remembered of the jits that `fun` calls."""
    programs = [
        eqn.params["jaxpr"]
        for eqn in jaxide.make_jaxpr(fun)(*args).eqns
        if eqn.primitive.name in ("jit", "pjit")
    ]
    for program in programs:
        for holder in gc.get_referrers(program):
            if type(holder) is dict and name in holder and holder.get("jaxpr") is program:
                holder[name] = value


def clipped(x):
    return jnp.clip(x, 0.0, 1.0) * 2
