"""Encoders: networks that replace components of a flat observation by latents."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.conv2d import CONVOLUTIONS, Conv2dHeadModel
from strl_jax.modules.mlp import mlp_model
from strl_jax.modules.stages import EncoderStage
from strl_jax.observations import Segments
from strl_jax.types import Array


def make_encoder(stage: EncoderStage, initialization: str = "torch") -> nn.Module:
    """The encoder's network: convolutions with an MLP head for images ``[..., C, H, W]``, otherwise an MLP."""
    settings = {
        "hidden_sizes": stage.hidden_sizes if stage.linear else (*stage.hidden_sizes, stage.latent_size),
        "output_size": stage.latent_size if stage.linear else None,
        "nonlinearity": stage.nonlinearity,
        "initialization": initialization,
    }
    if not stage.channels:
        return mlp_model(**settings)
    return Conv2dHeadModel(**{name: getattr(stage, name) for name in CONVOLUTIONS}, **settings)


def encode(
    stages: Sequence[EncoderStage], networks: Sequence[Callable], segments: Segments, flat: Array
) -> dict[str, Array]:
    """Component -> latent ``[..., L]``, computed from a flat observation ``[..., D]``."""
    latents = {}
    for stage, network in zip(stages, networks, strict=True):
        name, is_image = stage.component, bool(stage.channels)
        latents[name] = network(segments.select(flat, name) if is_image else flat[..., segments.slice(name)])
    return latents


def embed(segments: Segments, flat: Array, latents: dict[str, Array]) -> Array:
    """The flat observation ``[..., D]`` with every component in ``latents`` replaced; the order is kept."""
    if not latents:
        return flat
    parts = [latents[name] if name in latents else flat[..., segments.slice(name)] for name in segments.names]
    return jnp.concatenate(parts, axis=-1)
