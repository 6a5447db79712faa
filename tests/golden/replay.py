"""Plays a golden file's recorded rollouts through ``rollout.one_step`` and ``finish``."""

import jax
import jax.numpy as jnp
import numpy as np

from golden.files import Golden, to_flax
from strl_jax.algorithms import optimizers, rollout, update
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.finish import finish
from strl_jax.types import (
    Batch,
    EnvState,
    EpisodeState,
    EpisodeSums,
    RolloutState,
    TimeStep,
    TrainState,
)


class Replay:
    """Both rollouts of a recurrent golden file, one after the other, with the file's weights.

    With an act hook ``data`` is what it needs, and the extra ``received`` is the action that the environments got.
    """

    def __init__(self, golden: Golden, algorithm: Algorithm, dtype, data: dict | None = None):
        self.golden, self.algorithm, self.dtype, self.data = golden, algorithm, dtype, data
        self._play = jax.jit(self._collect)
        weights = to_flax(golden.group("param"), dtype)
        fresh = jax.eval_shape(algorithm.init, jax.random.key(0))
        assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, fresh.params["policy"])
        optimizer = algorithm.optimizers["policy"]
        self.train = TrainState(
            params={"policy": weights},
            opt_state={"policy": optimizers.init(optimizer, weights)},
            learning_rate={"policy": jnp.float32(golden.config["lr"])},
            iteration=jnp.int32(0),
            stats={},
        )
        num_envs = golden.config["E"]
        zeros = jnp.zeros(num_envs, dtype)
        hook = algorithm.act_hook
        self.state = RolloutState(
            env=EpisodeState(self._env(0, 0), jnp.zeros(num_envs, jnp.int32)),
            carry=algorithm.policy.initial_carry(num_envs, dtype=dtype),
            reset=jnp.ones(num_envs, bool),
            episode=EpisodeSums(zeros, zeros.astype(jnp.int32), {}),
            discounted=zeros,
            hooks={} if hook is None else {hook.name: hook.init(jax.random.key(0), num_envs)},
            memory={},
            key=jax.random.split(jax.random.key(0), num_envs),
        )

    def collect(self, number: int):
        """Rollout ``number``: the rollout and its batch; the new state is kept for the next one."""
        start = self.state.replace(env=self.state.env.replace(env=self._env(number, 0)))
        data, batch, self.state = self._play(self.train, start, self._recorded(number))
        return data, batch

    def _recorded(self, number: int) -> dict:
        """What the environments did at each step, leaves ``[T, B, ...]``; zeros for what no file tells."""
        config = self.golden.config
        found = {"time_outs": jnp.zeros((config["T"], config["E"]))}
        found["actions"] = jnp.zeros((config["T"], config["E"], config["A"]))
        uniform = ("uniform_draws",) if self.algorithm.act_hook else ()
        for key in ("actions", "rewards", "dones", "time_outs", *uniform):
            name = f"in/roll{number}/{key}"
            if name in self.golden or key not in found:
                found[key] = jnp.asarray(self.golden[name])
        envs = [self._env(number, step + 1) for step in range(self.golden.config["T"])]
        return found | {"env": jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)}

    def _collect(self, train: TrainState, start: RolloutState, recorded: dict):
        def step(state, now):
            return self._one_step(train, state, now)

        state, outputs = jax.lax.scan(step, start, recorded)
        _, state, data, _ = finish(self.algorithm, train, start, state, {}, outputs, None)
        return data, update.prepare(self.algorithm, data, data=self.data), state

    def recorded_batch(self) -> Batch:
        """Rollout 1 as a batch with the file's own returns and advantages."""
        self.collect(0)
        _, batch = self.collect(1)
        stored = {field: self._flat(f"in/storage1/{key}") for field, key in STORED.items()}
        if "in/storage1/actions" in self.golden:
            stored["action"] = jnp.asarray(self.golden["in/storage1/actions"], self.dtype)
        return batch.replace(
            **stored,
            mean=jnp.asarray(self.golden["in/storage1/mu"], self.dtype),
            std=jnp.asarray(self.golden["in/storage1/sigma"], self.dtype),
        )

    def check_carry(self, carry: dict, prefix: str, pick, tolerance: dict):
        """Compares memories ``[B, layers, H]`` with the file's ``pick(array)``, ``[layers, B, H]``."""
        compared = 0
        for path, value in jax.tree_util.tree_leaves_with_path(carry):
            memory, part = (entry.key for entry in path)
            names = [memory, f"actor/{memory}"]  # an estimator's memory is recorded with the actor's
            keys = [f"{prefix}/{name}{end}" for name in names for end in (f"/{part}", "")]
            key = next((key for key in keys if key in self.golden), None)
            if key is not None:
                np.testing.assert_allclose(
                    np.moveaxis(np.asarray(value), 0, 1), pick(self.golden[key]), **tolerance, err_msg=key
                )
                compared += 1
        assert compared

    def _flat(self, key: str):
        return self.golden.flat(key, self.dtype)

    def _env(self, number: int, step: int) -> EnvState:
        """What the environments show before a step; after the last, only the critic's observation is recorded."""
        golden, last = self.golden, step == self.golden.config["T"]
        critic = golden[f"in/roll{number}/last_critic_obs"] if last else golden[f"in/roll{number}/critic_obs"][step]
        actor = np.zeros_like(golden[f"in/roll{number}/obs"][0]) if last else golden[f"in/roll{number}/obs"][step]
        obs = {}
        for name, flat in (("critic", critic), ("actor", actor)):
            group = self.algorithm.groups[name]
            obs |= {part: group.select(jnp.asarray(flat, self.dtype), part) for part in group.names}
        return EnvState({}, obs, None, None, None, {}, {})

    def _one_step(self, train: TrainState, state: RolloutState, now: dict):
        groups = self.algorithm.pack({}, state.env.env.obs, ("actor",))
        variables, done = train.params["policy"], now["dones"].astype(bool)
        mean, std, _ = self.algorithm.policy.apply(variables, groups, state.carry, state.reset, method="act")

        hooked = self.algorithm.act_hook is not None

        def env_step(episode, action, draw):
            del draw
            env, ones, extras = now["env"], jnp.ones_like(done), {"received": action} if hooked else {}
            reward, timeout = now["rewards"].astype(self.dtype), now["time_outs"].astype(bool)
            return episode.replace(env=env), TimeStep(env.obs, reward, done, timeout, env.obs, ones, extras, {})

        hook = {"acts": now["uniform_draws"]} if hooked else None
        drawn = rollout.Drawn((now["actions"] - mean) / std, jnp.zeros_like(mean[:, 0]), {}, hook)
        (state, _), record = rollout.one_step(self.algorithm, env_step, train, state, {}, drawn, None, data=self.data)
        return state, record


STORED = {"value": "values", "advantage": "advantages", "return_": "returns", "log_prob": "actions_log_prob"}
