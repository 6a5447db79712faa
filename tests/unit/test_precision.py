"""Simulators multiply in whole float32, whatever a GPU does by default."""

import jax
import jax.numpy as jnp
import pytest

from strl_jax.envs.brax import BraxEnv
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.precision import exact

WHOLE = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)


def precisions(function, *args) -> list:
    """That of every matrix product in ``function``, also in the functions that it calls; None: the default."""
    found, todo = [], [jax.make_jaxpr(function)(*args).jaxpr]
    while todo:
        for equation in todo.pop().eqns:
            if equation.primitive.name == "dot_general":
                found.append(equation.params["precision"])
            inner = jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr"))
            todo += [getattr(x, "jaxpr", x) for x in inner if hasattr(x, "eqns") or hasattr(x, "jaxpr")]
    return found


def test_exact():
    x = jnp.ones((2, 2))
    assert precisions(lambda x: x @ x, x) == [None]
    assert precisions(exact(lambda x: x @ x), x) == [WHOLE]
    within = exact(jax.jit(lambda x: x @ x))
    assert set(precisions(lambda x: within(x) @ x, x)) == {WHOLE, None}


def playground():
    return pytest.importorskip("strl_jax.envs.playground").PlaygroundEnv("CartpoleBalance")


@pytest.mark.parametrize(
    "make",
    [
        lambda: BraxEnv("inverted_pendulum", "spring"),
        pytest.param(lambda: BraxEnv("inverted_pendulum", "mjx"), marks=pytest.mark.slow),
        pytest.param(LeggedEnv, marks=pytest.mark.slow),
        pytest.param(playground, marks=pytest.mark.slow),
    ],
    ids=["spring", "mjx", "legged", "playground"],
)
def test_simulators(make):
    env = make()
    keys, action = jax.random.split(jax.random.key(0), 2), jnp.zeros((2, env.action_size))
    for reset, step in ((env.reset, env.step), env.simulator()):
        assert set(precisions(reset, keys)) == {WHOLE}
        assert set(precisions(step, jax.eval_shape(reset, keys), action)) == {WHOLE}
