"""Values that are not finite are reported with their origin: environment and part, network, reward, loss, gradient."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk, log, settings
from jax.sharding import PartitionSpec as P

from strl_jax.algorithms import appo, origins, ppo, rnd, train_step
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.algorithms.ppo import EstimatorPPOConfig
from strl_jax.envs import broken, probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EstimatorStage
from strl_jax.observations import Segments
from strl_jax.runners.duties.origins import OriginReport
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import AXIS, make_mesh, shard_jit
from strl_jax.types import Origins

TWO = make_mesh(jax.devices()[:2])
STEPS, ENVS = 4, 8


@dataclass(frozen=True)
class Breaks(Walk):
    """In iterations 3 and 4, ``part`` of the second environment of every device is ``bad``."""

    part: str = "obs"
    bad: float = float("nan")
    iteration: int | jax.Array = 0

    def at_iteration(self, iteration):
        return replace(self, iteration=iteration)

    def step(self, state, action):
        after = super().step(state, action)
        late = (self.iteration == 2) | (self.iteration == 3)
        rows = late & (jnp.arange(action.shape[0]) == 1)
        changes = {
            "obs": {"obs": after.obs | {"goal": jnp.where(rows[:, None, None], self.bad, after.obs["goal"])}},
            "metrics": {"metrics": after.metrics | {"reward_x": jnp.where(rows, self.bad, 0.0)}},
            "reset": {},
        }
        return after.replace(**changes[self.part])

    def reset(self, key):
        state = super().reset(key)
        if self.part != "reset":
            return state
        value = jnp.where((jnp.arange(len(key)) < 3) & (self.iteration == 2), self.bad, state.obs["position"][:, 0])
        return state.replace(obs=state.obs | {"position": value[:, None]})


def trained(env, folder, capsys) -> tuple[list[str], list[dict]]:
    """Warnings and log of five iterations on two devices with two environments each."""
    config = settings(folder) | {"env": {"num_envs": 4, "episode_length": 50}}
    runner = OnPolicyRunner(env, config, folder / "run", mesh=TWO)
    runner.learn(5)
    runner.close()
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    return warnings, log(folder / "run")


def not_finite(row: dict) -> dict:
    return {name: value for name, value in row.items() if name.startswith("NonFinite/")}


@pytest.mark.parametrize(
    ("env", "line", "name", "counts"),
    [
        (
            Breaks(),
            "iteration 3: env 1 of 4: observation goal is not finite or >= 1e9 (first of 2 environments)",
            "observation goal",
            [0, 0, 2, 2, 0],
        ),
        (
            Breaks(part="metrics", bad=float("inf")),
            "iteration 3: env 1 of 4: reward term reward_x is not finite (first of 2 environments)",
            "reward term reward_x",
            [0, 0, 2, 2, 0],
        ),
        (
            Breaks(part="reset", bad=1e10),
            "iteration 3: observation position of a reset is not finite or >= 1e9 in 6 of 32 initial states; "
            "0 is used instead",
            "observation position of a reset",
            [0, 0, 6, 0, 0],
        ),
    ],
)
def test_a_part_of_the_environment(env, line, name, counts, tmp_path, capsys):
    """With its first iteration, once; the log counts it in the iterations in which it occurs."""
    warnings, rows = trained(env, tmp_path, capsys)
    assert [text for text in warnings if name in text] == [f"warning: {line}"]
    assert [not_finite(row) for row in rows] == [{f"NonFinite/{name}": float(n)} if n else {} for n in counts]


def test_the_first_environment_of_all_devices():
    flags = {"a": np.zeros(8, bool), "b": np.zeros(8, bool), "c": np.zeros(8, bool)}
    flags["a"][[5, 6]] = flags["b"][[3, 7]] = True

    def count(flags):
        return origins.by_environment(flags, "environments", AXIS)

    mesh = make_mesh(jax.devices()[:4])
    result = shard_jit(count, mesh, in_specs=P(AXIS), out_specs=P())(flags)
    assert (result.names, result.total, result.count.tolist()) == (("a", "b", "c"), 8, [2, 2, 0])
    assert result.first[:2].tolist() == [5, 3]
    alone = jax.jit(lambda flags: origins.by_environment(flags, "environments", None))(flags)
    assert (alone.total, alone.first.tolist()) == (8, result.first.tolist())


def test_an_update_counts_once_on_all_devices():
    """Device 0 has the flag in updates 0 and 1, device 1 in 1 and 2."""
    flags = {"x": np.array([1, 1, 0, 0, 1, 1], bool), "y": np.zeros(6, bool)}
    run = shard_jit(lambda flags: origins.by_update(broken.pack(flags), AXIS), TWO, in_specs=P(AXIS), out_specs=P())
    result = run(flags)
    assert (result.total, result.count.tolist(), result.first) == (3, [3, 0], None)


def test_more_parts_than_bits_of_a_word():
    rng = np.random.default_rng(0)
    flags = {f"part {i}": jnp.asarray(rng.integers(2, size=(3, 5)), bool) for i in range(70)}
    packed = jax.jit(broken.pack)(flags)
    assert packed.bits.shape == (3, 5, 3)
    for name, flag in broken.unpack(packed).items():
        np.testing.assert_array_equal(flag, flags[name], err_msg=name)


def make_curious_style():
    """APPO with RND, its environment and its data."""
    env = EpisodeEnv(probe.make("gait"), 5)
    group = Segments.select_from(env.env.observation_shapes, ("phase",))
    config = appo.APPOConfig(num_mini_batches=2, num_learning_epochs=1)
    states = appo.make_input(None, group, {}, 4)
    algorithm = appo.make(config, Policy(1, (4,), (4,)), group, group, appo.Style((4,)), states)
    small = rnd.RNDConfig(num_outputs=3, predictor_hidden_dims=(5,), target_hidden_dims=(4,))
    return env, rnd.add(algorithm, small, group), {"expert": jnp.ones((6, 4))}


def make_estimating():
    """EstimatorPPO whose actor does not use the estimate, and its environment."""
    env = EpisodeEnv(Walk(), 5)
    names = list(env.env.observation_shapes)
    actor, critic = (Segments.select_from(env.env.observation_shapes, part) for part in (names[:1], names))
    stage = EstimatorStage(("position",), ("goal",), (4,))
    policy = Policy(1, (4,), (4,), actor_obs=actor, critic_obs=critic, estimator=stage)
    config = EstimatorPPOConfig(num_mini_batches=2)
    assert isinstance(config, EstimatorFields)
    return env, ppo.make(config, policy, actor, critic), {}


def run_with_nan(made, poisons: dict) -> dict[str, dict[str, tuple]]:
    """For each poisoned path of the parameters: origin -> (count, first environment or None)."""
    env, algorithm, data = made
    options = {"num_steps": STEPS, "data": data}
    init = train_step.make_init(env, algorithm, TWO, ENVS, **options)
    step = train_step.make_train_step(env, algorithm, TWO, STEPS)
    found = {}
    for name, path in poisons.items():
        train, state = init(jax.random.key(0))

        def poisoned(where, leaf, path=path):
            return leaf * jnp.nan if path and path in jax.tree_util.keystr(where) else leaf

        train = train.replace(params=jax.tree_util.tree_map_with_path(poisoned, train.params))
        metrics = jax.device_get(step(train, state, data)[2])
        found[name] = {
            origin: (int(group.count[i]), None if group.first is None else int(group.first[i]))
            for group in reversed(metrics.origins)
            for i, origin in enumerate(group.names)
            if group.count[i]
        }
    return found


def test_networks_rewards_losses_and_gradients():
    poisons = {"nothing": "", "critic": "'critic'", "actor": "'actor'", "rnd": "['rnd']", "style": "['discriminator']"}
    found = run_with_nan(make_curious_style(), poisons)
    assert found["nothing"] == {}

    everywhere, updates = (ENVS, 0), (2, None)
    critic = found["critic"]
    assert critic["output of the critic"] == everywhere
    assert critic["loss value_loss"] == critic["gradient of policy"] == updates
    assert not {"output of the actor", "output of the rnd", "reward", "loss rnd_loss", "physics"} & critic.keys()

    actor = found["actor"]
    assert actor["output of the actor"] == everywhere
    assert actor["loss surrogate_loss"][1] is None
    # The environment became NaN by the action.
    assert not {name for name in actor if name.startswith(("observation", "physics", "reward", "extra"))}

    assert found["rnd"]["reward of rnd"] == everywhere
    assert found["rnd"]["output of the rnd"] == found["rnd"]["loss rnd_loss"] == updates
    assert found["rnd"]["gradient of rnd"] == updates
    assert found["style"]["reward of style"] == everywhere
    assert found["style"]["output of the discriminator"] == updates
    assert "reward of rnd" not in found["style"]


def test_an_estimator():
    found = run_with_nan(make_estimating(), {"estimator": "'state_estimator'"})["estimator"]
    assert found["output of the estimator"] == (2, None)
    assert "loss estimator_loss" in found
    assert not {"output of the actor", "output of the critic", "loss value_loss"} & found.keys()


def test_each_origin_is_reported_once():
    lines = []
    report = OriginReport(lines.append)

    def group(*count):
        return Origins(np.array(count), np.array([3, 4]), ("physics", "reward"), 16, "environments")

    assert report.read(1, (group(0, 0),)) == {}
    assert report.read(7, (group(1, 0),)) == {"NonFinite/physics": 1.0}
    assert report.read(8, (group(5, 2),)) == {"NonFinite/physics": 5.0, "NonFinite/reward": 2.0}
    assert lines == [
        "iteration 7: env 3 of 16: physics is not finite",
        "iteration 8: env 4 of 16: reward is not finite or >= 1e9 (first of 2 environments)",
    ]
