"""PPO with a novelty bonus crosses a chain whose reward PPO alone never sees.

The probe ``sparse`` with 16 places: the best return is 16 + 1 - 0.2 * 16 = 13.8. Each run has
40 iterations of 64 environments and 32 steps, 81920 steps or 2560 episodes.

Seen with seeds 0 to 7: PPO alone ends at 0.00, after 5 steps at the end in one run and none in
the others; with the bonus all end between 13.72 and 13.80, after 25630 to 32576 steps there. One
output and as many hidden units as places, with weight 1, are too small: not one of six seeds learned it.
"""

import jax
import pytest

from strl_jax.algorithms import ppo, rnd
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh

NUM_ENVS, NUM_STEPS, ITERATIONS, SEEDS = 64, 32, 40, 3
BEST = 13.8
RND = rnd.RNDConfig(weight=3.0, num_outputs=16, predictor_hidden_dims=(32,), target_hidden_dims=(32,))


def final_returns(config=None):
    """The mean return of the last iteration and the steps of the whole run at the end, for every seed.

    Args:
        config: of the bonus; None: PPO alone.
    """
    chain = probe.make("sparse")
    env = EpisodeEnv(chain, chain.episode_length)
    state, place = (Segments.select_from(chain.observation_shapes, [name]) for name in ("state", "place"))
    ppo_config = ppo.PPOConfig(
        num_learning_epochs=4, num_mini_batches=4, gamma=0.95, learning_rate=3e-3, use_clipped_value_loss=False
    )
    algorithm = ppo.make(ppo_config, Policy(1, (32,), (32,)), state, state)
    if config is not None:
        algorithm = rnd.add(algorithm, config, place)
    mesh = make_mesh(jax.devices()[:1])
    step = make_train_step(env, algorithm, mesh, NUM_STEPS)
    returns, reached = [], []
    for seed in range(SEEDS):
        states = init_states(env, algorithm, mesh, jax.random.key(seed), NUM_ENVS)
        found = 0.0
        for _ in range(ITERATIONS):
            *states, metrics = step(*states, {})
            assert metrics.update["skipped"] == 0
            found += float(metrics.episode_metrics["reached"])
        returns.append(float(metrics.mean_reward_each_timestep) * chain.episode_length)
        reached.append(found)
    return returns, reached


@pytest.mark.slow
def test_ppo_alone_stays_at_the_start():
    returns, reached = final_returns()
    assert max(returns) < 0.05
    assert max(reached) < 10  # of 81920 steps


@pytest.mark.slow
def test_novelty_leads_to_the_end():
    returns, reached = final_returns(RND)
    assert min(returns) > 0.8 * BEST
    assert min(reached) > 10000
