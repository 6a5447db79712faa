"""The style hook: what the discriminator sees, what is rewarded, which statistics move when."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import normal

from strl_jax.algorithms.amp_input import AmpInput, make_input
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import Collected
from strl_jax.algorithms.style import Style, StyleHook
from strl_jax.modules import normalizer
from strl_jax.observations import Segments
from strl_jax.storage import ring
from strl_jax.types import RunningStats

T, B, D = 3, 2, 2
FROM_ENV = AmpInput(None, True, D)
SEPARATE = Compat(separate_amp_normalizers=True)
VALID = jnp.array([[True, True], [True, False], [True, True]])


def make_judge(amp=FROM_ENV, *, compat=None, weight=None, threshold=None, labels=True, replay=0, **style) -> StyleHook:
    """A judge whose discriminator is one linear layer."""
    compat = Compat() if compat is None else compat
    return StyleHook(Style(hidden_dims=(), **style), amp, compat, weight, threshold, labels, replay)


def linear(kernel, bias=0.0) -> dict:
    """Parameters of a discriminator that scores ``kernel`` times the state plus ``bias``."""
    layer = {"kernel": jnp.asarray(kernel, jnp.float32)[:, None], "bias": jnp.full(1, bias, jnp.float32)}
    return {"discriminator": {"params": {"trunk": {"layer_0": layer}}}}


def still(size=D) -> RunningStats:
    """Statistics that leave a state as it is: (x - 0) / (0.99 + 0.01)."""
    return normalizer.init((size,)).replace(var=jnp.full(size, 0.99**2))


def run(judge, params, stats, extras, task, *, valid=VALID, data=None, obs=None, key=0):
    """``judge.reward`` in one program."""
    obs = obs or {"obs": {}, "terminal_obs": {}, "next_obs": {}}

    @jax.jit
    def reward(params, stats, extras, task, data, obs):
        action = jnp.zeros((*task.shape, 1))
        seen = Collected(**obs, action=action, valid=valid, extras=extras, iteration=jnp.int32(0), params=params)
        rewarded = judge.reward(seen.replace(key=jax.random.key(key), data=data), stats, task)
        return rewarded.reward, rewarded.extras, rewarded.stats, rewarded.log

    return reward(params, stats, extras, task, data, obs)


def states(first):
    """``[T, B, 2]`` with ``first[T, B]`` and zeros."""
    first = jnp.asarray(first, jnp.float32)
    return jnp.stack([first, jnp.zeros_like(first)], axis=-1)


# Scores; the style reward is 1 - (d - 1)^2 / 4: 1, 0.75, 0.75 / 0, (not valid), 0
SCORES = [[1.0, 0.0], [2.0, 9.0], [-1.0, -3.0]]
UNIT = np.array([[1.0, 0.75], [0.75, 0.0], [0.0, 0.0]])
TASK = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"style_reward_coef": 2.0}, 2 * UNIT),
        ({"style_reward_coef": 2.0, "task_reward_lerp": 0.25}, 0.75 * 2 * UNIT + 0.25 * np.asarray(TASK)),
        ({"style_reward_coef": 2.0, "task_reward_lerp": 1.0}, np.asarray(TASK)),
        ({"style_reward_coef": 2.0, "weight": 0.5}, 2 * UNIT + 0.5 * np.asarray(TASK)),
        ({"style_reward_coef": 2.0, "weight": 0.0, "task_reward_lerp": 0.9}, 2 * UNIT),
    ],
    ids=["style", "lerp", "task", "weight", "weight 0"],
)
def test_reward(options, expected):
    extras = {"ref_obs": states(SCORES), "ref_motion": states(np.zeros((T, B)))}
    reward, stored, stats, log = run(make_judge(**options), linear([1.0, 5.0]), {"amp": still()}, extras, TASK)
    np.testing.assert_allclose(reward, expected, rtol=1e-5, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, (stored, stats), (extras, {"amp": still()}))
    # Five steps are valid: 2 * (1 + 0.75 + 0.75) / 5 and (1 + 2 + 3 + 5 + 6) / 5
    np.testing.assert_allclose(log["Episode_Reward/style_reward"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(log["Episode_Reward/task_reward"], 3.4, rtol=1e-6)
    assert log["Discriminator/saturated"] == 0.0


@pytest.mark.parametrize(("alive", "saturated"), [(0, 1.0), (1, 1.0), (3, 0.0)])
def test_saturated_where_hardly_a_step_has_a_style_reward(alive, saturated):
    """Of 40 steps 39 are 97.5 %, 37 are 92.5 %; the factor of the reward does not matter."""
    first = jnp.full(40, -1.5).at[:alive].set(1.0).reshape(20, 2)
    extras, valid = {"ref_obs": states(first), "ref_motion": states(first)}, jnp.ones((20, 2), bool)
    for coef in (2.0, 0.0):
        judge = make_judge(style_reward_coef=coef)
        *_, log = run(judge, linear([1.0, 0.0]), {"amp": still()}, extras, first, valid=valid)
        assert log["Discriminator/saturated"] == saturated


def test_numbers_that_are_not_finite_stay_with_their_step():
    extras = {"ref_obs": states(SCORES), "ref_motion": states(np.zeros((T, B)))}
    broken = jax.tree.map(lambda x: x.at[1, 1].set(jnp.nan), extras)
    judge = make_judge()
    reward, _, _, log = run(judge, linear([1.0, 5.0]), {"amp": still()}, broken, TASK)
    assert jnp.isfinite(reward[VALID]).all()
    assert all(jnp.isfinite(value) for value in log.values())
    for compat, name in ((Compat(), "amp"), (SEPARATE, "ref_obs")):
        judge = make_judge(compat=compat)
        _, stats = judge.init(jax.random.key(0))
        _, stored, stats, _ = run(judge, linear([1.0, 5.0]), stats, broken, TASK)
        stats = judge.observe(stats, SimpleNamespace(extras=stored, valid=VALID), None)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(stats))
        assert stats[name].count == (10 if name == "amp" else 5)


GROUP = Segments(("joints", "phase"), ((1,), (1,)))


def pair_obs():
    """Component -> ``[T, B, 1]``: before a step 1 and 2, where it led 3 and 4, after a reset 5 and 6, plus 10 t."""
    time = 10.0 * jnp.arange(T)[:, None, None] * jnp.ones((T, B, 1))
    return {
        name: {"phase": time + 2 + 2 * i, "joints": time + 1 + 2 * i}
        for i, name in enumerate(("obs", "terminal_obs", "next_obs"))
    }


@pytest.mark.parametrize(("after_reset", "second"), [(False, [3.0, 4.0]), (True, [5.0, 6.0])])
def test_pair_of_observations(after_reset, second):
    """By default the pair ends with what the step led to, even where the episode ends."""
    judge = make_judge(AmpInput(GROUP, False, 4), compat=Compat(amp_after_reset=after_reset))
    data = {"expert": jnp.zeros((1, 4))}
    stats = {"amp": still(4)}
    _, stored, _, _ = run(judge, linear(np.zeros(4)), stats, {}, TASK, data=data, obs=pair_obs())
    expected = np.array([1.0, 2.0, *second]) + 10 * np.arange(T)[:, None, None]
    np.testing.assert_array_equal(stored["ref_obs"], np.broadcast_to(expected, (T, B, 4)))
    assert judge.amp.components == ("joints", "phase")
    assert judge.components == ("joints", "phase")


def test_expert_is_drawn_uniformly_and_anew_for_every_step():
    data = {"expert": jnp.arange(4.0)[:, None] * jnp.ones(D)}
    shape, judge = (100, 40), make_judge(AmpInput(None, False, D))
    extras, task, valid = {"ref_obs": jnp.zeros((*shape, D))}, jnp.zeros(shape), jnp.ones(shape, bool)

    def drawn(key):
        stats = {"amp": still()}
        _, stored, _, _ = run(judge, linear([0.0, 0.0]), stats, extras, task, valid=valid, data=data, key=key)
        return np.asarray(stored["ref_motion"])

    first = drawn(0)
    np.testing.assert_array_equal(first[..., 0], first[..., 1])
    counts = np.bincount(first[..., 0].astype(int).ravel(), minlength=4)
    assert (abs(counts - 1000) < 110).all()  # 4 standard deviations of sqrt(4000 * 1/4 * 3/4) = 27.4
    assert (first != drawn(1)).mean() > 0.7  # three quarters, more or less


def test_extras_are_flattened():
    """Frames of three numbers, one behind the other: states of length 6."""
    judge = make_judge(AmpInput(None, True, 6))
    frames = normal(0, 0, (T, B, 2, 3))
    extras = {"ref_obs": frames, "ref_motion": 2 * frames}
    _, stored, _, _ = run(judge, linear(np.ones(6)), {"amp": still(6)}, extras, TASK)
    np.testing.assert_array_equal(stored["ref_obs"], frames.reshape(T, B, 6))
    np.testing.assert_array_equal(stored["ref_motion"], 2 * frames.reshape(T, B, 6))


def moments(samples):
    """Mean and population variance of ``samples[N, D]`` in float64."""
    samples = np.asarray(samples, np.float64)
    return samples.mean(axis=0), samples.var(axis=0)


def test_one_normaliser_that_moves_after_the_update():
    judge, policy, expert = make_judge(), 3 + 2 * normal(0, 1, (T, B, D)), normal(0, 2, (T, B, D)) - 1
    params, stats = judge.init(jax.random.key(0))
    assert set(stats) == {"amp"}
    first = RunningStats(jnp.array([1.0, 2.0]), jnp.array([4.0, 9.0]), jnp.float32(0.0))
    _, stored, after, _ = run(judge, params, {"amp": first}, {"ref_obs": policy, "ref_motion": expert}, TASK)
    jax.tree.map(np.testing.assert_array_equal, after, {"amp": first})
    steps = SimpleNamespace(extras=stored, valid=VALID, action=jnp.zeros((T, B, 1)))
    ready = judge.prepare(after, steps)
    np.testing.assert_allclose(ready["ref_obs"], (policy - first.mean) / jnp.array([2.01, 3.01]), rtol=1e-5)
    np.testing.assert_allclose(ready["ref_motion"], (expert - first.mean) / jnp.array([2.01, 3.01]), rtol=1e-5)
    seen = judge.observe(after, steps, None)["amp"]
    mean, var = moments(np.concatenate([policy[VALID], expert[VALID]]))
    assert seen.count == 10
    np.testing.assert_allclose(seen.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(seen.var, var, rtol=1e-5)
    full = first.replace(count=jnp.float32(1e8))
    jax.tree.map(np.testing.assert_array_equal, judge.observe({"amp": full}, steps, None)["amp"], full)


def test_two_normalisers_that_move_with_every_step():
    judge, policy, expert = make_judge(compat=SEPARATE), 3 + 2 * normal(0, 1, (T, B, D)), normal(0, 2, (T, B, D)) - 1
    params, stats = judge.init(jax.random.key(0))
    _, stored, after, _ = run(judge, params, stats, {"ref_obs": policy, "ref_motion": expert}, TASK)
    for name, raw in (("ref_obs", policy), ("ref_motion", expert)):
        for step in range(T):
            mean, var = moments(raw[: step + 1][VALID[: step + 1]])  # this step's included
            expected = (raw[step] - mean) / (np.sqrt(var) + 0.01)
            np.testing.assert_allclose(stored[name][step], expected, rtol=1e-4, atol=1e-5)
        assert after[name].count == 5
        np.testing.assert_allclose(after[name].mean, mean, rtol=1e-5)
    steps = SimpleNamespace(extras=stored, valid=VALID, action=jnp.zeros((T, B, 1)))
    assert judge.observe(after, steps, None) is after
    ready = judge.prepare(after, steps)
    jax.tree.map(np.testing.assert_array_equal, {name: ready[name] for name in stored}, stored)


@pytest.mark.parametrize("labels", [True, False])
def test_labels_are_the_executed_actions_or_left_alone(labels):
    extras = {"ref_obs": states(SCORES), "ref_motion": states(SCORES), "action_labels": jnp.ones((T, B, 1))}
    steps = SimpleNamespace(extras=extras, valid=VALID, action=jnp.full((T, B, 1), 7.0))
    ready = extras | make_judge(labels=labels).prepare({"amp": still()}, steps)
    assert (ready["action_labels"] == (7.0 if labels else 1.0)).all()


def test_no_end_without_a_threshold():
    assert not make_judge().ends_episodes


@pytest.mark.parametrize("separate", [False, True])
def test_episode_ends_where_the_style_is_below_the_threshold(separate):
    """Rewards 1, 0.75, 0 of the scores 1, 2 and -1; the factor of 100 does not count."""
    compat = SEPARATE if separate else Compat()
    judge = make_judge(threshold=0.76, style_reward_coef=100.0, compat=compat)
    stats = {"ref_obs": still()} if separate else {"amp": still()}
    after = SimpleNamespace(extras={"ref_obs": states([1.0, 2.0, -1.0])}, reward=jnp.zeros(3), obs={})
    ended = judge.ends(linear([1.0, 0.0]), stats, {}, after)
    np.testing.assert_array_equal(ended, [False, True, True])


def test_end_by_a_pair_of_observations():
    """Scores: half of what the step changed, 1 and -1."""
    judge = make_judge(AmpInput(Segments(("phase",), ((1,),)), False, 2), threshold=0.5)
    before, after = {"phase": jnp.array([[3.0], [3.0]])}, {"phase": jnp.array([[5.0], [1.0]])}
    ended = judge.ends(
        linear([-0.5, 0.5]), {"amp": still()}, before, SimpleNamespace(extras={}, reward=jnp.zeros(2), obs=after)
    )
    np.testing.assert_array_equal(ended, [False, True])


def replayed(compat, stored, valid, weight_shape):
    """What ``recall`` puts beside a minibatch of states (7, 0), out of a ring of ``stored[T, B, D]``."""
    style = make_judge(compat=compat, replay=4)
    assert style.memory_size == 4
    rows = style.remember(SimpleNamespace(extras={"ref_obs": stored}, valid=valid))
    kept = ring.push(ring.init(4, rows), rows)
    stats = {"amp": still().replace(mean=jnp.array([1.0, 0.0]))}
    own = states(np.full(weight_shape, 7.0))

    class Minibatch(SimpleNamespace):
        def replace(self, extras):
            return Minibatch(weight=self.weight, extras=extras)

    minibatch = Minibatch(weight=jnp.ones(weight_shape), extras={"ref_obs": own})
    found = style.recall(stats, kept, jax.random.key(1), minibatch)
    np.testing.assert_array_equal(found.extras["ref_obs"], own)
    return np.asarray(found.extras["ref_replay"])


@pytest.mark.parametrize("shape", [(200,), (20, 10)], ids=["feed-forward", "recurrent"])
def test_replay_draws_from_valid_steps(shape):
    """Where an invalid step is drawn, one in six, the sample keeps its own state."""
    stored = states([[1.0, 2.0], [3.0, jnp.nan], [5.0, 6.0]])
    found = replayed(Compat(), stored, VALID, shape)
    assert found.shape == (*shape, D)
    # normalised: less the mean of 1; 7 is the sample's own, normalised already
    values, counts = np.unique(np.round(found[..., 0], 4), return_counts=True)
    np.testing.assert_array_equal(values, [0.0, 1.0, 2.0, 4.0, 5.0, 7.0])
    assert (abs(counts - 200 / 6) < 22).all()  # 4 standard deviations of sqrt(200 * 1/6 * 5/6) = 5.3
    values = np.unique(replayed(SEPARATE, stored, VALID, shape)[..., 0])
    np.testing.assert_array_equal(values, [1.0, 2.0, 3.0, 5.0, 6.0, 7.0])  # stored normalised


def test_replay_of_nothing_leaves_the_samples():
    found = replayed(Compat(), states(np.full((T, B), np.nan)), jnp.zeros((T, B), bool), (5,))
    np.testing.assert_array_equal(found[..., 0], 7.0)


@pytest.mark.parametrize(
    ("dim", "group", "extras", "expert", "expected"),
    [
        (None, None, {"ref_obs": (2, 3), "ref_motion": (6,)}, None, AmpInput(None, True, 6)),
        (6, None, {"ref_obs": (6,)}, 6, AmpInput(None, False, 6)),
        (4, GROUP, {}, 4, AmpInput(GROUP, False, 4)),
        (None, GROUP, {"ref_obs": (9,), "ref_motion": (2, 2)}, None, AmpInput(GROUP, True, 4)),
        # The expert's own states are preferred to what the environment shows.
        (None, GROUP, {"ref_motion": (9,)}, 4, AmpInput(GROUP, False, 4)),
    ],
)
def test_input(dim, group, extras, expert, expected):
    assert make_input(dim, group, extras, expert) == expected


@pytest.mark.parametrize(
    ("dim", "group", "extras", "expert", "message"),
    [
        (5, GROUP, {}, 4, "amp_obs_dim is 5, the policy's states have 4 numbers and the expert's 4"),
        (4, GROUP, {}, 3, "amp_obs_dim is 4, the policy's states have 4 numbers and the expert's 3"),
        (None, None, {"ref_obs": (2, 3), "ref_motion": (3,)}, None, "have 6 numbers and the expert's 3"),
        (None, None, {}, 3, "no extras 'ref_obs' and there is no amp group"),
        (None, GROUP, {}, None, "no extras 'ref_motion' and there is no expert data"),
    ],
)
def test_input_of_another_size(dim, group, extras, expert, message):
    with pytest.raises(ValueError, match=f"amp_obs_dim.*{message}|{message}"):
        make_input(dim, group, extras, expert)
