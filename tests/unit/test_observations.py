"""Order, places and shapes of observation components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.observations import Segments

SHAPES = {"alpha": (2,), "beta": (), "gamma": (1, 3)}
SEGMENTS = Segments.select_from(SHAPES, ["gamma", "alpha", "beta"])
OBS = {
    "alpha": jnp.asarray([[4.0, 5.0], [14.0, 15.0]]),
    "beta": jnp.asarray([6.0, 16.0]),
    "gamma": jnp.asarray([[[1.0, 2.0, 3.0]], [[11.0, 12.0, 13.0]]]),
}
FLAT = np.asarray([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]])


def test_sizes_in_the_order_given():
    assert SEGMENTS.names == ("gamma", "alpha", "beta")
    assert SEGMENTS.sizes == (3, 2, 1)
    assert SEGMENTS.size == 6
    assert [SEGMENTS.slice(name) for name in SEGMENTS.names] == [slice(0, 3), slice(3, 5), slice(5, 6)]


def test_flatten_keeps_the_order_inside_jit():
    np.testing.assert_array_equal(SEGMENTS.flatten(OBS), FLAT)
    np.testing.assert_array_equal(jax.jit(SEGMENTS.flatten)(OBS), FLAT)


def test_flatten_with_any_batch():
    deep = jax.tree.map(lambda x: jnp.stack([x, -x]), OBS)
    np.testing.assert_array_equal(SEGMENTS.flatten(deep), [FLAT, -FLAT])
    single = jax.tree.map(lambda x: x[1], OBS)
    np.testing.assert_array_equal(SEGMENTS.flatten(single), FLAT[1])


@pytest.mark.parametrize("name", SHAPES)
def test_select(name):
    np.testing.assert_array_equal(SEGMENTS.select(jnp.asarray(FLAT), name), OBS[name])


def test_replace_in_own_shape_or_flat():
    expected = FLAT.copy()
    expected[:, :3] = 0.0
    for shape in ((2, 1, 3), (2, 3)):
        new = SEGMENTS.replace(jnp.asarray(FLAT), "gamma", jnp.zeros(shape))
        np.testing.assert_array_equal(new, expected)
    expected = FLAT.copy()
    expected[:, 5] = [7.0, 8.0]
    np.testing.assert_array_equal(SEGMENTS.replace(jnp.asarray(FLAT), "beta", jnp.asarray([7.0, 8.0])), expected)


def test_subset():
    assert Segments.select_from(SHAPES, ["beta"]) == Segments(("beta",), ((),))


def test_hashable():
    assert hash(SEGMENTS) == hash(Segments.select_from(SHAPES, ["gamma", "alpha", "beta"]))


def test_unknown_component():
    with pytest.raises(ValueError, match="unknown component 'delta'; the environment offers alpha, beta, gamma"):
        Segments.select_from(SHAPES, ["alpha", "delta"])


def test_component_twice():
    with pytest.raises(ValueError, match="component 'alpha' is listed twice"):
        Segments.select_from(SHAPES, ["alpha", "beta", "alpha"])


@pytest.mark.parametrize("use", [SEGMENTS.slice, lambda name: SEGMENTS.select(jnp.asarray(FLAT), name)])
def test_missing_component(use):
    with pytest.raises(ValueError, match="not in"):
        use("delta")
