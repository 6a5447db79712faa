"""Arrays of scalars.

A constant array is a numpy array of numbers; every other one is a numpy array of objects, which are scalars.
"""

from collections.abc import Sequence

import numpy as np

from strl_jax.kernels.folding import FOLD
from strl_jax.kernels.graph import TYPES, Graph, Scalar, scalar_type


def is_constant(array: np.ndarray) -> bool:
    """Whether the array has numbers, not objects."""
    return array.dtype != object


def scalars(array: np.ndarray) -> np.ndarray:
    """The array as objects: numpy scalars keep their dtype."""
    if not is_constant(array):
        return array
    result = np.empty(array.shape, object)
    for position in np.ndindex(array.shape):
        result[position] = array[position]
    return result


def settled(array: np.ndarray, type: str) -> np.ndarray:
    """The array as numbers if every element is a constant."""
    if is_constant(array) or not all(isinstance(x, np.generic) for x in array.flat):
        return array
    return np.array(list(array.flat), TYPES[type]).reshape(array.shape)


def elementwise(graph: Graph, op: str, type: str, *arrays: np.ndarray) -> np.ndarray:
    """The operation on every position of arrays of equal shape."""
    if all(map(is_constant, arrays)):
        with np.errstate(all="ignore"):
            return np.asarray(FOLD[op](*arrays)).astype(TYPES[type])
    arrays = np.broadcast_arrays(*map(scalars, arrays))
    result = np.empty(arrays[0].shape, object)
    for position in np.ndindex(result.shape):
        result[position] = graph.emit(op, *[x[position] for x in arrays], type=type)
    return settled(result, type)


def choose(graph: Graph, which: Scalar, no: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """``yes`` if the scalar is true, else ``no``; arrays of equal shape and type."""
    if isinstance(which, np.generic):
        return yes if which else no
    no, yes = scalars(no), scalars(yes)
    result = np.empty(yes.shape, object)
    for position in np.ndindex(result.shape):
        a, b = no[position], yes[position]
        result[position] = graph.emit("select", which, a, b, type=scalar_type(b))
    return result


def single(scalar: Scalar) -> np.ndarray:
    """An array of shape ``()``."""
    if isinstance(scalar, np.generic):
        return np.asarray(scalar)
    result = np.empty((), object)
    result[()] = scalar
    return result


def element(array: np.ndarray) -> Scalar:
    """The scalar of an array of shape ``()``."""
    return array[()]


def stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """``np.stack`` of constant or symbolic arrays."""
    if all(map(is_constant, arrays)):
        return np.stack(arrays)
    return np.stack([scalars(x) for x in arrays])


def flat(arrays: Sequence[np.ndarray]) -> list[Scalar]:
    """All elements of all arrays, in order."""
    return [x for array in arrays for x in scalars(array).flat]


def rows(array: np.ndarray, axis: int = 0) -> list[np.ndarray]:
    """The parts of an array along an axis, as arrays also where they have one element."""
    moved = np.moveaxis(array, axis, 0)
    return [moved[number, ...] for number in range(len(moved))]
