"""Contents of a torch checkpoint of a small policy, with known values."""

from collections import OrderedDict

import numpy as np

STD = np.float32([0.5])


def weights(**changes) -> OrderedDict:
    """A model for ``commands.Walk``: 3 observations, 1 action, one hidden layer of 4."""
    rng = np.random.default_rng(5)
    shapes = {}
    for network in ("actor", "critic"):
        shapes |= {f"{network}.0.weight": (4, 3), f"{network}.0.bias": (4,)}
        shapes |= {f"{network}.2.weight": (1, 4), f"{network}.2.bias": (1,)}
    found = OrderedDict(std=STD)
    found |= {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return found | changes


def adam_state(model: dict) -> dict:
    """Adam's after 9 steps: moments ``i + 1`` and ``i + 2`` of parameter ``i``."""
    entries = {
        number: {
            "step": np.asarray(9, np.float32),
            "exp_avg": np.full_like(value, number + 1),
            "exp_avg_sq": np.full_like(value, number + 2),
        }
        for number, value in enumerate(model.values())
    }
    group = {"lr": 3e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0, "amsgrad": False}
    return {"state": entries, "param_groups": [group | {"params": list(range(len(model)))}]}


def statistics(start: float) -> OrderedDict:
    """Of 3 observations: means from ``start`` on, variances 100 above them, 7000 samples."""
    mean = start + np.arange(3, dtype=np.float32)[None]
    return OrderedDict(_mean=mean, _var=mean + 100, _std=np.sqrt(mean + 100), count=np.asarray(7000))


def checkpoint(**changes) -> dict:
    """A whole file; a key that is None is left out."""
    found = {
        "model_state_dict": weights(),
        "optimizer_state_dict": adam_state(weights()),
        "obs_norm_state_dict": statistics(10.0),
        "critic_obs_norm_state_dict": statistics(20.0),
        "iter": 5,
        "infos": None,
    } | changes
    return {key: value for key, value in found.items() if value is not None or key == "infos"}
