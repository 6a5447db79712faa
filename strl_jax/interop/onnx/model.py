"""ONNX export of a deployable policy, for onnxruntime and other runtimes.

    session = onnxruntime.InferenceSession("policy.onnx")
    about = json.loads(session.get_modelmeta().custom_metadata_map["strl_jax"])
    action, hidden = session.run(["action", "next.carry.actor.hidden"], {"joints": ..., "carry.actor.hidden": ...})

Names are those of ``deploy.Deployable``. Names in ONNX are unique, so an output with
the name of an input (a hidden state) has the prefix ``next.``.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import onnx
import onnxruntime
from onnx import TensorProto, helper

from strl_jax.interop.deploy import Deployable, Named, Step
from strl_jax.interop.onnx.graph import Graph, convert

OPSET = 17
IR_VERSION = 8  # the format version of this opset, which older runtimes can read
KEY = "strl_jax"


def dump(deployable: Deployable, layout: dict) -> bytes:
    """The policy as file content.

    Args:
        layout: description, stored as JSON in the model's metadata ``strl_jax``, with the
            names of the model's ``outputs``.

    Raises:
        DeployError: an operation of the policy cannot be written in ONNX.
    """
    (batch,) = jax.export.symbolic_shape("batch")
    shapes = {name: jax.ShapeDtypeStruct((batch, *shape), jnp.float32) for name, shape in deployable.inputs.items()}
    names = list(shapes)

    def positional(*values):
        outputs = deployable(dict(zip(names, values, strict=True)))
        return [outputs[name] for name in deployable.outputs]

    with jax.disable_jit():  # unrolls the loop over the single step and inlines calls
        jaxpr = jax.make_jaxpr(positional)(*shapes.values())
    graph = Graph()
    results = convert(graph, jaxpr, names)
    renamed = {name: f"next.{name}" if name in deployable.inputs else name for name in deployable.outputs}
    graph.name_outputs(results, list(renamed.values()))
    inputs = [_info(name, shape) for name, shape in deployable.inputs.items()]
    outputs = [_info(renamed[name], shape) for name, shape in deployable.outputs.items()]
    body = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.initializers)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(body, opset_imports=opset, ir_version=IR_VERSION, producer_name="strl_jax")
    helper.set_model_props(model, {KEY: json.dumps(layout | {"outputs": list(renamed.values())})})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def load(path: Path) -> Step:
    """Reads a policy, run by onnxruntime, as a function with the inputs and outputs of ``Deployable``."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs = {value.name for value in session.get_inputs()}
    original = [name.removeprefix("next.") if name.removeprefix("next.") in inputs else name for name in names]

    def step(values: Named) -> Named:
        return dict(zip(original, session.run(names, values), strict=True))

    return step


def _info(name: str, shape: tuple[int, ...]):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
