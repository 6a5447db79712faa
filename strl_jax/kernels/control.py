"""Calls, conditions and loops of a jaxpr."""

import jax
import numpy as np
from jax.extend import core

from strl_jax.kernels.arrays import choose, element, is_constant, scalars, single, stack
from strl_jax.kernels.graph import Unsupported, type_of
from strl_jax.kernels.indexing import read
from strl_jax.kernels.loops import finish_loop, finish_stacks, open_loop

UNROLLED = 8  # iterations; a scan over arrays that is not longer is written out


def _closed(jaxpr) -> core.ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, ())


def _call(tracer, equation, inputs):
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    return tracer.run(_closed(next(equation.params[name] for name in names if name in equation.params)), inputs)


def _high_level(tracer, equation, inputs):
    """An operation of jax 0.12 that brings its definition in terms of simpler ones."""
    operation = equation.params["_prim"]

    def expanded(*leaves):
        return jax.tree.leaves(operation.expand(*jax.tree.unflatten(operation.in_tree, leaves)))

    return tracer.run(jax.make_jaxpr(expanded)(*[v.aval for v in equation.invars]), inputs)


def _cond(tracer, equation, inputs):
    index, *operands = inputs
    graph, branches = tracer.graph, [_closed(branch) for branch in equation.params["branches"]]
    index = element(index)
    if isinstance(index, np.generic):
        return tracer.run(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    results = [tracer.run(branch, operands) for branch in branches]
    chosen = results[-1]
    for number in range(len(results) - 2, -1, -1):
        if index.type == "b":
            here = graph.emit("not", index, type="b")
        else:
            here = graph.emit("le", index, np.int32(number), type="b")
        chosen = [choose(graph, here, other, this) for other, this in zip(chosen, results[number], strict=True)]
    return chosen


def _while(tracer, equation, inputs):
    params = equation.params
    test, body = _closed(params["cond_jaxpr"]), _closed(params["body_jaxpr"])
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test_consts, body_consts, start = inputs[:first], inputs[first:second], inputs[second:]
    avals = [v.aval for v in body.jaxpr.outvars]
    loop, carry = open_loop(tracer.graph, start, avals, None)
    (goes_on,) = tracer.run(test, [*test_consts, *carry])
    results = tracer.run(body, [*body_consts, *carry])
    if goes_on.size > 1:  # a batch: those that have ended keep their values until all have
        results = [_kept(tracer.graph, goes_on, old, new) for old, new in zip(carry, results, strict=True)]
    loop.condition = _any(tracer.graph, goes_on)
    return finish_loop(tracer.graph, loop, results, avals)


def _kept(graph, goes_on: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """``new`` where ``goes_on``, whose axes are the first ones, else ``old``."""
    result = np.empty(new.shape, object)
    for position in np.ndindex(goes_on.shape):
        result[(*position, ...)] = choose(graph, goes_on[position], old[(*position, ...)], new[(*position, ...)])
    return result


def _any(graph, values: np.ndarray):
    result = np.bool_(False)
    for value in values.flat:
        result = graph.emit("or", result, value, type="b")
    return result


def _counts(params) -> tuple[int, int]:
    """Numbers of constants and of carried arrays of a scan, with the parameters of older and newer jax."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()
    return len(list(constants.vals)), len(list(carry.vals))


def _scan(tracer, equation, inputs):
    params, body = equation.params, _closed(equation.params["jaxpr"])
    consts, carried = _counts(params)
    constants, start, slices = inputs[:consts], inputs[consts : consts + carried], inputs[consts + carried :]
    length, outputs = params["length"], len(body.jaxpr.outvars) - carried
    if length == 0:
        return start + [np.zeros(v.aval.shape, v.aval.dtype) for v in equation.outvars[carried:]]
    counted = outputs == 0 and all(map(is_constant, slices))
    if length == 1 or (length <= UNROLLED and not counted):
        return _written_out(tracer, body, constants, start, slices, length, params["reverse"])
    avals = [v.aval for v in body.jaxpr.outvars]
    loop, carry = open_loop(tracer.graph, start, avals[:carried], length)
    index = loop.counter
    if params["reverse"]:
        index = tracer.graph.emit("sub", np.int32(length - 1), index, type="i")
    parts = [_row(tracer.graph, x, index) for x in slices]
    results = tracer.run(body, [*constants, *carry, *parts])
    end = finish_loop(tracer.graph, loop, results[:carried], avals[:carried])
    stacks = finish_stacks(tracer.graph, loop, results[carried:], avals[carried:])
    return end + [np.flip(x, 0) if params["reverse"] else x for x in stacks]


def _written_out(tracer, body, constants, start, slices, length, reverse):
    carry, rows = list(start), []
    for number in range(length - 1, -1, -1) if reverse else range(length):
        results = tracer.run(body, [*constants, *carry, *[x[number, ...] for x in slices]])
        carry = results[: len(start)]
        rows.append(results[len(start) :])
    rows = rows[::-1] if reverse else rows
    return carry + [stack(column) for column in zip(*rows, strict=True)]


def _row(graph, array: np.ndarray, index) -> np.ndarray:
    """``array[index]`` inside a loop."""
    if is_constant(array) and array.ndim == 1 and array.dtype == np.int32 and (array == np.arange(len(array))).all():
        return single(index)
    result = np.empty(array.shape[1:], object)
    constant, number = is_constant(array), None
    width = result.size
    for place, position in enumerate(np.ndindex(result.shape)):
        if constant:
            result[position] = read(graph, array, [index, *map(np.int32, position)])
            continue
        if number is None:
            number = graph.array(scalars(array).flat)
        offset = graph.emit("mul", index, np.int32(width), type="i")
        offset = graph.emit("add", offset, np.int32(place), type="i")
        first = array[(0, *position)]
        kind = first.type if not isinstance(first, np.generic) else type_of(first.dtype)
        result[position] = graph.node("element", (number, offset), kind)
    return result


def _linear_solve(tracer, equation, inputs):
    """``custom_linear_solve``: its own solver, on the constants that this solver reads."""
    params = equation.params
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    if jaxprs.solve is None:
        raise Unsupported("operation custom_linear_solve")
    first = lengths.matvec + lengths.vecmat
    constants = inputs[first : first + lengths.solve]
    right = inputs[first + lengths.solve + lengths.transpose_solve :]
    return tracer.run(_closed(jaxprs.solve), [*constants, *right])[: len(equation.outvars)]


CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
CALLS += ("remat", "remat2", "checkpoint", "custom_lin", "call", "core_closed_call")

HANDLERS = {
    **dict.fromkeys(CALLS, _call),
    "call_hi_primitive": _high_level,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "custom_linear_solve": _linear_solve,
}
