"""What of a policy's variables means the same in another policy: layers, and rows and columns of components."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from strl_jax.builders.transfer import layers
from strl_jax.builders.transfer.layers import Blocks
from strl_jax.modules.policy import Policy
from strl_jax.types import RunningStats

Params = dict[layers.Path, np.ndarray]


def by_component(
    source: Policy, source_variables: dict, target: Policy, target_variables: dict
) -> tuple[dict, list[str]]:
    """The target's variables with everything taken over that means the same in the source.

    Layers and memories are taken whole, by their place in the policy and if their size
    is the same; encoders by component. The rows of a layer that reads an observation go
    by component, and so do the columns of an estimate. Rows of components that the source
    did not have, in this size and through this encoder, are 0: the policy starts by
    acting as the source did. All else stays as it is in the target.

    Args:
        source, target: policies that know their observations.
        source_variables, target_variables: ``{"params": ...}`` of each.

    Returns:
        NumPy arrays, and a line for everything that is new, left out or of another
        size, and for every setting that makes the same weights act otherwise.
    """
    old, new = _side(source, source_variables), _side(target, target_variables)
    lines = _convert_deviation(old, target)
    origins = _origins(source, target)
    result, whole = dict(new.params), set()
    for module in sorted(new.modules, key=lambda name: ("_encoder_" not in name, name)):  # encoders first
        origin = origins.get(module, module)
        if origin not in old.modules:
            lines.append(f"{new.title(module)}: new, starts anew")
            continue
        taken, told = _take_module(old, new, origin, module, _latents(source, target, module, origins, whole))
        result |= taken
        lines += told
        if not told:
            whole.add(module)
    used = {origins.get(module, module) for module in new.modules}
    lines += [f"{old.title(module)} of the checkpoint is left out" for module in sorted(old.modules - used)]
    lines += compare_settings(_settings(source), _settings(target))
    return {"params": unflatten_dict(result)}, lines


def stats_by_component(source_stats: Mapping, target_stats: Mapping) -> dict:
    """The target's statistics, with those of the source where it has the component in the same shape.

    A group looks in the same group first, then in the others. The statistics of the
    rewards, in whose units the critic predicts, are taken over too.
    """
    groups = {name: value for name, value in source_stats.items() if isinstance(value, Mapping)}
    result = {}
    for group, fresh in target_stats.items():
        if not isinstance(fresh, Mapping):
            result[group] = _same_shape(group, fresh, [source_stats])
            continue
        places = [groups.get(group, {}), *groups.values()]
        result[group] = {name: _same_shape(name, value, places) for name, value in fresh.items()}
    return result


def _same_shape(name: str, fresh: RunningStats, places: list[Mapping]) -> RunningStats:
    found = [place[name] for place in places if name in place]
    return next((value for value in found if np.shape(value.mean) == np.shape(fresh.mean)), fresh)


@dataclass(frozen=True)
class _Side:
    """A policy's parameters, and what their rows and columns stand for."""

    params: Params
    rows: dict[layers.Path, Blocks]
    columns: dict[layers.Path, Blocks]
    encoders: dict[str, str]  # module -> its name in a line

    @property
    def modules(self) -> set[str]:
        """Names of the networks, of the memories and of the standard deviation."""
        return {path[0] for path in self.params}

    def title(self, module: str) -> str:
        """The name of a module in a line; an encoder's index says little."""
        return self.encoders.get(module, module)

    def parts(self, module: str) -> dict[str, dict[str, layers.Path]]:
        """What is taken whole: layer -> name of a parameter -> its path. A memory is one part, called ''."""
        found: dict[str, dict[str, layers.Path]] = {}
        for path in sorted(path for path in self.params if path[0] == module):
            found.setdefault("/".join(path[1:-1]), {})[path[-1]] = path
        return found


def _side(policy: Policy, variables: dict) -> _Side:
    params = {path: np.asarray(value) for path, value in flatten_dict(variables["params"]).items()}
    encoders = {
        module: f"{group} encoder of {component}"
        for group in ("critic", "actor")  # one that both use is the actor's
        for component, module in layers.encoder_modules(policy, group).items()
    }
    return _Side(params, layers.input_layers(policy), layers.output_layers(policy), encoders)


def _convert_deviation(old: _Side, target: Policy) -> list[str]:
    """Keeps the source's standard deviation as the target does, linear or its logarithm."""
    wanted, other = ("log_std", "std") if target.log_std else ("std", "log_std")
    if (other,) not in old.params:
        return []
    value = old.params.pop((other,))
    if not target.log_std:
        old.params[wanted,] = np.exp(value)
    elif (value > 0).all():
        old.params[wanted,] = np.log(value)
    else:
        return [f"std: {value.tolist()} in the checkpoint has no logarithm"]
    return []


def _origins(source: Policy, target: Policy) -> dict[str, str | None]:
    """Each of the target's encoders -> the source's of the same component, None if there is none."""
    found = {}
    for group in ("critic", "actor"):
        before = layers.encoder_modules(source, group)
        for component, module in layers.encoder_modules(target, group).items():
            found[module] = before.get(component)
    return found


def _latents(source: Policy, target: Policy, module: str, origins: Mapping, whole: set[str]) -> dict[str, bool]:
    """Encoded component -> whether the module reads the same latent as in the source."""
    group = module.removeprefix("memory_")
    if group not in ("actor", "critic"):
        return {}
    before, now = (layers.encoder_modules(policy, group) for policy in (source, target))
    same = {name: encoder in whole and origins[encoder] == before.get(name) for name, encoder in now.items()}
    return dict.fromkeys(before, False) | same


