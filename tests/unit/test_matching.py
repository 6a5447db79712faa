"""A policy started from one with other observations: rows by component, and what is told about the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import close, normal, running

from strl_jax.builders.transfer.layers import input_layers, output_layers
from strl_jax.builders.transfer.matching import by_component, stats_by_component
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments

SIZES = {"a": (2,), "b": (1,), "c": (3,), "image": (2, 2), "wide": (5,)}
ENVS = 3


def segments(names: str, **shapes) -> Segments:
    return Segments.select_from(SIZES | shapes, names.split())


def make(actor: str, critic: str, actions: int = 2, sizes: dict | None = None, **options) -> Policy:
    groups = {"actor_obs": segments(actor, **(sizes or {})), "critic_obs": segments(critic, **(sizes or {}))}
    return Policy(actions, **{"actor_hidden_dims": (4,), "critic_hidden_dims": (4,)} | groups | options)


def weights(policy: Policy, seed: int) -> dict:
    """Parameters from numpy: nothing to compile."""
    groups = {"actor": jnp.zeros((1, policy.actor_obs.size)), "critic": jnp.zeros((1, policy.critic_obs.size))}

    def init(key):
        return policy.init(key, groups, policy.initial_carry(1), jnp.zeros(1, bool))

    leaves, tree = jax.tree.flatten(jax.eval_shape(init, jax.random.key(0)))
    return jax.tree.unflatten(tree, [0.5 * normal(seed, i, leaf.shape) for i, leaf in enumerate(leaves)])


def transfer(source: Policy, target: Policy):
    """The weights of both before, those of the target after, and the lines."""
    old, fresh = weights(source, 1), weights(target, 2)
    return old["params"], fresh["params"], *by_component(source, old, target, fresh)


def observe(seed: int) -> dict:
    return {name: normal(seed, i, (ENVS, *shape)) for i, (name, shape) in enumerate(SIZES.items())}


def outputs(policy: Policy, variables: dict, *observations: dict) -> list[dict]:
    """What the policy makes of each of the observations ``{group: component -> values}``."""
    carry = jax.tree.map(lambda x: normal(5, 0, x.shape), policy.initial_carry(ENVS))  # memories that are not empty

    @jax.jit
    def compute(variables, obs):
        groups = {"actor": policy.actor_obs.flatten(obs["actor"]), "critic": policy.critic_obs.flatten(obs["critic"])}
        output = policy.apply(variables, groups, carry, jnp.zeros(ENVS, bool))
        estimates = {}
        for (module, _, leaf), blocks in output_layers(policy).items():
            if leaf == "bias":
                columns = Segments(tuple(name for name, _ in blocks), tuple((size,) for _, size in blocks))
                flat = output.estimates[module.removeprefix("state_")]
                estimates |= {name: columns.select(flat, name) for name in columns.names}
        return {"out": (output.mean, output.std, output.value), "carry": output.carry, "estimates": estimates}

    return [compute(variables, obs) for obs in observations]


LSTM = MemoryStage("lstm", 3, 2)
ESTIMATOR = EstimatorStage(("b", "a"), ("a", "b"), (4,), replace_prob=1.0)
ENCODE_C, ENCODE_IMAGE = EncoderStage("c", (4,), 2), EncoderStage("image", (3,), 2, linear=True)
CONVOLUTION = EncoderStage("picture", (4,), 2, channels=(2,), kernel_sizes=(2,), strides=(1,))


def test_rows_of_a_feed_forward_policy():
    adaptor = EstimatorStage(("c", "a"), ("b",), (4,))
    policy = make("a b c", "c b", adaptor=adaptor, encoders=(ENCODE_C,), critic_encoders="shared")
    assert input_layers(policy) == {
        ("actor", "layer_0", "kernel"): (("a", 2), ("b", 1), ("c", 2)),
        ("critic", "layer_0", "kernel"): (("c", 2), ("b", 1)),
        ("actor_encoder_0", "layer_0", "kernel"): (("c", 3),),
        ("state_adaptor", "layer_0", "kernel"): (("a", 2), ("c", 3)),
    }
    assert output_layers(policy) == {("state_adaptor", "layer_1", leaf): (("b", 1),) for leaf in ("kernel", "bias")}


def test_rows_of_a_recurrent_policy():
    picture = {"picture": (1, 3, 3)}
    policy = make(
        "picture b a",
        "a c b",
        sizes=picture,
        memory=LSTM,
        encoders=(CONVOLUTION,),
        critic_encoders=(ENCODE_C,),
        estimator=EstimatorStage(("a",), ("c",), (), on_actor_memory=True),
        adaptor=ESTIMATOR,
    )
    assert input_layers(policy) == {
        ("memory_actor", "weight_ih_l0"): (("picture", 2), ("b", 1), ("a", 2)),
        ("memory_critic", "weight_ih_l0"): (("a", 2), ("c", 2), ("b", 1)),
        ("critic_encoder_0", "layer_0", "kernel"): (("c", 3),),
        ("memory_adaptor", "weight_ih_l0"): (("b", 1), ("a", 2)),
    }
    both = ("kernel", "bias")
    assert output_layers(policy) == {("state_adaptor", "layer_1", leaf): (("b", 1), ("a", 2)) for leaf in both} | {
        ("state_estimator", "layer_0", leaf): (("c", 3),) for leaf in both
    }


def test_rows_go_by_component():
    source, target = make("a b", "a", actor_hidden_dims=(2,)), make("c b a", "b", actor_hidden_dims=(2,))
    old, fresh = weights(source, 1), weights(target, 2)
    old["params"]["actor"]["layer_0"]["kernel"] = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])  # a, a, b
    new, lines = by_component(source, old, target, fresh)
    # c has 3 rows, then b, then a
    expected = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [5.0, 6.0], [1.0, 2.0], [3.0, 4.0]]
    np.testing.assert_array_equal(new["params"]["actor"]["layer_0"]["kernel"], expected)
    assert lines == [
        "actor: component c (3) is new, its weights are 0",
        "critic/layer_0: reads a (2) in the checkpoint, b (1) now; newly initialized",
    ]
    for layer, tree in (("layer_0", fresh), ("layer_1", old)):
        jax.tree.map(np.testing.assert_array_equal, new["params"]["critic"][layer], tree["params"]["critic"][layer])


CASES = {
    "feed-forward": ({}, {}, "a b", "b c a", "c a", "wide a c"),
    "memories": ({"memory": LSTM}, {"memory": LSTM}, "a b", "c b a", "c a", "a b c"),
    "estimator": ({"estimator": ESTIMATOR}, {"estimator": ESTIMATOR}, "a b", "c b a", "c a b", "b wide a c"),
    "estimator with memories": (
        {"estimator": ESTIMATOR, "memory": LSTM},
        {"estimator": ESTIMATOR, "memory": LSTM},
        "a b c",
        "wide b c a",
        "a b",
        "b a",
    ),
    "encoders": (
        {"encoders": (ENCODE_C, ENCODE_IMAGE), "critic_encoders": "shared"},
        {"encoders": (ENCODE_IMAGE, ENCODE_C), "critic_encoders": "shared"},
        "a c image",
        "image wide a c",
        "c image b",
        "b image c wide",
    ),
    "critic's own encoders": (
        {"encoders": (ENCODE_C,), "critic_encoders": (ENCODE_IMAGE, ENCODE_C), "memory": LSTM},
        {"encoders": (ENCODE_C,), "critic_encoders": (ENCODE_C, ENCODE_IMAGE), "memory": LSTM},
        "c a",
        "a c b",
        "image c",
        "c b image",
    ),
    "shared encoders become the critic's own": (
        {"encoders": (ENCODE_IMAGE, ENCODE_C), "critic_encoders": "shared"},
        {"encoders": (ENCODE_C, ENCODE_IMAGE), "critic_encoders": (ENCODE_C, ENCODE_IMAGE)},
        "c image",
        "image c",
        "c image",
        "c b image",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_acts_as_the_source(case):
    """New components have no effect, whatever they are; the others have the one that they had."""
    before, now, actor, wider_actor, critic, wider_critic = case
    source, target = make(actor, critic, **before), make(wider_actor, wider_critic, **now)
    old, _, new, lines = transfer(source, target)
    memory = "" if source.memory is None else "memory_"
    added = {
        "actor": [name for name in wider_actor.split() if name not in actor.split()],
        "critic": [name for name in wider_critic.split() if name not in critic.split()],
    }
    sizes = {name: np.prod(shape) for name, shape in SIZES.items()}
    assert lines == [
        f"{memory}{group}: component {name} ({sizes[name]}) is new, its weights are 0"
        for group, names in added.items()
        for name in names
    ]
    obs, others = observe(1), observe(2)
    same = {"actor": obs, "critic": obs}
    mixed = {group: obs | {name: others[name] for name in names} for group, names in added.items()}
    expected = outputs(source, {"params": old}, same)[0]
    plain, other = outputs(target, new, same, mixed)
    jax.tree.map(np.testing.assert_array_equal, other, plain)
    close(plain, expected)


def test_an_encoder_of_the_source_that_is_not_one_now():
    """Raw rows say nothing about a latent, though there are as many, nor the other way round."""
    raw, encoded = make("a c", "a"), make("a c", "a", encoders=(EncoderStage("c", (4,), 3),))
    old, _, new, lines = transfer(raw, encoded)
    kernel = new["params"]["actor"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel[:2], old["actor"]["layer_0"]["kernel"][:2])
    np.testing.assert_array_equal(kernel[2:], np.zeros((3, 4)))
    another = "actor: component c (3) has another encoder than in the checkpoint, its weights are 0"
    assert lines == ["actor encoder of c: new; newly initialized", another]
    lines = transfer(encoded, raw)[3]
    assert lines == [another, "actor encoder of c of the checkpoint is left out"]


def test_a_critic_that_shares_the_encoders_now():
    """It had its own: the actor's latent is another one to it."""
    source = make("c", "c a", encoders=(ENCODE_C,), critic_encoders=(ENCODE_C,))
    old, _, new, lines = transfer(source, make("c", "c a", encoders=(ENCODE_C,), critic_encoders="shared"))
    kernel = new["params"]["critic"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel[:2], np.zeros((2, 4)))
    np.testing.assert_array_equal(kernel[2:], old["critic"]["layer_0"]["kernel"][2:])
    jax.tree.map(np.testing.assert_array_equal, new["params"]["actor"], old["actor"])
    jax.tree.map(np.testing.assert_array_equal, new["params"]["actor_encoder_0"], old["actor_encoder_0"])
    assert lines == [
        "critic: component c (2) has another encoder than in the checkpoint, its weights are 0",
        "critic encoder of c of the checkpoint is left out",
    ]


