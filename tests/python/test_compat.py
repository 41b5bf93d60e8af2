"""What happens on a jax whose private parts are not what the trace was written against."""

import textwrap

import pytest

from alone import run_alone

# Changes to jax that its own success path does not notice, and what `status` has to name.
SABOTAGE = {
    "missing function": (
        "del pe._verify_params_are_hashable",
        "traces",
        "interpreters.partial_eval:_verify_params_are_hashable is missing",
    ),
    "other parameters": (
        "pe._verify_params_are_hashable = lambda primitive: None",
        "traces",
        "_verify_params_are_hashable takes (primitive), not (primitive params)",
    ),
    "other method": (
        "core.Primitive.is_high = lambda self, *avals, **fields: False",
        "traces",
        "core:Primitive.is_high takes (self *avals **fields)",
    ),
    "other slots": (
        "core.Literal.__slots__ = ['val', 'aval', 'type']",
        "programs",
        "core:Literal has the slots (val aval type), not (val aval)",
    ),
}

PROGRAM = """
import warnings
import jax
import jax.numpy as jnp
from jax._src import core
from jax._src.interpreters import partial_eval as pe

def f(x):
    return jnp.sin(x) + 1

{sabotage}
expected = str(jax.make_jaxpr(f)(1.0))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import jaxide
    texts = [str(jaxide.make_jaxpr(lambda x: f(x))(1.0)) for _ in range(2)]
    program = jaxide.trace(f)(1.0)
    again = jaxide.from_jaxpr(program.jaxpr)
assert texts == [expected] * 2, texts
assert str(program) == str(again) == expected
assert len(program) == len(again) == 2
assert float(program(1.0)) == float(f(1.0)) == float(again(1.0)[0])
ours = [w for w in caught if issubclass(w.category, jaxide.JaxideFallbackWarning)]
assert len(ours) == 1, ours
print(ours[0].message)
[lost] = [c for c in jaxide.status().capabilities if c.name == "{capability}"]
print(lost.why)
if "{capability}" != "programs":
    assert program.structural_hash == again.structural_hash
"""


@pytest.mark.parametrize("case", SABOTAGE)
def test_unknown_jax_falls_back_with_one_warning(case: str) -> None:
    sabotage, capability, mention = SABOTAGE[case]
    script = textwrap.dedent(PROGRAM).replace("{sabotage}", sabotage)
    script = script.replace("{capability}", capability)
    done = run_alone(script)
    assert mention in done.stdout
    assert f"left to jax: {capability}" in done.stdout
    assert "jax 0.10.2 to 0.12" in done.stdout
