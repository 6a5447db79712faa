"""Operations on single elements."""

import jax
import numpy as np

from strl_jax.kernels.arrays import elementwise, scalars, settled
from strl_jax.kernels.graph import TYPES, Unsupported, type_of
from strl_jax.kernels.random import select_keys

SAME = {  # name in jax -> operation
    **{name: name for name in ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2")},
    **{name: name for name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "not", "neg", "abs", "sign")},
    **{name: name for name in ("sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log1p", "erf", "floor", "ceil")},
    "is_finite": "isfinite",
    "shift_left": "shl",
    "shift_right_logical": "shr",
    "shift_right_arithmetic": "sar",
    "add_any": "add",
}
UNCHANGED = ("copy", "copy_p", "stop_gradient", "optimization_barrier", "pvary", "pcast", "device_put", "mesh_cast")


def _type(equation) -> str:
    return type_of(equation.outvars[0].aval.dtype)


def _simple(tracer, equation, inputs):
    return [elementwise(tracer.graph, SAME[equation.primitive.name], _type(equation), *inputs)]


def _unchanged(tracer, equation, inputs):
    return list(inputs)


def _reduce_precision(tracer, equation, inputs):
    if equation.params["exponent_bits"] < 8 or equation.params["mantissa_bits"] < 23:
        raise Unsupported("operation reduce_precision")
    return list(inputs)


def _integer_pow(tracer, equation, inputs):
    power, type = equation.params["y"], _type(equation)
    one = np.ones(inputs[0].shape, TYPES[type])
    result, base, left = one, inputs[0], abs(power)
    while left:
        if left & 1:
            result = elementwise(tracer.graph, "mul", type, result, base)
        left >>= 1
        if left:
            base = elementwise(tracer.graph, "mul", type, base, base)
    return [result if power >= 0 else elementwise(tracer.graph, "div", type, one, result)]


def _square(tracer, equation, inputs):
    return [elementwise(tracer.graph, "mul", _type(equation), inputs[0], inputs[0])]


def _round(tracer, equation, inputs):
    op = "rint" if int(equation.params["rounding_method"]) == 1 else "round"
    return [elementwise(tracer.graph, op, "f", inputs[0])]


def _logistic(tracer, equation, inputs):
    graph, one = tracer.graph, np.float32(1)
    decayed = elementwise(graph, "exp", "f", elementwise(graph, "neg", "f", inputs[0]))
    return [elementwise(graph, "div", "f", np.asarray(one), elementwise(graph, "add", "f", np.asarray(one), decayed))]


def _clamp(tracer, equation, inputs):
    low, x, high = inputs
    type = _type(equation)
    low, high = (np.broadcast_to(bound, x.shape) for bound in (low, high))
    return [elementwise(tracer.graph, "min", type, elementwise(tracer.graph, "max", type, x, low), high)]


def _select(tracer, equation, inputs):
    which, *cases = inputs
    if jax.dtypes.issubdtype(equation.outvars[0].aval.dtype, jax.dtypes.prng_key):
        return [select_keys(tracer.graph, np.broadcast_to(which, cases[0].shape), cases)]
    graph, type, shape = tracer.graph, _type(equation), cases[0].shape
    which = np.broadcast_to(which, shape)
    if type_of(equation.invars[0].aval.dtype) == "b":
        return [elementwise(graph, "select", type, which, *cases)]
    result = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        below = elementwise(graph, "le", "b", which, np.full(shape, number, np.int32))
        result = elementwise(graph, "select", type, below, result, cases[number])
    return [result]


def _convert(tracer, equation, inputs):
    (x,) = inputs
    source, type = type_of(equation.invars[0].aval.dtype), _type(equation)
    if source == type:
        return [x]
    if type == "b":
        return [elementwise(tracer.graph, "ne", "b", x, np.zeros(x.shape, TYPES[source]))]
    return [elementwise(tracer.graph, "convert", type, x)]


def _bitcast(tracer, equation, inputs):
    source, type = type_of(equation.invars[0].aval.dtype), _type(equation)
    if "b" in (source, type):
        raise Unsupported("operation bitcast_convert_type of bool")
    if source == type:
        return [inputs[0]]
    if "f" in (source, type) and "i" in (source, type):  # through uint32
        middle = elementwise(tracer.graph, "bits" if source == "f" else "convert", "u", inputs[0])
        return [elementwise(tracer.graph, "convert" if source == "f" else "bits", type, middle)]
    return [elementwise(tracer.graph, "bits" if "f" in (source, type) else "convert", type, inputs[0])]


def _erf_inv(tracer, equation, inputs):
    """Giles, "Approximating the erfinv function" (2012), single precision."""
    graph = tracer.graph
    result = np.empty(inputs[0].shape, object)
    for position, x in np.ndenumerate(scalars(inputs[0])):
        result[position] = _erf_inv_scalar(lambda op, *args: graph.emit(op, *args, type="f"), graph, x)
    return [settled(result, "f")]


CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087)
CENTRAL += (-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773)
TAIL += (-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def _erf_inv_scalar(emit, graph, x):
    w = emit("neg", emit("log1p", emit("neg", emit("mul", x, x))))
    central = graph.emit("lt", w, np.float32(5), type="b")
    short, long = emit("sub", w, np.float32(2.5)), emit("sub", emit("sqrt", w), np.float32(3))
    t = emit("select", central, long, short)
    p = emit("select", central, np.float32(TAIL[0]), np.float32(CENTRAL[0]))
    for tail, middle in zip(TAIL[1:], CENTRAL[1:], strict=True):
        p = emit("add", emit("mul", p, t), emit("select", central, np.float32(tail), np.float32(middle)))
    edge = graph.emit("eq", emit("abs", x), np.float32(1), type="b")
    return emit("select", edge, emit("mul", p, x), emit("mul", x, np.float32(np.inf)))


HANDLERS = {
    **dict.fromkeys(SAME, _simple),
    **dict.fromkeys(UNCHANGED, _unchanged),
    "reduce_precision": _reduce_precision,
    "integer_pow": _integer_pow,
    "square": _square,
    "round": _round,
    "logistic": _logistic,
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "erf_inv": _erf_inv,
}
