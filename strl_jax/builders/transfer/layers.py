"""Which observation components the rows and columns of a policy's parameters stand for."""

from collections.abc import Mapping

import numpy as np

from strl_jax.modules import estimators
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage
from strl_jax.observations import Segments

Path = tuple[str, ...]  # of a parameter below ``params``
Blocks = tuple[tuple[str, int], ...]  # (component, number of rows or columns), in order


def input_layers(policy: Policy) -> dict[Path, Blocks]:
    """The rows of every parameter whose first axis is an observation.

    An encoded component has its latent's size in what comes after its encoder. An
    estimator that reads the actor's memory has no such parameter, and neither have
    convolutions.

    Raises:
        ValueError: the policy does not know its observations.
    """
    _check_groups(policy)
    found = {}
    for group in ("actor", "critic"):
        found[_first(policy, group, group)] = _embedded(policy, group)
        modules = encoder_modules(policy, group)
        for stage in encoder_stages(policy, group):
            if not stage.channels:
                blocks = ((stage.component, _size(_segments(policy, group), stage.component)),)
                found[modules[stage.component], "layer_0", "kernel"] = blocks
    for name in _estimating(policy):
        stage = getattr(policy, name)
        if not stage.on_actor_memory:
            names = estimators.in_order(stage.inputs, policy.actor_obs)
            blocks = tuple((component, _size(policy.actor_obs, component)) for component in names)
            found[_first(policy, name, f"state_{name}")] = blocks
    return found


def output_layers(policy: Policy) -> dict[Path, Blocks]:
    """The columns of every parameter whose last axis is an estimate of components.

    Raises:
        ValueError: the policy does not know its observations.
    """
    _check_groups(policy)
    found = {}
    for name in _estimating(policy):
        stage = getattr(policy, name)
        names = estimators.in_order(stage.targets, policy.actor_obs, policy.critic_obs)
        blocks = tuple((component, _size(policy.critic_obs, component)) for component in names)
        layer = f"layer_{len(stage.hidden_sizes)}"
        found |= {(f"state_{name}", layer, leaf): blocks for leaf in ("kernel", "bias")}
    return found


def encoder_modules(policy: Policy, group: str) -> dict[str, str]:
    """Component -> name of the module that encodes it for the ``actor`` or the ``critic``."""
    shared = group == "critic" and policy.critic_encoders == "shared"
    prefix = "actor" if shared else group
    return {stage.component: f"{prefix}_encoder_{index}" for index, stage in enumerate(encoder_stages(policy, group))}


def encoder_stages(policy: Policy, group: str) -> tuple[EncoderStage, ...]:
    """The encoders of the ``actor``'s or the ``critic``'s observation."""
    if group == "actor" or policy.critic_encoders == "shared":
        return policy.encoders
    return policy.critic_encoders


def common(before: Blocks, now: Blocks, latents: Mapping[str, bool]) -> list[str]:
    """Components of the same name and size in both.

    Args:
        latents: encoded component -> whether it is the same latent in both.
    """
    return [name for name, size in now if dict(before).get(name) == size and latents.get(name, True)]


def places(before: Blocks, now: Blocks, names: list[str]) -> list[np.ndarray]:
    """The rows (or columns) of the components ``names`` in each of the two."""
    found = []
    for blocks in (before, now):
        segments = Segments(tuple(name for name, _ in blocks), tuple((size,) for _, size in blocks))
        found.append(np.concatenate([np.arange(segments.size)[segments.slice(name)] for name in names]))
    return found


def changes(what: str, end: str, before: Blocks, now: Blocks, latents: Mapping[str, bool]) -> list[str]:
    """A line for each component that is not ``common`` to both.

    Args:
        what: what a component is, such as ``component``.
        end: what becomes of one that is new.
        latents: see ``common``.
    """
    old, lines = dict(before), []
    for name, size in now:
        if name not in old:
            lines.append(f"{what} {name} ({size}) is new, {end}")
        elif not latents.get(name, True):
            lines.append(f"{what} {name} ({size}) has another encoder than in the checkpoint, {end}")
        elif old[name] != size:
            lines.append(f"{what} {name} has another size, {old[name]} in the checkpoint, {size} now; {end}")
    names = [name for name, _ in now]
    return lines + [
        f"{what} {name} ({size}) of the checkpoint is left out" for name, size in before if name not in names
    ]


def show(blocks: Blocks | None) -> str:
    """The components in words."""
    return "a memory" if blocks is None else ", ".join(f"{name} ({size})" for name, size in blocks)


def _embedded(policy: Policy, group: str) -> Blocks:
    """A group's components with encoders' latents in place."""
    segments, latents = _segments(policy, group), {s.component: s.latent_size for s in encoder_stages(policy, group)}
    return tuple((name, latents.get(name, size)) for name, size in zip(segments.names, segments.sizes, strict=True))


def _first(policy: Policy, name: str, network: str) -> Path:
    """The parameter of the stage ``name`` that multiplies its input."""
    return (network, "layer_0", "kernel") if policy.memory is None else (f"memory_{name}", "weight_ih_l0")


def _estimating(policy: Policy) -> list[str]:
    return [name for name in ("adaptor", "estimator") if getattr(policy, name) is not None]


def _segments(policy: Policy, group: str) -> Segments:
    return policy.actor_obs if group == "actor" else policy.critic_obs


def _size(segments: Segments, component: str) -> int:
    return segments.sizes[segments.names.index(component)]


def _check_groups(policy: Policy) -> None:
    if policy.actor_obs is None or policy.critic_obs is None:
        raise ValueError("the policy does not know its observations: actor_obs and critic_obs are needed")
