"""The ring of rollouts against the queue of the ancestor: what it holds, its returns, its minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FLOAT32, Golden, paths
from golden.trajectories import padded, trajectories
from strl_jax.algorithms import memory, minibatch, returns
from strl_jax.storage import ring

ACTION_LABEL, FF_ONLY = paths("queue_action_label*.npz"), paths("queue_ff_only*.npz")
# Buffer of the ancestor -> what it was fed as.
FIELDS = {
    "observations": "obs",
    "action_labels": "action_labels",
    "dones": "dones",
    "values": "values",
    "hidden_actor": "ha",
}


def empty(config: dict, example) -> ring.Ring:
    steps = memory.queue_steps(config["buffer_dilation_ratio"], config["num_transitions_per_env"])
    return ring.init(steps, example)


def check_cursor(state: ring.Ring, recorded: np.ndarray):
    """The ancestor's size and write position; its position may stand behind the last row before it wraps."""
    size, position, looped = recorded
    num_envs = state.count.shape[0]
    np.testing.assert_array_equal(state.count, [size] * num_envs)
    np.testing.assert_array_equal(state.cursor, [position % state.capacity] * num_envs)
    assert not looped or size == state.capacity


def check_cleared(state: ring.Ring, recorded: np.ndarray, num_steps: int):
    """The ancestor has then made room for as much as the next rollout fills."""
    size, position, _ = recorded
    assert size == min(int(state.count[0]) + num_steps, state.capacity)
    assert position % state.capacity == state.cursor[0]


def check_fields(data: dict, golden: Golden, prefix: str):
    """Every buffer that the file records under ``prefix``."""
    for name, fed in FIELDS.items():
        expected = golden[f"{prefix}/{name}"]
        actual = np.moveaxis(data[fed], 2, 1) if name == "hidden_actor" else data[fed]
        np.testing.assert_array_equal(actual, expected, err_msg=f"{prefix}/{name}")


def check_samples(golden: Golden, data: dict, index: np.ndarray, prefix: str):
    """Feed-forward minibatch of the samples ``index``, step * B + environment."""
    sample = minibatch.gather({name: jnp.asarray(data[name]) for name in ("obs", "action_labels")}, jnp.asarray(index))
    for name, array in sample.items():
        np.testing.assert_array_equal(array, golden[f"{prefix}{name}"], err_msg=f"{prefix}{name}")


def check_trajectories(golden: Golden, data: dict, prefix: str):
    """Recurrent minibatches: environments in slices, their trajectories and the memory each starts with."""
    config = golden.config
    size = config["num_envs"] // config["num_mini_batches"]
    for number in range(config["num_mini_batches"]):
        part = {name: array[:, number * size : (number + 1) * size] for name, array in data.items()}
        cuts = trajectories(part["dones"][..., 0])
        start = np.stack([part["ha"][steps.start, env] for env, steps in cuts], axis=1)  # [L, trajectories, H]
        for name, actual in [
            ("obs_padded", padded(part["obs"], cuts)),
            ("masks", padded(np.ones(part["dones"].shape[:2]), cuts)),
            ("action_labels", part["action_labels"]),
            ("hidden_actor", start),
        ]:
            key = f"{prefix}/mb{number}/{name}"
            np.testing.assert_array_equal(actual, golden[key], err_msg=key)


def fed(golden: Golden, number: int) -> dict[str, np.ndarray]:
    """Steps of a rollout as they are pushed; memories ``[T, B, L, H]``, environments before layers."""
    data = golden.group(f"in/roll{number}")
    del data["last_values"]
    data |= {name: np.moveaxis(data[name], 1, 2) for name in ("ha", "hc")}
    return data | {"dones": data["dones"][..., None]}


def make_play(config: dict):
    """One rollout pushed into a ring: what it then holds, and its returns."""

    @jax.jit
    def play(state, data, last_value):
        state = ring.push(state, data)
        rows, valid = ring.stored(state)
        raw, return_ = memory.looped_returns(
            rows["rewards"],
            rows["values"][..., 0],
            rows["dones"][..., 0],
            last_value,
            state.count,
            gamma=config["gamma"],
            lam=config["lam"],
        )
        advantage = returns.normalize_advantages(raw, where=valid)
        in_order, in_order_valid = ring.ordered(state)
        looped = {"returns": return_, "advantages": advantage}
        untied = ring.untie(state)
        return state, (rows, valid), (in_order, in_order_valid), looped, untied, ring.stored(untied)[0]

    return play


