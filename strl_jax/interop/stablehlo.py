"""StableHLO export of a deployable policy, for programs with JAX.

    exported = jax.export.deserialize(bytearray(Path("policy.bin").read_bytes()))
    out = exported.call({"joints": ..., "carry.actor.hidden": ...})   # action, carry.actor.hidden

Inputs and outputs are those of ``deploy.Deployable``: dicts of float32 arrays with any
batch size; ``policy.bin.json`` describes them. The file runs on CPU, CUDA, ROCm and TPU.
JAX guarantees to read it for six months of releases.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.interop.deploy import Deployable, Named, Step

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def description(path: Path) -> Path:
    """The file that describes inputs and outputs of the policy at ``path``."""
    return path.with_name(f"{path.name}.json")


def dump(deployable: Deployable) -> bytes:
    """The policy as file content."""
    (batch,) = jax.export.symbolic_shape("batch")
    shapes = {name: jax.ShapeDtypeStruct((batch, *shape), jnp.float32) for name, shape in deployable.inputs.items()}
    return bytes(jax.export.export(jax.jit(deployable), platforms=PLATFORMS)(shapes).serialize())


def load(path: Path) -> Step:
    """Reads a policy as a function with the inputs and outputs of ``Deployable``."""
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    call = jax.jit(exported.call)

    def step(values: Named) -> Named:
        return {name: np.asarray(x) for name, x in call(values).items()}

    return step
