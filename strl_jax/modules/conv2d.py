"""Convolutional networks for images, with an optional MLP head."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.initializers import initializers
from strl_jax.modules.mlp import get_activation, mlp_model
from strl_jax.types import Array

Size = int | Sequence[int]  # one number for height and width, or a pair (height, width)

NORM_LAYERS = (None, "BatchNorm2d", "InstanceNorm2d")
EPS = 1e-5
CONVOLUTIONS = ("channels", "kernel_sizes", "strides", "paddings", "use_maxpool", "normlayer")  # of Conv2dModel


def _pair(value: Size) -> tuple[int, int]:
    """An int or a pair as (height, width).

    Raises:
        ValueError: the value is a sequence whose length is not 2.
    """
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2:
        raise ValueError(f"must be an int or a pair of height and width, not {value!r}")
    return pair


def conv2d_output_shape(
    h: int, w: int, kernel_size: Size = 1, stride: Size = 1, padding: Size = 0, dilation: Size = 1
) -> tuple[int, int]:
    """Height and width after a convolution or a pooling.

    floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, as in the
    documentation of ``torch.nn.Conv2d``.

    Args:
        h, w: height and width of the input.
        kernel_size, stride, padding, dilation: ints, or pairs (height, width).

    Raises:
        ValueError: the output has no pixels.
    """
    sizes = zip((h, w), *map(_pair, (kernel_size, stride, padding, dilation)), strict=True)
    out_h, out_w = ((size + 2 * pad - dil * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, dil in sizes)
    if out_h < 1 or out_w < 1:
        raise ValueError(
            f"kernel {kernel_size}, stride {stride}, padding {padding}, dilation {dilation} leave "
            f"{out_h} x {out_w} of an image of {h} x {w}"
        )
    return out_h, out_w


class Layer(NamedTuple):
    """Settings of one convolution; pairs are (height, width). ``pool`` is the max-pool's window and its stride."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    pool: tuple[int, int]


