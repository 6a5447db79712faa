"""Copies the variables of one policy to another: by layer, and by component in layers that read observations."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from strl_jax.builders.transfer import layers
from strl_jax.builders.transfer.layers import Blocks
from strl_jax.modules.policy import Policy
from strl_jax.run_folder.errors import compare
from strl_jax.types import RunningStats

Params = dict[layers.Path, np.ndarray]


def by_component(
    source: Policy, source_variables: dict, target: Policy, target_variables: dict
) -> tuple[dict, list[str]]:
    """The target's variables, with all values of the source that have the same meaning.

    - A layer or memory is copied whole if it has the same name and size in both policies;
      an encoder belongs to its component.
    - In a layer that reads an observation, rows are copied by component. Rows of a component
      that is new, or has another size or encoder, are 0, so that the policy first acts as
      the source does.
    - In the last layer of an estimator, columns are copied by component.
    - All other values remain the target's.

    Args:
        source, target: policies with ``actor_obs`` and ``critic_obs``.
        source_variables, target_variables: ``{"params": ...}`` of each.

    Returns:
        NumPy arrays, and a line for everything that is new, left out or of another
        size, and for every changed setting on which the effect of the weights depends.
    """
    old, new = _parameters(source, source_variables), _parameters(target, target_variables)
    lines = _convert_deviation(old, target)
    origins = _origins(source, target)
    result, unchanged = dict(new.values), set()
    for module in sorted(new.modules, key=lambda name: ("_encoder_" not in name, name)):  # encoders first
        origin = origins.get(module, module)
        if origin not in old.modules:
            lines.append(f"{new.title(module)}: new; newly initialized")
            continue
        same_latent = _same_latent(source, target, module, origins, unchanged)
        copied, module_lines = _copy_module(old, new, origin, module, same_latent)
        result |= copied
        lines += module_lines
        if not module_lines:
            unchanged.add(module)
    used = {origins.get(module, module) for module in new.modules}
    lines += [f"{old.title(module)} of the checkpoint is left out" for module in sorted(old.modules - used)]
    lines += compare(_settings(source), _settings(target))
    return {"params": unflatten_dict(result)}, lines


def stats_by_component(source_stats: Mapping, target_stats: Mapping) -> dict:
    """The target's statistics, with the source's for each component of the same shape.

    The source's same group is searched first, then its other groups. The statistics of the rewards
    are copied too, because the critic's values depend on the scale of the rewards.
    """
    groups = {name: value for name, value in source_stats.items() if isinstance(value, Mapping)}
    result = {}
    for group, initial in target_stats.items():
        if not isinstance(initial, Mapping):
            result[group] = _same_shape(group, initial, [source_stats])
            continue
        sources = [groups.get(group, {}), *groups.values()]
        result[group] = {name: _same_shape(name, value, sources) for name, value in initial.items()}
    return result


def _same_shape(name: str, initial: RunningStats, sources: list[Mapping]) -> RunningStats:
    """The first statistics of this name and of the same shape in ``sources``, else ``initial``."""
    named = [source[name] for source in sources if name in source]
    return next((stats for stats in named if np.shape(stats.mean) == np.shape(initial.mean)), initial)


@dataclass(frozen=True)
class _Parameters:
    """Parameters of a policy, and the components of their rows and columns."""

    values: Params
    rows: dict[layers.Path, Blocks]
    columns: dict[layers.Path, Blocks]
    encoders: dict[str, str]  # module -> name in a message

    @property
    def modules(self) -> set[str]:
        """Names of the networks, of the memories and of the standard deviation."""
        return {path[0] for path in self.values}

    def title(self, module: str) -> str:
        """Name of a module in a message: an encoder's component instead of its index."""
        return self.encoders.get(module, module)

    def layers_of(self, module: str) -> dict[str, dict[str, layers.Path]]:
        """Layer -> name of a parameter -> its path. A memory is one layer, named ''."""
        by_layer: dict[str, dict[str, layers.Path]] = {}
        for path in sorted(path for path in self.values if path[0] == module):
            by_layer.setdefault("/".join(path[1:-1]), {})[path[-1]] = path
        return by_layer

    def blocks(self, path: layers.Path) -> list[Blocks]:
        """The components of each axis of a parameter; an axis of hidden features is one block."""
        blocks = [((layers.HIDDEN, size),) for size in self.values[path].shape]
        if path in self.rows:
            blocks[0] = self.rows[path]
        if path in self.columns:
            blocks[-1] = self.columns[path]
        return blocks


def _parameters(policy: Policy, variables: dict) -> _Parameters:
    values = {path: np.asarray(value) for path, value in flatten_dict(variables["params"]).items()}
    encoders = {
        module: f"{group} encoder of {component}"
        for group in ("critic", "actor")  # a shared encoder is named as the actor's
        for component, module in layers.encoder_modules(policy, group).items()
    }
    return _Parameters(values, layers.input_layers(policy), layers.output_layers(policy), encoders)


def _convert_deviation(old: _Parameters, target: Policy) -> list[str]:
    """Converts the source's standard deviation to the target's form, linear or logarithm."""
    wanted, other = ("log_std", "std") if target.log_std else ("std", "log_std")
    if (other,) not in old.values:
        return []
    value = old.values.pop((other,))
    if target.log_std and not (value > 0).all():
        return [f"std: {value.tolist()} in the checkpoint has no logarithm"]
    old.values[wanted,] = np.log(value) if target.log_std else np.exp(value)
    return []


