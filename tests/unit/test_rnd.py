"""Random network distillation: the bonus by hand, what learns and what stands still, statistics, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equivalent import counted_compilations
from jax.sharding import PartitionSpec as P
from pydantic import ValidationError
from tiny import SHAPES, make_algorithm, make_batch, make_env, make_outputs, make_rollout_state, make_state, normal

from strl_jax.algorithms import ppo, rnd, update
from strl_jax.algorithms.base import Outputs
from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.hooks import Collected
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments
from strl_jax.sharding import AXIS, make_mesh, shard_jit
from strl_jax.types import RunningStats

GROUP = Segments.select_from(SHAPES, ["heights", "command"])  # entries: two heights, the command
SMALL = {"num_outputs": 3, "predictor_hidden_dims": (5,), "target_hidden_dims": (4,)}
LINEAR = {"num_outputs": 2, "predictor_hidden_dims": (), "target_hidden_dims": ()}
T, B = 4, 6


def make(config=None, **ppo):
    """PPO with the bonus on ``GROUP``, and its fresh state."""
    config = rnd.RNDConfig(**(SMALL if config is None else config))
    algorithm = rnd.add(make_algorithm(**ppo), config, GROUP)
    state, more = make_state(algorithm), {}
    if config.state_normalization:
        more["rnd_state"] = normalizer.init((3,))
    if config.reward_normalization:
        more["rnd_reward"] = normalizer.init()
    return algorithm, state.replace(stats=state.stats | more)


def linear(kernel, bias):
    """Variables of an MLP without a hidden layer."""
    return {"params": {"layer_0": {"kernel": jnp.array(kernel), "bias": jnp.array(bias)}}}


# target - predictor = (3 + first height, 4 - command)
PARAMS = {
    "rnd_target": linear([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [3.0, 4.0]),
    "rnd": linear([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [0.0, 0.0]),
}


def by_hand(config, stats=None, iteration=0):
    """The hook on three steps of one environment, of which the last is not valid.

    Terminal observations: first heights 0, 2, NaN; commands 0, -8, NaN. So the distances are
    |(3, 4)| = 5 and |(5, 12)| = 13. The environment's rewards are 1, 2, 0.
    """
    (hook,) = rnd.add(make_algorithm(), rnd.RNDConfig(**LINEAR, **config), GROUP).reward_hooks
    heights = jnp.array([[0.0, 7.0], [2.0, 9.0], [jnp.nan, jnp.nan]]).reshape(3, 1, 1, 2)
    command = jnp.array([0.0, -8.0, jnp.nan]).reshape(3, 1, 1)
    other = {name: jnp.full((3, 1, *shape), 100.0) for name, shape in SHAPES.items()}
    collected = Collected(
        obs=other,
        terminal_obs=other | {"heights": heights, "command": command},
        next_obs=other,
        action=jnp.zeros((3, 1, 2)),
        valid=jnp.array([[True], [True], [False]]),
        extras={},
        iteration=jnp.int32(iteration),
        params=PARAMS,
    )
    total = jnp.array([[1.0], [2.0], [0.0]])
    rewarded = hook.reward(collected, stats or {}, total)
    return rewarded.reward[:, 0], rewarded.extras, rewarded.stats, rewarded.log


def test_reward_by_hand():
    reward, extras, stats, log = by_hand({"weight": 0.5})
    np.testing.assert_allclose(reward, [1 + 2.5, 2 + 6.5, 0.0], rtol=1e-6)
    assert log.keys() == {"Episode_Reward/rnd_reward"}
    np.testing.assert_allclose(log["Episode_Reward/rnd_reward"], 4.5, rtol=1e-6)  # (2.5 + 6.5) / 2
    np.testing.assert_array_equal(extras["rnd_state"][:2, 0], [[0, 7, 0], [2, 9, -8]])
    assert stats == {}


def test_weight_follows_its_schedule():
    schedule = {"name": "linear", "init_value": 2.0, "end_value": 0.0, "transition_steps": 4}
    # 2 (1 - 3 / 4) = 0.5; at 0 it is 2
    np.testing.assert_allclose(by_hand({"weight": schedule}, iteration=3)[0], [3.5, 8.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(by_hand({"weight": schedule}, iteration=0)[0], [11.0, 28.0, 0.0], rtol=1e-6)


def test_reward_normalization_by_hand():
    """Distances 5 and 13: mean 9, variance 16, and they are divided by 4 + 0.01; weights come after it."""
    reward, _, stats, _ = by_hand(
        {"weight": 2.0, "reward_normalization": True}, {"rnd_reward": normalizer.init(), "kept": 1}
    )
    moments = stats["rnd_reward"]
    np.testing.assert_allclose([moments.mean, moments.var, moments.count], [9.0, 16.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(reward, [1 + 10 / 4.01, 2 + 26 / 4.01, 0.0], rtol=1e-6)
    assert stats["kept"] == 1


def test_state_normalization_by_hand():
    """Mean 1, deviation 2 - 0.01 of every entry: x is (x - 1) / 2, and stored as it was."""
    ones = jnp.ones(3)
    stats = {"rnd_state": RunningStats(ones, ones * 1.99**2, jnp.float32(5.0))}
    reward, extras, after, _ = by_hand({"state_normalization": True}, stats)
    # heights -1/2 and 1/2, commands -1/2 and -9/2: |(2.5, 4.5)| and |(3.5, 8.5)|
    np.testing.assert_allclose(reward, [1 + np.hypot(2.5, 4.5), 2 + np.hypot(3.5, 8.5), 0.0], rtol=1e-5)
    np.testing.assert_array_equal(extras["rnd_state"][0, 0], [0.0, 7.0, 0.0])
    jax.tree.map(np.testing.assert_array_equal, after, stats)


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": {"name": "nothing"}},
        {"activation": "nothing"},
        {"predictor_hidden_dims": (0,)},
        {"target_hidden_dims": (-2,)},
        {"num_outputs": 0},
        {"weigth": 1.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_config_refuses(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        rnd.RNDConfig(**wrong)


def test_twice_is_refused():
    with pytest.raises(ValueError, match="has random network distillation already"):
        rnd.add(make()[0], rnd.RNDConfig(), GROUP)


def test_minus_one_is_the_size_of_the_input():
    algorithm, _ = make({"predictor_hidden_dims": (-1,), "target_hidden_dims": (-1,), "num_outputs": 1})
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0)).params
    for name in ("rnd", "rnd_target"):
        layers = shapes[name]["params"]
        assert layers["layer_0"]["kernel"].shape == (3, 3)
        assert layers["layer_1"]["kernel"].shape == (3, 1)


def test_the_two_networks_start_apart():
    (hook,) = make(LINEAR)[0].reward_hooks
    params, _ = hook.init(jax.random.key(0))
    kernels = [params[name]["params"]["layer_0"]["kernel"] for name in ("rnd", "rnd_target")]
    assert jnp.abs(kernels[0] - kernels[1]).min() > 0


def run_epochs(algorithm, state, extras=None):
    """Epochs over a made-up batch with a fixed plan of two updates."""
    batch, plan = make_batch(algorithm, state, 1, T, B), jnp.arange(T * B, dtype=jnp.int32).reshape(2, -1)
    batch = batch.replace(extras={"rnd_state": normal(2, 0, (T, B, 3))} if extras is None else extras)
    return jax.jit(lambda *args: update.epochs(algorithm, *args, jax.random.key(0), plan=plan))(state, batch)


def largest_change(before, after):
    changes = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), before, after)
    return max(float(change) for change in jax.tree.leaves(changes))


@pytest.mark.slow
def test_predictor_learns_at_its_own_rate_and_the_policy_does_not_notice():
    options = {"schedule": "adaptive", "desired_kl": 1e-9, "learning_rate": 1e-3}
    algorithm, state = make(SMALL | {"learning_rate": 4e-3, "max_grad_norm": 1e-3}, **options)
    after, metrics = run_epochs(algorithm, state)
    plain = make_algorithm(**options)
    alone = state.replace(
        params={"policy": state.params["policy"]},
        opt_state={"policy": state.opt_state["policy"]},
        learning_rate={"policy": state.learning_rate["policy"]},
    )
    alone, plain_metrics = run_epochs(plain, alone, extras={})

    jax.tree.map(np.testing.assert_array_equal, after.params["rnd_target"], state.params["rnd_target"])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        after.params["policy"],
        alone.params["policy"],
    )
    # Adam's first two steps are one learning rate each where the sign of the gradient stays.
    np.testing.assert_allclose(largest_change(state.params["rnd"], after.params["rnd"]), 2 * 4e-3, rtol=0.02)
    # The KL of the second update lowers the policy's rate, and no other.
    np.testing.assert_allclose(after.learning_rate["policy"], 1e-3 / 1.5, rtol=1e-6)
    np.testing.assert_allclose(after.learning_rate["rnd"], 4e-3, rtol=1e-6)
    np.testing.assert_allclose(
        metrics["total_loss"], plain_metrics["total_loss"] + metrics["rnd_loss"], rtol=1e-4, atol=1e-6
    )


def test_loss_is_the_mean_square_over_valid_samples():
    """States (0, 7, 0), (2, 9, -8) and one of weight 0: errors (3, 4) and (5, 12), (25 / 2 + 169 / 2) / 2 = 48.5."""
    algorithm, _ = make(LINEAR)
    batch = make_batch(algorithm, make_state(algorithm), 1, 3, 1)
    states = jnp.array([[0.0, 7.0, 0.0], [2.0, 9.0, -8.0], [50.0, 0.0, 0.0]])[:, None]
    batch = batch.replace(extras={"rnd_state": states}, weight=jnp.array([[0.5], [0.5], [0.0]]))
    term = next(term for term in algorithm.terms if term.name == "rnd_loss")

    def loss(params):
        return term.fn(Outputs(None, {"rnd": algorithm.networks["rnd"](params, batch)}), batch)

    value, gradient = jax.value_and_grad(loss)(PARAMS)
    np.testing.assert_allclose(value, 48.5, rtol=1e-6)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient["rnd_target"]))
    # d loss / d bias = -mean of the errors: each entry is squared and halved
    np.testing.assert_allclose(gradient["rnd"]["params"]["layer_0"]["bias"], [-4.0, -8.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, MemoryStage("gru", 4)], ids=["feed_forward", "recurrent"])
def test_train_step_with_nan_compiles_once(memory):
    """The target stands still, the predictor learns, and steps with NaN count nowhere."""
    env = make_env("nan", 3, probability=0.2)
    group = Segments.select_from(env.env.observation_shapes, ["state"])
    algorithm = ppo.make(ppo.PPOConfig(num_mini_batches=2), Policy(1, (8,), (8,), memory=memory), group, group)
    config = rnd.RNDConfig(**SMALL, state_normalization=True, reward_normalization=True)
    algorithm = rnd.add(algorithm, config, group)
    mesh = make_mesh(jax.devices()[:1])
    states = init_states(env, algorithm, mesh, jax.random.key(0), 16)
    step = make_train_step(env, algorithm, mesh, T)
    before, invalid = jax.device_get(states[0].params), 0
    for compiles in (True, False):
        with counted_compilations() as compiled:
            *states, metrics = step(*states, {})
            jax.block_until_ready(metrics)
        assert bool(compiled) == compiles
        invalid += int(metrics.invalid)
        assert metrics.update["skipped"] == 0
        assert metrics.update["rnd_loss"] > 0
        assert metrics.hooks["Episode_Reward/rnd_reward"] > 0
    after = jax.device_get(states[0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics.update)))
    assert 0 < invalid < T * 16
    for name in ("rnd_state", "rnd_reward"):
        assert after.stats[name].count == 2 * T * 16 - invalid
    jax.tree.map(np.testing.assert_array_equal, after.params["rnd_target"], before["rnd_target"])
    assert largest_change(before["rnd"], after.params["rnd"]) > 1e-3


SHARDS, EPOCHS = 4, 2
VALID = np.ones((T, 8), bool)
VALID[:, :2] = False  # the first of four shards has not one valid step
VALID[[1, 3], [2, 7]] = False


def iterate(algorithm, state, devices, plan):
    """From the end of the steps to new weights, then the bonus with the new statistics."""
    states = (make_rollout_state(5, 8), make_rollout_state(6, 8))
    outputs = make_outputs(algorithm, state, 7, T, 8, jnp.asarray(VALID))
    outputs.terminal_obs["command"] = outputs.terminal_obs["command"].at[1, 2].set(jnp.nan)
    key = jax.random.key(0)

    def iteration(state, states, outputs, plan):
        collected, _, data, metrics = finish(algorithm, state, *states, state.stats, outputs, AXIS, key=key)
        batch = update.prepare(algorithm, data, axis_name=AXIS)
        after, summary = update.update(algorithm, collected, data, key, plan=plan[0], axis_name=AXIS)
        return (after, summary | metrics.hooks, collected.stats), (data.steps.reward, batch.extras)

    step = shard_jit(
        iteration,
        make_mesh(jax.devices()[:devices]),
        in_specs=(P(), P(AXIS), P(None, AXIS), P(AXIS)),
        out_specs=(P(), P(None, AXIS)),
    )
    return jax.device_get(step(state, states, outputs, jnp.asarray(plan))), outputs


@pytest.fixture(scope="module")
def devices():
    """One iteration on one device and on four, with every statistic on: the algorithm, the start, both results."""
    config = SMALL | {"state_normalization": True, "reward_normalization": True, "weight": 2.0}
    algorithm, state = make(config, num_learning_epochs=EPOCHS)
    rng = np.random.default_rng(3)
    local = np.stack([[rng.permutation(T * 2) for _ in range(EPOCHS)] for _ in range(SHARDS)]).astype(np.int32)
    whole = local // 2 * 8 + local % 2 + 2 * np.arange(SHARDS)[:, None, None]
    one, outputs = iterate(algorithm, state, 1, np.concatenate(whole, axis=-1)[None])
    four, _ = iterate(algorithm, state, SHARDS, local)
    return algorithm, state, outputs, one, four


@pytest.mark.slow
def test_one_device_is_four(devices):
    *_, one, four = devices
    for (path, a), b in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
def test_statistics_stand_still_until_the_update(devices):
    """Those of the states move after the epochs, those of the bonus with the rollout; both by valid steps alone."""
    _, start, outputs, ((after, metrics, collected), (reward, extras)), _ = devices
    terminal = np.asarray(GROUP.flatten(outputs.terminal_obs))
    jax.tree.map(np.testing.assert_array_equal, collected["rnd_state"], start.stats["rnd_state"])
    # Fresh statistics have mean 0 and deviation 1, to which 0.01 is added.
    np.testing.assert_allclose(extras["rnd_state"][VALID], terminal[VALID] / 1.01, rtol=1e-5)
    assert np.isfinite(extras["rnd_state"]).all()
    np.testing.assert_allclose(after.stats["rnd_state"].mean, terminal[VALID].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(after.stats["rnd_state"].var, terminal[VALID].var(axis=0), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, collected["rnd_reward"], after.stats["rnd_reward"])

    bonus = reward[VALID] - np.asarray(outputs.reward)[VALID]
    moments = collected["rnd_reward"]
    raw = bonus / 2.0 * (np.sqrt(moments.var) + 0.01)
    np.testing.assert_allclose([moments.mean, moments.var], [raw.mean(), raw.var()], rtol=1e-4)
    assert moments.count == VALID.sum()
    assert raw.min() > 0
    assert not reward[~VALID].any()
    np.testing.assert_allclose(metrics["Episode_Reward/rnd_reward"], bonus.mean(), rtol=1e-5)
