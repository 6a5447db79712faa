"""A run started from another's checkpoint: weights, statistics, one's own manipulator, and what does not fit."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import close, make_state, normal, running

from strl_jax.builders.transfer.start import load_policy
from strl_jax.config import ConfigError
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
ENVS = 4


def runner(groups: dict, log_dir=None, mu_activation=None, **algorithm) -> OnPolicyRunner:
    config = {
        "env": {"name": "probe:two_groups", "num_envs": ENVS, "groups": groups},
        "policy": {"actor_hidden_dims": [4], "critic_hidden_dims": [4], "mu_activation": mu_activation},
        "algorithm": {"empirical_normalization": True, "normalize_rewards": True} | algorithm,
        "runner": {"num_steps_per_env": 2, "logger": "none", "time_split": False},
    }
    return OnPolicyRunner(None, config, log_dir, mesh=ONE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose actor sees the state alone, as if trained: its weights and statistics are not those of a start."""
    made = runner({"actor": ["state"], "critic": ["state", "hidden"]}, tmp_path_factory.mktemp("run"))
    stats = {
        "actor": {"state": running(0.25, 1)},
        "critic": {"state": running(0.5, 1), "hidden": running(0.75, 1)},
        "reward": running(2.0),
    }
    made.train_state = make_state(made.algorithm).replace(stats=jax.tree.map(jnp.asarray, stats))
    made.rollout_state = jnp.zeros(2)  # saved, not read
    made.save("last")
    made.checkpointer.wait()
    yield made
    made.close()


@pytest.fixture(scope="module")
def started():
    """The new run's runner, its actor sees more and its critic in another order."""
    made = runner({"actor": ["hidden", "state"], "critic": ["hidden", "state"]})
    made.train_state, made.rollout_state = made.fresh_states(False)
    yield made
    made.close()


@pytest.mark.slow
def test_a_run_starts_from_another(trained, started):
    fresh = started.train_state
    state, lines = load_policy(trained.log_dir, started.algorithm, fresh)
    assert lines == ["actor: component hidden (1) is new, its weights are 0"]
    saved = trained.train_state
    assert state.stats["reward"].count == 2.0
    for group, name, origin in (
        ("actor", "state", "actor"),
        ("actor", "hidden", "critic"),
        ("critic", "hidden", "critic"),
    ):
        jax.tree.map(np.testing.assert_array_equal, state.stats[group][name], saved.stats[origin][name])
    obs = {"state": normal(1, 0, (3, 1)), "hidden": normal(1, 1, (3, 1))}
    expected = trained.get_inference_policy()(obs)
    started.train_state = state
    policy = started.get_inference_policy()
    close(policy(obs), expected)
    np.testing.assert_array_equal(policy(obs | {"hidden": 5.0 + obs["hidden"]}), policy(obs))
    packed = [made.algorithm.pack(made.train_state.stats, obs) for made in (trained, started)]
    values = [
        made.algorithm.value(made.train_state.params, groups, {}, jnp.zeros(3, bool))[0]
        for made, groups in zip((trained, started), packed, strict=True)
    ]
    close(values[1], values[0])
    assert np.abs(expected).max() > 1e-3
    assert state.opt_state is fresh.opt_state
    kernel = np.array(state.params["policy"]["params"]["actor"]["layer_0"]["kernel"])
    started.learn(1)
    trained_on = started.train_state.params["policy"]["params"]["actor"]["layer_0"]["kernel"]
    assert not kernel[0].any()
    assert np.asarray(trained_on)[0].any()  # rows of zeros learn


def test_other_scaling_is_told(trained):
    groups = {"actor": ["state"], "critic": ["state", "hidden"]}
    made = runner(groups, mu_activation="tanh", empirical_normalization=False, normalization_eps=0.5)
    state = jax.eval_shape(made.algorithm.init, jax.random.key(0))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    state, lines = load_policy(trained.log_dir, made.algorithm, state)
    made.close()
    assert lines == [
        "mu_activation: None in the checkpoint, tanh now",
        "empirical_normalization: True in the checkpoint, False now",
        "normalization_eps: 0.01 in the checkpoint, 0.5 now",
    ]
    assert state.stats.keys() == {"reward"}
    jax.tree.map(np.testing.assert_array_equal, state.params, trained.train_state.params)


def grow(variables: dict, stats: dict, meta: dict):
    """A manipulator as a user writes it: the actor's new first row is 7, its statistics are the critic's."""
    assert meta["layout"]["groups"]["actor"] == {"state": [1]}
    layer = variables["params"]["actor"]["layer_0"]
    layer["kernel"] = np.concatenate([np.full((1, 4), 7.0), layer["kernel"]])
    variables["params"]["log_std"] += 1.0
    stats["actor"]["hidden"] = stats["critic"]["hidden"]
    return variables, stats


