"""Policies of every kind for the tests of the exports."""

from pathlib import Path

import jax
import jax.numpy as jnp
from tiny import normal

from strl_jax.algorithms import ppo
from strl_jax.interop import deploy, stablehlo
from strl_jax.interop.deploy import Deployable
from strl_jax.interop.onnx import model as onnx_model
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.types import RunningStats

# "action" is an input too, as the last action; the order is not that of the alphabet.
ACTOR = Segments(("velocity", "action", "height", "image"), ((2,), (3,), (), (1, 6, 5)))
CRITIC = Segments(("velocity", "load"), ((2,), (2, 2)))
ACTIONS = 3
ESTIMATOR = EstimatorStage(("action", "image"), ("velocity",), (4,), replace_prob=0.5)
ADAPTOR = EstimatorStage(("velocity",), ("load",), (4,))


def image(**options) -> EncoderStage:
    settings = {"channels": (4, 2), "kernel_sizes": ((3, 2), 2), "strides": ((2, 1), 1), "paddings": ((1, 0), 1)}
    return EncoderStage("image", (5,), 4, **{**settings, **options})


POLICIES = {
    "mlp": {},
    "mean activation": {"mu_activation": "tanh"},
    "lstm": {"memory": MemoryStage("lstm", 5, 2)},
    "gru": {"memory": MemoryStage("gru", 5, 1)},
    "strides": {"encoders": (image(),), "deterministic": True},
    "max-pool": {"encoders": (image(use_maxpool=True, normlayer="BatchNorm2d", linear=True),)},
    "instance norm": {"encoders": (image(normlayer="InstanceNorm2d", nonlinearity="ELU"),)},
    "encoder, estimator, adaptor": {
        "encoders": (EncoderStage("action", (4,), 2), image(channels=())),
        "estimator": ESTIMATOR,
        "adaptor": ADAPTOR,
    },
    "estimator with memory": {
        "estimator": ESTIMATOR,
        "adaptor": ADAPTOR,
        "memory": MemoryStage("gru", 5, 2),
        "encoders": (image(use_maxpool=True),),
    },
    "estimator on the actor's memory": {
        "estimator": EstimatorStage((), ("load",), (4,), on_actor_memory=True),
        "memory": MemoryStage("lstm", 5, 1),
    },
}


def make_deployable(*, estimates: bool = False, **options) -> Deployable:
    """A policy with weights from numpy, and statistics far from 0 and 1."""
    policy = Policy(ACTIONS, (6, 5), (4,), actor_obs=ACTOR, critic_obs=CRITIC, **options)
    algorithm = ppo.make(ppo.PPOConfig(empirical_normalization=True), policy, ACTOR, CRITIC)
    groups = {name: jnp.zeros((1, segments.size)) for name, segments in algorithm.groups.items()}
    carry = policy.initial_carry(1)
    shapes = jax.eval_shape(policy.init, jax.random.key(0), groups, carry, jnp.zeros(1, bool))
    leaves, tree = jax.tree.flatten(shapes)
    weights = [0.7 * normal(1, i, leaf.shape) for i, leaf in enumerate(leaves)]
    variables = jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.abs(x) + 0.5 if path[-1].key == "running_var" else x, jax.tree.unflatten(tree, weights)
    )
    stats = {
        group: {
            name: RunningStats(3 * normal(seed, i, shape), 0.1 + jnp.square(normal(seed + 1, i, shape)), jnp.float32(9))
            for i, (name, shape) in enumerate(zip(segments.names, segments.shapes, strict=True))
        }
        for seed, (group, segments) in zip((2, 4), algorithm.groups.items(), strict=True)
    }
    return Deployable(algorithm, variables, stats, estimates)


def exported(deployable: Deployable, folder: Path) -> dict[str, deploy.Step]:
    """The policy in both formats, read from files."""
    (folder / "policy.onnx").write_bytes(onnx_model.dump(deployable, {}))
    (folder / "policy.bin").write_bytes(stablehlo.dump(deployable))
    return {"onnx": onnx_model.load(folder / "policy.onnx"), "stablehlo": stablehlo.load(folder / "policy.bin")}
