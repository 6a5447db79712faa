"""What play shows: robots on their commands, tables, figures, scenes and pages."""

import base64
import json
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import matplotlib.figure
import mujoco
import numpy as np
import pytest
from flax import struct
from tiny import make_algorithm, make_state

from strl_jax.config import ConfigError
from strl_jax.envs import probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.legged import commands
from strl_jax.envs.legged.config import CommandRanges, CommandsConfig, LeggedConfig
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.types import Array, EnvState
from strl_jax.viewer import draw, page, plot, scene, shapes, table, video
from strl_jax.viewer.recording import ENV_RECORD, CommandedEnv
from strl_jax.viewer.roll import Roll, make_roll

DT, STEPS = 0.25, 8


@struct.dataclass
class Body:
    command: Array  # [B, 5]
    age: Array  # int32[B]


@struct.dataclass
class Shown:
    qpos: Array
    command: Array
    velocity: Array


class Follower(Env):
    """Goes at half of the commanded velocity from 1 s on; falls at its third step where it has to turn right."""

    observation_shapes = {"joints": (2,), "command": (3,)}  # noqa: RUF012
    action_size, dt, episode_length = 2, DT, STEPS

    def __init__(self, config):
        self.config = config

    def reset(self, key):
        state = Body(commands.draw(key), jnp.zeros(key.shape, jnp.int32))
        no = jnp.zeros(key.shape, bool)
        return EnvState(state, self.observe(state), 0.0 * state.command[:, 0], no, no, {}, {})

    def observe(self, state):
        return {"joints": jnp.zeros((len(state.age), 2)), "command": self.told(state)}

    def told(self, state):
        ones = jnp.ones(len(state.age))
        return commands.velocity(self.config.commands, state.command, ones, 0 * ones)

    def step(self, state, action):
        return self.recorded(state, action)[0]

    def recorded(self, state, action):
        told, age = self.told(state.physics), state.physics.age + 1
        velocity = jnp.where((age * DT > 1.0)[:, None], 0.5 * told, 0.0)
        every = self.config.steps(self.config.commands.resampling_time)
        body = Body(jnp.where((age % every == 0)[:, None], 0.9, state.physics.command), age)
        fallen = (told[:, 2] < 0) & (age == 3)
        squared = jnp.square(told - velocity).sum(-1)
        metrics = {"squared": squared}
        after = EnvState(body, self.observe(body), velocity[:, 0], fallen, fallen & False, metrics, {})
        return after, Shown(velocity, told, velocity)

    def scores(self, means):
        return {"tracking_error": jnp.sqrt(means["squared"]), "yaw_error": 0.0, "CoT": 1 / means["squared"]}


def rolled(env, given=None, num_envs=4, groups=None) -> Roll:
    algorithm = make_algorithm(env=env)
    state = make_state(algorithm)
    roll = make_roll(EpisodeEnv(env, STEPS), algorithm, num_envs, groups)
    return roll(state.params["policy"], state.stats, jax.random.key(0), given)


# Its own control step has 0.02 s: a new command after every second step.
CONFIG = LeggedConfig(commands=CommandsConfig(resampling_time=0.04, ranges=CommandRanges(lin_vel_x=(-1.0, 0.5))))
COMMANDS = [[0.8, 0.0, 0.0], [-0.1, 0.05, 0.0], [0.4, 0.0, -1.5]]  # beyond the ranges, shorter than smallest