def damage(variables: dict, stats: dict, meta: dict):
    """Forgets the new row, and adds what no policy has."""
    variables["params"]["extra"] = np.zeros(2)
    return variables, stats


@pytest.mark.parametrize("manipulator", [grow, "test_load_policy:grow"])
def test_own_manipulator(trained, started, manipulator):
    state, lines = load_policy(trained.log_dir, started.algorithm, started.train_state, manipulator=manipulator)
    assert lines == []
    before, now = (made.params["policy"]["params"] for made in (trained.train_state, state))
    kernel = before["actor"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(now["actor"]["layer_0"]["kernel"], np.concatenate([np.full((1, 4), 7.0), kernel]))
    np.testing.assert_array_equal(now["log_std"], np.asarray(before["log_std"]) + 1.0)
    assert now["actor"]["layer_0"]["kernel"].dtype == jnp.float32
    jax.tree.map(np.testing.assert_array_equal, now["critic"], before["critic"])
    jax.tree.map(
        np.testing.assert_array_equal, state.stats["actor"]["hidden"], trained.train_state.stats["critic"]["hidden"]
    )


def test_what_a_manipulator_returns_must_fit(trained, started):
    arguments = trained.log_dir, started.algorithm, started.train_state
    with pytest.raises(CheckpointError) as error:
        load_policy(*arguments, manipulator=damage)
    assert str(error.value) == (
        "runner.ckpt_manipulator: the result of damage does not fit: "
        "policy/params/actor/layer_0/kernel: (1, 4) from the function, (2, 4) wanted; "
        "stats/actor/hidden/mean: nothing from the function, (1,) wanted; "
        "stats/actor/hidden/var: nothing from the function, (1,) wanted; "
        "stats/actor/hidden/count: nothing from the function, () wanted; "
        "policy/params/extra: (2,) from the function, nothing wanted"
    )
    with pytest.raises(CheckpointError, match=r"<lambda> must return \(variables, stats\), not dict"):
        load_policy(*arguments, manipulator=lambda variables, stats, meta: variables)

    def fails(variables, stats, meta):
        raise KeyError("boom")

    with pytest.raises(CheckpointError, match=r"ckpt_manipulator: fails fails: KeyError: 'boom' \(.*test_load_policy"):
        load_policy(*arguments, manipulator=fails)

    def blank(variables, stats, meta):
        fresh = jax.device_get(started.train_state)
        return jax.tree.map(lambda leaf: leaf * np.nan, fresh.params["policy"]), fresh.stats

    with pytest.raises(CheckpointError, match="ckpt_manipulator: the result of blank is not finite: policy/"):
        load_policy(*arguments, manipulator=blank)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere:grow", "'nowhere:grow' cannot be imported: .*No module named 'nowhere'"),
        ("test_load_policy:shrink", "'test_load_policy:shrink' cannot be imported: .* has no shrink"),
        ("by_name", "'by_name' cannot be imported: .*No module named 'by_name'"),
        ("test_load_policy:ENVS", "'test_load_policy:ENVS' is 4; it must be a function or a class"),
    ],
)
def test_no_such_manipulator(trained, started, path, message):
    with pytest.raises(ConfigError, match=rf"^runner\.ckpt_manipulator: {message}"):
        load_policy(trained.log_dir, started.algorithm, started.train_state, manipulator=path)


def test_nothing_to_read(trained, started, tmp_path):
    arguments = started.algorithm, started.train_state
    with pytest.raises(CheckpointError, match=r"absent: there is no such folder$"):
        load_policy(tmp_path / "absent", *arguments)
    copy = tmp_path / "copy"
    shutil.copytree(trained.log_dir, copy)
    part = copy / "checkpoints" / "last" / "0" / "train"
    for file in [path for path in part.rglob("*") if path.is_file() and path.name != "manifest.ocdbt"]:
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="last/0/train: damaged"):
        load_policy(copy, *arguments)


def test_a_config_of_another_version(started, tmp_path):
    saver = Checkpointer(tmp_path)
    layout = {"groups": {"actor": {"state": [1]}, "critic": {"state": [1]}}, "action_size": 1}
    config = {"env": {"name": "probe:two_groups"}, "algorithm": {"gama": 0.9}}
    saver.save("best", 3, {"train": {"params": jnp.zeros(2)}}, {"config": config, "layout": layout})
    saver.close()
    with pytest.raises(CheckpointError, match=r"cannot use its config: algorithm\.gama: unknown key"):
        load_policy(tmp_path, started.algorithm, started.train_state)
