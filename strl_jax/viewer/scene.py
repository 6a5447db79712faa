"""MuJoCo models for rendering: the robot with ground, light and sky."""

from dataclasses import replace

import mujoco
import numpy as np

from strl_jax.envs.base import Env
from strl_jax.envs.legged import mjcf
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.viewer import shapes
from strl_jax.viewer.recording import can_record

FLOOR, SKY, GROUND = "strl_jax_floor", "strl_jax_sky", "strl_jax_hfield"
THICKNESS = 0.1  # m of ground under the lowest point of a height field
MARGIN = 12.0  # m of terrain around the path: software rendering of a whole terrain takes a second per frame


def of(env: Env, qpos: np.ndarray) -> mujoco.MjModel | None:
    """The model for rendering the states ``qpos [T, nq]`` of an environment; None if there is no MuJoCo model.

    A terrain is cropped to the part around the robot's path.
    """
    if not can_record(env):
        return getattr(env, "mj_model", None)
    terrain = env.terrain
    return dressed(env.config.robot.path, terrain if terrain is None else _crop(terrain, qpos[:, :2]))


def _crop(terrain: Terrain, path: np.ndarray) -> Terrain:
    """The terrain around the points ``path [T, 2]``, at least one cell; points that are not finite are ignored."""
    path = path[np.isfinite(path).all(axis=1)]
    if not len(path):
        return terrain
    axes = [start + terrain.cell * np.arange(n) for start, n in zip(terrain.corner, terrain.heights.shape, strict=True)]
    x, y = map(shapes.enclosing_nodes, axes, path.min(axis=0) - MARGIN, path.max(axis=0) + MARGIN)
    corner = (float(axes[0][x.start]), float(axes[1][y.start]))
    return replace(terrain, heights=terrain.heights[x, y], corner=corner)


def dressed(path: str | None, terrain: Terrain | None = None) -> mujoco.MjModel:
    """A robot on a chequered floor or on a terrain, with sky and with a light that follows the robot.

    Args:
        path: MJCF file; None: the built-in quadruped. Planes and lights of the file are removed.
        terrain: None: flat ground at height 0.
    """
    spec = mjcf.read(path)
    planes = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    for item in [*planes, *spec.lights]:
        spec.delete(item)
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
        nrow=heights.shape[1],  # the rows of a MuJoCo height field are along y
        ncol=heights.shape[0],
        size=[half[0], half[1], rise, THICKNESS],
        userdata=((heights.T - low) / rise).ravel(),
    )
    centre = np.asarray(terrain.corner) + half
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=GROUND, pos=[*centre, low], material=FLOOR)
