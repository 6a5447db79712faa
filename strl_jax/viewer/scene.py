"""MuJoCo models to look at: the robot with ground, light and sky."""

from dataclasses import replace

import mujoco
import numpy as np

from strl_jax.envs.base import Env
from strl_jax.envs.legged import mjcf
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.viewer.recording import records

FLOOR, SKY, GROUND = "strl_jax_floor", "strl_jax_sky", "strl_jax_hfield"
THICKNESS = 0.1  # m of ground under the lowest point of a height field
AROUND = 12.0  # m of a terrain on each side of the way: software draws the whole for a second in every frame


def of(env: Env, qpos: np.ndarray) -> mujoco.MjModel | None:
    """The model to show the steps ``qpos [T, nq]`` of an environment with; None if it has none.

    Of a terrain it has the part about the way.
    """
    if not records(env):
        return getattr(env, "mj_model", None)
    terrain = env.terrain
    return dressed(env.config.robot.path, terrain if terrain is None else _around(terrain, qpos[:, :2]))


def _around(terrain: Terrain, way: np.ndarray) -> Terrain:
    """The ground about the places ``[T, 2]``, at least one cell of it."""
    way = way[np.isfinite(way).all(axis=1)]
    if not len(way):
        return terrain
    corner, most = np.asarray(terrain.corner), np.array(terrain.heights.shape) - 1
    low = np.clip(np.floor((way.min(axis=0) - AROUND - corner) / terrain.cell), 0, most - 1).astype(int)
    high = np.clip(np.ceil((way.max(axis=0) + AROUND - corner) / terrain.cell), low + 1, most).astype(int)
    heights = terrain.heights[low[0] : high[0] + 1, low[1] : high[1] + 1]
    return replace(terrain, heights=heights, corner=tuple((corner + terrain.cell * low).tolist()))


def dressed(path: str | None, terrain: Terrain | None = None) -> mujoco.MjModel:
    """A robot on a chequered floor, or on a terrain, under a light that follows it.

    Args:
        path: MJCF; None: our own quadruped. Its own ground, a plane, is taken away.
        terrain: None: flat ground at height 0.
    """
    spec = mjcf.read(path)
    for geom in list(spec.worldbody.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            spec.delete(geom)
    _add_material(spec)
    if terrain is None:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05], material=FLOOR)
    else:
        _add_terrain(spec, terrain)
    _add_light(spec)
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1080
    spec.visual.headlight.ambient[:] = 0.4
    spec.visual.headlight.diffuse[:] = 0.5
    spec.visual.rgba.haze[:] = [0.85, 0.89, 0.93, 1]
    return spec.compile()


def _add_material(spec: mujoco.MjSpec) -> None:
    kinds, patterns = mujoco.mjtTexture, mujoco.mjtBuiltin
    if not any(texture.type == kinds.mjTEXTURE_SKYBOX for texture in spec.textures):
        sky = {"rgb1": [0.55, 0.7, 0.85], "rgb2": [0.92, 0.95, 0.98], "width": 256, "height": 256}
        spec.add_texture(name=SKY, type=kinds.mjTEXTURE_SKYBOX, builtin=patterns.mjBUILTIN_GRADIENT, **sky)
    squares = {"rgb1": [0.6, 0.65, 0.68], "rgb2": [0.7, 0.74, 0.77], "width": 256, "height": 256}
    spec.add_texture(name=FLOOR, type=kinds.mjTEXTURE_2D, builtin=patterns.mjBUILTIN_CHECKER, **squares)
    material = spec.add_material(name=FLOOR, texuniform=True, texrepeat=[1, 1], specular=0.1)  # squares of 0.5 m
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = FLOOR


def _add_light(spec: mujoco.MjSpec) -> None:
    for light in list(spec.lights):
        spec.delete(light)
    body = next(body for body in spec.bodies if body.joints)
    body.add_light(
        type=mujoco.mjtLightType.mjLIGHT_SPOT,  # the shadows of a directional light have stripes
        mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
        pos=[1, -1.5, 4],
        dir=[-0.25, 0.4, -1],
        cutoff=70,
        exponent=1,
        diffuse=[0.7, 0.7, 0.7],
        castshadow=True,
    )


def _add_terrain(spec: mujoco.MjSpec, terrain: Terrain) -> None:
    heights = np.asarray(terrain.heights, float)
    low, rise = heights.min(), max(float(np.ptp(heights)), 1e-3)
    half = terrain.cell * (np.array(heights.shape) - 1) / 2
    spec.add_hfield(
        name=GROUND,
        nrow=heights.shape[1],  # rows of a height field lie along y
        ncol=heights.shape[0],
        size=[half[0], half[1], rise, THICKNESS],
        userdata=((heights.T - low) / rise).ravel(),
    )
    centre = np.asarray(terrain.corner) + half
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=GROUND, pos=[*centre, low], material=FLOOR)
