"""Objects by the names of a config."""

import pytest

from strl_jax.builders import acting, checks
from strl_jax.config import Config, ConfigError, from_dict
from strl_jax.envs.probe import TwoGroups


def make(**sections) -> Config:
    return from_dict({"env": {"name": "probe:two_groups", "num_envs": 8}, **sections})[0]


def test_algorithm_has_the_numbers_of_the_config():
    config = make(policy={"actor_hidden_dims": [4], "mu_activation": "tanh"}, algorithm={"gamma": 0.5})
    algorithm = acting.make_acting(config, TwoGroups())
    assert algorithm.config.gamma == 0.5
    assert algorithm.policy.action_size == 1
    assert algorithm.policy.actor_hidden_dims == (4,)
    assert algorithm.policy.mu_activation == "tanh"
    assert algorithm.policy.log_std is True


def test_st_rl_has_a_linear_std():
    algorithm = acting.make_acting(make(compat="st_rl"), TwoGroups())
    assert algorithm.policy.log_std is False
    assert algorithm.compat.reuse_permutation is True


def test_groups_keep_their_order():
    groups = {"actor": ["state"], "critic": ["hidden", "state"]}
    config = make(env={"name": "probe:two_groups", "groups": groups})
    algorithm = acting.make_acting(config, TwoGroups())
    assert algorithm.groups["actor"].names == ("state",)
    assert algorithm.groups["critic"].names == ("hidden", "state")


def test_a_group_is_everything_in_the_order_of_the_environment():
    assert acting.make_acting(make(), TwoGroups()).groups["actor"].names == ("state", "hidden")


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {"env": {"name": "x", "groups": {"actor": ["stat"]}}},
            "env.groups.actor: 'stat' is not allowed; it must be one of state, hidden; nearest is state",
        ),
        (
            {"env": {"name": "x", "groups": {"critic": ["state", "state"]}}},
            "env.groups.critic: component 'state' is listed twice",
        ),
        (
            {"algorithm": {"clip_min_std": [0.1, 0.2]}},
            "algorithm.clip_min_std: [0.1, 0.2] is not allowed; it must be one number, "
            "or one for each of the 1 actions",
        ),
    ],
)
def test_no_such_algorithm(sections, expected):
    with pytest.raises(ConfigError) as caught:
        acting.make_acting(make(**sections), TwoGroups())
    assert str(caught.value) == expected


def sized(num_envs: int, num_steps: int, num_mini_batches: int, **sections) -> Config:
    runner = {"num_steps_per_env": num_steps, **sections.pop("runner", {})}
    env = {"name": "x", "num_envs": num_envs}
    return make(env=env, runner=runner, algorithm={"num_mini_batches": num_mini_batches}, **sections)


@pytest.mark.parametrize(
    ("config", "shards", "expected"),
    [
        # 100 = 12 * 8 + 4
        (sized(100, 1, 1), 8, "env.num_envs: 100 does not divide over 8 devices; nearest is 96 or 104"),
        (sized(3, 1, 1), 8, "env.num_envs: 3 does not divide over 8 devices; nearest is 8"),
        (
            sized(8, 1, 1, runner={"eval_interval": 1, "num_eval_envs": 10}),
            4,
            "runner.num_eval_envs: 10 does not divide over 4 devices; nearest is 8 or 12",
        ),
        # 8 / 4 environments x 3 steps = 6 samples; all 24 do divide by 4
        (
            sized(8, 3, 4),
            4,
            "algorithm.num_mini_batches: 4 is not allowed; it must divide the 6 samples (3 steps x 2 environments) "
            "of each of 4 devices; up to 64 these do: 1, 2, 3, 6",
        ),
        (
            sized(8, 1, 4, compat="st_rl"),
            4,
            "algorithm.num_mini_batches: 4 is not allowed; it must be at most the 2 samples (1 steps x 2 environments) "
            "of each of 4 devices",
        ),
    ],
)
def test_shards_that_do_not_fit(config, shards, expected):
    with pytest.raises(ConfigError) as caught:
        checks.check_shards(config, shards)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("config", "shards"),
    [
        (sized(8, 3, 6), 4),
        (sized(8, 3, 4, compat="st_rl"), 4),
        (sized(8, 1, 1, runner={"num_eval_envs": 10}), 4),
    ],
)
def test_shards_that_fit(config, shards):
    assert checks.check_shards(config, shards) is None
