"""Conversion of a jaxpr to ONNX nodes. Equations of constants are evaluated; all others become nodes."""

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from onnx import helper, numpy_helper

from strl_jax.interop.deploy import DeployError
from strl_jax.interop.onnx.primitives import BROADCASTING, PRIMITIVES

CALLS = ("custom_jvp_call", "custom_vjp_call")

Value = str | np.ndarray  # a name in the graph, or a constant


class Graph:
    """ONNX nodes and constants, in the order of use."""

    def __init__(self):
        self.nodes, self.initializers = [], []

    def add(self, op: str, *inputs: Value, outputs: int = 1, **attributes) -> list[str]:
        """Adds a node. Returns the names of its outputs."""
        names = [self._name(value) for value in inputs]
        results = [f"value_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, **attributes))
        return results

    def name_outputs(self, values: list[Value], names: list[str]) -> None:
        """Names the values that are the model's outputs."""
        for value, name in zip(values, names, strict=True):
            self.nodes.append(helper.make_node("Identity", [self._name(value)], [name]))

    def _name(self, value: Value) -> str:
        if isinstance(value, str):
            return value
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def convert(graph: Graph, closed: ClosedJaxpr, inputs: list[Value]) -> list[Value]:
    """Adds the equations of a jaxpr to the graph.

    Args:
        closed: its shapes can have a symbolic batch size.
        inputs: values of its arguments.

    Returns:
        Values of its results.

    Raises:
        DeployError: an equation cannot be written in ONNX.
    """
    jaxpr = closed.jaxpr
    known = dict(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom) -> Value:
        return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, Literal) else known[atom]

    for equation in _needed(jaxpr):
        results = _convert(graph, equation, [read(atom) for atom in equation.invars])
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _convert(graph: Graph, equation: JaxprEqn, values: list[Value]) -> list[Value]:
    name = equation.primitive.name
    if name in CALLS:
        return convert(graph, equation.params["call_jaxpr"], values)
    shapes = [atom.aval.shape for atom in equation.invars]
    constants = [isinstance(value, np.ndarray) for value in values]
    whole = all(value.shape == shape for value, shape, is_one in zip(values, shapes, constants, strict=True) if is_one)
    if all(constants) and whole and all(_is_static(variable.aval.shape) for variable in equation.outvars):
        results = equation.primitive.bind(*values, **equation.params)
        return [np.asarray(x) for x in (results if equation.primitive.multiple_results else [results])]
    # A constant has size 1 in place of a symbolic size; only operators that broadcast accept this.
    if name not in PRIMITIVES or not (whole or name in BROADCASTING):
        raise DeployError(f"the policy's operation {name} on shapes {shapes} cannot be exported to ONNX")
    return PRIMITIVES[name](graph, equation, *values)


def _needed(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """Equations that the results depend on, in order."""
    needed = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(equation.outvars):
            kept.append(equation)
            needed.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return kept[::-1]


def _is_static(shape: tuple) -> bool:
    return all(isinstance(size, int) for size in shape)