def test_an_encoder_that_does_not_fit():
    """Other hidden layers: the latent is another one, so its rows do not count."""
    first = EncoderStage("c", (4,), 2)
    source, target = make("c a", "a", encoders=(first,)), make("c a", "a", encoders=(EncoderStage("c", (6,), 2),))
    old, fresh, new, lines = transfer(source, target)
    jax.tree.map(np.testing.assert_array_equal, new["params"]["actor_encoder_0"], fresh["actor_encoder_0"])
    kernel = new["params"]["actor"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel[:2], np.zeros((2, 4)))
    np.testing.assert_array_equal(kernel[2:], old["actor"]["layer_0"]["kernel"][2:])
    assert lines == [
        "actor encoder of c/layer_0: another size, (3, 4) in the checkpoint, (3, 6) now; newly initialized",
        "actor encoder of c/layer_1: another size, (4, 2) in the checkpoint, (6, 2) now; newly initialized",
        "actor: component c (2) has another encoder than in the checkpoint, its weights are 0",
    ]


def test_convolutions_of_an_image_of_another_size():
    """The filters are taken over, the head that reads what is left of the image is not."""

    def policy(size):
        return make("picture a", "a", sizes={"picture": (1, size, size)}, encoders=(CONVOLUTION,))

    # 3 x 3 leaves 2 x 2 of 2 channels: 8 inputs of the head; 4 x 4 leaves 3 x 3: 18.
    old, _, new, lines = transfer(policy(3), policy(4))
    taken, expected = new["params"]["actor_encoder_0"], old["actor_encoder_0"]
    jax.tree.map(np.testing.assert_array_equal, taken["conv"], expected["conv"])
    jax.tree.map(np.testing.assert_array_equal, taken["head"]["layer_1"], expected["head"]["layer_1"])
    assert lines == [
        "actor encoder of picture/head/layer_0: another size, (8, 4) in the checkpoint, (18, 4) now; newly initialized",
        "actor: component picture (2) has another encoder than in the checkpoint, its weights are 0",
    ]


