"""What holds for every algorithm: any number of devices, one compilation, broken environments, loop or scan."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equivalent import SHARDS, B, T, call_thrice, made_up, make_data, make_teacher, plans, same_in_both_loops
from jax.sharding import PartitionSpec as P
from tiny import ACTION_SIZE, SHAPES, make_state, normal

from strl_jax.algorithms import amp_input, appo, memory, ppo, rnd, teacher, tppo, train_step
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.algorithms.style import Style
from strl_jax.algorithms.update import update
from strl_jax.config.sections import ALGORITHMS
from strl_jax.envs import probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EstimatorStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.sharding import AXIS, make_mesh, shard_jit

D = 2  # length of the discriminator's states
SMALL_RND = {"num_outputs": 3, "predictor_hidden_dims": (5,), "target_hidden_dims": (4,)}
ST_RL = Compat.st_rl()


@dataclass(frozen=True)
class Case:
    """An algorithm of the registry with what it needs, over all components that there are."""

    name: str
    memory: str | None = None
    compat: Compat = Compat()  # noqa: RUF009 (frozen)
    bonus: bool = False
    options: dict = field(default_factory=dict)

    def make(self, shapes: dict, action_size: int, **options) -> tuple[Algorithm, dict]:
        """The algorithm and the data of its hooks."""
        config = ALGORITHMS[self.name](
            **{"num_mini_batches": 2, "num_learning_epochs": 2, "empirical_normalization": True}
            | self.options
            | options
        )
        group = Segments.select_from(shapes, list(shapes))
        algorithm, data = ppo.make(config, self._policy(config, group, action_size), group, group, self.compat), {}
        if isinstance(config, tppo.TeacherFields):
            who = make_teacher(shapes, action_size, MemoryStage("gru", 3))
            algorithm, data = tppo.add(algorithm, config, who), make_data(who, 1)
        if isinstance(config, appo.AmpFields):
            algorithm = appo.add(algorithm, config, Style((4,)), appo.AmpInput(None, True, D))
        if self.bonus:
            normalized = {"state_normalization": True, "reward_normalization": True}
            algorithm = rnd.add(algorithm, rnd.RNDConfig(**SMALL_RND, **normalized), group)
        return algorithm, data

    def _policy(self, config, group: Segments, action_size: int) -> Policy:
        stage = EstimatorStage((group.names[0],), (group.names[-1],), (4,), replace_prob=0.5)
        return Policy(
            action_size,
            (8,),
            (8,),
            log_std=not self.compat.linear_std,
            actor_obs=group,
            critic_obs=group,
            memory=None if self.memory is None else MemoryStage(self.memory, 3),
            estimator=stage if isinstance(config, EstimatorFields) else None,
        )

    def __str__(self):
        parts = (self.name, self.memory or "feed_forward", "st_rl" if self.compat == ST_RL else "default")
        return "-".join(parts)


def slow(case: Case):
    return pytest.param(case, marks=pytest.mark.slow, id=str(case))


def check_finite(tree) -> None:
    for path, leaf in jax.tree.leaves_with_path(tree):
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


def one_update(algorithm: Algorithm, devices: int, plan) -> tuple:
    """Train states before and after one update on so many devices with ``plan[shard, update, M]``, and metrics.

    A queue is filled with the rollout twice.
    """
    train_state = make_state(algorithm, 3)
    data = made_up(algorithm, train_state)
    extras = {
        teacher.LABELS: 2.0 * normal(9, 0, (T, B, ACTION_SIZE)),
        teacher.LABEL_STD: jnp.exp(normal(9, 1, (T, B, ACTION_SIZE))),
        amp_input.POLICY: 2.0 * normal(8, 0, (T, B, D)) + 1.0,
        amp_input.EXPERT: normal(8, 1, (T, B, D)),
        rnd.STATE: normal(8, 2, (T, B, algorithm.groups["critic"].size)),
    }
    masks = {name: normal(8, 3, (T, B)) > 0 for name in algorithm.policy.replace_probs}
    data = data.replace(steps=data.steps.replace(extras=extras, masks=masks))

    def step(train_state, data, plan):
        kept = memory.init(algorithm, data, None) if memory.needed(algorithm) else {}
        for _ in range(2):
            kept = memory.remember(algorithm, kept, data, axis_name=AXIS)
        return update(algorithm, train_state, data, jax.random.key(0), memory=kept, plan=plan[0], axis_name=AXIS)

    specs = (P(), train_step.ROLLOUT_SPECS, P(AXIS))
    step = shard_jit(step, make_mesh(jax.devices()[:devices]), in_specs=specs, out_specs=P())
    return train_state, step(train_state, data, jnp.asarray(plan))


LITERAL = ST_RL.model_copy(update={"redraw_replacement": False})  # devices draw for themselves
HALF, ALL = {"discriminator_batch_fraction": 0.5}, {"discriminator_batch_fraction": 1.0}
QUEUE = {"buffer_dilation_ratio": 1.5}
TWICE = {"buffer_dilation_ratio": 2.0}  # a multiple of the rollout's steps, which the made-up memories fit
EACH = [
    Case("PPO", bonus=True),
    Case("PPO", "lstm", options={"schedule": "adaptive"}),
    Case("EstimatorPPO"),
    Case("EstimatorPPO", "gru", bonus=True),
    Case("TPPO", options=QUEUE),
    Case("TPPO", "gru", options={"distill_target": "kl"}),
    Case("EstimatorTPPO", bonus=True),
    Case("EstimatorTPPO", "lstm", options=TWICE),
    Case("APPO", bonus=True, options=HALF),
    Case("APPO", "gru", options=ALL | {"mimic_loss_coef": 0.1}),
    Case("ATPPO", bonus=True, options=HALF | TWICE | {"dagger_loss_coef": 0.1}),
    Case("ATPPO", "gru", options=ALL | TWICE | {"dagger_loss_coef": 0.1}),
]


@pytest.mark.parametrize("compat", [Compat(), pytest.param(LITERAL, marks=pytest.mark.slow)], ids=["default", "st_rl"])
@pytest.mark.parametrize("case", EACH, ids=lambda case: f"{case.name}-{case.memory or 'feed_forward'}")
def test_one_device_is_four(case, compat):
    """From samples of six steps of eight environments, or from a queue; every shard has minibatches of its own."""
    algorithm, _ = replace(case, compat=compat).make(SHAPES, ACTION_SIZE)
    whole, local = plans(case.memory is not None, int(T * case.options.get("buffer_dilation_ratio", 1)))
    before, one = one_update(algorithm, 1, whole)
    _, four = one_update(algorithm, SHARDS, local)
    for (path, a), b in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))
    state, metrics = one
    check_learned(case, before.params, state.params)
    lost = 4  # of the places 0 ... 47 those with remainder 4 by 11: 4, 15, 26, 37
    seen = 0 if algorithm.compat.normalize_while_collecting else T * B - lost  # st_rl counts them while it collects
    assert state.stats["actor"]["joints"].count == seen
    assert metrics["skipped"] == 0


DELAY, STEPS, ENVS, DEVICES = 2, 4, 16, 2
PARTS = ("obs", "reward", "ref_obs", "ref_motion", "metrics")


@dataclass(frozen=True)
class Broken(Env):
    """The probe ``teacher`` with an expert; in the first environments of a shard one part each is NaN at age 2.

    Of the others, episodes have three steps.
    """

    probe = probe.make("teacher", delay=DELAY)
    observation_shapes, action_size, dt = probe.observation_shapes, probe.action_size, probe.dt
    episode_length = probe.episode_length

    def reset(self, key):
        return self._shown(self.probe.reset(key), jnp.zeros((key.shape[0], 1)))

    def step(self, state, action):
        return self._shown(self.probe.step(state, action), action)

    def _shown(self, state, action):
        age = state.physics["age"]

        def odd(part):
            row = jnp.arange(age.shape[0]) == PARTS.index(part)
            return jnp.where(row & (age == 2), jnp.nan, 0.0)

        expert = jnp.stack([state.physics["sign"], age], axis=-1)
        return state.replace(
            obs=state.obs | {"state": state.obs["state"] + odd("obs")[:, None]},
            reward=state.reward + odd("reward"),
            metrics={"tracking_error": state.metrics["tracking_error"] + odd("metrics")},
            extras={
                "ref_obs": jnp.stack([action[:, 0], age], axis=-1) + odd("ref_obs")[:, None],
                "ref_motion": expert + odd("ref_motion")[:, None],
            },
        )


EVERYTHING = {"amp_replay_size": 10, "buffer_dilation_ratio": 1.5, "teacher_act_prob": 0.5, "dagger_loss_coef": 0.1}
REPLAY = {"amp_replay_size": 10, "mimic_loss_coef": 0.1}


@pytest.mark.parametrize(
    "case",
    [
        slow(Case("ATPPO", "gru", bonus=True, options=EVERYTHING)),
        slow(Case("EstimatorTPPO", options=QUEUE | {"action_labels_from_sample": True})),
        slow(Case("ATPPO", "gru", ST_RL, bonus=True, options=EVERYTHING)),
        slow(Case("ATPPO", options=EVERYTHING)),
        slow(Case("ATPPO", None, ST_RL, options=EVERYTHING)),
        slow(Case("EstimatorTPPO", "lstm", options=QUEUE | {"hidden_state_resample_prob": 0.5})),
        slow(Case("EstimatorTPPO", "gru", ST_RL, options=QUEUE | {"hidden_state_resample_prob": 0.5})),
        slow(Case("EstimatorTPPO", None, ST_RL, options=QUEUE)),
        slow(Case("TPPO", "gru", ST_RL, bonus=True, options=QUEUE | {"distill_target": "kl"})),
        slow(Case("TPPO", "lstm", options={"buffer_dilation_ratio": 2.0, "using_ppo": False})),
        slow(Case("APPO", None, bonus=True, options=REPLAY)),
        slow(Case("APPO", "gru", ST_RL, bonus=True, options=REPLAY)),
        slow(Case("APPO", "lstm", options=REPLAY | {"discriminator_termination_threshold": 0.1})),
        slow(Case("EstimatorPPO", "gru", bonus=True)),
        slow(Case("EstimatorPPO", None, ST_RL)),
        slow(Case("PPO", "gru", ST_RL, bonus=True, options={"normalize_rewards": True})),
        slow(Case("PPO", None, bonus=True, options={"normalize_rewards": True})),
    ],
)
def test_broken_environments_are_contained_and_nothing_compiles_again(case):
    """On two devices; in three iterations every broken environment has two invalid steps of four each time."""
    env = EpisodeEnv(Broken(), Broken.episode_length)
    algorithm, data = case.make(env.env.observation_shapes, env.env.action_size)
    mesh = make_mesh(jax.devices()[:DEVICES])
    options = {"num_steps": STEPS, "random_lengths": False, "data": data}
    init = train_step.init_states(env, algorithm, mesh, jax.random.key(0), ENVS, **options)
    first = jax.tree.map(jnp.copy, init[0])
    step = train_step.make_train_step(env, algorithm, mesh, STEPS)
    (train, state), metrics = call_thrice(lambda train, state, _: step(train, state, data), init)
    assert int(train.iteration) == 3

    lost = len(PARTS) * DEVICES * 2
    assert metrics.invalid == lost
    assert metrics.update["skipped"] == 0
    unfinished = ("episode_reward", "episode_length")  # NaN by design
    logged = {name: value for name, value in vars(metrics).items() if name not in unfinished}
    check_finite((train, state, logged))
    check_learned(case, first.params, train.params)
    check_counts(case, train.stats, state.memory, lost)


def check_learned(case: Case, before: dict, after: dict) -> None:
    """Everything that learns has moved: not RND's target, and without PPO's losses not the critic and the deviation."""
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), before, after)
    still = [jax.tree_util.keystr(path) for path, value in jax.tree.leaves_with_path(moved) if not value]
    idle = [rnd.TARGET] if case.options.get("using_ppo", True) else [rnd.TARGET, "critic", "log_std"]
    assert [path for path in still if not any(name in path for name in idle)] == []


def check_counts(case: Case, stats: dict, memory: dict, lost: int) -> None:
    """Statistics and memories know of valid steps alone, after three iterations with so many ``lost`` each."""
    valid = 3 * (STEPS * ENVS - lost)
    for name in ("actor", "critic"):
        assert [float(moments.count) for moments in stats[name].values()] == [valid] * 2
    counts = {name: float(stats[name].count) for name in ("amp", "ref_obs", "ref_motion") if name in stats}
    if "amp" in counts:
        assert counts == {"amp": 2 * valid}
    else:
        assert all(count == valid for count in counts.values())
    if case.bonus:
        assert stats["rnd_state"].count == stats["rnd_reward"].count == valid
    if "queue" in memory:  # every second step of the broken ones is lost, and the length is even
        capacity = int(case.options["buffer_dilation_ratio"] * STEPS)
        assert memory["queue"].data["batch"].weight.sum() == capacity * (ENVS - lost / STEPS)
    if "style" in memory:
        assert memory["style"].data["valid"].sum() == 10 * (ENVS - lost / STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("compat", [Compat(), ST_RL], ids=["default", "st_rl"])
def test_host_loop_is_scan(compat):
    """ATPPO with a memory and a teacher that acts at times; episodes end and break."""
    env = EpisodeEnv(Broken(), Broken.episode_length)
    case = Case("ATPPO", "gru", compat, bonus=True, options=EVERYTHING)
    algorithm, data = case.make(env.env.observation_shapes, env.env.action_size)
    options = {"num_steps": T, "random_lengths": False, "data": data}
    train, state = train_step.init_states(env, algorithm, make_mesh(jax.devices()[:1]), jax.random.key(0), B, **options)
    pool = jax.jit(lambda key: env.pool(key, 16 * B))(jax.random.key(1))
    env_step = jax.jit(lambda episode, action, key: env.step(episode, action, pool, key))
    arguments = (train.replace(iteration=jnp.int32(2)), state, jax.random.key(2))
    *_, found, metrics = same_in_both_loops(algorithm, env_step, arguments, T, data, rtol=1e-5)
    assert metrics.invalid == 3 * len(PARTS)  # of six steps
    assert 0 < found.steps.extras[teacher.ACTING].mean() < 1