@pytest.mark.parametrize("path", ACTION_LABEL, ids=lambda path: path.stem)
def test_action_labels(path):
    golden = Golden(path)
    config = golden.config
    play, state = make_play(config), empty(config, fed(golden, 0))

    for number in range(config["rollouts"]):
        state, (rows, valid), (in_order, in_order_valid), looped, untied, untied_rows = play(
            state, fed(golden, number), golden.flat(f"in/roll{number}/last_values")
        )
        roll = f"exp/roll{number}"
        check_cursor(state, golden[f"{roll}/after_collect/cursor"])
        count = int(state.count[0])
        np.testing.assert_array_equal(valid, np.arange(state.capacity)[:, None] < np.full(config["num_envs"], count))
        np.testing.assert_array_equal(in_order_valid, valid[::-1])
        rows, untied_rows = ({name: np.asarray(x[:count]) for name, x in data.items()} for data in (rows, untied_rows))
        in_order = {name: np.asarray(x[-count:]) for name, x in in_order.items()}

        check_fields(rows, golden, f"{roll}/after_collect")
        permutation = golden[f"{roll}/ff/perm"]
        np.testing.assert_array_equal(np.sort(permutation), np.arange(count * config["num_envs"]))
        check_samples(golden, rows, permutation[: len(golden[f"{roll}/ff/mb0_obs"])], f"{roll}/ff/mb0_")

        # The recurrent generator puts the steps in order, but neither returns nor advantages, and leaves them so.
        check_trajectories(golden, in_order, f"{roll}/rnn")
        check_fields(in_order, golden, f"{roll}/after_recurrent_generator")
        check_fields(untied_rows, golden, f"{roll}/after_recurrent_generator")
        check_cursor(untied, golden[f"{roll}/after_recurrent_generator/cursor"])
        check_cleared(untied, golden[f"{roll}/after_clear/cursor"], config["num_transitions_per_env"])
        for time in ("after_collect", "after_recurrent_generator"):
            for name, actual in looped.items():
                expected = golden.flat(f"{roll}/{time}/{name}")
                np.testing.assert_allclose(actual[:count], expected, **FLOAT32, err_msg=f"{roll}/{time}/{name}")
        np.testing.assert_array_equal(looped["advantages"][count:], 0.0)
        state = untied


@pytest.mark.parametrize("path", FF_ONLY, ids=lambda path: path.stem)
def test_feed_forward_only(path):
    golden = Golden(path)
    config = golden.config
    num_steps, num_envs = config["num_transitions_per_env"], config["num_envs"]
    play = jax.jit(lambda state, data: (state := ring.push(state, data), ring.stored(state)[0]))
    state = None

    for number in range(config["rollouts"]):
        # obs = [step of the run, env, 0], labels = [step + 0.5, env]
        step, env = np.mgrid[number * num_steps : (number + 1) * num_steps, :num_envs].astype(np.float32)
        data = {
            "obs": np.stack([step, env, np.zeros_like(step)], axis=-1),
            "action_labels": np.stack([step + np.float32(0.5), env], axis=-1),
        }
        state, rows = play(state or empty(config, data), data)
        roll = f"exp/roll{number}"
        check_cursor(state, golden[f"{roll}/cursor"])
        count = int(state.count[0])
        check_cleared(state, golden[f"{roll}/cursor_after_clear"], num_steps)
        np.testing.assert_array_equal(rows["obs"][:count], golden[f"{roll}/observations"])
        np.testing.assert_array_equal(rows["action_labels"][:count], golden[f"{roll}/action_labels"])
        permutation = golden[f"{roll}/perm"]
        size = count * num_envs // config["num_mini_batches"]
        for part in range(config["num_mini_batches"]):
            check_samples(golden, rows, permutation[part * size : (part + 1) * size], f"{roll}/mb{part}/")
