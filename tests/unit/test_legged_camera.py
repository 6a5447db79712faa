"""The depth camera of the legged environments: rays against planes, walls and MuJoCo's own height field."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from pydantic import ValidationError

from strl_jax.envs.legged.camera import depth_image, directions
from strl_jax.envs.legged.config_ground import CameraConfig

LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])
# At the base's own place, looking ahead. Odd sizes have a middle; 45 degrees to each side, so that pixel centres
# lie at -0.8, -0.4, 0, 0.4 and 0.8 m, to the right and downwards, of a plane 1 m ahead.
AHEAD = CameraConfig(
    position=(0.0, 0.0, 0.0),
    pitch=0.0,
    horizontal_fov=np.pi / 2,
    height=5,
    width=5,
    depth_range=(0.1, 2.1),
    steps=60,
)
PLANE = 0.4 * np.arange(-2, 3)


def about(axis, angle):
    """Unit quaternion of a turn about x, y or z."""
    turn = np.zeros(4, np.float32)
    turn[0], turn[1 + "xyz".index(axis)] = np.cos(angle / 2), np.sin(angle / 2)
    return jnp.asarray(turn)


def ground(heights, half):
    """Bilinear ground through ``heights[X, X]`` of a square of twice ``half`` about the origin, level beyond it."""
    cell = 2 * half / (len(heights) - 1)

    def height(place):
        at = jnp.clip((place + half) / cell, 0, len(heights) - 1.001)
        low = at.astype(jnp.int32)
        (x, y), (i, j) = jnp.moveaxis(at - low, -1, 0), jnp.moveaxis(low, -1, 0)
        near = heights[i, j] * (1 - y) + heights[i, j + 1] * y
        return near * (1 - x) + (heights[i + 1, j] * (1 - y) + heights[i + 1, j + 1] * y) * x

    return height


def walls(*blocks):
    """Heights every 0.1 m from -3 to 3 m: 0, and blocks ``(x from, x to, y from, y to, height)``.

    Each slants to the ground within 0.1 m.
    """
    place = np.linspace(-3.0, 3.0, 61).round(6)
    heights = np.zeros((61, 61), np.float32)
    for x0, x1, y0, y1, height in blocks:
        heights[np.ix_((place >= x0) & (place <= x1), (place >= y0) & (place <= y1))] = height
    return heights


@functools.partial(jax.jit, static_argnames=("config", "half"))
def image_of(config, heights, position, turn, half=3.0, key=None):
    """``heights`` None: flat."""
    height = None if heights is None else ground(heights, half)
    return depth_image(config, height, position, turn, key)


def depths(config, heights, position, turn=LEVEL, half=3.0):
    """The image ``[H, W]`` in m."""
    near, far = config.depth_range
    image = image_of(config, heights, jnp.asarray(position, jnp.float32), turn, half)
    assert image.shape == (1, config.height, config.width)
    return near + (far - near) * np.asarray(image[0])


def test_rays_of_the_pixels():
    found = directions(AHEAD)
    assert found.shape == (5, 5, 3)
    np.testing.assert_allclose(found[2, 2], [1.0, 0.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(found[0, 0], [1.0, 0.8, 0.8], atol=1e-6)  # top left: y is left, z up
    np.testing.assert_allclose(found[4, 3], [1.0, -0.4, -0.8], atol=1e-6)
    wide = directions(AHEAD.model_copy(update={"width": 10}))  # square pixels: half the size, half the height
    np.testing.assert_allclose(wide[0, 0], [1.0, 0.9, 0.4], atol=1e-6)


@pytest.mark.parametrize("heights", [None, walls()], ids=["plane", "rays"])
def test_level_ground_by_trigonometry(heights):
    """0.2 m up, 0.5 rad down: a ray at the angle a below the axis is 0.2 / sin(0.5 + a) long."""
    config = AHEAD.model_copy(update={"pitch": 0.5})
    found = depths(config, heights, [0.4, -0.7, 0.2])
    angle = np.arctan(PLANE)  # of the rows, from the top
    expected = 0.2 / np.sin(0.5 + angle) * np.cos(angle)
    assert expected[0] < 0  # 38.7 degrees up, 28.6 down: the sky
    expected[0] = 2.1
    assert 2.1 > expected[1] > expected[4] > 0.1
    np.testing.assert_allclose(found, np.tile(expected[:, None], (1, 5)), rtol=1e-5)


def test_a_wall_at_its_distance():
    """1 m high, it rises from 0 to 1 m between x = 1.0 and 1.1.

    From 0.5 m up a ray that falls by p m each m is on the slant where 0.5 - p t = 10 (t - 1): t = 10.5 / (10 + p).
    """
    found = depths(AHEAD, walls((1.1, 3.0, -3.0, 3.0, 1.0)), [0.0, 0.0, 0.5])
    expected = 10.5 / (10 + PLANE)
    expected[4] = 0.5 / 0.8  # it meets the ground before
    assert 0.5 + 0.8 * expected[0] > 1.0  # over the top
    expected[0] = 2.1
    np.testing.assert_allclose(found, np.tile(expected[:, None], (1, 5)), rtol=1e-4)
    assert found[2, 2] == pytest.approx(1.05, rel=1e-5)


def test_the_base_turns_the_view():
    """Walls begin at x = 1.0, y = 0.6, x = -0.8 and y = -1.2, slanting over 0.1 m; half a metre up they are 0.05 on."""
    blocks = [(1.1, 3, -3, 3, 1), (-3, 3, 0.7, 3, 1), (-3, -0.9, -3, 3, 1), (-3, 3, -3, -1.3, 1)]
    heights = walls(*blocks)
    for quarter, expected in enumerate([1.05, 0.65, 0.85, 1.25]):
        found = depths(AHEAD, heights, [0.0, 0.0, 0.5], about("z", quarter * np.pi / 2))
        assert found[2, 2] == pytest.approx(expected, rel=1e-4)
    # Facing x, the wall at y = 0.6 lies at the left: its rays run 0.8 to the side for every m, so 0.65 / 0.8.
    found = depths(AHEAD, heights, [0.0, 0.0, 0.5])
    np.testing.assert_allclose(found[2], [0.65 / 0.8, 1.05, 1.05, 1.05, 1.05], rtol=1e-4)


def test_pitch_of_the_base_adds_to_the_cameras():
    """Nose down is a positive turn about y. The camera, 0.3 m ahead of the base and 0.1 m above, moves with it."""
    config = AHEAD.model_copy(update={"pitch": 0.3, "position": (0.3, 0.0, 0.1)})
    found = depths(config, None, [0.0, 0.0, 0.5], about("y", 0.2))
    eye = 0.5 - 0.3 * np.sin(0.2) + 0.1 * np.cos(0.2)
    np.testing.assert_allclose(found[2], eye / np.sin(0.5), rtol=1e-5)


def test_a_rolled_base_tilts_the_horizon():
    """Rolled by 90 degrees to the right, its right side is down: the ground is at the right of the image."""
    found = depths(AHEAD, None, [0.0, 0.0, 0.5], about("x", np.pi / 2))
    expected = [2.1, 2.1, 2.1, 0.5 / 0.4, 0.5 / 0.8]
    np.testing.assert_allclose(found, np.tile(expected, (5, 1)), rtol=1e-5)


def test_a_near_block_hides_a_far_one():
    """0.4 m up; a block of 0.5 m from x = 0.6 to 0.9 before one of 1.5 m from x = 1.4, each slanting over 0.1 m."""
    far = (1.4, 3.0, -3.0, 3.0, 1.5)
    found = depths(AHEAD, walls((0.6, 0.9, -3.0, 0.0, 0.5), far), [0.0, 0.0, 0.4])
    alone = depths(AHEAD, walls(far), [0.0, 0.0, 0.4])
    np.testing.assert_allclose(found[2, 2:], 0.5 + 0.1 * 0.4 / 0.5, rtol=1e-4)
    np.testing.assert_allclose(alone[2], 1.3 + 0.1 * 0.4 / 1.5, rtol=1e-4)
    np.testing.assert_array_equal(found[:, :2], alone[:, :2])  # the left of the image looks past its side
    # One row up, 0.4 m each m: at x = 0.6 it is at 0.64 m, over the block, and meets 15 (t - 1.3) at 19.9 / 14.6.
    np.testing.assert_allclose(found[1, 2:], 19.9 / 14.6, rtol=1e-4)


def test_the_ends_of_the_range():
    wall = walls((1.1, 3.0, -3.0, 3.0, 1.0))
    assert depths(AHEAD, wall, [-1.5, 0.0, 0.5])[2, 2] == pytest.approx(2.1)  # 2.55 m away
    assert depths(AHEAD, wall, [1.0, 0.0, 0.5])[2, 2] == pytest.approx(0.1)  # 0.05 m away
    assert (depths(AHEAD, wall, [2.0, 0.0, 0.5]) == np.float32(0.1)).all()  # within the wall
    assert depths(AHEAD, None, [0.0, 0.0, 0.05])[4, 2] == pytest.approx(0.1)  # 0.0625 m away


def test_scales():
    """A depth of 1.05 m is 0.95 of the 2 m from 0.1 to 2.1."""
    wall, at = walls((1.1, 3.0, -3.0, 3.0, 1.0)), jnp.array([0.0, 0.0, 0.5])
    assert image_of(AHEAD, wall, at, LEVEL)[0, 2, 2] == pytest.approx(0.475, rel=1e-4)
    centered = AHEAD.model_copy(update={"centered": True})
    assert image_of(centered, wall, at, LEVEL)[0, 2, 2] == pytest.approx(-0.025, rel=1e-3)


def test_noise():
    """4096 pixels within 0.29 degrees of the ground 1.1 m below, the middle of the range, with 0.02 m of noise."""
    config = AHEAD.model_copy(update={"pitch": 1.57, "height": 64, "width": 64, "horizontal_fov": 0.01, "noise": 0.02})
    first, second = (image_of(config, None, jnp.array([0.0, 0.0, 1.1]), LEVEL, key=jax.random.key(i)) for i in (0, 1))
    assert first.mean() == pytest.approx(0.5, abs=0.0006)  # 4 sigma: 4 x 0.01 / 64
    assert first.std() == pytest.approx(0.01, rel=0.045)  # 4 sigma: 4 / sqrt(2 x 4096)
    assert (first != second).any()


def test_four_environments_are_four_calls():
    heights = walls((1.1, 3.0, -3.0, 3.0, 1.0))
    position = jnp.array([[0.0, 0.0, 0.5], [0.3, 0.1, 0.4], [-0.5, 1.0, 0.3], [0.0, 0.0, 0.5]])
    turn = jnp.stack([LEVEL, about("z", 0.3), about("y", 0.2), about("z", np.pi)])
    images = jax.jit(jax.vmap(lambda at, how: image_of(AHEAD, heights, at, how)))(position, turn)
    assert images.shape == (4, 1, 5, 5)
    assert images.dtype == jnp.float32
    for index in range(4):
        single = depths(AHEAD, heights, position[index], turn[index])
        np.testing.assert_allclose(0.1 + 2.0 * images[index, 0], single, atol=1e-5)
    assert (np.abs(images[3] - images[0]) > 0.1).any()


def field(heights, half):
    """MuJoCo's model of ``heights[X, Y]`` over a square of twice ``half`` about the origin."""
    top = float(heights.max())
    data = " ".join(f"{value / top:.9g}" for value in heights.T[::-1].ravel())  # rows of an MJCF go down in y
    rows, columns = heights.T.shape
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><asset><hfield name="ground" nrow="{rows}" ncol="{columns}" size="{half} {half} {top} 0.1" '
        f'elevation="{data}"/></asset><worldbody><geom type="hfield" hfield="ground"/></worldbody></mujoco>'
    )