def test_robots_follow_their_commands_to_the_end():
    """All of the episode: no resampling, no heading, nothing cut off; each group for itself."""
    roll = rolled(Follower(CONFIG), jnp.repeat(jnp.array(COMMANDS), 2, axis=0), 6, 3)
    # Steps 5 to 8 begin at 1 s or later, and those move.
    expected = 0.5 * np.array(COMMANDS)
    expected[2] = np.nan  # fell before 1 s
    np.testing.assert_allclose(roll.velocity, expected, atol=1e-6)
    np.testing.assert_allclose(roll.numbers["survival"], [1, 1, 0])
    np.testing.assert_allclose(roll.numbers["mean_length"], [8, 8, 3])
    # Half of the steps at a speed of 0, half at 0.5 of the command.
    squares = np.square(COMMANDS).sum(axis=1) * np.array([0.625, 0.625, 1.0])  # (1 + 0.25) / 2; 1
    np.testing.assert_allclose(roll.numbers["metric/tracking_error"], np.sqrt(squares), rtol=1e-5)
    np.testing.assert_allclose(roll.trace["command"], np.tile(COMMANDS[0], (8, 1)), rtol=1e-6)
    assert {name: x.shape for name, x in roll.trace.items()} == {
        "reward": (8,),
        "action": (8, 2),
        "qpos": (8, 3),
        "command": (8, 3),
        "velocity": (8, 3),
    }
    np.testing.assert_allclose(roll.trace["reward"], [0, 0, 0, 0, 0.4, 0.4, 0.4, 0.4], rtol=1e-6)

    rows = table.rows(COMMANDS, roll, 2)
    assert rows[0].pop("command") == COMMANDS[0]
    assert rows[0].pop("velocity") == pytest.approx([0.4, 0, 0])
    assert rows[0] == pytest.approx(
        {
            "velocity_rmsd": 0.8 * 0.625**0.5,
            "yaw_rmsd": 0.0,
            "cot": 1 / (0.64 * 0.625),
            "survival": 1.0,
            "episodes": 2,
        }
    )
    assert (rows[2]["velocity"], rows[2]["survival"]) == ([None, None, None], 0.0)
    json.dumps(rows, allow_nan=False)


def test_trace_ends_with_the_first_episode():
    roll = rolled(Follower(CONFIG), jnp.array([COMMANDS[2]] * 4))
    assert roll.trace["reward"].shape == (3,)
    assert roll.numbers["survival"] == 0


def test_without_commands_they_are_those_of_training():
    roll = rolled(Follower(CONFIG))
    # The draw 0.9 after every second step is lin_vel_x = -1 + 1.5 * 0.9; standing still has 0.05.
    assert np.unique(roll.trace["command"][2:, 0]) == pytest.approx([0.35])


def test_commands_show_in_observations_and_the_rest_stays():
    env = Follower(CONFIG)
    given = jnp.array(COMMANDS)
    other = CommandedEnv(env, given, STEPS)
    keys = jax.random.split(jax.random.key(1), 3)
    state = other.reset(keys)
    np.testing.assert_allclose(state.obs["command"], COMMANDS, rtol=1e-6)
    np.testing.assert_array_equal(state.physics.command[:, 3:], env.reset(keys).physics.command[:, 3:])
    assert other.env.config.rewards is env.config.rewards
    assert env.config.commands.heading_command
    assert set(other.step(state, jnp.zeros((3, 2))).extras[ENV_RECORD]) == {"qpos", "command", "velocity"}


def test_environment_that_shows_nothing():
    env = EpisodeEnv(probe.make("image"), 3)
    algorithm = make_algorithm(env=env.env)
    state = make_state(algorithm)
    roll = make_roll(env, algorithm, 2)(state.params["policy"], state.stats, jax.random.key(0))
    assert set(roll.trace) == {"reward", "action"}
    assert np.isnan(roll.velocity).all()


def test_grid_lies_in_the_trained_ranges():
    config = CommandsConfig(
        smallest=0.2, ranges=CommandRanges(lin_vel_x=(-0.5, 1.0), lin_vel_y=(-0.3, 0.3), ang_vel_yaw=(0.0, 0.0))
    )
    # Sideways the half, 0.15, is shorter than smallest.
    x = [(1.0, 0, 0), (0.5, 0, 0), (-0.5, 0, 0), (-0.25, 0, 0)]
    assert set(table.grid(config)) == {(0, 0, 0), *x, (0, 0.3, 0), (0, -0.3, 0)}
    assert table.grid(config)[0] == (0, 0, 0)
    forwards = CommandRanges(lin_vel_x=(0.4, 1.0), lin_vel_y=(0.0, 0.0), ang_vel_yaw=(-1.0, 1.0))
    expected = {(0.4, 0, 0), (0.7, 0, 0), (1.0, 0, 0), *((0.4, 0, yaw) for yaw in (-1, -0.5, 0.5, 1))}
    found = table.grid(CommandsConfig(zero_probability=0.0, ranges=forwards))
    assert {tuple(np.round(row, 6)) for row in found} == expected
    assert (0, 0, 0) in table.grid(CommandsConfig(zero_probability=0.1, ranges=forwards))