class BatchNorm2d(nn.Module):
    """torch's ``BatchNorm2d`` in evaluation mode, with the channels in the last axis.

    ``scale``, ``bias``, ``running_mean`` and ``running_var`` are all parameters, so
    that they are loaded together with the weights. The running statistics get no
    gradient and keep their loaded values; initially they are mean 0 and variance 1.
    """

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., C]`` to ``[..., C]``."""
        shape, zeros, ones = (x.shape[-1],), nn.initializers.zeros, nn.initializers.ones
        scale, bias = self.param("scale", ones, shape), self.param("bias", zeros, shape)
        mean = jax.lax.stop_gradient(self.param("running_mean", zeros, shape))
        var = jax.lax.stop_gradient(self.param("running_var", ones, shape))
        return (x - mean) * (scale * jax.lax.rsqrt(var + EPS)) + bias


def _instance_norm(x: Array) -> Array:
    """Normalises every channel of every image ``[..., H, W, C]`` to mean 0 and (biased) variance 1."""
    mean = jnp.mean(x, axis=(-3, -2), keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=(-3, -2), keepdims=True) + EPS)


def _max_pool(x: Array, window: tuple[int, int]) -> Array:
    """Max-pooling of images ``[..., H, W, C]`` with a stride equal to the window; incomplete windows are dropped.

    Equal maxima in a window share the gradient; torch gives all of it to the first one.
    """
    *batch, h, w, channels = x.shape
    rows, columns = h // window[0], w // window[1]
    x = x[..., : rows * window[0], : columns * window[1], :]
    # The gradient of nn.max_pool is a scatter, which is slower on both CPU and GPU.
    return x.reshape(*batch, rows, window[0], columns, window[1], channels).max(axis=(-4, -2))


class Conv2dModel(nn.Module):
    """st_rl's ``Conv2dModel``: convolutions, each followed by norm, activation and max-pool, in this order.

    The kernels are ``[kh, kw, in, out]``: torch's weight transposed by (2, 3, 1, 0).
    Inconsistent attributes raise ``ValueError`` when the module is first used.

    Attributes:
        channels: output channels of each convolution.
        kernel_sizes, strides: one entry per convolution, an int or a pair (height, width).
        paddings: likewise, the number of zeros added on each side; None: no padding.
        nonlinearity: name of the activation.
        use_maxpool: each stride above 1 becomes the window and stride of a max-pool,
            and all convolutions have stride 1.
        normlayer: ``BatchNorm2d`` (in evaluation mode, see the class above),
            ``InstanceNorm2d`` (per image and channel, no parameters) or None.
        initialization: ``torch`` or ``orthogonal``.
    """

    channels: Sequence[int]
    kernel_sizes: Sequence[Size]
    strides: Sequence[Size]
    paddings: Sequence[Size] | None = None
    nonlinearity: str = "ReLU"
    use_maxpool: bool = False
    normlayer: str | None = None
    initialization: str = "torch"

    @nn.nowrap
    def layers(self) -> list[Layer]:
        """The settings of each convolution.

        Raises:
            ValueError: unequal lengths, or an unknown ``normlayer``.
        """
        if self.normlayer not in NORM_LAYERS:
            raise ValueError(f"unknown normlayer {self.normlayer!r}; known: {', '.join(map(str, NORM_LAYERS))}")
        paddings = (0,) * len(self.channels) if self.paddings is None else self.paddings
        settings = {"kernel_sizes": self.kernel_sizes, "strides": self.strides, "paddings": paddings}
        lengths = {name: len(values) for name, values in {"channels": self.channels, **settings}.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"a convolution needs one entry of each, so the lengths must be equal: {listed}")
        layers = []
        for channels, *sizes in zip(self.channels, *settings.values(), strict=True):
            kernel, stride, padding = map(_pair, sizes)
            stride, pool = ((1, 1), stride) if self.use_maxpool else (stride, (1, 1))
            layers.append(Layer(channels, kernel, stride, padding, pool))
        return layers

    @nn.nowrap
    def conv_out_resolution(self, h: int, w: int) -> tuple[int, int]:
        """Height and width of the output for images of ``h`` x ``w``.

        Raises:
            ValueError: the output has no pixels.
        """
        for layer in self.layers():
            h, w = conv2d_output_shape(h, w, layer.kernel, layer.stride, layer.padding)
            h, w = conv2d_output_shape(h, w, layer.pool, layer.pool)
        return h, w

    @nn.nowrap
    def conv_out_size(self, h: int, w: int) -> int:
        """Size of the flattened output (channels x height x width) for images of ``h`` x ``w``."""
        out_h, out_w = self.conv_out_resolution(h, w)
        return self.channels[-1] * out_h * out_w

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., C, H, W]`` to ``[..., C', H', W']``, with zero or more leading axes.

        Raises:
            ValueError: the attributes are inconsistent, or the output has no pixels.
        """
        self.conv_out_resolution(*x.shape[-2:])
        x = jnp.moveaxis(x, -3, -1)
        for index, layer in enumerate(self.layers()):
            inits = initializers(self.initialization, x.shape[-1] * math.prod(layer.kernel))
            padding = [(size, size) for size in layer.padding]
            x = nn.Conv(layer.channels, layer.kernel, layer.stride, padding, **inits, name=f"conv_{index}")(x)
            if self.normlayer == "BatchNorm2d":
                x = BatchNorm2d(name=f"norm_{index}")(x)
            elif self.normlayer == "InstanceNorm2d":
                x = _instance_norm(x)
            x = get_activation(self.nonlinearity)(x)
            if layer.pool != (1, 1):
                x = _max_pool(x, layer.pool)
        return jnp.moveaxis(x, -1, -3)


class Conv2dHeadModel(Conv2dModel):
    """st_rl's ``Conv2dHeadModel``: a ``Conv2dModel`` and an ``mlp_model`` on its flattened output.

    Attributes:
        hidden_sizes, output_size: see ``mlp_model``; the others are those of ``Conv2dModel``. st_rl ignores
            ``normlayer`` here.
    """

    hidden_sizes: Sequence[int] | int | None = None
    output_size: int | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., C, H, W]`` to ``[..., output]``; the MLP's input is flattened in the order C, H, W.

        Raises:
            ValueError: see ``Conv2dModel`` and ``mlp_model``.
        """
        settings = {"nonlinearity": self.nonlinearity, "initialization": self.initialization}
        x = Conv2dModel(**{name: getattr(self, name) for name in CONVOLUTIONS}, **settings, name="conv")(x)
        x = jax.lax.collapse(x, x.ndim - 3)
        return mlp_model(self.hidden_sizes, self.output_size, **settings, name="head")(x)
