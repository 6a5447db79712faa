"""Reinforcement learning for legged robots as one compiled program, in JAX."""

__version__ = "0.1.0"
__all__ = ["OnPolicyRunner", "__version__"]


def __getattr__(name: str):
    """Imports ``OnPolicyRunner`` at its first use, so that ``import strl_jax`` alone does not import JAX."""
    if name != "OnPolicyRunner":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from strl_jax.runners.on_policy import OnPolicyRunner

    return OnPolicyRunner
