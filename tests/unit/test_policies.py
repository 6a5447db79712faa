"""Policies of a config: every class with st_rl's keywords, what it is made of, and the line for what does not fit."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
import yaml

from strl_jax.builders import acting, checks
from strl_jax.config import ConfigError, from_dict, to_dict, to_yaml
from strl_jax.config.policy import FIELDS
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage

SHAPES = {"proprio": (5,), "depth": (1, 8, 10), "height": (6,), "velocity": (3,)}
ENV = SimpleNamespace(observation_shapes=SHAPES, action_size=2)
ACTOR, CRITIC = ["proprio", "depth", "height"], ["proprio", "depth", "height", "velocity"]

# st_rl's keywords.
RNN = {"rnn_type": "gru", "rnn_hidden_size": 7, "rnn_num_layers": 2}
CONV = {"channels": [2, 3], "kernel_sizes": [3, [2, 3]], "strides": [1, 2], "hidden_sizes": [8], "nonlinearity": "ELU"}
ENCODERS = {
    "encoder_component_names": ["height", "depth"],
    "encoder_class_name": ["MlpModel", "Conv2dHeadModel"],
    "encoder_kwargs": [{"hidden_sizes": [8], "nonlinearity": "LeakyReLU"}, CONV],
    "encoder_output_size": 4,
    "critic_encoder_component_names": "shared",
}
ESTIMATOR = {
    "estimator_obs_components": ["proprio"],
    "estimator_target_components": ["velocity"],
    "estimator_kwargs": {"hidden_sizes": [8, 6], "nonlinearity": "Tanh"},
}
ADAPTOR = {
    "adaptor_obs_components": ["proprio", "depth"],
    "adaptor_target_components": ["height"],
    "adaptor_kwargs": {"hidden_sizes": 8},
    "privilege_replace_state_prob": 0.5,
}
VISUAL = {"visual_component_name": "depth", "visual_kwargs": CONV, "visual_latent_size": 9}
DISCRIMINATOR = {
    "hidden_dims": [8],
    "style_reward_coef": 1.5,
    "task_reward_lerp": 0.25,
    "discriminator_grad_pen": 2.0,
}
AMP = {"amp_discriminator": DISCRIMINATOR}
MUTEX = {"sub_policy_class_name": "StateAc", "sub_policy_paths": ["a", "b"], "env_action_scale": [0.5, 0.25]}
FIELD = {"cmd_vel_mapping": {"0": 1.5, "1": [0.5, 1.0]}, "reset_non_selected": False, "action_smoothing_buffer_len": 3}
KEYWORDS = {
    "ActorCritic": {},
    "ActorCriticRecurrent": RNN,
    "EncoderActorCritic": ENCODERS,
    "EncoderActorCriticRecurrent": ENCODERS | RNN,
    "EncoderAmpActorCriticRecurrent": ENCODERS | AMP | RNN,
    "AmpActorCritic": AMP,
    "AmpActorCriticRecurrent": AMP | RNN,
    "StateAc": ESTIMATOR,
    "StateAcRecurrent": ESTIMATOR | RNN | {"use_actor_rnn": True},
    "EncoderStateAc": ESTIMATOR | ENCODERS,
    "EncoderStateAcRecurrent": ESTIMATOR | ENCODERS | RNN,
    "PrivilegeStateAcRecurrent": ADAPTOR | ESTIMATOR | RNN,
    "VisualDeterministicAC": VISUAL,
    "VisualDeterministicRecurrent": VISUAL | RNN,
    "ActorCriticMutex": MUTEX,
    "ActorCriticFieldMutex": MUTEX | FIELD,
    "ActorCriticClimbMutex": MUTEX | FIELD | {"jump_down_vel": [0.5, 0.75]},
}

MEMORY_STAGE = MemoryStage("gru", 7, 2)
CONVOLUTIONS = {"channels": (2, 3), "kernel_sizes": (3, (2, 3)), "strides": (1, 2)}
ENCODER_STAGES = (
    EncoderStage("height", (8,), 4, False, "LeakyReLU"),
    EncoderStage("depth", (8,), 4, False, "ELU", **CONVOLUTIONS),
)
ESTIMATOR_STAGE = EstimatorStage(("proprio",), ("velocity",), (8, 6), "Tanh")
ON_MEMORY = EstimatorStage(("proprio",), ("velocity",), (8, 6), "Tanh", 0.0, True)
ADAPTOR_STAGE = EstimatorStage(("proprio", "depth"), ("height",), (8,), "ReLU", 0.5)
VISUAL_STAGE = EncoderStage("depth", (8,), 9, True, "ELU", **CONVOLUTIONS)
SHARED = {"encoders": ENCODER_STAGES, "critic_encoders": "shared"}
LOOKING = {"encoders": (VISUAL_STAGE,), "deterministic": True}
BARE = {
    "memory": None,
    "estimator": None,
    "adaptor": None,
    "encoders": (),
    "critic_encoders": (),
    "deterministic": False,
}
# The first layers read: actor 5 + 80 + 6 = 91, critic 94; with both latents 5 + 4 + 4 = 13 and 16;
# with the visual latent, of the actor alone, 5 + 9 + 6 = 20.
MADE = {
    "ActorCritic": ({}, (91, 94)),
    "ActorCriticRecurrent": ({"memory": MEMORY_STAGE}, (91, 94)),
    "EncoderActorCritic": (SHARED, (13, 16)),
    "EncoderActorCriticRecurrent": (SHARED | {"memory": MEMORY_STAGE}, (13, 16)),
    "EncoderAmpActorCriticRecurrent": (SHARED | {"memory": MEMORY_STAGE}, (13, 16)),
    "AmpActorCritic": ({}, (91, 94)),
    "AmpActorCriticRecurrent": ({"memory": MEMORY_STAGE}, (91, 94)),
    "StateAc": ({"estimator": ESTIMATOR_STAGE}, (91, 94)),
    "StateAcRecurrent": ({"estimator": ON_MEMORY, "memory": MEMORY_STAGE}, (91, 94)),
    "EncoderStateAc": ({"estimator": ESTIMATOR_STAGE} | SHARED, (13, 16)),
    "EncoderStateAcRecurrent": ({"estimator": ESTIMATOR_STAGE, "memory": MEMORY_STAGE} | SHARED, (13, 16)),
    "PrivilegeStateAcRecurrent": (
        {"adaptor": ADAPTOR_STAGE, "estimator": ESTIMATOR_STAGE, "memory": MEMORY_STAGE},
        (91, 94),
    ),
    "VisualDeterministicAC": (LOOKING, (20, 94)),
    "VisualDeterministicRecurrent": (LOOKING | {"memory": MEMORY_STAGE}, (20, 94)),
}

PLAIN = "actor_hidden_dims, critic_hidden_dims, activation, init_noise_std, mu_activation, initialization"
OF_A_FIELD = (
    "sub_policy_class_name, sub_policy_paths, env_action_scale, "
    "cmd_vel_mapping, reset_non_selected, action_smoothing_buffer_len"
)
OBS = "estimator_obs_components"


def config_of(name: str, policy: dict | None = None, **sections):
    """The config of a policy class; ``policy`` in place of its keywords of the table."""
    keywords = KEYWORDS[name] if policy is None else policy
    hidden = {"actor_hidden_dims": [11], "critic_hidden_dims": [12]}
    env = {"name": "mine", "num_envs": 4, "groups": {"actor": ACTOR, "critic": CRITIC}}
    data = {"env": env, "runner": {"policy_class_name": name}, "policy": hidden | keywords}
    config, lines = from_dict(data | sections)
    assert lines == []
    return config


def make(name: str, policy: dict | None = None, **sections):
    return acting.make_acting(config_of(name, policy, **sections), ENV).policy


def line(call, *arguments, **keywords) -> str:
    """The line of the ``ConfigError`` that a call ends with."""
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **keywords)
    assert len(caught.value.lines) == 1, caught.value.lines
    return str(caught.value)


def parameters(policy) -> dict:
    """Shapes of the parameters, without computing them."""

    def init(key):
        groups = {"actor": jnp.zeros((1, policy.actor_obs.size)), "critic": jnp.zeros((1, policy.critic_obs.size))}
        return policy.init(key, groups, policy.initial_carry(1), jnp.zeros(1, bool))

    return jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(init, jax.random.key(0))["params"])


def test_every_class_is_in_the_tables():
    assert KEYWORDS.keys() == FIELDS.keys()
    assert MADE.keys() == {name for name in FIELDS if "Mutex" not in name}  # which need run folders


@pytest.mark.parametrize("name", MADE)
def test_a_class_has_its_stages(name):
    stages, sizes = MADE[name]
    policy = make(name)
    assert {field: getattr(policy, field) for field in BARE} == BARE | stages
    assert policy.is_recurrent == ("Recurrent" in name)
    assert policy.deterministic == name.startswith("Visual")
    assert (policy.actor_hidden_dims, policy.critic_hidden_dims) == ((11,), (12,))
    assert (policy.actor_obs.names, policy.critic_obs.names) == (tuple(ACTOR), tuple(CRITIC))
    shapes = parameters(policy)
    # A GRU of 7 has 3 x 7 = 21 columns; what comes after it reads the 7.
    if policy.is_recurrent:
        assert tuple(shapes[f"memory_{group}"]["weight_ih_l0"] for group in ("actor", "critic")) == (
            (sizes[0], 21),
            (sizes[1], 21),
        )
    reads = (7, 7) if policy.is_recurrent else sizes
    assert shapes["actor"]["layer_0"]["kernel"] == (reads[0], 11)
    assert shapes["critic"]["layer_0"]["kernel"] == (reads[1], 12)
    assert shapes["actor"]["layer_1"]["kernel"] == (11, 2)


@pytest.mark.parametrize(
    ("name", "module", "first", "last"),
    [
        ("StateAc", "state_estimator", (5, 8), (6, 3)),  # proprio -> velocity
        ("StateAcRecurrent", "state_estimator", (7, 8), (6, 3)),  # the actor's memory -> velocity
        ("EncoderStateAcRecurrent", "state_estimator", (7, 8), (6, 3)),  # its own memory -> velocity
        ("PrivilegeStateAcRecurrent", "state_adaptor", (7, 8), (8, 6)),  # its own memory -> height
        ("EncoderActorCritic", "actor_encoder_0", (6, 8), (8, 4)),  # height -> latent
    ],
)
def test_networks_of_the_stages(name, module, first, last):
    layers = parameters(make(name))[module]
    kernels = [layers[layer]["kernel"] for layer in sorted(layers)]
    assert (kernels[0], kernels[-1]) == (first, last)


def test_which_stages_have_a_memory_of_their_own():
    found = {name for name in parameters(make("PrivilegeStateAcRecurrent")) if name.startswith("memory_")}
    assert found == {"memory_adaptor", "memory_estimator", "memory_actor", "memory_critic"}
    found = {name for name in parameters(make("StateAcRecurrent")) if name.startswith("memory_")}
    assert found == {"memory_actor", "memory_critic"}  # use_actor_rnn


def test_convolutions_and_their_head():
    encoder = parameters(make("VisualDeterministicAC"))["actor_encoder_0"]
    # 8 x 10, kernel 3: 6 x 8; kernel 2 x 3, stride 2: floor(4 / 2) + 1 = 3, floor(5 / 2) + 1 = 3; 3 channels: 27
    assert encoder["conv"]["conv_0"]["kernel"] == (3, 3, 1, 2)
    assert encoder["conv"]["conv_1"]["kernel"] == (2, 3, 2, 3)
    assert [layer["kernel"] for layer in encoder["head"].values()] == [(27, 8), (8, 9)]


def test_the_critic_has_encoders_of_its_own():
    keywords = ENCODERS | {"critic_encoder_component_names": ["velocity", "depth"]}
    assert make("EncoderActorCritic", keywords).critic_encoders == (
        EncoderStage("velocity", (8,), 4, False, "LeakyReLU"),  # class and keywords as the actor's
        EncoderStage("depth", (8,), 4, False, "ELU", **CONVOLUTIONS),
    )
    own = {"critic_encoder_class_name": "MlpModel", "critic_encoder_kwargs": {"hidden_sizes": 3}}
    assert make("EncoderActorCritic", keywords | own).critic_encoders == (
        EncoderStage("velocity", (3,), 4),
        EncoderStage("depth", (3,), 4),
    )
    assert make("EncoderActorCritic", ENCODERS | {"critic_encoder_component_names": None}).critic_encoders == ()


def test_one_class_and_its_keywords_for_all_encoders():
    keywords = {"encoder_component_names": ["height", "proprio"], "encoder_kwargs": {"hidden_sizes": [3]}}
    assert make("EncoderActorCritic", keywords).encoders == (
        EncoderStage("height", (3,), 32),
        EncoderStage("proprio", (3,), 32),
    )


def test_the_visual_policy_of_the_reference():
    """The example of st_rl's documentation, with an image of our size; the head's layers are our defaults."""
    shapes = {"proprio": (5,), "forward_depth": (1, 16, 20)}
    data = {
        "env": {"name": "mine"},
        "runner": {"policy_class_name": "VisualDeterministicAC"},
        "policy": {
            "visual_component_name": "forward_depth",
            "visual_kwargs": {"channels": [32, 64], "kernel_sizes": [5, 3], "strides": [2, 2]},
            "visual_latent_size": 128,
        },
    }
    env = SimpleNamespace(observation_shapes=shapes, action_size=12)
    policy = acting.make_acting(from_dict(data)[0], env).policy
    shapes = parameters(policy)
    # 16 x 20, kernel 5, stride 2: floor(11 / 2) + 1 = 6, floor(15 / 2) + 1 = 8; kernel 3, stride 2:
    # floor(3 / 2) + 1 = 2, floor(5 / 2) + 1 = 3; 64 channels: 384. Then 5 + 128 = 133.
    kernels = [layer["kernel"] for layer in shapes["actor_encoder_0"]["head"].values()]
    assert kernels == [(384, 256), (256, 128), (128, 128)]
    assert shapes["actor"]["layer_0"]["kernel"] == (133, 256)
    assert shapes["actor"]["layer_3"]["kernel"] == (256, 12)
    assert policy.deterministic


@pytest.mark.parametrize("name", FIELDS)
def test_a_config_comes_back(name):
    config = config_of(name)
    assert type(config.policy).__name__ in (f"{name}Config", "PolicyConfig")
    assert from_dict(to_dict(config)) == (config, [])
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == (config, [])
    assert from_dict(yaml.safe_load(to_yaml(config))) == (config, [])
    if name in MADE:
        again = acting.make_acting(from_dict(to_dict(config))[0], ENV).policy
        assert again == acting.make_acting(config, ENV).policy


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("ActorCritic", "estimator_kwargs", f"known are {PLAIN}"),
        ("ActorCriticRecurrent", "rnn_layers", "nearest is rnn_num_layers"),
        ("AmpActorCritic", "rnn_type", f"known are amp_discriminator, {PLAIN}"),
        ("EncoderStateAcRecurrent", "visual_component_name", "nearest is encoder_component_names"),
        ("ActorCriticFieldMutex", "jump_down_vel", f"known are {OF_A_FIELD}, {PLAIN}"),
    ],
)
def test_a_keyword_of_another_class(name, key, expected):
    assert line(config_of, name, KEYWORDS[name] | {key: 1}) == f"policy.{key}: unknown key; {expected}"


def test_keywords_that_are_needed():
    with pytest.raises(ConfigError) as caught:
        config_of("StateAc", {})
    assert caught.value.lines == (
        "policy.estimator_obs_components: it is missing and has no default",
        "policy.estimator_target_components: it is missing and has no default",
    )
    assert line(config_of, "EncoderActorCritic", {}) == (
        "policy.encoder_component_names: it is missing and has no default"
    )


def of_actor(key: str, name: str, near: str) -> str:
    return f"policy.{key}: '{name}' is not allowed; it must be one of proprio, depth, height; nearest is {near}"


@pytest.mark.parametrize(
    ("name", "keywords", "expected"),
    [
        (
            "EncoderActorCritic",
            ENCODERS | {"encoder_component_names": ["heigth"]},
            of_actor("encoder_component_names", "heigth", "height"),
        ),
        (
            "EncoderActorCritic",
            {"encoder_component_names": ["height"], "critic_encoder_component_names": ["velocty"]},
            "policy.critic_encoder_component_names: 'velocty' is not allowed; "
            "it must be one of proprio, depth, height, velocity; nearest is velocity",
        ),
        ("StateAc", ESTIMATOR | {"estimator_obs_components": ["propio"]}, of_actor(OBS, "propio", "proprio")),
        (
            "PrivilegeStateAcRecurrent",
            ADAPTOR | ESTIMATOR | {"adaptor_target_components": ["heights"]},
            "policy.adaptor_target_components: 'heights' is not allowed; "
            "it must be one of proprio, depth, height, velocity; nearest is height",
        ),
        (
            "VisualDeterministicAC",
            VISUAL | {"visual_component_name": "dept"},
            of_actor("visual_component_name", "dept", "depth"),
        ),
        # twice
        (
            "EncoderActorCritic",
            {"encoder_component_names": ["height", "height"]},
            "policy.encoder_component_names: ['height', 'height'] is not allowed; height is listed twice",
        ),
        # an estimate needs its place in what the actor sees
        (
            "StateAc",
            ESTIMATOR | {"replace_state_prob": 0.5},
            "policy.estimator_target_components: 'velocity' is not allowed; "
            "it must be one of proprio, depth, height; the estimate replaces a component of the actor",
        ),
        (
            "PrivilegeStateAcRecurrent",
            ADAPTOR | ESTIMATOR | {"adaptor_target_components": ["velocity"]},
            "policy.adaptor_target_components: 'velocity' is not allowed; "
            "it must be one of proprio, depth, height; the estimate replaces a component of the actor",
        ),
        # the actor's memory
        (
            "StateAc",
            ESTIMATOR | {"use_actor_rnn": True},
            "policy.use_actor_rnn: true is not allowed; the policy class has no memory",
        ),
        (
            "StateAcRecurrent",
            ESTIMATOR | {"use_actor_rnn": True, "replace_state_prob": 0.25},
            "policy.replace_state_prob: 0.25 is not allowed with use_actor_rnn, "
            "whose estimate is computed after the actor has seen the observation; it must be 0",
        ),
        # lists of one for each
        (
            "EncoderActorCritic",
            ENCODERS | {"encoder_kwargs": [{}, CONV, {}]},
            "policy.encoder_kwargs: 3 for 2 components; it must be one, or one for each",
        ),
        (
            "EncoderActorCritic",
            ENCODERS
            | {"critic_encoder_component_names": ["height"], "critic_encoder_class_name": ["MlpModel", "MlpModel"]},
            "policy.critic_encoder_class_name: 2 for 1 components; it must be one, or one for each",
        ),
        (
            "EncoderActorCritic",
            {"encoder_component_names": ["height"], "critic_encoder_class_name": "MlpModel"},
            "policy.critic_encoder_class_name: not allowed where critic_encoder_component_names is null; "
            "the critic has no encoders of its own",
        ),
        (
            "EncoderActorCritic",
            {
                "encoder_component_names": ["height"],
                "critic_encoder_component_names": "shared",
                "critic_encoder_kwargs": {"hidden_sizes": 3},
            },
            "policy.critic_encoder_kwargs: not allowed where critic_encoder_component_names is shared; "
            "the critic has no encoders of its own",
        ),
        # networks and images
        (
            "EncoderActorCritic",
            {"encoder_component_names": ["height"], "encoder_kwargs": {"channels": [2]}},
            "policy.encoder_kwargs: MlpModel takes no channels; it takes hidden_sizes, nonlinearity",
        ),
        (
            "EncoderActorCritic",
            {"encoder_component_names": ["height"], "encoder_class_name": "Conv2dHeadModel", "encoder_kwargs": CONV},
            "policy.encoder_kwargs: component height has shape (6,); Conv2dHeadModel needs (channels, height, width)",
        ),
        (
            "VisualDeterministicAC",
            VISUAL | {"visual_component_name": "proprio"},
            "policy.visual_kwargs: component proprio has shape (5,); Conv2dHeadModel needs (channels, height, width)",
        ),
        (
            "VisualDeterministicAC",
            VISUAL | {"visual_kwargs": {}},
            "policy.visual_kwargs: Conv2dHeadModel needs channels, kernel_sizes and strides",
        ),
        # 8 x 10 and kernel 9 x 3: 8 - 9 + 1 = 0, 10 - 3 + 1 = 8
        (
            "VisualDeterministicAC",
            VISUAL | {"visual_kwargs": {"channels": [2], "kernel_sizes": [[9, 3]], "strides": [1]}},
            "policy.visual_kwargs: kernel (9, 3), stride (1, 1), padding (0, 0), dilation 1 leave 0 x 8 of an image "
            "of 8 x 10",
        ),
        (
            "VisualDeterministicAC",
            VISUAL | {"visual_kwargs": {"channels": [2, 3], "kernel_sizes": [3], "strides": [1, 1]}},
            "policy.visual_kwargs: a convolution needs one entry of each, so the lengths must be equal: "
            "channels 2, kernel_sizes 1, strides 2, paddings 2",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit(name, keywords, expected):
    config = config_of(name, keywords)
    assert line(acting.make_acting, config, ENV) == expected


def test_shared_encoders_of_what_the_critic_does_not_see():
    groups = {"actor": ["proprio", "height"], "critic": ["proprio", "velocity"]}
    keywords = {"encoder_component_names": ["height"], "critic_encoder_component_names": "shared"}
    config = config_of("EncoderActorCritic", keywords, env={"name": "mine", "groups": groups})
    assert line(acting.make_acting, config, ENV) == (
        "policy.encoder_component_names: 'height' is not allowed; it must be one of proprio, velocity of the critic"
    )


TRAINS = "runner.algorithm_class_name: {} is not allowed with the policy class {}"


@pytest.mark.parametrize(
    ("algorithm", "name", "why"),
    [
        ("PPO", "StateAc", ", whose estimator it does not train; EstimatorPPO and EstimatorTPPO train it"),
        (
            "PPO",
            "PrivilegeStateAcRecurrent",
            ", whose estimator it does not train; EstimatorPPO and EstimatorTPPO train it",
        ),
        ("EstimatorPPO", "ActorCritic", ", which has no estimator; EstimatorPPO and EstimatorTPPO train one"),
        ("EstimatorPPO", "EncoderActorCritic", ", which has no estimator; EstimatorPPO and EstimatorTPPO train one"),
        (
            "PPO",
            "VisualDeterministicAC",
            ": its actions are the mean, which has no gradient in the surrogate loss; "
            "TPPO, EstimatorTPPO and ATPPO with using_ppo: false train it",
        ),
        ("PPO", "AmpActorCritic", ", whose discriminator it does not train; APPO and ATPPO train one"),
        ("TPPO", "EncoderAmpActorCriticRecurrent", ", whose discriminator it does not train; APPO and ATPPO train one"),
        ("APPO", "ActorCritic", ", which has no discriminator; APPO and ATPPO train one"),
        (
            "PPO",
            "ActorCriticFieldMutex",
            ", whose sub-policies are trained already; this class can only act, be evaluated and teach",
        ),
    ],
)
def test_what_no_algorithm_trains(algorithm, name, why):
    config = config_of(name, runner={"policy_class_name": name, "algorithm_class_name": algorithm})
    policy = None if "Mutex" in name else acting.make_acting(config, ENV).policy
    assert line(checks.check_trains, config, policy) == TRAINS.format(algorithm, name) + why


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("PPO", "ActorCriticRecurrent"),
        ("PPO", "EncoderActorCritic"),
        ("EstimatorPPO", "EncoderStateAcRecurrent"),
        ("EstimatorPPO", "PrivilegeStateAcRecurrent"),
        ("EstimatorTPPO", "StateAc"),
        ("APPO", "AmpActorCritic"),
        ("ATPPO", "EncoderAmpActorCriticRecurrent"),
    ],
)
def test_what_an_algorithm_trains(algorithm, name):
    config = config_of(name, runner={"policy_class_name": name, "algorithm_class_name": algorithm})
    assert checks.check_trains(config, acting.make_acting(config, ENV).policy) is None


def test_a_memory_needs_environments_whole():
    runner = {"policy_class_name": "ActorCriticRecurrent", "num_steps_per_env": 3}
    sections = {"env": {"name": "mine", "num_envs": 4}, "runner": runner}
    for number in (3, 6):
        found = line(config_of, "ActorCriticRecurrent", **sections, algorithm={"num_mini_batches": number})
        assert found.startswith(f"algorithm.num_mini_batches: {number} is not allowed; ")
        assert "4 whole environments" in found
        assert found.endswith(": 1, 2, 4")
    config = config_of("ActorCriticRecurrent", **sections, algorithm={"num_mini_batches": 4})
    assert checks.check_shards(config, 1) is None
    # 4 / 2 = 2 environments of a shard
    assert "2 whole environments of each of 2 devices" in line(checks.check_shards, config, 2)
    config = config_of(
        "ActorCriticRecurrent", **sections, algorithm={"num_mini_batches": 3}, compat={"contiguous_envs": True}
    )
    assert checks.check_shards(config, 1) is None  # st_rl leaves the fourth environment out
