"""``rnd_cfg`` with the keys and the meaning of rsl_rl; the numbers of the bonus are in ``golden/test_rnd.py``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm

from strl_jax.algorithms import optimizers, rnd
from strl_jax.config import ConfigError, from_dict, to_dict
from strl_jax.observations import Segments

SCHEDULE = {"mode": "linear", "initial_step": 10, "final_step": 20, "final_value": 0.5}


@pytest.mark.parametrize(
    ("schedule", "iteration", "expected"),
    [
        (SCHEDULE, 0, [2.0, 2.0, 2.0, 2.0]),  # steps 1 to 4
        (SCHEDULE, 2, [2.0, 2.0, 1.85, 1.7]),  # steps 9 to 12: 2 - 1.5 / 10 after step 10
        (SCHEDULE, 4, [0.95, 0.8, 0.65, 0.5]),  # steps 17 to 20
        (SCHEDULE, 10**9, [0.5, 0.5, 0.5, 0.5]),  # 4e9 steps do not fit into int32
        ({"mode": "step", "final_step": 6, "final_value": 0.5}, 1, [2.0, 0.5, 0.5, 0.5]),  # steps 5 to 8
        ({"mode": "step", "final_step": 10**9, "final_value": 0.5}, 2**31 - 3, [0.5, 0.5, 0.5, 0.5]),
        ({"mode": "constant"}, 7, [2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_weight_schedule_of_rsl_rl(schedule, iteration, expected):
    """Only the first weight is multiplied by the time step."""
    config = rnd.RNDConfig(rsl_rl=True, weight=100.0, weight_schedule=schedule)
    np.testing.assert_allclose(config.weights(0.02, jnp.int32(iteration), 4), expected, rtol=1e-6)


def test_weight_without_rsl_rl_has_no_time_step():
    assert rnd.RNDConfig(weight=3.0).weights(0.02, jnp.int32(0), 4) == 3.0
    np.testing.assert_allclose(rnd.RNDConfig(weight=3.0, rsl_rl=True).weights(0.02, jnp.int32(0), 4), 0.06, rtol=1e-6)


@pytest.mark.parametrize(("limit", "expected"), [(None, 1e9), (1.0, 1e-3)])
def test_gradient_without_a_clip(limit, expected):
    """The second moment after a gradient of norm 1e6 is 0.001 times its square, or that of the clipped one."""
    algorithm = rnd.add(make_algorithm(), rnd.RNDConfig(max_grad_norm=limit), Segments(("joints",), ((2,),)))
    optimizer, params = algorithm.optimizers["rnd"], {"w": jnp.zeros(1)}
    state = optimizers.init(optimizer, params)
    _, state, *_ = optimizers.step(optimizer, params, {"w": jnp.full(1, 1e6)}, state, 1.0)
    (adam,) = [part for part in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "nu")) if hasattr(part, "nu")]
    np.testing.assert_allclose(adam.nu, expected, rtol=1e-5)


RSL_RL = {
    "weight": 50.0,
    "weight_schedule": None,
    "reward_normalization": False,
    "state_normalization": False,
    "learning_rate": 1e-3,
    "num_outputs": 1,
    "predictor_hidden_dims": [-1],
    "target_hidden_dims": [-1],
}


def config_of(rnd_cfg: dict):
    return from_dict({"env": {"name": "probe:constant"}, "algorithm": {"rnd_cfg": rnd_cfg}})


INJECTED = {"num_states": 4, "obs_groups": {"rnd_state": ["a"]}}  # by rsl_rl's runner


@pytest.mark.parametrize("more", [{}, {"weight_schedule": SCHEDULE}, INJECTED])
def test_keys_of_rsl_rl_get_its_meaning_with_a_line(more):
    config, lines = config_of(RSL_RL | more)
    settings = config.algorithm.rnd_cfg
    assert (settings.rsl_rl, settings.weight, settings.max_grad_norm) == (True, 50.0, None)
    assert lines[0].startswith("algorithm.rnd_cfg: ")
    for part in ("rsl_rl: true", "time step", "discounted sum", "not clipped"):
        assert part in lines[0]
    ignored = [line.split(":")[0] for line in lines[1:]]
    assert ignored == [f"algorithm.rnd_cfg.{key}" for key in more if key in INJECTED]
    stored = to_dict(config)
    assert from_dict(stored) == (config, [])


def test_a_config_without_keys_of_rsl_rl_keeps_its_meaning():
    config, lines = config_of({"weight": 50.0, "reward_normalization": True})
    assert (config.algorithm.rnd_cfg.rsl_rl, config.algorithm.rnd_cfg.max_grad_norm, lines) == (False, 1.0, [])
    assert from_dict(to_dict(config)) == (config, [])
    chosen, lines = config_of({"weight": 50.0, "rsl_rl": False, "weight_schedule": None})
    assert (chosen.algorithm.rnd_cfg.rsl_rl, lines) == (False, [])
    assert config_of({"weight_schedule": None})[0].algorithm.rnd_cfg.weight == 0.0


@pytest.mark.parametrize(
    ("wrong", "key", "allowed"),
    [
        ({"weight_schedule": {"mode": "linaer"}}, "weight_schedule.mode", "constant, step, linear"),
        (
            {"weight_schedule": {"mode": "step", "final_step": 3}},
            "weight_schedule.final_value",
            "final_step, final_value",
        ),
        ({"weight_schedule": {"mode": "constant", "final_step": 3}}, "weight_schedule.final_step", "no other key"),
        ({"weight_schedule": SCHEDULE | {"final_step": 10}}, "weight_schedule.final_step", "above initial_step 10"),
        ({"weight_schedule": SCHEDULE | {"last": 10}}, "weight_schedule.last", "unknown key"),
        ({"weight_schedule": SCHEDULE, "rsl_rl": False}, "weight_schedule", "rsl_rl: true"),
        ({"weight_schedule": SCHEDULE, "weight": {"name": "constant", "value": 1.0}}, "weight", "a number"),
    ],
)
def test_a_schedule_that_is_refused(wrong, key, allowed):
    with pytest.raises(ConfigError) as caught:
        config_of(wrong)
    (line,) = caught.value.lines
    assert line.startswith(f"algorithm.rnd_cfg.{key}: ")
    assert allowed in line
