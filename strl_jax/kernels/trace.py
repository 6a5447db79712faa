"""From a function of one environment to the graph of its scalar operations.

The source is the jaxpr, not StableHLO: loops still have their length there, and Cholesky factors and sorts are one
operation each. What differs between versions of jax (the parameters of ``scan``, new names) is in ``control``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from strl_jax.kernels import algebra, control, elementwise, indexing, random, shapes
from strl_jax.kernels.arrays import flat, is_constant
from strl_jax.kernels.graph import Graph, Scalar, Unsupported, type_of
from strl_jax.kernels.random import wrap
from strl_jax.kernels.symmetric import Solutions


@dataclass
class Tracer:
    """Evaluates a jaxpr on arrays of scalars."""

    graph: Graph = field(default_factory=Graph)

    def __post_init__(self):
        self.solutions = Solutions(self.graph)

    def run(self, closed: core.ClosedJaxpr, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of the jaxpr.

        Raises:
            Unsupported: there is no kernel for one of its operations.
        """
        jaxpr, known = closed.jaxpr, {}
        for variables, arrays in ((jaxpr.constvars, map(constant, closed.consts)), (jaxpr.invars, inputs)):
            known.update(zip(variables, arrays, strict=True))

        def read(variable):
            if isinstance(variable, core.Literal):
                return constant(np.asarray(variable.val, variable.aval.dtype))
            return known[variable]

        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name not in HANDLERS:
                raise Unsupported(f"operation {name}")
            outputs = HANDLERS[name](self, equation, [read(v) for v in equation.invars])
            for variable, output in zip(equation.outvars, outputs, strict=True):
                if output.shape != variable.aval.shape:
                    raise AssertionError(f"{name}: shape {output.shape}, expected {variable.aval.shape}")
                known[variable] = output
        return [read(v) for v in jaxpr.outvars]


HANDLERS = {
    **elementwise.HANDLERS,
    **shapes.HANDLERS,
    **indexing.HANDLERS,
    **algebra.HANDLERS,
    **control.HANDLERS,
    **random.HANDLERS,
}


@dataclass(frozen=True)
class Traced:
    """The graph of a function.

    Attributes:
        inputs: shape and dtype of each leaf, without the axis of the environments; of PRNG keys the words.
        made: shape and dtype of each leaf of the result.
        tree: structure of the result.
        origins: of each leaf of the result: the number of the input that it is, its constant value, or None if it is
            computed.
        outputs: shape and dtype of each computed leaf; of PRNG keys the words.
        results: the scalars of the computed leaves, in order.
    """

    graph: Graph
    inputs: list[jax.ShapeDtypeStruct]
    made: list[jax.ShapeDtypeStruct]
    tree: jax.tree_util.PyTreeDef
    origins: list[int | np.ndarray | None]
    outputs: list
    results: list[Scalar]


def constant(value) -> np.ndarray:
    """A constant of a jaxpr as an array: numbers, or PRNG keys."""
    if isinstance(value, jax.core.Tracer):
        raise Unsupported("value that is computed outside of the function")
    if is_key(value):
        return wrap(np.asarray(jax.random.key_data(value)))
    array = np.asarray(value)
    type_of(array.dtype)
    return array


def is_key(leaf) -> bool:
    """Whether the array has typed PRNG keys."""
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_words(leaf):
    """The array, or the words ``[..., 2]`` of typed PRNG keys."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def as_given(leaf, original):
    """The inverse of ``as_words``; ``original`` has the dtype."""
    return jax.random.wrap_key_data(leaf, impl=original.dtype._impl) if is_key(original) else leaf


def trace(function: Callable, arguments) -> Traced:
    """The graph of a function of ONE environment.

    Args:
        function: returns a tree of arrays.
        arguments: tuple of trees of ``jax.ShapeDtypeStruct``.

    Raises:
        Unsupported: there is no kernel for an operation or a type of the function.
    """
    given, structure = jax.tree.flatten(arguments)
    made: list = []

    def on_words(*leaves):
        restored = [as_given(leaf, original) for leaf, original in zip(leaves, given, strict=True)]
        result = function(*structure.unflatten(restored))
        made[:] = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), result)]
        return [as_words(jnp.asarray(leaf)) for leaf in jax.tree.leaves(result)]

    shapes = [jax.eval_shape(as_words, leaf) for leaf in given]
    closed = jax.make_jaxpr(on_words)(*shapes)
    tracer = Tracer()
    inputs = _inputs(tracer.graph, shapes)
    results = tracer.run(closed, inputs)
    avals = [v.aval for v in closed.jaxpr.outvars]
    origins = [_origin(array, aval.dtype, inputs, shapes) for array, aval in zip(results, avals, strict=True)]
    computed = [number for number, origin in enumerate(origins) if origin is None]
    outputs, tree = jax.tree.flatten(made[0])
    scalars = flat([results[number] for number in computed])
    return Traced(tracer.graph, shapes, outputs, tree, origins, [avals[number] for number in computed], scalars)


def _inputs(graph: Graph, shapes: list[jax.ShapeDtypeStruct]) -> list[np.ndarray]:
    """The nodes of all inputs."""
    arrays, place = [], 0
    for leaf in shapes:
        array, type = np.empty(leaf.shape, object), type_of(leaf.dtype)
        for position in np.ndindex(leaf.shape):
            array[position] = graph.node("in", (place,), type)
            place += 1
        arrays.append(array)
    return arrays


def _origin(array: np.ndarray, dtype, inputs: list[np.ndarray], shapes: list) -> int | np.ndarray | None:
    """The number of the input that an array is, its value if it is constant, or None."""
    if is_constant(array) or array.size == 0:
        return array.astype(dtype)
    for number, (given, leaf) in enumerate(zip(inputs, shapes, strict=True)):
        same = given.shape == array.shape and leaf.dtype == dtype
        if same and all(a is b for a, b in zip(array.flat, given.flat, strict=True)):
            return number
    return None
