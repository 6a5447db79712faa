"""Names of st_rl's runner and of its ``alg``: their counterparts, or one line that says what to use instead."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.runners.inference import InferencePolicy

LOOP = (
    "strl_jax.algorithms.rollout.collect, or make_collect_host for a simulator outside JAX, runs steps in your own loop"
)
LOG = "learn writes the log: runner.logger selects the writers, and metrics.jsonl in the run folder has every value"
RUNNER = {
    "rollout_step": f"an iteration is one compiled program; {LOOP}",
    "log": LOG,
    "init_writer": LOG,
    "init_writter": LOG,
    "writer": LOG,
    "cfg": "use config",
    "num_steps_per_env": "use config.runner.num_steps_per_env",
    "save_interval": "use config.runner.save_interval",
    "log_interval": "use config.runner.log_interval",
    "tot_timesteps": "use progress.env_steps",
    "tot_time": "use progress.seconds",
    "git_status_repos": "use repositories",
    "logger_type": "use config.runner.logger",
}
MODES = ("train_mode", "eval_mode")
ALGORITHM = {
    "act": f"get_inference_policy()(obs, key=key) samples an action; {LOOP}",
    "process_env_step": LOOP,
    "collect_transition_from_dataset": LOOP,
    "compute_returns": "use strl_jax.algorithms.returns.gae",
    "compute_losses": "use strl_jax.algorithms.update.losses",
    "update": "use strl_jax.algorithms.ppo.update",
    "storage": f"a rollout is a value and not kept; {LOOP}",
    "transition": f"a rollout is a value and not kept; {LOOP}",
    "init_storage": f"a rollout is a value and not kept; {LOOP}",
    "optimizer": "its state is runner.train_state.opt_state['policy']",
    "obs_normalizer": "its statistics are runner.train_state.stats['actor']",
    "critic_obs_normalizer": "its statistics are runner.train_state.stats['critic']",
    "rnd": "its networks are in runner.train_state.params, its statistics in runner.train_state.stats",
    "discriminator": "its network is in runner.train_state.params, its statistics in runner.train_state.stats",
    "state_dict": "runner.save writes a checkpoint; the state itself is runner.train_state",
    "load_state_dict": "runner.load reads a checkpoint; the state itself is runner.train_state",
}


def instead(owner: str, table: dict[str, str], name: str) -> AttributeError:
    """The error for a missing attribute; for a name in ``table`` it says what to use instead."""
    why = table.get(name)
    return AttributeError(f"{owner} has no attribute {name!r}" + (f": {why}" if why else ""))


def missing(owner: str, name: str) -> Callable[[], None]:
    """The attribute ``name`` of a runner that is not defined there.

    Returns:
        For ``train_mode`` and ``eval_mode``, a function that warns that it has no effect.

    Raises:
        AttributeError: any other name.
    """
    if name not in MODES:
        raise instead(owner, RUNNER, name)
    why = "networks have no modes; learn trains, and evaluation and the inference policy never change a statistic"
    return partial(warnings.warn, f"{name}: no effect; {why}", stacklevel=2)


class Alg:
    """``runner.alg``: st_rl's attributes of an algorithm; all others are those of ``algorithms.Algorithm``.

    Args:
        runner: an ``OnPolicyRunner``; the values are those of its current states.
    """

    def __init__(self, runner):
        self._runner = runner
        self._acting: tuple[Any, InferencePolicy] | None = None

    @property
    def actor_critic(self) -> InferencePolicy:
        """The current policy, see ``OnPolicyRunner.get_inference_policy``; the same object until the weights change."""
        state = self._runner.train_state
        if self._acting is None or self._acting[0] is not state or state is None:
            policy = self._runner.get_inference_policy()
            self._acting = (self._runner.train_state, policy)
        return self._acting[1]

    @property
    def learning_rate(self) -> float:
        """Current learning rate of the policy's optimiser; without a policy that of the first iteration."""
        state = self._runner.train_state
        rates = self._runner.algorithm.learning_rates(jnp.int32(0)) if state is None else state.learning_rate
        return float(rates["policy"])

    @property
    def device(self) -> jax.Device:
        """The runner's device, the first of several."""
        return self._runner.device

    def __getattr__(self, name: str):
        if name.startswith("_") or name in ALGORITHM:
            raise instead("runner.alg", ALGORITHM, name)
        return getattr(self._runner.algorithm, name)