def _take_module(
    old: _Side, new: _Side, origin: str, module: str, latents: Mapping[str, bool]
) -> tuple[Params, list[str]]:
    """What is taken over of the source's module ``origin``, and lines about the rest."""
    before, now = old.parts(origin), new.parts(module)
    title, taken, lines = new.title(module), {}, []
    for part in dict.fromkeys([*now, *before]):
        name = f"{title}/{part}" if part else title
        if part not in before:
            lines.append(f"{name}: new, starts anew")
            continue
        if part not in now:
            lines.append(f"{name} of the checkpoint is left out")
            continue
        misfit = _misfit(old, new, before[part], now[part], latents)
        if misfit:
            lines.append(f"{name}: {misfit}; starts anew")
            continue
        for leaf, path in now[part].items():
            taken[path] = _take_array(old, new, before[part][leaf], path, latents)
        lines += [f"{title}: {line}" for line in _changes(old, new, before[part], now[part], latents)]
    return taken, lines


def _misfit(old: _Side, new: _Side, before: Mapping, now: Mapping, latents: Mapping[str, bool]) -> str | None:
    """Why nothing of a part can be taken over, None if it can."""
    if before.keys() != now.keys():  # only a memory has one part for all its layers
        counts = [sum(leaf.startswith("weight_ih") for leaf in part) for part in (before, now)]
        return f"another number of layers, {counts[0]} in the checkpoint, {counts[1]} now"
    for leaf in sorted(now, key=lambda leaf: (now[leaf] not in new.rows, -new.params[now[leaf]].ndim, leaf)):
        paths = before[leaf], now[leaf]
        rows, columns = _of_both(old.rows, new.rows, *paths), _of_both(old.columns, new.columns, *paths)
        shapes = old.params[paths[0]].shape, new.params[paths[1]].shape
        if None in rows and rows != (None, None):
            return f"reads {layers.show(rows[0])} in the checkpoint, {layers.show(rows[1])} now"
        inner = [shape[rows[0] is not None : len(shape) - (columns[0] is not None)] for shape in shapes]
        if None in columns and columns != (None, None):
            return "the last layer in only one of the two"
        if inner[0] != inner[1]:
            return f"another size, {shapes[0]} in the checkpoint, {shapes[1]} now"
        for verb, blocks, known in (("reads", rows, latents), ("predicts", columns, {})):
            if None not in blocks and not layers.common(*blocks, known):
                return f"{verb} {layers.show(blocks[0])} in the checkpoint, {layers.show(blocks[1])} now"
    return None


def _take_array(old: _Side, new: _Side, origin: tuple, path: tuple, latents: Mapping[str, bool]) -> np.ndarray:
    """The source's values at the target's places; rows that the source lacks are 0, other columns stay."""
    source, result = old.params[origin], new.params[path].copy()
    there, here = ([np.arange(size) for size in array.shape] for array in (source, result))
    rows, columns = _of_both(old.rows, new.rows, origin, path), _of_both(old.columns, new.columns, origin, path)
    if None not in columns:
        there[-1], here[-1] = layers.places(*columns, layers.common(*columns, {}))
    if None not in rows:
        result[np.ix_(here[0], *here[1:])] = 0
        there[0], here[0] = layers.places(*rows, layers.common(*rows, latents))
    result[np.ix_(*here)] = source[np.ix_(*there)]
    return result


def _of_both(old: Mapping, new: Mapping, origin: tuple, path: tuple) -> tuple[Blocks | None, Blocks | None]:
    return old.get(origin), new.get(path)


def _changes(old: _Side, new: _Side, before: Mapping, now: Mapping, latents: Mapping[str, bool]) -> list[str]:
    """Components of a part that are new, left out or of another size; once, not for every parameter."""
    lines = []
    for what, end, sides, known in (
        ("component", "it starts without effect", (old.rows, new.rows), latents),
        ("estimate of", "it starts anew", (old.columns, new.columns), {}),
    ):
        for leaf, path in now.items():
            blocks = _of_both(*sides, before[leaf], path)
            if None not in blocks:
                lines += layers.changes(what, end, *blocks, known)
    return list(dict.fromkeys(lines))


def _settings(policy: Policy) -> dict[str, object]:
    """What decides, beside the weights, how a policy acts."""
    found = {"activation": policy.activation, "mu_activation": policy.mu_activation}
    for name in ("adaptor", "estimator"):
        stage = getattr(policy, name)
        for field in ("nonlinearity", "replace_prob") if stage is not None else ():
            found[f"{name}: {field}"] = getattr(stage, field)
    for group in ("critic", "actor"):
        for stage in layers.encoder_stages(policy, group):
            for field in ("linear", "nonlinearity", "strides", "paddings", "use_maxpool", "normlayer"):
                found[f"{group} encoder of {stage.component}: {field}"] = getattr(stage, field)
    return found


def compare_settings(before: dict[str, object], now: dict[str, object]) -> list[str]:
    """A line for every setting that both have and that differs."""
    return [
        f"{name}: {before[name]} in the checkpoint, {value} now"
        for name, value in now.items()
        if name in before and before[name] != value
    ]