def test_commands_beyond_the_range_are_told():
    config = CommandsConfig(ranges=CommandRanges(lin_vel_x=(-0.5, 1.0)))
    assert table.outside((1.0, -1.0, 0.3), config) == []
    assert table.outside((1.5, 0, -2), config) == [
        "lin_vel_x 1.5 is outside of [-0.5, 1], the range that the policy was trained in",
        "ang_vel_yaw -2 is outside of [-1, 1], the range that the policy was trained in",
    ]


def text(of) -> list[str]:
    """A rich table as lines."""
    from rich.console import Console

    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(of)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_tables_fit_in_80_characters():
    row = {"velocity": [-0.971, -0.001, 0.5], "velocity_rmsd": 0.12345, "yaw_rmsd": 0.2, "survival": 0.5}
    still = row | {"velocity": [None] * 3, "command": [0, 0, 1], "cot": None}
    lines = text(table.of_commands([row | {"command": [-1.0, 0, 0], "cot": 0.8}, still]))
    assert lines[2].split() == ["-1.00", "0.00", "0.00", "-0.97", "0.00", "0.50", "0.123", "0.200", "0.800", "50%"]
    assert lines[3].split() == ["0.00", "0.00", "1.00", "-", "-", "-", "0.123", "0.200", "-", "50%"]
    assert not any("…" in line for line in lines)
    numbers = {f"{kind}_{name}": 1.5 for kind in ("mean", "std", "min", "max") for name in ("return", "length")}
    numbers |= {"invalid": 2.0, "survival": 0.75, "metric/reward_x": 0.25, "metric/CoT": 0.5, "metric/y": np.nan}
    assert [line.split() for line in text(table.of_policy(numbers))[1:]] == [
        ["return", "1.5", "1.5", "1.5", "1.5"],
        ["length", "1.5", "1.5", "1.5", "1.5"],
        ["survival", "75.0%"],
        ["cut", "by", "NaN", "2"],
        ["cost", "of", "transport", "0.5"],
        ["reward_x", "0.25"],
        ["y", "-"],
    ]


def test_stances():
    assert plot.stances(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert plot.stances(np.zeros(3, bool)) == []


def robot_trace(steps: int) -> dict:
    """A made-up episode of our own quadruped."""
    wave = np.sin(np.arange(steps))
    qpos = np.tile(scene.dressed(None).qpos0, (steps, 1))
    qpos[:, 0] = 0.02 * np.arange(steps)
    return {
        "reward": wave,
        "action": np.tile(wave[:, None], 12),
        "qpos": qpos,
        "command": np.tile([0.5, 0.1, -0.2], (steps, 1)),
        "velocity": np.tile([0.4, 0.1, -0.1], (steps, 1)),
        "torque": np.arange(12) + wave[:, None],
        "contact": np.stack([wave > 0, wave < 0, wave < 0, wave > 0], axis=1),
    }


def test_plot_of_a_robot(tmp_path, monkeypatch):
    figures, save = [], matplotlib.figure.Figure.savefig
    monkeypatch.setattr(
        matplotlib.figure.Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))
    )
    trace = robot_trace(10)
    plot.draw(tmp_path / "x.svg", "svg", trace, 0.02, [f"joint {i}" for i in range(12)], list("abcd"))
    assert (tmp_path / "x.svg").read_text().count("<svg") == 1
    axes = figures[0].axes
    assert len(axes) == 5
    for index, axis in enumerate(axes[:3]):
        measured, commanded = (line.get_ydata() for line in axis.lines)
        np.testing.assert_array_equal(measured, trace["velocity"][:, index])
        np.testing.assert_array_equal(commanded, trace["command"][:, index])
    assert axes[0].lines[0].get_xdata() == pytest.approx(0.02 * np.arange(1, 11))
    assert len(axes[3].lines) == 12
    for row, bars in enumerate(axes[4].collections):  # the time on the ground
        spans = [path.get_extents() for path in bars.get_paths()]
        assert sum(span.width for span in spans) == pytest.approx(0.02 * trace["contact"][:, row].sum())


TERRAIN = SimpleNamespace(
    heights=np.random.default_rng(0).uniform(-1.0, 0.5, (7, 5)).astype(np.float32), cell=0.5, corner=(-1.5, -1.0)
)


