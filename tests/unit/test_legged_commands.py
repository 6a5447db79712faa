"""Commands, pushes and randomisation of the legged environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs.legged import commands, randomize
from strl_jax.envs.legged.config import CommandRanges, CommandsConfig, DomainRandConfig

RANGES = CommandRanges(lin_vel_x=(-1.0, 3.0), lin_vel_y=(-0.5, 0.5), ang_vel_yaw=(-1.0, 1.0), heading=(-3.0, 3.0))
ONE = jnp.ones(1)


def velocity(drawn, *, level=1.0, yaw=0.0, **config):
    settings = CommandsConfig(ranges=RANGES, **{"heading_command": False, "zero_probability": 0.1} | config)
    return commands.velocity(settings, jnp.array([drawn]), level * ONE, yaw * ONE)[0]


def test_a_draw_is_a_place_in_the_ranges():
    # -1 + 0.75 x 4, -0.5 + 0.2 x 1, -1 + 0.25 x 2
    np.testing.assert_allclose(velocity([0.75, 0.2, 0.25, 0.0, 0.5]), [2.0, -0.3, -0.5], rtol=1e-6)


def test_the_level_scales_the_planar_part():
    np.testing.assert_allclose(velocity([0.75, 0.2, 0.25, 0.0, 0.5], level=0.5), [1.0, -0.15, -0.5], rtol=1e-6)


def test_small_and_standing_commands_are_zero():
    # 0.1 m/s forwards and 0.1 m/s sideways: 0.141 < 0.2; the turn remains.
    np.testing.assert_allclose(velocity([0.275, 0.6, 0.25, 0.0, 0.5]), [0.0, 0.0, -0.5], atol=1e-6)
    np.testing.assert_allclose(velocity([0.275, 0.6, 0.25, 0.0, 0.5], smallest=0.1)[:2], [0.1, 0.1], rtol=1e-5)
    assert velocity([0.75, 0.2, 0.25, 0.0, 0.05]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("share", "yaw", "expected"),
    [
        (0.5, -1.0, 0.5),  # heading 0, error 1
        (0.75, 1.0, 0.25),  # heading 1.5, error 0.5
        (1.0, -3.0, -0.5 * (2 * np.pi - 6.0)),  # heading 3 is nearer by the other side
        (1.0, 0.0, 1.0),  # 0.5 x 3 is beyond the range
    ],
)
def test_a_heading_commands_the_turn(share, yaw, expected):
    found = velocity([0.75, 0.2, 0.25, share, 0.5], yaw=yaw, heading_command=True)
    np.testing.assert_allclose(found, [2.0, -0.3, expected], rtol=1e-5)


def test_draws_are_uniform_and_differ():
    drawn = commands.draw(jax.random.split(jax.random.key(0), 500))
    assert drawn.shape == (500, 5)
    assert len(np.unique(drawn)) > 2400
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5, atol=0.06)  # 4 sigma: 4 x 0.289 / sqrt(500) = 0.052


def test_the_curriculum_rises_with_good_tracking():
    config = CommandsConfig(curriculum=True, start=0.5, step=0.3)
    assert commands.first_level(config) == 0.5
    found = commands.next_level(config, jnp.array([0.5, 0.5, 0.9, 0.5]), jnp.array([0.9, 0.7, 0.9, jnp.nan]))
    np.testing.assert_allclose(found, [0.8, 0.5, 1.0, 0.5], rtol=1e-6)
    off = CommandsConfig()
    assert commands.first_level(off) == 1.0
    assert commands.next_level(off, jnp.array([1.0]), jnp.array([0.9])).tolist() == [1.0]


def vary(config, delay=(0.0, 0.0), num=400):
    draw = jax.jit(jax.vmap(lambda key: randomize.variation(config, delay, 12, key)))
    return draw(jax.random.split(jax.random.key(1), num))


def test_without_ranges_nothing_varies():
    found = vary(DomainRandConfig(friction_range=None), num=2)
    assert (found.friction == 1).all()
    assert (found.added_mass == 0).all()
    assert (found.com == 0).all()
    assert (found.strength == 1).all()
    assert (found.gains == 1).all()
    assert (found.delay == 0).all()


def test_each_quantity_keeps_to_its_range():
    ranges = {
        "friction_range": (0.2, 1.5),
        "added_mass_range": (-1.0, 3.0),
        "com_displacement_range": (-0.05, 0.05),
        "motor_strength_range": (0.8, 1.2),
        "stiffness_range": (0.7, 0.9),
        "damping_range": (1.1, 1.4),
    }
    found = vary(DomainRandConfig(**ranges), delay=(0.005, 0.015))
    columns = [found.friction, found.added_mass, found.com, found.strength, found.gains[:, 0], found.gains[:, 1]]
    for values, (low, high) in zip([*columns, found.delay], [*ranges.values(), (0.005, 0.015)], strict=True):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high >= values.max() > high - 0.05 * (high - low)
    assert found.com.shape == (400, 3)
    assert found.strength.shape == (400, 12)
    # Of one environment each number is its own.
    shares = [(c.reshape(400, -1)[:, 0] - low) / (high - low) for c, (low, high) in zip(columns, ranges.values())]  # noqa: B905
    assert np.abs(np.corrcoef(shares) - np.eye(6)).max() < 0.2  # 4 sigma: 4 / sqrt(400)


def test_a_push_comes_when_it_is_due():
    velocity = jnp.tile(jnp.array([1.0, 2.0, 3.0]), (5, 1))
    age = jnp.array([0, 4, 5, 6, 10])
    pushed = randomize.push(0.5, 5, jax.random.split(jax.random.key(2), 5), age, velocity)
    change = np.asarray(pushed - velocity)
    assert (change[[0, 1, 3]] == 0).all()
    assert (change[:, 2] == 0).all()
    assert (np.abs(change[[2, 4], :2]) > 1e-3).all()
    assert (np.abs(change) <= 0.5).all()
    assert (change[2] != change[4])[:2].all()
