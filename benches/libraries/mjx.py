"""Steps of physics in mjx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

from libraries import Program

LEG = """
<body pos="{x} 0 -0.1"><joint name="hip{n}" type="hinge" axis="0 1 0" range="-60 60"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".05"/>
  <body pos="0 0 -.3"><joint name="knee{n}" type="hinge" axis="0 1 0" range="-100 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".04"/>
    <geom type="sphere" pos="0 0 -.32" size=".06"/></body></body>
"""
WALKER = f"""
<mujoco><option timestep="0.005" iterations="4" ls_iterations="6"/>
<worldbody><geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .8"><freejoint/><geom type="box" size=".2 .1 .08"/>
    {LEG.format(x=-0.15, n=0)}{LEG.format(x=0.15, n=1)}</body></worldbody>
<actuator>{"".join(f'<motor joint="{j}{n}" gear="40"/>' for j in ("hip", "knee") for n in (0, 1))}
</actuator></mujoco>
"""


def walker() -> Program:
    """Four steps in a scan of two walkers with contacts and motors."""
    model = mjx.put_model(mujoco.MjModel.from_xml_string(WALKER))
    start = mjx.make_data(model)
    places = jnp.stack([start.qpos, start.qpos.at[2].add(-0.1)])
    data = jax.vmap(lambda qpos: start.replace(qpos=qpos))(places)

    def step(model: Any, data: Any, controls: Any) -> Any:
        def body(data: Any, control: Any) -> Any:
            data = jax.vmap(lambda d: mjx.step(model, d.replace(ctrl=control)))(data)
            return data, data.qpos

        return jax.lax.scan(body, data, controls)

    return Program(step, (model, data, jnp.full((4, 4), 0.2)))
