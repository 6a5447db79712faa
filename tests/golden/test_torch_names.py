"""Optimisers, schedulers, losses and activations that a config names as torch does, against torch's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FOLDER, Golden
from strl_jax.algorithms import lr_schedulers, optimizers
from strl_jax.algorithms.estimator_losses import elementwise_loss
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.modules.mlp import get_activation


def each(name: str, key: str) -> list:
    """A parameter for every entry of a list in the config of a file: the file, its index, and the entry."""
    golden = Golden(FOLDER / name)
    entries = golden.config[key]
    return [pytest.param(golden, i, entry, id=f"{i}-{entry}"[:60]) for i, entry in enumerate(entries)]


def optimize(optimizer, start, grads, rates, momenta=None):
    """The parameters after every step, in float64."""

    def step(loop, now):
        grad, rate, extra = now
        params, state, _, skipped = optimizers.step(optimizer, loop[0], grad, loop[1], rate, **extra)
        return (params, state), (params, skipped)

    with jax.enable_x64(True):  # in float32, 1 - 0.999^n alone has an error of 3e-5
        momentum = {} if momenta is None else {"momentum": jnp.asarray(momenta)}
        start = jnp.asarray(start)
        loop, steps = (start, optimizers.init(optimizer, start)), (jnp.asarray(grads), jnp.asarray(rates), momentum)
        _, (params, skipped) = jax.jit(lambda *args: jax.lax.scan(step, *args))(loop, steps)
        assert not skipped.any()
        return np.asarray(params)


@pytest.mark.parametrize(("golden", "i", "case"), each("torch_optimizers.npz", "cases"))
def test_optimizer(golden, i, case):
    name, arguments = case
    optimizer = optimizers.make(name, None, arguments=arguments)
    params = optimize(optimizer, golden["in/start"], golden["in/grads"], golden["in/lr"])
    rtol = 5e-6 if name == "RAdam" else 1e-7  # optax adds eps after the correction of the bias, torch before it
    np.testing.assert_allclose(params, golden["exp64/params"][i], rtol=rtol, atol=1e-10)


@pytest.mark.parametrize(("golden", "i", "case"), each("torch_lr_cycles.npz", "schedulers"))
def test_cycle(golden, i, case):
    """The learning rate, the momentum, and the parameters of all optimisers whose momentum is cycled."""
    name, arguments = case
    scheduler = lr_schedulers.find(name, arguments)
    iterations = jnp.arange(len(golden["exp64/lr"][i]), dtype=jnp.int32)
    rates = jax.jit(jax.vmap(scheduler.schedule(1.0)))(iterations)
    assert rates.dtype == jnp.float32
    np.testing.assert_allclose(rates, golden["exp64/lr"][i], rtol=1e-5)
    if scheduler.changes_momentum:
        momenta = jax.jit(jax.vmap(scheduler.momentum_schedule))(iterations)
        np.testing.assert_allclose(momenta, golden["exp64/momentum"][i], rtol=1e-5)
    assert scheduler.changes_momentum == arguments.get("cycle_momentum", True)
    for j, kind in enumerate(golden.config["optimizers"]):
        optimizer = optimizers.make(kind, None, scheduled_momentum=scheduler.changes_momentum)
        momenta = golden["exp64/momentum"][i] if scheduler.changes_momentum else None
        params = optimize(optimizer, golden["in/start"], golden["in/grads"], golden["exp64/lr"][i], momenta)[-1]
        np.testing.assert_allclose(params, golden["exp64/params"][i, j], rtol=1e-6, atol=1e-9, err_msg=kind)


@pytest.mark.parametrize(("golden", "i", "arguments"), each("torch_plateau.npz", "arguments"))
def test_plateau(golden, i, arguments):
    scheduler = ReduceLROnPlateau.model_validate(arguments)

    def step(loop, metric):
        state, rate = scheduler.step(*loop, metric)
        return (state, rate), rate

    loop = scheduler.init(), jnp.float32(golden.config["initial_lr"])
    (state, _), rates = jax.lax.scan(step, loop, jnp.asarray(golden["in/metric"], jnp.float32))
    np.testing.assert_allclose(rates, golden["exp64/lr"][i], rtol=1e-5)
    assert {name: leaf.dtype.name for name, leaf in state.items()} == {
        "best": "float32",
        "bad": "int32",
        "cooldown": "int32",
    }


@pytest.mark.parametrize(("golden", "i", "case"), each("torch_losses.npz", "losses"))
def test_loss(golden, i, case):
    name, arguments, estimate, target = case
    loss = elementwise_loss(name, arguments)
    x, t = (jnp.asarray(golden[f"in/{key}"], jnp.float32) for key in (estimate, target))
    np.testing.assert_allclose(loss(x, t), golden["exp64/loss"][i], rtol=1e-5, atol=2e-6)
    gradient = jax.grad(lambda x: loss(x, t).sum())(x)
    np.testing.assert_allclose(gradient, golden["exp64/grad"][i], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("golden", "i", "name"), each("torch_activations.npz", "names"))
def test_activation(golden, i, name):
    x = jnp.asarray(golden["in/x"], jnp.float32)
    activation = get_activation(name)
    np.testing.assert_allclose(activation(x), golden["exp64/value"][i], rtol=2e-5, atol=2e-6)
    gradient = jax.grad(lambda x: activation(x).sum())(x)
    np.testing.assert_allclose(gradient, golden["exp64/grad"][i], rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(get_activation(name.upper())(x), activation(x))
