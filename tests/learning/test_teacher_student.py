"""What a teacher knows and its student does not see: the student finds it, in its memory or as an estimate.

Learning rates fall to 0, so that what remains is the answer and not the last steps' noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import appo, ppo, tppo
from strl_jax.algorithms.amp_input import AmpInput
from strl_jax.algorithms.style import Style
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.config.sections import ALGORITHMS
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EstimatorStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
DELAY = 4
SIGN = Segments(("sign",), ((1,),))
STATE = Segments(("state",), ((1,),))


def linear_teacher(group: Segments, kernel: float, bias: float) -> tuple[tppo.Teacher, dict]:
    """A teacher whose action is kernel * observation + bias, and the data with its weights."""
    policy = Policy(1, (), ())
    layer = {"kernel": jnp.full((1, 1), kernel), "bias": jnp.full(1, bias)}
    params = {"actor": {"layer_0": layer}, "log_std": jnp.zeros(1)}
    return tppo.Teacher(policy, {"actor": group}), {"teacher": {"variables": {"params": params}, "stats": {}}}


def falling(iterations: int, start: float = 1e-2) -> dict:
    return {"name": "linear", "init_value": start, "end_value": 0.0, "transition_steps": iterations}


def train(env, algorithm, data: dict, iterations: int, *, num_envs: int, num_steps: int):
    """The train state after all iterations, and the last metrics."""
    options = {"num_steps": num_steps, "data": data}
    states = init_states(env, algorithm, ONE, jax.random.key(0), num_envs, **options)
    step = make_train_step(env, algorithm, ONE, num_steps)
    for _ in range(iterations):
        *states, metrics = step(*states, data)
    assert metrics.update["skipped"] == 0
    return states[0], metrics


def episodes(algorithm, train_state):
    """The policy's output ``[DELAY + 1, 2]`` in two whole episodes, one with each sign, and the signs."""
    signs = jnp.array([-1.0, 1.0])
    state = jnp.zeros((DELAY + 1, 2, 1)).at[0, :, 0].set(signs)
    obs = {"state": state, "sign": jnp.broadcast_to(signs[:, None], state.shape)}
    groups = algorithm.pack(train_state.stats, obs)
    reset = jnp.zeros((DELAY + 1, 2), bool).at[0].set(True)
    carry = algorithm.policy.initial_carry(2)
    output = jax.jit(algorithm.policy.apply)(train_state.params["policy"], groups, carry, reset)
    return output, np.asarray(signs)


def student(name: str, policy: dict, iterations: int, **options):
    """An algorithm with the teacher who sees the sign, on a student who sees ``state``."""
    env = EpisodeEnv(probe.make("teacher", delay=DELAY), DELAY + 1)
    teacher, data = linear_teacher(SIGN, 1.0, 0.0)
    config = ALGORITHMS[name](
        num_learning_epochs=2,
        num_mini_batches=2,
        schedule=falling(iterations),
        teacher_act_prob="linear",
        update_times_scale=20,
        **options,
    )
    stages = {"memory": MemoryStage("gru", 16), "actor_obs": STATE, "critic_obs": SIGN}
    algorithm = ppo.make(config, Policy(1, (16,), (16,), **stages, **policy), STATE, SIGN)
    return env, tppo.add(algorithm, config, teacher), data


@pytest.mark.slow
def test_a_memory_finds_what_the_teacher_sees():
    """DAgger: no reward is looked at."""
    env, algorithm, data = student("TPPO", {}, 80, using_ppo=False)
    state, metrics = train(env, algorithm, data, 80, num_envs=32, num_steps=10)
    output, signs = episodes(algorithm, state)
    np.testing.assert_allclose(output.mean[..., 0], np.broadcast_to(signs, (DELAY + 1, 2)), atol=0.1)
    assert metrics.hooks["Train/teacher_acting"] == 0.0
    assert metrics.update["distillation_loss"] < 0.1
    assert "surrogate" not in metrics.update


@pytest.mark.slow
def test_an_estimator_finds_what_the_teacher_sees():
    """It reads the memory of what was seen at the first step."""
    stage = EstimatorStage(("state",), ("sign",), (16,))
    env, algorithm, data = student("EstimatorTPPO", {"estimator": stage}, 80)
    state, metrics = train(env, algorithm, data, 80, num_envs=32, num_steps=10)
    output, signs = episodes(algorithm, state)
    wanted = np.broadcast_to(signs, (DELAY + 1, 2))
    np.testing.assert_allclose(output.estimates["estimator"][..., 0], wanted, atol=0.1)
    np.testing.assert_allclose(output.mean[..., 0], wanted, atol=0.1)
    assert metrics.update["estimator_loss"] < 0.01


@pytest.mark.slow
def test_teacher_and_expert_agree():
    """ATPPO on ``style``: the teacher's action is 1, which the expert prefers too."""
    iterations = 60
    env = EpisodeEnv(probe.make("style", prefer=1.0), 1)
    teacher, data = linear_teacher(STATE, 0.0, 1.0)
    config = ALGORITHMS["ATPPO"](
        num_learning_epochs=2,
        num_mini_batches=2,
        schedule=falling(iterations),
        teacher_act_prob="linear",
        update_times_scale=20,
        discriminator_learning_rate=3e-3,
    )
    algorithm = tppo.add(ppo.make(config, Policy(1, (16,), (16,)), STATE, STATE), config, teacher)
    style = Style((16,), task_reward_lerp=0.5)
    algorithm = appo.add(algorithm, config, style, AmpInput(None, True, 1))
    state, metrics = train(env, algorithm, data, iterations, num_envs=64, num_steps=8)
    groups = algorithm.pack({}, {"state": jnp.array([[-1.0], [1.0]])})
    output = algorithm.policy.apply(state.params["policy"], groups, {}, jnp.zeros(2, bool))
    np.testing.assert_allclose(output.mean[:, 0], 1.0, atol=0.1)
    assert metrics.hooks["Train/teacher_acting"] == 0.0
    assert metrics.hooks["Episode_Reward/style_reward"] > 0
