"""Next observations against the ancestor's, which are those after a reset where an episode ended.

Its recurrent minibatches cut the next observations by environments where
trajectories are meant (``next_obs_literal``), a fault that nothing here repeats:
``next_obs_intended`` is what is compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths
from golden.trajectories import padded, trajectories
from strl_jax.algorithms import minibatch
from strl_jax.storage import sarsa

FILES = paths("sarsa_storage*.npz")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


def stored(golden: Golden) -> dict[str, np.ndarray]:
    """Observations and the ones that follow, each ``[T, B, size]``."""
    obs = {"obs": golden["in/obs"], "critic_obs": golden["in/critic_obs"]}
    now, last = ({name: x[part] for name, x in obs.items()} for part in (slice(-1), -1))
    following = jax.jit(sarsa.next_observations)(now, last)
    return now | {f"next_{name}": np.asarray(x) for name, x in following.items()}


def test_next_observations(golden):
    data = stored(golden)
    np.testing.assert_array_equal(data["next_obs"], golden["exp/next_observations"])
    np.testing.assert_array_equal(data["next_critic_obs"], golden["exp/next_privileged_observations"])


def test_feed_forward_minibatches(golden):
    config, data = golden.config, jax.tree.map(jnp.asarray, stored(golden))
    permutation = golden["exp/ff/perm"]
    size = config["num_transitions_per_env"] * config["num_envs"] // config["num_mini_batches"]
    for number in range(config["num_mini_batches"]):
        sample = minibatch.gather(data, permutation[number * size : (number + 1) * size])
        for name in ("obs", "next_obs", "next_critic_obs"):
            key = f"exp/ff/mb{number}/{name}"
            np.testing.assert_array_equal(sample[name], golden[key], err_msg=key)


def test_recurrent_minibatches(golden):
    config, data = golden.config, stored(golden)
    size = config["num_envs"] // config["num_mini_batches"]
    for number in range(config["num_mini_batches"]):
        envs = slice(number * size, (number + 1) * size)
        cuts = trajectories(golden["in/dones"][:, envs])
        for name, array in [
            ("obs_padded", data["obs"]),
            ("masks", np.ones_like(golden["in/dones"])),
            ("next_obs_intended", data["next_obs"]),
            ("next_critic_obs_intended", data["next_critic_obs"]),
        ]:
            key = f"exp/rnn/mb{number}/{name}"
            np.testing.assert_array_equal(padded(array[:, envs], cuts), golden[key], err_msg=key)
