"""Separate process that renders frames with MuJoCo and encodes them as a video.

It is separate because the OpenGL library can only be chosen when a process starts.
Without arguments ``python -m strl_jax.viewer.draw`` only tests whether OpenGL works.
"""

import os
import sys
from fractions import Fraction
from pathlib import Path

import mujoco
import numpy as np

SIZE = (800, 450)  # pixels
COMMANDED, MEASURED = (0.1, 0.35, 0.95, 1.0), (0.1, 0.7, 0.25, 1.0)
ARROW_SCALE = 0.5  # m of an arrow per m/s


def try_out() -> None:
    """Renders a sphere. If OpenGL does not work, its exception is raised, of any type."""
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    with mujoco.Renderer(model, 8, 8) as renderer:
        renderer.update_scene(mujoco.MjData(model))
        renderer.render()


def encode(model: mujoco.MjModel, trace: dict, fps: Fraction, path: Path) -> None:
    """Renders a trace and writes it as an MP4, with arrows for the velocities of a legged robot.

    Args:
        model: the model.
        trace: ``qpos [T, nq]`` and, for a legged robot, ``command`` and ``velocity`` ``[T, 3]``.
        fps: frames per second; each step of the trace is one frame.
        path: file of the video.
    """
    import av  # of the extra ``play``

    width, height = SIZE
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    with mujoco.Renderer(model, height, width) as renderer, av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for image in frames(model, renderer, trace):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def frames(model: mujoco.MjModel, renderer: mujoco.Renderer, trace: dict):
    """Yields the frames ``uint8[H, W, 3]``; the camera follows the body of the first joint."""
    data, camera, body = mujoco.MjData(model), mujoco.MjvCamera(), moving_body(model)
    camera.azimuth, camera.elevation = 130.0, -18.0
    for index, qpos in enumerate(trace["qpos"]):
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        if index == 0:
            reach = reach_of(model, data, body)
            camera.distance = 3.6 * reach
            model.stat.extent = max(2.0, 2 * reach)  # sets near and far planes, haze and shadows
            camera.lookat[:] = data.subtree_com[body]
        # smoothed, so that the camera does not shake
        camera.lookat[:] += 0.2 * (data.subtree_com[body] - camera.lookat)
        renderer.update_scene(data, camera)
        if "command" not in trace:
            yield renderer.render()
            continue
        velocities = trace["command"][index], trace["velocity"][index]
        _add_arrows(renderer.scene, data.xpos[body], data.xmat[body], *velocities)
        yield _labelled(renderer.render(), *velocities)


def moving_body(model: mujoco.MjModel) -> int:
    """Index of the body of the first joint; without joints, of the first body."""
    return int(model.jnt_bodyid[0]) if model.njnt else min(1, model.nbody - 1)


def reach_of(model: mujoco.MjModel, data: mujoco.MjData, body: int) -> float:
    """Distance from the centre of mass of the body's subtree to the farthest geom of its kinematic tree, m."""
    in_tree = model.body_rootid[model.geom_bodyid] == model.body_rootid[body]
    distance = np.linalg.norm(data.geom_xpos[in_tree] - data.subtree_com[body], axis=1) + model.geom_rbound[in_tree]
    return float(distance.max(initial=0.3))


def _add_arrows(scene, position, rotation, command, velocity) -> None:
    """Planar velocities as arrows above the robot: the commanded one blue, the measured one green."""
    yaw = np.arctan2(rotation[3], rotation[0])
    for vector, colour, height in ((command, COMMANDED, 0.3), (velocity, MEASURED, 0.26)):
        if scene.ngeom >= scene.maxgeom or np.hypot(*vector[:2]) < 0.02:
            continue
        start = position + np.array([0, 0, height])
        x, y = ARROW_SCALE * np.asarray(vector[:2], float)
        end = start + np.array([np.cos(yaw) * x - np.sin(yaw) * y, np.sin(yaw) * x + np.cos(yaw) * y, 0])
        geom = scene.geoms[scene.ngeom]
        kind = mujoco.mjtGeom.mjGEOM_ARROW
        mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), np.array(colour, np.float32))
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR  # casts no shadow
        mujoco.mjv_connector(geom, kind, 0.012, start, end)
        scene.ngeom += 1


def _labelled(image: np.ndarray, command, velocity) -> np.ndarray:
    from PIL import Image, ImageDraw, ImageFont  # of the extra ``play``

    picture = Image.fromarray(image)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(18)
    lines = (("commanded", command, COMMANDED), ("measured", velocity, MEASURED))
    for row, (name, (x, y, yaw), colour) in enumerate(lines):
        text = f"{name}: {x:+.2f} m/s forwards, {y:+.2f} m/s left, {yaw:+.2f} rad/s"
        pen.text((12, 10 + 24 * row), text, fill=tuple(int(200 * part) for part in colour[:3]), font=font)
    return np.asarray(picture)


def main(arguments: list[str]) -> int:
    """Renders ``model.mjb`` and ``trace.npz`` of the folder ``arguments[0]`` and writes the video to its file ``out``.

    Without arguments it only tests OpenGL. Returns the exit code.
    """
    if not arguments:
        try_out()
        return 0
    folder = Path(arguments[0])
    with np.load(folder / "trace.npz") as file:
        trace = {name: file[name] for name in file.files}
    fps = Fraction(*trace.pop("fps").tolist())
    encode(mujoco.MjModel.from_binary_path(str(folder / "model.mjb")), trace, fps, folder / "out")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # without clean-up: EGL crashes if Python's normal exit frees it a second time