def test_components_left_out_and_of_another_size():
    source, target = make("a c b", "b"), make("wide a b", "b", sizes={"a": (4,)})
    old, _, new, lines = transfer(source, target)
    kernel = new["params"]["actor"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel[:9], np.zeros((9, 4)))
    np.testing.assert_array_equal(kernel[9:], old["actor"]["layer_0"]["kernel"][5:])
    assert lines == [
        "actor: component wide (5) is new, its weights are 0",
        "actor: component a has another size, 2 in the checkpoint, 4 now; its weights are 0",
        "actor: component c (3) of the checkpoint is left out",
    ]


def test_other_actions_and_other_layers():
    source = make("a", "a", critic_hidden_dims=(4, 4), activation="elu")
    target = make("a", "a", actions=3, critic_hidden_dims=(4,), activation="relu")
    old, fresh, new, lines = transfer(source, target)
    assert lines == [
        "actor/layer_1: another size, (4, 2) in the checkpoint, (4, 3) now; newly initialized",
        "critic/layer_1: another size, (4, 4) in the checkpoint, (4, 1) now; newly initialized",
        "critic/layer_2 of the checkpoint is left out",
        "log_std: another size, (2,) in the checkpoint, (3,) now; newly initialized",
        "activation: elu in the checkpoint, relu now",
    ]
    for network in ("actor", "critic"):
        for layer, tree in (("layer_0", old), ("layer_1", fresh)):
            jax.tree.map(np.testing.assert_array_equal, new["params"][network][layer], tree[network][layer])
    np.testing.assert_array_equal(new["params"]["log_std"], fresh["log_std"])
    assert transfer(target, source)[3][2] == "critic/layer_2: new; newly initialized"


