"""Reinforcement learning for legged robots as one compiled program, in JAX."""

import sys

__version__ = "0.1.0"
__all__ = ["OnPolicyRunner", "__version__"]


def __getattr__(name: str):
    """Imports ``OnPolicyRunner`` at its first use, so that ``import strl_jax`` alone does not import JAX."""
    if name != "OnPolicyRunner":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from strl_jax.runners.on_policy import OnPolicyRunner

    return OnPolicyRunner


if sys.argv[:1] == ["-m"]:  # a program starts with ``python -m``
    try:
        from strl_jax.runners import process
    except KeyboardInterrupt:  # before it can handle signals
        print("error: interrupted by SIGINT", file=sys.stderr)
        sys.exit(130)

    if process.is_command():
        process.prepare()
