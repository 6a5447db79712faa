"""Import of optimisers and weights of torch files: which state fits, and what continues with another value."""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from torch_checkpoints import adam_state

from strl_jax.algorithms import optimizers
from strl_jax.modules.policy import Policy
from strl_jax.torch_files import layouts
from strl_jax.torch_files.file import TorchFileError
from strl_jax.torch_files.moments import import_moments
from strl_jax.torch_files.weights import import_weights, parameter_shapes


def observing(algorithm) -> Policy:
    """The policy, with the observations of the algorithm's groups."""
    return algorithm.policy.clone(actor_obs=algorithm.groups["actor"], critic_obs=algorithm.groups["critic"])


def as_read(weights: dict) -> layouts.Model:
    """The weights as the importer reads them from a file."""
    return layouts.read({"model_state_dict": weights})


def model_of(algorithm) -> dict:
    """A state dict of zeros for a feed-forward policy, std 1 first."""
    shapes = parameter_shapes(observing(algorithm))
    found = {"std": np.ones(shapes["log_std",].shape, np.float32)}
    for network in ("actor", "critic"):
        for layer, kind in ((0, "weight"), (0, "bias"), (1, "weight"), (1, "bias")):
            shape = shapes[network, f"layer_{layer}", "kernel" if kind == "weight" else "bias"].shape
            found[f"{network}.{2 * layer}.{kind}"] = np.zeros(shape[::-1], np.float32)
    return found


GROUP = {"betas": [0.9, 0.999], "amsgrad": False, "params": [0]}
ZERO = "moments start at 0"
OTHERS = {
    "none": (None, f"optimizer_state_dict: not in the file: {ZERO}"),
    "empty": ({"state": {}, "param_groups": [GROUP]}, f"optimizer_state_dict: not in the file: {ZERO}"),
    "AdamW": (
        {"state": {0: {}}, "param_groups": [GROUP | {"weight_decay": 0.01}]},
        f"optimizer: AdamW in the file, Adam in the config: {ZERO}",
    ),
    "SGD": (
        {"state": {0: {}}, "param_groups": [{"nesterov": False, "params": [0]}]},
        f"optimizer: SGD in the file, Adam in the config: {ZERO}",
    ),
    "Adagrad": (
        {"state": {0: {}}, "param_groups": [{"lr_decay": 0, "params": [0]}]},
        f"optimizer: Adagrad in the file, Adam in the config: {ZERO}",
    ),
    "amsgrad": (
        {"state": {0: {}}, "param_groups": [GROUP | {"amsgrad": True}]},
        f"optimizer: Adam with amsgrad in the file, Adam in the config: {ZERO}",
    ),
    "another number of parameters": (
        {"state": {0: {}}, "param_groups": [GROUP]},
        f"optimizer: 1 parameters in 1 groups for the model's 9 in the file: {ZERO}",
    ),
    "another order": (
        {
            "state": {1: {"step": 1, "exp_avg": np.zeros(2, "f4"), "exp_avg_sq": np.zeros(2, "f4")}},
            "param_groups": [GROUP | {"params": list(range(9))}],
        },
        f"optimizer: exp_avg of actor.0.weight is not finite or has another shape than the weight: {ZERO}",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_optimizer_that_is_not_imported(other):
    state, expected = OTHERS[other]
    algorithm = tiny.make_algorithm()
    fresh = object()
    found, lines = import_moments({"optimizer_state_dict": state}, as_read(model_of(algorithm)), algorithm, fresh)
    assert found is fresh
    assert lines == [expected]


def test_parameters_without_moments_and_other_settings():
    algorithm = tiny.make_algorithm()
    model = model_of(algorithm)
    state = adam_state(model)
    del state["state"][0]  # std had no gradient
    state["state"][1]["step"] = 4
    state["param_groups"][0]["betas"] = [0.8, 0.999]
    fresh = optimizers.init(algorithm.optimizers["policy"], {"a": jnp.zeros(sum(x.size for x in model.values()))})
    found, lines = import_moments({"optimizer_state_dict": state}, as_read(model), algorithm, fresh)
    adam = found[1][0]
    assert (adam.count, adam.mu[-1], adam.nu[-1]) == (9, 0, 0)
    assert lines[:3] == [
        "optimizer: betas [0.8, 0.999] in the file; continues with [0.9, 0.999]",
        "optimizer: no moments of std in the file: they start at 0",
        "optimizer: steps from 4 to 9 in the file; continues with 9",
    ]
    same = tiny.make_algorithm(optimizer_kwargs={"betas": [0.8, 0.999]})
    assert import_moments({"optimizer_state_dict": state}, as_read(model), same, fresh)[1] == lines[1:]


def test_weights_alone():
    algorithm = tiny.make_algorithm()
    policy, model = observing(algorithm), model_of(algorithm)
    variables = import_weights(as_read(model), policy)
    assert variables["params"]["log_std"].tolist() == [0.0, 0.0]
    assert variables["params"]["actor"]["layer_0"]["kernel"].shape == (3, 8)
    with pytest.raises(ValueError, match="actor_obs and critic_obs are needed"):
        import_weights(as_read(model), Policy(2))
    linear = policy.clone(log_std=False)
    log_std = {("log_std" if name == "std" else name): value for name, value in model.items()}
    # exp(1) = 2.71828...
    np.testing.assert_allclose(
        import_weights(as_read(log_std), linear)["params"]["std"], [2.718282, 2.718282], rtol=1e-6
    )
    lone = {"actor.1.running_mean": np.zeros(3), "actor.9.bias": np.zeros(3), "actor.6.weight": np.zeros(()), "x": 1}
    with pytest.raises(TorchFileError) as caught:
        import_weights(as_read(model | lone), policy)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == list(lone)