@pytest.mark.parametrize("seed", range(3))
def test_as_mujocos_own_rays(seed):
    """A bumpy field whose heights are sums f(x) + g(y): every cell is level in itself, so that MuJoCo's two
    triangles of a cell and our bilinear patch are one surface. What differs is rounding.
    """
    random = np.random.default_rng(seed)
    heights = random.uniform(0.0, 0.15, (41, 1)) + random.uniform(0.0, 0.15, (1, 41))
    heights -= heights.min()
    model = field(heights, 2.0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    config = CameraConfig(height=12, width=16, depth_range=(0.0, 1.6), steps=800)
    turn = random.normal(size=4) * [1.0, 0.1, 0.1, 1.0]
    turn /= np.linalg.norm(turn)
    base = np.array([*random.uniform(-0.2, 0.2, 2), 0.6])
    found = depths(config, heights.astype(np.float32), base, jnp.asarray(turn, jnp.float32), half=2.0)

    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, turn)
    matrix = matrix.reshape(3, 3)
    eye, rays = base + matrix @ config.position, directions(config).astype(float) @ matrix.T
    geom = np.zeros(1, np.int32)
    distance = np.array([[mujoco.mj_ray(model, data, eye, ray, None, 1, -1, geom) for ray in row] for row in rays])
    expected = np.where((distance < 0) | (distance > 1.6), 1.6, distance)  # in units of the ray: 1 m along the axis
    assert (expected < 1.6).mean() > 0.3
    assert expected.min() < 0.6
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_thin_wall_needs_fine_strides():
    """0.1 m thick at its half height, 1 m away: strides of 0.5 m pass it, those of 0.05 m do not."""
    wall = walls((1.0, 1.0, -3.0, 3.0, 1.0))
    coarse = AHEAD.model_copy(update={"depth_range": (0.0, 2.5), "steps": 5})
    fine = coarse.model_copy(update={"steps": 50})
    assert depths(fine, wall, [0.05, 0.0, 0.5])[2, 2] == pytest.approx(0.9, rel=1e-4)
    assert depths(coarse, wall, [0.25, 0.0, 0.5])[2, 2] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0.5, 0.5), "the second number must be at least 0.001 above the first"),
        ((1.0, 0.5), "the second number must be at least 0.001 above the first"),
        ((0.0, 1e-45), "the second number must be at least 0.001 above the first"),
        ((-0.1, 2.0), "greater than or equal to 0"),
        ((0.1, 1e30), "less than or equal to 1000"),
    ],
)
def test_a_range_that_is_none(limits, expected):
    with pytest.raises(ValidationError, match=expected):
        CameraConfig(depth_range=limits)