def _origins(source: Policy, target: Policy) -> dict[str, str | None]:
    """Encoder of the target -> the source's encoder of the same component, or None."""
    origins = {}
    for group in ("critic", "actor"):
        encoders = layers.encoder_modules(source, group)
        for component, module in layers.encoder_modules(target, group).items():
            origins[module] = encoders.get(component)
    return origins


def _same_latent(source: Policy, target: Policy, module: str, origins: Mapping, unchanged: set[str]) -> dict[str, bool]:
    """Encoded component -> whether the module reads the same latent in both policies."""
    group = module.removeprefix("memory_")
    if group not in ("actor", "critic"):
        return {}
    before, now = (layers.encoder_modules(policy, group) for policy in (source, target))
    same = {name: encoder in unchanged and origins[encoder] == before.get(name) for name, encoder in now.items()}
    return dict.fromkeys(before, False) | same


def _copy_module(
    old: _Parameters, new: _Parameters, origin: str, module: str, same_latent: Mapping[str, bool]
) -> tuple[Params, list[str]]:
    """The new values of a module that are copied from the source's module ``origin``, and lines about the others."""
    before, now = old.layers_of(origin), new.layers_of(module)
    title, copied, lines = new.title(module), {}, []
    for layer in dict.fromkeys([*now, *before]):
        name = f"{title}/{layer}" if layer else title
        if layer not in now:
            lines.append(f"{name} of the checkpoint is left out")
            continue
        pairs, misfit = [], "new"
        if layer in before and before[layer].keys() != now[layer].keys():  # a memory with more or fewer layers
            counts = [sum(leaf.startswith("weight_ih") for leaf in side[layer]) for side in (before, now)]
            misfit = f"another number of layers, {counts[0]} in the checkpoint, {counts[1]} now"
        elif layer in before:
            pairs = [_Pair(old, new, before[layer][leaf], path, same_latent) for leaf, path in now[layer].items()]
            first = sorted(pairs, key=lambda pair: (pair.path not in new.rows, -pair.target.ndim, pair.path))
            misfit = next(filter(None, (pair.misfit() for pair in first)), None)
        if misfit:
            lines.append(f"{name}: {misfit}; newly initialized")
            continue
        copied |= {pair.path: pair.copied() for pair in pairs}
        changes = [*chain(*(pair.row_changes() for pair in pairs)), *chain(*(p.column_changes() for p in pairs))]
        lines += [f"{title}: {line}" for line in dict.fromkeys(changes)]  # once, not for every parameter
    return copied, lines


class _Pair:
    """A parameter of the source and the corresponding one of the target, at ``path``."""

    def __init__(
        self, old: _Parameters, new: _Parameters, origin: layers.Path, path: layers.Path, same_latent: Mapping
    ):
        self.path, self.source, self.target, self.same_latent = path, old.values[origin], new.values[path], same_latent
        self.axes = list(zip(old.blocks(origin), new.blocks(path), strict=False))
        self.common = [layers.common(before, now, same_latent) for before, now in self.axes]

    def misfit(self) -> str | None:
        """The reason why no value can be copied, or None."""
        if all(self.common) and self.source.ndim == self.target.ndim:
            return None
        for verb, axis in (("reads", 0), ("predicts", -1)):
            before, now = self.axes[axis]
            if not self.common[axis] and not layers.HIDDEN == before[0][0] == now[0][0]:
                return f"{verb} {layers.show(before)} in the checkpoint, {layers.show(now)} now"
        return f"another size, {self.source.shape} in the checkpoint, {self.target.shape} now"

    def copied(self) -> np.ndarray:
        """The source's values; other rows are 0, other columns remain the target's."""
        result = self.target.copy()
        read = [layers.indices(before, names) for (before, _), names in zip(self.axes, self.common, strict=True)]
        written = [layers.indices(now, names) for (_, now), names in zip(self.axes, self.common, strict=True)]
        if result.ndim > 1:
            result[np.ix_(np.arange(result.shape[0]), *written[1:])] = 0
        result[np.ix_(*written)] = self.source[np.ix_(*read)]
        return result

    def row_changes(self) -> list[str]:
        """A line for each component of the rows that is new, left out or of another size."""
        if self.target.ndim == 1:
            return []
        return layers.changes("component", "its weights are 0", *self.axes[0], self.same_latent)

    def column_changes(self) -> list[str]:
        """A line for each component of the columns that is new, left out or of another size."""
        return layers.changes("estimate of", "it is newly initialized", *self.axes[-1], {})


def _settings(policy: Policy) -> dict[str, object]:
    """Settings, other than sizes, on which the effect of a policy's weights depends."""
    settings = {"activation": policy.activation, "mu_activation": policy.mu_activation}
    for name, stage in layers.estimator_stages(policy).items():
        for field in ("nonlinearity", "replace_prob"):
            settings[f"{name}: {field}"] = getattr(stage, field)
    for group in ("critic", "actor"):
        for stage in layers.encoder_stages(policy, group):
            for field in ("linear", "nonlinearity", "strides", "paddings", "use_maxpool", "normlayer"):
                settings[f"{group} encoder of {stage.component}: {field}"] = getattr(stage, field)
    return settings