def points() -> list[tuple[float, float, float]]:
    """Places of the terrain's inner points and their heights."""
    x0, y0 = TERRAIN.corner
    inner = TERRAIN.heights[1:-1, 1:-1]
    return [(x0 + 0.5 * (i + 1), y0 + 0.5 * (j + 1), z) for (i, j), z in np.ndenumerate(inner)]


def test_terrain_stands_where_its_heights_are():
    model = scene.dressed(None, TERRAIN)
    data = mujoco.MjData(model)
    data.qpos[2] = 50.0
    mujoco.mj_forward(model, data)
    assert model.nq == scene.dressed(None).nq == 19
    for x, y, z in points():
        found = mujoco.mj_ray(model, data, np.array([x, y, 5.0]), np.array([0.0, 0, -1]), None, 1, -1, None)
        assert 5.0 - found == pytest.approx(z, abs=1e-5)


def test_the_part_of_a_terrain_about_the_way():
    """12 m on each side of it, in whole cells, or as much as there is, with its heights where they were."""
    heights = np.arange(101 * 61, dtype=np.float32).reshape(101, 61) / 1e4
    ground = Terrain(heights, 0.5, (-25.0, -15.0), np.zeros((1, 1, 3)), ("flat",), np.zeros((1, 1, 4)))
    env = SimpleNamespace(config=LeggedConfig(), terrain=ground, recorded=None)
    way = np.zeros((3, 19))
    way[:, :2] = [[-20.0, 1.2], [-10.0, 2.0], [np.nan, 0.0]]
    model = scene.of(env, way)
    assert (model.hfield_ncol[0], model.hfield_nrow[0]) == (55, 51)  # x: -25 to 2 m; y: -11 to 14 m
    geom = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD)[0]
    place, half = model.geom_pos[geom], model.hfield_size[0]
    assert (place[:2] - half[:2]).tolist() == [-25.0, -11.0]
    found = place[2] + half[2] * model.hfield_data.reshape(51, 55)
    np.testing.assert_allclose(found, heights[:55, 8:59].T, atol=1e-6)
    assert scene.of(env, np.full((2, 19), np.nan)).hfield_ncol[0] == 101
    far = scene.of(env, np.full((2, 19), 900.0))  # beyond the edge: the last cell
    assert (far.hfield_ncol[0], far.hfield_nrow[0]) == (2, 2)


def test_height_field_as_triangles():
    model = scene.dressed(None, TERRAIN)
    (geom,) = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD)
    whole, faces = shapes.height_field(model, geom, np.array([-9.0, -9.0]), np.array([9.0, 9.0]))
    assert (len(whole), len(faces)) == (35, 48)  # 7 x 5 points, 2 x 6 x 4 triangles
    world = {(round(x, 4), round(y, 4)): z for x, y, z in whole + model.geom_pos[geom]}
    for x, y, z in points():
        assert world[round(x, 4), round(y, 4)] == pytest.approx(z, abs=1e-6)
    part, _ = shapes.height_field(model, geom, np.array([0.1, 0.1]), np.array([0.2, 0.2]))
    assert 4 <= len(part) <= 9
    low, high = part.min(axis=0), part.max(axis=0)
    assert (low[:2] <= 0.1).all()
    assert (high[:2] >= 0.2).all()


SHAPES = """<mujoco><asset><mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset><worldbody>
<geom type="sphere" size="0.5"/><geom type="ellipsoid" size="0.5 0.4 0.3"/><geom type="capsule" size="0.2 0.4"/>
<geom type="cylinder" size="0.3 0.4"/><geom type="box" size="0.1 0.2 0.3"/><geom type="mesh" mesh="m"/>
</worldbody></mujoco>"""
VOLUMES = {
    0: 4 / 3 * np.pi * 0.5**3,
    1: 4 / 3 * np.pi * 0.5 * 0.4 * 0.3,
    2: 4 / 3 * np.pi * 0.2**3 + np.pi * 0.2**2 * 0.8,
    3: np.pi * 0.3**2 * 0.8,
    4: 0.2 * 0.4 * 0.6,
    5: 1 / 6,
}


