"""The text of a kernel: C++ that two headers give a meaning, ``cuda.h`` for one environment a thread, ``simd.h``
for one environment a lane of a vector.

``F``, ``I``, ``U`` and ``B`` are the types of float32, int32, uint32 and bool.
"""

import math
from dataclasses import dataclass

import numpy as np

from strl_jax.kernels import schedule
from strl_jax.kernels.graph import Scalar, Value, scalar_type, type_of
from strl_jax.kernels.trace import Traced

OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "add": "+", "sub": "-", "mul": "*"}
OPERATORS |= {"and": "&", "or": "|", "xor": "^"}


@dataclass(frozen=True)
class Source:
    """A kernel's text.

    Attributes:
        inputs: C++ type and name of the pointers to the inputs ``i0 ...`` and to the tables ``t0 ...``.
        outputs: likewise, to the outputs ``o0 ...``.
        body: statements for environment ``t`` of ``n``.
        tables: constant arrays that the caller passes after the inputs.
    """

    inputs: list[tuple[str, str]]
    outputs: list[tuple[str, str]]
    body: str
    tables: list[np.ndarray]


def write(traced: Traced) -> Source:
    """The text of a traced function."""
    program = schedule.Schedule(traced.graph).store(traced.results)
    inputs = [(f"i{number}", place, leaf) for number, place, leaf in _places(traced.inputs)]
    outputs = [(f"o{number}", place, leaf) for number, place, leaf in _places(traced.outputs)]
    writer = _Writer(inputs, outputs)
    for statement in program.statements:
        writer.add(statement)
    tables = traced.graph.tables
    read = [*_pointers(traced.inputs, "i", "const "), *_pointers(tables, "t", "const ")]
    return Source(read, _pointers(traced.outputs, "o"), "\n".join(writer.lines), tables)


NAMES = {"f": "float", "i": "int", "u": "unsigned", "b": "bool"}


def _pointers(arrays, letter: str, qualifier: str = "") -> list[tuple[str, str]]:
    """Type and name of a pointer to each array."""
    types = [f"{qualifier}{NAMES[type_of(array.dtype)]}*" for array in arrays]
    return [(type, f"{letter}{number}") for number, type in enumerate(types)]


def _places(leaves) -> list:
    """Number of the leaf, and place in it, of every element."""
    return [(number, place, leaf) for number, leaf in enumerate(leaves) for place in range(math.prod(leaf.shape))]


class _Writer:
    """Turns statements into lines."""

    def __init__(self, inputs: list, outputs: list):
        self._inputs, self._outputs = inputs, outputs
        self._masks = ["TRUE_"]  # of the while loops around the current line
        self.lines: list[str] = []

    def add(self, statement: schedule.Statement) -> None:
        """Appends the lines of a statement."""
        match statement:
            case schedule.Let(value):
                self._line(f"const {value.type.upper()} v{value.index} = {self._expression(value)};")
            case schedule.Fill(number, elements):
                kind = scalar_type(elements[0]).upper()
                values = ", ".join(map(self._name, elements))
                self._line(f"const {kind} a{number}[{len(elements)}] = {{{values}}};")
            case schedule.Begin(loop):
                self._begin(loop)
            case schedule.Test(loop):
                self._line(f"LEAVE(m{loop.number}, {self._name(loop.condition)})")
            case schedule.End(loop):
                self._end(loop)
            case schedule.Store(place, scalar):
                pointer, offset, leaf = self._outputs[place]
                kind = type_of(leaf.dtype).upper()
                self._line(f"OUT_{kind}({pointer}, {math.prod(leaf.shape)}, {offset}, {self._name(scalar)});")

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _begin(self, loop) -> None:
        number = loop.number
        for value, start in zip(loop.carry, loop.start, strict=True):
            self._line(f"{value.type.upper()} {self._name(value)} = {self._name(start)};")
        for kind in sorted({scalar_type(x) for x in loop.stacked}):
            self._line(f"{kind.upper()} y{number}{kind}[{loop.length * len(loop.stacked)}];")
        if loop.condition is None:
            self._line(f"for (int k{number} = 0; k{number} < {loop.length}; ++k{number}) {{")
            return
        self._line(f"MASK(m{number}, {self._masks[-1]})")
        self._line("while (true) {")
        self._masks.append(f"m{number}")

    def _end(self, loop) -> None:
        number, width = loop.number, len(loop.stacked)
        for place, scalar in enumerate(loop.stacked):
            self._line(f"y{number}{scalar_type(scalar)}[k{number} * {width} + {place}] = {self._name(scalar)};")
        changed = [(c, end) for c, end in zip(loop.carry, loop.end, strict=True) if c is not end]
        for place, (value, end) in enumerate(changed):
            self._line(f"const {value.type.upper()} n{number}_{place} = {self._name(end)};")
        for place, (value, _) in enumerate(changed):
            name, new = self._name(value), f"n{number}_{place}"
            self._line(f"{name} = {new};" if loop.condition is None else f"KEEP(m{number}, {name}, {new})")
        if loop.condition is not None:
            self._masks.pop()
        self._line("}")

    def _name(self, scalar: Scalar) -> str:
        if isinstance(scalar, np.generic):
            return literal(scalar)
        match scalar.op:
            case "carry" | "final":
                return f"c{scalar.args[0]}_{scalar.args[1]}"
            case "counter":
                return f"I_(k{scalar.args[0]})"
            case "stacked":
                return f"y{scalar.args[0]}{scalar.type}[{scalar.args[1]}]"
        return f"v{scalar.index}"

    def _expression(self, value: Value) -> str:
        op = value.op
        if op == "in":
            pointer, offset, leaf = self._inputs[value.args[0]]
            return f"IN_{value.type.upper()}({pointer}, {math.prod(leaf.shape)}, {offset})"
        if op == "load":
            return f"load(t{value.args[0]}, {self._name(value.args[1])})"
        if op == "element":
            return f"a{value.args[0]}[UNIFORM({self._name(value.args[1])})]"
        names = [self._name(x) for x in value.args]
        kind = scalar_type(value.args[0])
        if op == "select":
            return f"SEL({names[0]}, {names[2]}, {names[1]})"
        if op == "neg":
            return f"-{names[0]}"
        if op in OPERATORS:
            return f"{names[0]} {OPERATORS[op]} {names[1]}"
        if op in ("convert", "bits"):
            return f"{op}_{kind}{value.type}({names[0]})"
        return f"{op}_{kind}({', '.join(names)})"


def literal(scalar: np.generic) -> str:
    """A constant as C++."""
    kind = type_of(scalar.dtype)
    if kind == "b":
        return "TRUE_" if scalar else "FALSE_"
    if kind == "i":
        return f"I_({int(scalar)})" if scalar > -(2**31) else "I_(-2147483647 - 1)"
    if kind == "u":
        return f"U_({int(scalar)}u)"
    if np.isnan(scalar):
        return "F_(NAN_)"
    if np.isinf(scalar):
        return "F_(INF_)" if scalar > 0 else "F_(-INF_)"
    text = f"{float(scalar):.9g}"
    return f"F_({text if any(c in text for c in '.e') else text + '.0'}f)"
