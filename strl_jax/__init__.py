"""Legged-robot reinforcement learning as one compiled program, for JAX."""

__version__ = "0.1.0"