def test_another_memory():
    """A memory is taken whole or not at all. LSTM: 4 gates, GRU: 3; 3 x 4 and 4 x 3 columns are as many."""
    policies = {
        "lstm3": make("a", "a", memory=MemoryStage("lstm", 3, 1)),
        "lstm5": make("a", "a", memory=MemoryStage("lstm", 5, 1)),
        "gru4": make("a", "a", memory=MemoryStage("gru", 4, 1)),
        "lstm3x2": make("a", "a", memory=LSTM),
        "none": make("a", "a"),
    }

    def lines(source, target):
        _, fresh, new, lines = transfer(policies[source], policies[target])
        for name in {"memory_actor", "memory_critic"} & new["params"].keys():
            jax.tree.map(np.testing.assert_array_equal, new["params"][name], fresh[name])
        return lines[lines.index(next(line for line in lines if line.startswith("critic"))) :]

    anew = "another size, {} in the checkpoint, {} now; newly initialized"
    assert lines("lstm3", "lstm5") == [
        f"critic/layer_0: {anew.format((3, 4), (5, 4))}",
        f"memory_actor: {anew.format((2, 12), (2, 20))}",
        f"memory_critic: {anew.format((2, 12), (2, 20))}",
    ]
    assert lines("lstm3", "gru4")[1] == f"memory_actor: {anew.format((3, 12), (4, 12))}"
    layers = "another number of layers, 1 in the checkpoint, 2 now; newly initialized"
    old, _, new, told = transfer(policies["lstm3"], policies["lstm3x2"])
    assert told == [f"memory_actor: {layers}", f"memory_critic: {layers}"]
    jax.tree.map(np.testing.assert_array_equal, new["params"]["actor"], old["actor"])
    assert lines("none", "lstm3") == [
        "critic/layer_0: reads a (2) in the checkpoint, hidden features (3) now; newly initialized",
        "memory_actor: new; newly initialized",
        "memory_critic: new; newly initialized",
    ]
    assert lines("lstm3", "none") == [
        "critic/layer_0: reads hidden features (3) in the checkpoint, a (2) now; newly initialized",
        "memory_actor of the checkpoint is left out",
        "memory_critic of the checkpoint is left out",
    ]


