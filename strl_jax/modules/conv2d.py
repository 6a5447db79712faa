"""Convolutions over images, and the same with an MLP at the end."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.initializers import torch_uniform
from strl_jax.modules.mlp import get_activation, mlp_model
from strl_jax.types import Array

Size = int | Sequence[int]  # one for height and width, or a pair

NORM_LAYERS = (None, "BatchNorm2d", "InstanceNorm2d")
EPS = 1e-5


def _pair(value: Size) -> tuple[int, int]:
    """(height, width) of an int or a pair.

    Raises:
        ValueError: neither of them.
    """
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2:
        raise ValueError(f"must be an int or a pair of height and width, not {value!r}")
    return pair


def conv2d_output_shape(
    h: int, w: int, kernel_size: Size = 1, stride: Size = 1, padding: Size = 0, dilation: Size = 1
) -> tuple[int, int]:
    """Height and width after a convolution or a pooling.

    floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, as
    ``torch.nn.Conv2d`` documents it.

    Args:
        h, w: height and width before.
        kernel_size, stride, padding, dilation: ints, or pairs of height and width.

    Raises:
        ValueError: nothing is left of the image.
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
    """One convolution's settings, as (height, width); ``pool`` is the max-pool's window and stride."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    pool: tuple[int, int]

    def output_shape(self, h: int, w: int) -> tuple[int, int]:
        """Height and width after the convolution and the max-pool."""
        h, w = conv2d_output_shape(h, w, self.kernel, self.stride, self.padding)
        return conv2d_output_shape(h, w, self.pool, self.pool)


def _convolution(layer: Layer, in_channels: int, initialization: str, name: str) -> nn.Conv:
    """A convolution ``[..., H, W, C]``; its kernel is ``[kh, kw, in, out]``."""
    padding = [(size, size) for size in layer.padding]
    if initialization == "torch":
        init = torch_uniform(in_channels * layer.kernel[0] * layer.kernel[1])
        inits = {"kernel_init": init, "bias_init": init}
    else:
        inits = {"kernel_init": nn.initializers.orthogonal(2**0.5)}
    return nn.Conv(layer.channels, layer.kernel, layer.stride, padding, **inits, name=name)


class BatchNorm2d(nn.Module):
    """torch's ``BatchNorm2d`` in evaluation mode, with the channels last.

    ``scale``, ``bias``, ``running_mean`` and ``running_var`` are all parameters, so
    that loaded weights bring them along. No gradient reaches the two running ones:
    they stay as they were loaded, mean 0 and variance 1 at the start.
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
    """Every channel of every image ``[..., H, W, C]`` to mean 0 and biased variance 1."""
    mean = jnp.mean(x, axis=(-3, -2), keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=(-3, -2), keepdims=True) + EPS)


def _max_pool(x: Array, window: tuple[int, int]) -> Array:
    """Largest values of the windows, side by side, of images ``[..., H, W, C]``; what fills no window is left out.

    Values that are equally large share the gradient; torch gives it to the first.
    """
    *batch, h, w, channels = x.shape
    rows, columns = h // window[0], w // window[1]
    x = x[..., : rows * window[0], : columns * window[1], :]
    # Faster to differentiate than nn.max_pool, whose gradient scatters, on CPU and GPU.
    return x.reshape(*batch, rows, window[0], columns, window[1], channels).max(axis=(-4, -2))


class Conv2dModel(nn.Module):
    """Convolutions, each with norm, activation and max-pool behind it, in this order: st_rl's ``Conv2dModel``.

    The kernels are ``[kh, kw, in, out]``: torch's weight transposed by (2, 3, 1, 0).
    Attributes that do not fit together raise a ValueError where the module is first used.

    Attributes:
        channels: output channels of each convolution.
        kernel_sizes, strides: one for each convolution, ints or pairs of height and width.
        paddings: likewise, zeros on either side; None: no padding.
        nonlinearity: name of the activation.
        use_maxpool: the strides become those of a max-pool of the same window, where
            they are above 1, and the convolutions move by 1.
        normlayer: ``BatchNorm2d`` (its running statistics stay as they were loaded, see
            there), ``InstanceNorm2d`` (per image and channel, no parameters) or None.
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
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"a convolution needs one entry of each, so the lengths must be equal: {found}")
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
            ValueError: nothing is left of the image.
        """
        for layer in self.layers():
            h, w = layer.output_shape(h, w)
        return h, w

    @nn.nowrap
    def conv_out_size(self, h: int, w: int) -> int:
        """Size of the flattened output for images of ``h`` x ``w``."""
        out_h, out_w = self.conv_out_resolution(h, w)
        return self.channels[-1] * out_h * out_w

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., C, H, W]`` to ``[..., C', H', W']``, with any number of axes in front, also none.

        Raises:
            ValueError: the attributes do not fit together, or nothing is left of the image.
        """
        self.conv_out_resolution(*x.shape[-2:])
        x = jnp.moveaxis(x, -3, -1)
        for index, layer in enumerate(self.layers()):
            x = _convolution(layer, x.shape[-1], self.initialization, f"conv_{index}")(x)
            if self.normlayer == "BatchNorm2d":
                x = BatchNorm2d(name=f"norm_{index}")(x)
            elif self.normlayer == "InstanceNorm2d":
                x = _instance_norm(x)
            x = get_activation(self.nonlinearity)(x)
            if layer.pool != (1, 1):
                x = _max_pool(x, layer.pool)
        return jnp.moveaxis(x, -1, -3)


class Conv2dHeadModel(nn.Module):
    """A ``Conv2dModel`` and ``mlp_model`` on its flattened output: st_rl's ``Conv2dHeadModel``.

    Attributes:
        channels, kernel_sizes, strides: those of ``Conv2dModel``.
        hidden_sizes, output_size: those of ``mlp_model``.
        paddings, nonlinearity, use_maxpool, normlayer, initialization: those of
            ``Conv2dModel``. st_rl ignored ``normlayer`` here.
    """

    channels: Sequence[int]
    kernel_sizes: Sequence[Size]
    strides: Sequence[Size]
    hidden_sizes: Sequence[int] | int | None
    output_size: int | None = None
    paddings: Sequence[Size] | None = None
    nonlinearity: str = "ReLU"
    use_maxpool: bool = False
    normlayer: str | None = None
    initialization: str = "torch"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., C, H, W]`` to ``[..., output]``; the MLP reads C, H, W in this order.

        Raises:
            ValueError: as ``Conv2dModel`` and ``mlp_model`` do.
        """
        convolutions = Conv2dModel(
            self.channels,
            self.kernel_sizes,
            self.strides,
            self.paddings,
            self.nonlinearity,
            self.use_maxpool,
            self.normlayer,
            self.initialization,
            name="conv",
        )
        head = mlp_model(self.hidden_sizes, self.output_size, self.nonlinearity, self.initialization, name="head")
        x = convolutions(x)
        return head(jax.lax.collapse(x, x.ndim - 3))