@pytest.mark.parametrize("geom", VOLUMES)
def test_triangles_enclose_the_shape(geom):
    model = mujoco.MjModel.from_xml_string(SHAPES)
    vertices, faces = shapes.triangles(model, geom)
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    volume = abs(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)  # of closed surfaces that all turn one way
    assert 0.95 * VOLUMES[geom] < volume <= VOLUMES[geom] * (1 + 1e-6)


def unpacked(packed: str, kind=np.float32) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), kind)


def test_page_holds_the_poses_and_needs_no_network():
    model, trace = scene.dressed(None), robot_trace(4)
    text = page.build(model, trace, 0.02, "a <b>")
    assert not re.findall(r"https?:|<script src|@import|{{", text)
    assert "<title>a &lt;b&gt;</title>" in text
    data = json.loads(re.search(r"const scene = (.*);\n", text)[1])
    assert (data["dt"], len(data["ground"]), len(data["shapes"])) == (0.02, 1, 21)
    assert data["ground"][0]["chequered"]
    assert [shape["pose"] for shape in data["shapes"]] == list(range(21))
    poses = unpacked(data["poses"]).reshape(4, 21, 12)
    state = mujoco.MjData(model)
    state.qpos[:] = trace["qpos"][2]
    mujoco.mj_forward(model, state)
    moving = np.flatnonzero(model.geom_bodyid)
    np.testing.assert_allclose(poses[2, :, :9], state.geom_xmat[moving], atol=1e-6)
    np.testing.assert_allclose(poses[2, :, 9:], state.geom_xpos[moving], atol=1e-6)
    np.testing.assert_allclose(unpacked(data["focus"]).reshape(4, 3)[2], state.subtree_com[1], atol=1e-6)
    np.testing.assert_allclose(unpacked(data["command"]).reshape(4, 3), trace["command"], rtol=1e-6)
    for shape in data["shapes"]:
        assert unpacked(shape["faces"], np.uint32).max() < len(unpacked(shape["vertices"])) / 3


def test_page_of_a_terrain_shows_what_is_near():
    wide = SimpleNamespace(heights=np.zeros((401, 401), np.float32), cell=0.5, corner=(-100.0, -100.0))
    trace = robot_trace(2)
    trace["qpos"][:, :2] = [30.0, -40.0]
    data = json.loads(re.search(r"const scene = (.*);\n", page.build(scene.dressed(None, wide), trace, 0.02, ""))[1])
    vertices = unpacked(data["ground"][0]["vertices"]).reshape(-1, 3)
    assert abs(vertices[:, :2] - [30.0, -40.0]).max() < page.AROUND + 2 * 0.5
    assert len(vertices) < 30**2


@pytest.mark.parametrize(
    ("dt", "expected"),
    [(0.02, 2), (0.05, 1), (0.5, 1), (0.004, 10), (0.03, 2), (0.04, 1), (0.008, 5), (0.01, 4), (0.039, 2)],
)
def test_video_has_at_most_25_frames_a_second(dt, expected):
    assert video.stride(dt) == expected
    assert 1 / (dt * expected) < 25 + 1e-6


@pytest.fixture(scope="module")
def library() -> str:
    try:
        return video.find_gl()
    except ConfigError as error:
        pytest.skip(str(error))


def test_video_shows_the_robot(library, tmp_path):
    import av

    trace = robot_trace(5)
    video.make(tmp_path / "x.mp4", library, scene.dressed(None), trace, 0.02)
    with av.open(str(tmp_path / "x.mp4")) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert stream.average_rate == 25
    assert [frame.shape for frame in frames] == [(draw.SIZE[1], draw.SIZE[0], 3)] * 3  # steps 1, 3 and 5
    colours = frames[0].reshape(-1, 3).astype(int)
    blue = (colours[:, 2] > colours[:, 0] + 80) & (colours[:, 2] > colours[:, 1] + 60)
    green = (colours[:, 1] > colours[:, 0] + 60) & (colours[:, 1] > colours[:, 2] + 40)
    assert blue.sum() > 100  # the arrow of the command, and its text
    assert green.sum() > 100


def test_video_that_fails_is_told(library, tmp_path):
    trace = robot_trace(2) | {"qpos": np.zeros((2, 3))}
    with pytest.raises(Exception, match="--video: rendering failed: ValueError"):
        video.make(tmp_path / "x.mp4", library, scene.dressed(None), trace, 0.02)
    assert list(tmp_path.iterdir()) == []
