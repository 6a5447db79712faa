"""Algorithms: PPO (arXiv:1707.06347), with a teacher (TPPO), motion priors (APPO), estimators and curiosity (RND).

One PPO iteration, in the order in which it runs. ``train_step.make_train_step`` compiles all of it into one program.

1. ``train_step.collect_shard`` draws fresh environment states for the resets and calls ``rollout.collect``.
2. ``rollout.collect`` scans ``rollout.one_step`` over T steps of B environments:
   a. ``rollout.choose``: an observation hook may add components, the observation groups are normalised
      (``Algorithm.pack``), the policy samples an action, and the act hook (a teacher) may replace it;
   b. ``EpisodeEnv.step``: one step of the simulator; ended environments restart from the pool;
   c. ``rollout.take_in``: the step becomes a ``StepRecord``; recurrent states start at zero in a new episode.
3. ``finish.finish`` works on all T steps at once:
   a. ``finish.process_rewards``: reward hooks (style, RND), episode sums, reward normalisation;
   b. the critic's values of all observations, of terminal observations (time-outs) and of the last one.
4. ``train_step.learn_shard`` adds the rollout to the memory of earlier ones (``memory.remember``), if the
   algorithm has one, and calls ``update.update``.
5. ``prepare.prepare`` turns the rollout into a ``Batch``:
   a. ``returns.bootstrap_timeouts``, then ``returns.gae``: advantages and returns (arXiv:1506.02438);
   b. ``returns.normalize_advantages``; hooks add labels and states (``extras``).
6. ``update.epochs`` draws the indices of all minibatches of all epochs (``minibatch.plan``) and scans over them:
   a. ``minibatch.gather``, or ``gather_envs`` (whole environments) if the policy has a memory; then transforms;
   b. ``base.apply_networks``: the policy and the other networks, once each;
   c. ``update.losses``: the terms of ``ppo.terms``: ``losses.surrogate``, ``losses.value``,
      ``losses.entropy``; other algorithms add more terms;
   d. gradients are averaged over the devices; with ``schedule: adaptive``, ``schedules.adapt`` changes the
      learning rate by the KL;
   e. ``optimizers.step`` clips the gradient and changes the weights; it is skipped if the gradient is not finite.
7. Last, the observations of the rollout are added to the statistics (``Algorithm.update_obs_stats``).

Where something is not finite, ``origins`` counts it by environment and part, by network, by loss and by gradient.

An algorithm is data for these functions: ``ppo.make`` builds an ``Algorithm`` of terms, networks and optimisers;
``tppo.add``, ``appo.add`` and ``rnd.add`` return it with more terms and hooks (``hooks.ObsHook``, ``ActHook``,
``RewardHook``).
"""

from strl_jax.algorithms.appo import AmpInput, APPOConfig, Style
from strl_jax.algorithms.base import Algorithm, Metric, Outputs, Term
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import ActHook, Collected, ObsHook, Rewarded, RewardHook
from strl_jax.algorithms.ppo import EstimatorPPOConfig, PPOConfig
from strl_jax.algorithms.rnd import RNDConfig
from strl_jax.algorithms.rollout import collect, make_collect_host
from strl_jax.algorithms.teacher import Teacher
from strl_jax.algorithms.tppo import EstimatorTPPOConfig, TPPOConfig
from strl_jax.algorithms.train_step import init_states, make_train_step

__all__ = [
    "APPOConfig",
    "ActHook",
    "Algorithm",
    "AmpInput",
    "Collected",
    "Compat",
    "EstimatorPPOConfig",
    "EstimatorTPPOConfig",
    "Metric",
    "ObsHook",
    "Outputs",
    "PPOConfig",
    "RNDConfig",
    "RewardHook",
    "Rewarded",
    "Style",
    "TPPOConfig",
    "Teacher",
    "Term",
    "collect",
    "init_states",
    "make_collect_host",
    "make_train_step",
]
CLASSES = ("PPO", "APPO", "TPPO", "ATPPO", "EstimatorPPO", "EstimatorTPPO")  # st_rl's


def __getattr__(name: str):
    """Says what to use instead of st_rl's classes, also in an import statement."""
    if name in CLASSES:
        raise ImportError(
            f"strl_jax.algorithms has no class {name}: in a config, runner.algorithm_class_name: {name} selects the "
            "algorithm, and OnPolicyRunner builds it"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
