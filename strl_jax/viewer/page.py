"""HTML page with a 3D view of one episode, as a single file that needs no network."""

import base64
import html
import json
from collections.abc import Mapping
from importlib import resources

import mujoco
import numpy as np

from strl_jax.viewer import shapes
from strl_jax.viewer.draw import moving_body, reach_of

AROUND = 6.0  # m of a height field that are shown around the robot's path
GROUPS = 3  # geoms of group 3 and above are hidden, as in MuJoCo's viewer
GROUNDS = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
PLANE = 100.0  # m, half of the size at which an infinite plane is drawn


def build(model: mujoco.MjModel, trace: Mapping[str, np.ndarray], dt: float, title: str) -> str:
    """The text of the page.

    Args:
        model: result of ``scene.of``.
        trace: ``qpos [T, nq]`` and, for a legged robot, ``command`` and ``velocity`` ``[T, 3]``.
        dt: duration of a step, s.
        title: title of the page, as plain text.
    """
    data, body = mujoco.MjData(model), moving_body(model)
    shown = [g for g in range(model.ngeom) if model.geom_group[g] < GROUPS and _colour(model, g)[3] > 0]
    moving = [g for g in shown if model.body_weldid[model.geom_bodyid[g]]]
    poses, focus = np.zeros((len(trace["qpos"]), len(moving), 12)), np.zeros((len(trace["qpos"]), 3))
    for step, qpos in enumerate(trace["qpos"]):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        poses[step] = np.concatenate([data.geom_xmat[moving], data.geom_xpos[moving]], axis=1)
        focus[step] = data.subtree_com[body]
    scene = {
        "dt": dt,
        "distance": 3.6 * reach_of(model, data, body),
        "shapes": [_shape(model, data, g, focus) | {"pose": moving.index(g)} for g in moving],
        "ground": [_shape(model, data, g, focus) for g in shown if g not in moving],
        "poses": _packed(poses, np.float32),
        "focus": _packed(focus, np.float32),
        **{name: _packed(trace[name], np.float32) for name in ("command", "velocity") if name in trace},
    }
    page = resources.files(__package__).joinpath("page.html").read_text()
    return page.replace("{{title}}", html.escape(title)).replace("{{scene}}", json.dumps(scene))


def _shape(model: mujoco.MjModel, data: mujoco.MjData, geom: int, focus: np.ndarray) -> dict:
    """Triangles and colour of a geom, in its frame or, if it does not move, in the world frame."""
    position, rotation = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
    vertices, faces = _surface(model, geom, (focus - position) @ rotation)
    if not model.body_weldid[model.geom_bodyid[geom]]:
        vertices = vertices @ rotation.T + position
    return {
        "vertices": _packed(vertices, np.float32),
        "faces": _packed(faces, np.uint32),
        "colour": [round(float(part), 3) for part in _colour(model, geom)],
        "chequered": model.geom_type[geom] in GROUNDS,
    }


def _surface(model: mujoco.MjModel, geom: int, path: np.ndarray) -> shapes.Triangles:
    """Triangles in the geom's frame; a height field is cropped to the part around ``path [T, 3]`` in that frame."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_HFIELD:
        return shapes.height_field(model, geom, path.min(axis=0)[:2] - AROUND, path.max(axis=0)[:2] + AROUND)
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
        x, y = (size or PLANE for size in model.geom_size[geom, :2])
        return np.array([[-x, -y, 0], [x, -y, 0], [x, y, 0], [-x, y, 0]]), np.array([[0, 1, 2], [0, 2, 3]])
    return shapes.triangles(model, geom) or (np.zeros((0, 3)), np.zeros((0, 3)))


def _colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    material = model.geom_matid[geom]
    return model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]


def _packed(array: np.ndarray, kind: type) -> str:
    """The array as little-endian numbers of type ``kind``, in base64."""
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(kind).newbyteorder("<")).tobytes()).decode()
