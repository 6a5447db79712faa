"""Settings of a policy that follow from the shapes in a torch file: layers and memory."""

import re
from collections.abc import Mapping

import numpy as np

from strl_jax.modules.policy import Policy
from strl_jax.modules.recurrence import GATES


def differences(weights: Mapping[str, np.ndarray], policy: Policy) -> list[str]:
    """One line for each setting of the policy with another value in the file, under its name in the config.

    Args:
        weights: those of a ``layouts.Model``; a network that is not in the file is not compared.
    """
    lines = []
    for network in ("actor", "critic"):
        sizes, own = hidden_sizes(weights, network), list(getattr(policy, f"{network}_hidden_dims"))
        if sizes is not None and sizes != own:
            lines.append(f"{network}_hidden_dims: {sizes} in the file, {own} in the policy")
    file, critic = memory(weights, "memory_a"), memory(weights, "memory_c")
    if hidden_sizes(weights, "critic") is not None and file != critic:
        return [*lines, f"memory: {_show(file)} of the actor, {_show(critic)} of the critic; they must be the same"]
    stage, own = policy.memory, {}
    if stage is not None:
        own = {"rnn_type": stage.kind, "rnn_hidden_size": stage.hidden_size, "rnn_num_layers": stage.num_layers}
    if bool(file) == bool(own):
        return lines + [
            f"{key}: {file[key]} in the file, {own[key]} in the policy" for key in own if file[key] != own[key]
        ]
    fits = "ActorCriticRecurrent" if file else "ActorCritic"
    return [*lines, f"memory: {_show(file)} in the file, {_show(own)} in the policy; {fits} fits the file"]


def hidden_sizes(weights: Mapping[str, np.ndarray], network: str) -> list[int] | None:
    """Sizes of the hidden layers of the MLP ``NETWORK.NUMBER.weight``; None if the file has no such network."""
    rows = {}
    for name, value in weights.items():
        match = re.fullmatch(rf"{network}\.(\d+)\.weight", name)
        if match and np.ndim(value) == 2:
            rows[int(match[1])] = value.shape[0]
    return [rows[number] for number in sorted(rows)][:-1] if rows else None


def memory(weights: Mapping[str, np.ndarray], name: str) -> dict[str, str | int]:
    """``rnn_type``, ``rnn_hidden_size`` and ``rnn_num_layers`` of the memory ``name``; ``{}`` if there is none."""
    layers = [key for key in weights if re.fullmatch(rf"{name}\.rnn\.weight_hh_l\d+", key)]
    shapes = {np.shape(weights[key]) for key in layers}
    if not layers or any(len(shape) != 2 or 0 in shape for shape in shapes):
        return {}
    rows, size = max(shapes)
    kind = next((kind for kind, number in GATES.items() if number * size == rows), f"with {rows} rows")
    return {"rnn_type": kind, "rnn_hidden_size": size, "rnn_num_layers": len(layers)}


def _show(memory: Mapping[str, str | int]) -> str:
    return ", ".join(f"{key} {value}" for key, value in memory.items()) or "none"
