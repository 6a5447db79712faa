"""Kernels on a CPU: each operation gives what ``jax.vmap`` gives."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from strl_jax.kernels import cpu
from strl_jax.kernels.fuse import KernelError, fuse, fuse_batch
from strl_jax.sharding import AXIS, make_mesh, shard_jit

ENVS = 37  # not a multiple of the lanes


def compiler() -> str | None:
    try:
        return cpu.compiler()[0]
    except cpu.CannotBuild:
        return None


pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def floats(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(ENVS, *shape)), jnp.float32)


def integers(*shape, low=-9, high=9, seed=0, dtype=jnp.int32):
    return jnp.asarray(np.random.default_rng(seed).integers(low, high, size=(ENVS, *shape)), dtype)


def special(seed=0):
    """Floats with NaN, infinities, zeros of both signs and large numbers."""
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e9, -3e9, 0.5, -0.5, 1.5, 2.5, 1e-30], np.float32)
    return jnp.asarray(np.random.default_rng(seed).choice(values, size=(ENVS, 8)))


def unary(x):
    positive, small = jnp.abs(x) + 0.1, jnp.tanh(x)
    result = {name: getattr(jnp, name)(x) for name in ("sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "exp")}
    result |= {name: getattr(jnp, name)(positive) for name in ("sqrt", "log", "log1p", "cbrt", "reciprocal")}
    result |= {name: getattr(jnp, name)(small) for name in ("arcsin", "arccos", "arctanh")}
    result |= {"acosh": jnp.arccosh(1 + positive), "asinh": jnp.arcsinh(x), "rsqrt": lax.rsqrt(positive)}
    result |= {"expm1": jnp.expm1(x), "exp2": jnp.exp2(x), "erf": lax.erf(x), "erf_inv": lax.erf_inv(0.99 * small)}
    result |= {"logistic": jax.nn.sigmoid(x), "floor": jnp.floor(x), "ceil": jnp.ceil(x), "round": jnp.round(3 * x)}
    result |= {"square": x**2, "power": x**-3, "elu": jax.nn.elu(x), "softplus": jax.nn.softplus(x)}
    return result


def binary(x, y):
    result = {"div": x / y, "rem": lax.rem(x, y), "pow": jnp.abs(x) ** y, "atan2": jnp.arctan2(x, y)}
    result |= {"maximum": jnp.maximum(x, y), "minimum": jnp.minimum(x, y), "clip": jnp.clip(x, -0.3, y)}
    result |= {"less": x < y, "equal": x == x, "where": jnp.where(x > y, x, 2 * y), "mod": x % y}
    return result


def of_integers(x, y, u, v):
    shift = jnp.abs(y) % 40
    result = {"add": x + y, "mul": x * y, "div": lax.div(x, y), "rem": lax.rem(x, y), "floor": x // 3, "neg": -x}
    result |= {"and": x & y, "or": x | y, "xor": x ^ y, "not": ~x, "abs": abs(x), "sign": jnp.sign(x)}
    result |= {"left": lax.shift_left(x, shift), "right": lax.shift_right_arithmetic(x, shift)}
    result |= {"logical": lax.shift_right_logical(x, shift), "max": jnp.maximum(x, y), "less": x < y}
    result |= {"u add": u + v, "u div": lax.div(u, v), "u rem": lax.rem(u, v), "u less": u < v, "u not": ~u}
    result |= {"u right": u >> (v % 33), "u mul": u * v, "u max": jnp.maximum(u, v), "u float": u.astype(jnp.float32)}
    result |= {"float": x.astype(jnp.float32), "bits": lax.bitcast_convert_type(u, jnp.float32), "bool": x.astype(bool)}
    return result


def of_special(x):
    rolled = jnp.roll(x, 1)
    result = {"max": jnp.maximum(x, rolled), "min": jnp.minimum(x, rolled), "sum": x.max(), "sign": jnp.sign(x)}
    result |= {"sort": jnp.sort(x), "argmax": jnp.argmax(x), "argmin": jnp.argmin(x), "finite": jnp.isfinite(x)}
    result |= {"int": x.astype(jnp.int32), "uint": x.astype(jnp.uint32), "nan": jnp.isnan(x), "round": jnp.round(x)}
    return result | {"argsort": jnp.argsort(x), "nan_to_num": jnp.nan_to_num(x)}


def shapes(x):
    flags = x > 0
    result = {"sum": x.sum(0), "prod": x.prod(), "max": x.max(1), "all": flags.all(0), "any": flags.any()}
    result |= {"cumsum": jnp.cumsum(x, 1), "cumprod": jnp.cumprod(x, 0), "cummax": lax.cummax(x, reverse=True)}
    result |= {"transpose": x.T, "flip": x[::-1], "pad": jnp.pad(x, ((1, 2), (0, 1)), constant_values=7.0)}
    result |= {
        "negative pad": lax.pad(x, 0.0, ((-1, 0, 0), (0, -1, 1))),
        "tile": jnp.tile(x, (2, 1)),
        "slice": x[1:, ::2],
    }
    result |= {"stack": jnp.stack([x, -x], 1), "concatenate": jnp.concatenate([x, x[:1]]), "split": jnp.split(x, 2, 1)}
    result |= {"norm": jnp.linalg.norm(x), "repeat": jnp.repeat(x, 2, axis=0), "empty": x[:0].sum(0)}
    return result | {"sort": jnp.sort(x, 0), "pairs": lax.sort((jnp.round(x), x), num_keys=2), "median": jnp.median(x)}


TABLE = np.random.default_rng(5).normal(size=(30, 20)).astype(np.float32)


def indexing(x, i, j):
    table = jnp.asarray(TABLE)
    result = {"element": x[i], "pair": x[i, j], "table": table[i, j], "rows": table[jnp.stack([i, j])]}
    result |= {"fill": x.at[i + 5].get(mode="fill", fill_value=9.0), "clip": x.at[i + 5].get(mode="clip")}
    result |= {
        "set": x.at[i].set(0.0),
        "add": x.at[i, j].add(x[0, 0]),
        "multiply": x.at[jnp.array([0, 2])].multiply(3.0),
    }
    result |= {
        "drop": x.at[i + 2].set(1.0, mode="drop"),
        "both": x.at[jnp.stack([i, i])].add(1.0),
        "min": x.at[i].min(0.0),
    }
    result |= {"slice": lax.dynamic_slice(x, (i, 0), (2, 3)), "update": lax.dynamic_update_slice(x, x[:2, :1], (i, j))}
    return result | {
        "take_along": jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
        "wrapped": x[-1 - i],
        "small": table[0, :8][i],
    }


def algebra(x, right):
    positive = x @ x.T + 2 * jnp.eye(4)
    arrow = positive * np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]], np.float32)
    lower = jnp.linalg.cholesky(positive)
    solve = lax.linalg.triangular_solve
    result = {
        "matmul": x @ right,
        "einsum": jnp.einsum("ij,kj->ik", x, x),
        "cholesky": lower,
        "outer": jnp.outer(x[0], x[1]),
    }
    for left in (True, False):
        for transpose in (True, False):
            name = f"left {left}, transposed {transpose}"
            b = right if left else right.T
            result[name] = solve(lower, b, left_side=left, lower=True, transpose_a=transpose)
            result[f"upper, {name}"] = solve(lower.T, b, left_side=left, lower=False, transpose_a=transpose)
    for name, matrix in (("dense", positive), ("arrow", arrow)):
        result[f"factor {name}"] = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), right[:, 0])
    mixed = lax.dot_general(x, jnp.round(9 * right).astype(jnp.int32), (((1,), (0,)), ((), ())))
    result |= {"mixed types": mixed}
    result["unit"] = solve(lower, right, left_side=True, lower=True, unit_diagonal=True)
    return result | {"positive": jax.scipy.linalg.solve(arrow, right, assume_a="pos")}


def control(x, n):
    total, parts = lax.scan(lambda c, r: (c + r.sum(), c * r), 0.5, jnp.tile(x, (4, 1)))
    _, constants = lax.scan(lambda c, r: (c, r[:4] * x[0]), 0.0, jnp.asarray(TABLE), reverse=True)
    _, reverse = lax.scan(lambda c, r: (c + 1, c * r), 1.0, x, reverse=True)
    index, value = lax.while_loop(lambda s: s[1] < 9, lambda s: (s[0] + 1, s[1] + abs(x[0, 0]) + 0.4), (0, x[1, 1]))

    def outer(state):
        inner = lax.while_loop(lambda s: s < 2 + state[1] % 3, lambda s: s + 0.7 + abs(x[0, 1]), 0.0)
        return state[0] + inner, state[1] + 1

    nested = lax.while_loop(lambda s: s[1] < jnp.abs(n), outer, (0.0, 0))
    looped = lax.fori_loop(0, 20, lambda k, c: c * 0.9 + x[0] * k, x[1])
    dynamic = lax.fori_loop(0, jnp.abs(n), lambda k, c: c + k, 0)
    result = {"total": total, "parts": parts, "reverse": reverse, "while": (index, value), "nested": nested}
    result |= {"constants": constants, "fori": looped, "dynamic": dynamic}
    result |= {
        "cond": lax.cond(n > 0, lambda y: y + 1, lambda y: -y, x),
        "empty": lax.scan(lambda c, _: (c, c), x, None, 0),
    }
    branches = [lambda y: y, lambda y: 2 * y, lambda y: y * y]
    result |= {
        "switch": lax.switch(n, branches, x),
        "batch": jax.vmap(lambda y: lax.while_loop(lambda s: s < 3, lambda s: s + y, 0.0))(abs(x[0]) + 0.2),
    }
    return result


def random(key):
    first, second = jax.random.split(key)
    result = {"uniform": jax.random.uniform(first, (5,)), "normal": jax.random.normal(second, (4,)), "key": first}
    result |= {
        "fold": jax.random.key_data(jax.random.fold_in(key, 7)),
        "integers": jax.random.randint(key, (3,), 0, 50),
    }
    result |= {
        "bernoulli": jax.random.bernoulli(second, 0.3, (6,)),
        "bits": jax.random.bits(key, (3,)),
        "keys": jax.random.split(key, 3),
    }
    return result | {"chosen": jax.random.key_data(jnp.where(jax.random.uniform(key) > 0.5, first, second))}


CASES = {
    "unary": (unary, lambda: (floats(5),)),
    "binary": (binary, lambda: (floats(5), floats(5, seed=1))),
    "integers": (
        of_integers,
        lambda: (
            integers(6),
            integers(6, seed=1),
            integers(6, low=0, high=2**31, dtype=jnp.uint32),
            integers(6, low=0, high=9, seed=1, dtype=jnp.uint32),
        ),
    ),
    "special": (of_special, lambda: (special(),)),
    "shapes": (shapes, lambda: (floats(3, 4),)),
    "indexing": (indexing, lambda: (floats(4, 5), integers(low=0, high=4), integers(low=0, high=5, seed=1))),
    "algebra": (algebra, lambda: (floats(4, 4), floats(4, 2, seed=1))),
    "control": (control, lambda: (floats(3, 4), integers(low=-1, high=4))),
    "random": (random, lambda: (jax.random.split(jax.random.key(3), ENVS),)),
}
TOLERANCE = {"algebra": 2e-4}  # of systems with a condition number of some 100


@pytest.mark.parametrize("name", CASES)
def test_operations(name):
    function, arguments = CASES[name]
    arguments = arguments()
    wanted, got = jax.vmap(function)(*arguments), jax.jit(fuse(function, required=True))(*arguments)
    assert jax.tree.structure(wanted) == jax.tree.structure(got)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(got), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        tolerance = TOLERANCE.get(name, 2e-6) if a.dtype == jnp.float32 else 0
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def test_a_function_of_a_batch():
    def step(state, action):
        return {"x": state["x"] + action[:, :1], "same": state["same"], "zero": jnp.zeros((action.shape[0], 2))}

    state, action = {"x": floats(1), "same": integers(3)}, floats(2, seed=1)
    got = fuse_batch(step, required=True)(state, action)
    for a, b in zip(jax.tree.leaves(step(state, action)), jax.tree.leaves(got), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("batch", [1, 15, 16, 17, 500])
def test_every_environment_is_computed(batch):
    x = jnp.arange(batch, dtype=jnp.float32)
    np.testing.assert_array_equal(fuse(lambda y: 2 * y + 1, required=True)(x), 2 * x + 1)


def test_it_runs_in_a_scan_with_donated_states_and_on_four_devices():
    kernel = fuse(lambda x, a: jnp.sin(x) + a, required=True)

    def run(function):
        return lambda x, actions: lax.scan(lambda x, a: (function(x, a), x), x, actions)

    x, actions = jnp.arange(8.0), jnp.ones((5, 8))
    wanted = run(jax.vmap(lambda x, a: jnp.sin(x) + a))(x, actions)
    mesh, by_step = make_mesh(jax.devices()[:4]), P(None, AXIS)
    sharded = shard_jit(run(kernel), mesh, in_specs=(P(AXIS), by_step), out_specs=(P(AXIS), by_step))
    for program in (jax.jit(run(kernel), donate_argnums=0), sharded):
        for a, b in zip(wanted, program(x + 0, actions), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_no_kernel_computes_is_left_to_xla_with_one_line():
    def function(x):
        return jnp.linalg.svd(x, compute_uv=False)

    x = floats(3, 3)
    with pytest.raises(KernelError, match="svd"):
        fuse(function, required=True)(x)
    kernel = fuse(function)
    with pytest.warns(UserWarning, match="svd"):
        first = kernel(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = kernel(x)
    for result in (first, second):
        np.testing.assert_allclose(result, jax.vmap(function)(x))
    with jax.enable_x64(True), pytest.raises(KernelError, match="float64"):
        fuse(lambda y: 2 * y, required=True)(jnp.ones(3, jnp.float64))


def test_a_derivative_is_an_error():
    with pytest.raises(KernelError, match="cannot be differentiated"):
        jax.grad(lambda x: fuse(jnp.sin, required=True)(x).sum())(floats())


def test_a_compiler_that_does_not_work_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    cpu.compiler.cache_clear()
    with pytest.raises(KernelError, match=r"missing.*No such file"):
        fuse(lambda x: 3.25 * x, required=True)(floats())
    cpu.compiler.cache_clear()