def test_columns_of_an_estimator():
    source = make("a", "a b wide", estimator=EstimatorStage(("a",), ("b", "wide"), ()))
    target = make("b a", "c b a", estimator=EstimatorStage(("a", "b"), ("c", "b"), ()))
    old, fresh, new, lines = transfer(source, target)
    layer, before, started = (tree["state_estimator"]["layer_0"] for tree in (new["params"], old, fresh))
    # rows before: a, a; now: b, a, a. Columns before: b, wide x 5; now: b, c, c, c.
    np.testing.assert_array_equal(layer["kernel"][:, 0], [0.0, *before["kernel"][:, 0]])
    np.testing.assert_array_equal(layer["kernel"][:, 1:], started["kernel"][:, 1:])
    np.testing.assert_array_equal(layer["bias"], [before["bias"][0], *started["bias"][1:]])
    assert lines == [
        "actor: component b (1) is new, its weights are 0",
        "critic: component c (3) is new, its weights are 0",
        "critic: component wide (5) of the checkpoint is left out",
        "state_estimator: component b (1) is new, its weights are 0",
        "state_estimator: estimate of c (3) is new, it is newly initialized",
        "state_estimator: estimate of wide (5) of the checkpoint is left out",
    ]


def test_an_estimator_of_other_components():
    source = make("a", "a b c", estimator=EstimatorStage(("a",), ("b",), (4,)))
    target = make("a", "a b c", estimator=EstimatorStage(("a",), ("c",), (4,), nonlinearity="ELU"))
    _, fresh, new, lines = transfer(source, target)
    assert lines == [
        "state_estimator/layer_1: predicts b (1) in the checkpoint, c (3) now; newly initialized",
        "estimator: nonlinearity: ReLU in the checkpoint, ELU now",
    ]
    name = "state_estimator"
    jax.tree.map(np.testing.assert_array_equal, new["params"][name]["layer_1"], fresh[name]["layer_1"])
    lines = transfer(make("a", "a b"), make("a", "a b", adaptor=EstimatorStage(("a",), ("b",), (4,))))[3]
    assert lines == ["state_adaptor: new; newly initialized"]


def test_standard_deviation_is_converted():
    linear, logarithm = make("a", "a", log_std=False), make("a", "a")
    old, fresh = weights(linear, 1), weights(logarithm, 2)
    old["params"]["std"] = np.array([1.0, 0.25], np.float32)
    new, lines = by_component(linear, old, logarithm, fresh)
    np.testing.assert_allclose(new["params"]["log_std"], [0.0, -1.3862944], rtol=1e-6)  # log(1/4) = -2 log 2
    assert lines == []
    assert "std" not in new["params"]
    old["params"]["std"] = np.array([1.0, -0.25], np.float32)
    new, lines = by_component(linear, old, logarithm, fresh)
    np.testing.assert_array_equal(new["params"]["log_std"], fresh["params"]["log_std"])
    assert lines == ["std: [1.0, -0.25] in the checkpoint has no logarithm", "log_std: new; newly initialized"]
    fresh["params"]["log_std"] = np.array([0.0, np.log(2.0)], np.float32)
    new, lines = by_component(logarithm, fresh, linear, old)
    np.testing.assert_allclose(new["params"]["std"], [1.0, 2.0], rtol=1e-6)
    assert lines == []


def test_statistics_go_by_component():
    source = {
        "actor": {"a": running(1, 2), "b": running(2, 1), "c": running(3, 3)},
        "critic": {"a": running(4, 2), "image": running(5, 2, 2), "c": running(9, 5)},
        "reward": running(6),
    }
    fresh = running(0, 2), running(0, 4), running(0, 5), running(0, 7)
    target = {
        "critic": {"wide": fresh[2], "b": running(0, 1), "a": fresh[0], "c": running(0, 3)},
        "actor": {"image": fresh[1], "a": fresh[0], "c": running(0, 5)},
    }
    # critic: b and c of 3 entries from the actor; the actor's image has another shape
    assert stats_by_component(source, target) == {
        "critic": {"wide": fresh[2], "b": source["actor"]["b"], "a": source["critic"]["a"], "c": source["actor"]["c"]},
        "actor": {"image": fresh[1], "a": source["actor"]["a"], "c": source["critic"]["c"]},
    }
    assert stats_by_component(source, {"reward": running(0)}) == {"reward": source["reward"]}
    assert stats_by_component({}, {"reward": fresh[0], "actor": {"a": fresh[3]}}) == {
        "reward": fresh[0],
        "actor": {"a": fresh[3]},
    }
