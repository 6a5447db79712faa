"""Runners: training loop, evaluation, checkpoints and inference of one run."""

import importlib

CLASSES = {"OnPolicyRunner": "on_policy", "AmpPolicyRunner": "amp", "InferencePolicy": "inference"}
NOT_HERE = {
    "TwoStageRunner": "train the first stage with TPPO and algorithm.using_ppo: false, then start PPO from it "
    "with runner.init_from",
    "DemonstrationSaver": "collect steps with OnPolicyRunner.get_inference_policy",
    "DaggerSaver": "TPPO with algorithm.using_ppo: false is DAgger in one run",
}


def __getattr__(name: str):
    """Imports a runner at its first use, so that a module of this package does not import all others."""
    if name in NOT_HERE:
        raise ImportError(f"strl_jax has no {name} yet: {NOT_HERE[name]}")
    if name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{CLASSES[name]}"), name)
