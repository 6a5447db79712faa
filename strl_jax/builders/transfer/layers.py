"""The observation components that belong to the rows and columns of a policy's parameters."""

from collections.abc import Mapping, Sequence

import numpy as np

from strl_jax.modules import estimators
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, EstimatorStage
from strl_jax.observations import Segments

Path = tuple[str, ...]  # of a parameter, below ``params``
Blocks = tuple[tuple[str, int], ...]  # (component, number of rows or columns), in order
HIDDEN = "hidden features"  # the block of an axis without components


def input_layers(policy: Policy) -> dict[Path, Blocks]:
    """The rows of every parameter whose first axis is an observation.

    In the layer after an encoder, a component has the size of its latent. Convolutions
    have no such parameter, nor has an estimator that reads the actor's memory.
    """
    rows = {}
    for group in ("actor", "critic"):
        rows[_first(policy, group, group)] = _embedded(policy, group)
        modules = encoder_modules(policy, group)
        for stage in encoder_stages(policy, group):
            if not stage.channels:
                path = (modules[stage.component], "layer_0", "kernel")
                rows[path] = _blocks(_segments(policy, group), [stage.component])
    for name, stage in estimator_stages(policy).items():
        if not stage.on_actor_memory:
            components = estimators.in_order(stage.inputs, policy.actor_obs)
            rows[_first(policy, name, f"state_{name}")] = _blocks(policy.actor_obs, components)
    return rows


def output_layers(policy: Policy) -> dict[Path, Blocks]:
    """The columns of every parameter whose last axis is an estimate of components."""
    columns = {}
    for name, stage in estimator_stages(policy).items():
        components = estimators.in_order(stage.targets, policy.actor_obs, policy.critic_obs)
        for leaf in ("kernel", "bias"):
            path = (f"state_{name}", f"layer_{len(stage.hidden_sizes)}", leaf)
            columns[path] = _blocks(policy.critic_obs, components)
    return columns


def encoder_modules(policy: Policy, group: str) -> dict[str, str]:
    """Component -> name of the module that encodes it, for the group ``actor`` or ``critic``."""
    shared = group == "critic" and policy.critic_encoders == "shared"
    prefix = "actor" if shared else group
    return {stage.component: f"{prefix}_encoder_{index}" for index, stage in enumerate(encoder_stages(policy, group))}


def encoder_stages(policy: Policy, group: str) -> tuple[EncoderStage, ...]:
    """The encoders of the group ``actor`` or ``critic``."""
    if group == "actor" or policy.critic_encoders == "shared":
        return policy.encoders
    return policy.critic_encoders


def estimator_stages(policy: Policy) -> dict[str, EstimatorStage]:
    """``adaptor`` and ``estimator`` -> the stage, if the policy has it."""
    stages = {name: getattr(policy, name) for name in ("adaptor", "estimator")}
    return {name: stage for name, stage in stages.items() if stage is not None}


def common(before: Blocks, now: Blocks, same_latent: Mapping[str, bool]) -> list[str]:
    """Components that have the same name and size in both and, if encoded, the same latent.

    Args:
        same_latent: encoded component -> whether both policies encode it equally.
    """
    return [name for name, size in now if dict(before).get(name) == size and same_latent.get(name, True)]


def indices(blocks: Blocks, names: list[str]) -> np.ndarray:
    """The rows (or columns) of the components ``names``, one after the other."""
    segments = Segments(tuple(name for name, _ in blocks), tuple((size,) for _, size in blocks))
    return np.concatenate([np.arange(segments.size)[segments.slice(name)] for name in names])


def changes(title: str, result: str, before: Blocks, now: Blocks, same_latent: Mapping[str, bool]) -> list[str]:
    """A line for each component that is not ``common`` to both.

    Args:
        title: text before the name of a component.
        result: end of a line that says what the weights of a component become, such as ``its weights are 0``.
        same_latent: see ``common``.
    """
    sizes, lines = dict(before), []
    for name, size in now:
        if name not in sizes:
            lines.append(f"{title} {name} ({size}) is new, {result}")
        elif not same_latent.get(name, True):
            lines.append(f"{title} {name} ({size}) has another encoder than in the checkpoint, {result}")
        elif sizes[name] != size:
            lines.append(f"{title} {name} has another size, {sizes[name]} in the checkpoint, {size} now; {result}")
    removed = [(name, size) for name, size in before if name not in dict(now)]
    return lines + [f"{title} {name} ({size}) of the checkpoint is left out" for name, size in removed]


def show(blocks: Blocks) -> str:
    """The components for a message."""
    return ", ".join(f"{name} ({size})" for name, size in blocks)


def _embedded(policy: Policy, group: str) -> Blocks:
    """A group's components, with the sizes of latents for those that are encoded."""
    segments = _segments(policy, group)
    latents = {stage.component: stage.latent_size for stage in encoder_stages(policy, group)}
    return tuple((name, latents.get(name, size)) for name, size in _blocks(segments, segments.names))


def _first(policy: Policy, name: str, network: str) -> Path:
    """The parameter that multiplies the input of a network, or of the memory before it."""
    return (network, "layer_0", "kernel") if policy.memory is None else (f"memory_{name}", "weight_ih_l0")


def _segments(policy: Policy, group: str) -> Segments:
    return policy.actor_obs if group == "actor" else policy.critic_obs


def _blocks(segments: Segments, components: Sequence[str]) -> Blocks:
    sizes = dict(zip(segments.names, segments.sizes, strict=True))
    return tuple((name, sizes[name]) for name in components)
