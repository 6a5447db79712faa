"""Random numbers: JAX's threefry generator as operations on uint32.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011), Threefry-2x32 with 20 rounds.
"""

from dataclasses import dataclass

import jax
import numpy as np

from strl_jax.kernels.arrays import elementwise, scalars, settled
from strl_jax.kernels.graph import Scalar, Unsupported

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def _threefry(tracer, equation, inputs):
    first, second, x, y = np.broadcast_arrays(*inputs)

    def emit(op, a, b):
        return elementwise(tracer.graph, op, "u", a, np.broadcast_to(np.asarray(b), a.shape))

    keys = (first, second, emit("xor", emit("xor", first, second), PARITY))
    x, y = emit("add", x, keys[0]), emit("add", y, keys[1])
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            x = emit("add", x, y)
            y = emit("or", emit("shl", y, np.uint32(turn)), emit("shr", y, np.uint32(32 - turn)))
            y = emit("xor", y, x)
        x = emit("add", x, keys[(group + 1) % 3])
        y = emit("add", emit("add", y, keys[(group + 2) % 3]), np.uint32(group + 1))
    return [x, y]


@dataclass(frozen=True)
class Key:
    """An element of an array of typed PRNG keys: its two words."""

    words: tuple[Scalar, Scalar]


def wrap(data: np.ndarray) -> np.ndarray:
    """Keys ``[...]`` from their words ``[..., 2]``."""
    data = scalars(data)
    keys = np.empty(data.shape[:-1], object)
    for position in np.ndindex(keys.shape):
        keys[position] = Key(tuple(data[position]))
    return keys


def unwrap(keys: np.ndarray) -> np.ndarray:
    """The words ``[..., 2]`` of keys ``[...]``."""
    data = np.empty((*keys.shape, 2), object)
    for position in np.ndindex(keys.shape):
        data[position][:] = keys[position].words
    return settled(data, "u")


def select_keys(graph, which: np.ndarray, cases: list[np.ndarray]) -> np.ndarray:
    """``select_n`` of keys by a bool."""
    no, yes = map(unwrap, cases)
    return wrap(elementwise(graph, "select", "u", np.broadcast_to(which[..., None], no.shape), no, yes))


def _wrap(tracer, equation, inputs):
    return [wrap(inputs[0])]


def _unwrap(tracer, equation, inputs):
    return [unwrap(inputs[0])]


def _by_key(function, keys: bool):
    """Applies ``function(implementation, parameters, words, ...)`` to every key; ``keys``: the results are keys."""

    def handler(tracer, equation, inputs):
        implementation = equation.invars[0].aval.dtype._impl
        words, *others = unwrap(inputs[0]), *inputs[1:]
        batch = inputs[0].shape

        def mapped(*args):
            return function(implementation, equation.params, *args)

        for _ in batch:
            mapped = jax.vmap(mapped)
        others = [np.broadcast_to(x, batch) for x in others]
        shapes = [jax.ShapeDtypeStruct(x.shape, np.uint32) for x in (words, *others)]
        (result,) = tracer.run(jax.make_jaxpr(mapped)(*shapes), [words, *others])
        return [wrap(result) if keys else result]

    return handler


def _counters(tracer, equation, inputs):
    """The high and the low words of 0, 1, 2, ..."""
    shape = equation.params["shape"]
    low = np.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)
    return [np.zeros_like(low), low]


def _bits(implementation, params, words):
    if params["bit_width"] != 32:
        raise Unsupported(f"operation random_bits of {params['bit_width']} bits")
    return implementation.random_bits(words, 32, params["shape"])


HANDLERS = {
    "threefry2x32": _threefry,
    "iota_2x32_shape": _counters,
    "random_bits": _by_key(_bits, keys=False),
    "random_split": _by_key(lambda implementation, params, words: implementation.split(words, params["shape"]), True),
    "random_fold_in": _by_key(lambda implementation, params, *args: implementation.fold_in(*args), True),
    "random_wrap": _wrap,
    "random_unwrap": _unwrap,
}
