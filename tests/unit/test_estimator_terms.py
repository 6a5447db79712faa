"""The supervised terms of estimator and adaptor, with the arithmetic written out."""

import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from strl_jax.algorithms import estimator
from strl_jax.algorithms.base import Outputs
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EstimatorStage
from strl_jax.observations import Segments
from strl_jax.types import Batch, PolicyOutput

ACTOR, CRITIC = Segments(("seen",), ((1,),)), Segments(("hidden", "seen"), ((2,), (1,)))

# d = 0.25, -2, 4
LOSSES = [
    ("mse_loss", {}, [0.0625, 4.0, 16.0]),
    ("l1_loss", {}, [0.25, 2.0, 4.0]),
    ("smooth_l1_loss", {}, [0.03125, 1.5, 3.5]),  # 0.0625 / 2; 2 - 1/2; 4 - 1/2
    ("smooth_l1_loss", {"beta": 3.0}, [0.0625 / 6, 4.0 / 6, 2.5]),  # the last: 4 - 3/2
    ("smooth_l1_loss", {"beta": 0.0}, [0.25, 2.0, 4.0]),
    ("smooth_l1_loss", {"beta": 1e-45}, [0.25, 2.0, 4.0]),  # a quotient of two zeros in float32
    ("huber_loss", {}, [0.03125, 1.5, 3.5]),
    ("huber_loss", {"delta": 3.0}, [0.03125, 2.0, 7.5]),  # the last: 3 (4 - 3/2)
]


@pytest.mark.parametrize(("name", "kwargs", "expected"), LOSSES)
def test_elementwise(name, kwargs, expected):
    loss = estimator.elementwise_loss(name, kwargs)
    actual = loss(jnp.asarray([1.25, -1.0, 4.0]), jnp.asarray([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def make_terms(fields: EstimatorFields, *stages: str):
    stage = EstimatorStage(("seen",), ("hidden",), (4,))
    return estimator.terms(fields, Policy(1, actor_obs=ACTOR, critic_obs=CRITIC, **dict.fromkeys(stages, stage)))


def test_terms_of_the_stages_there_are():
    assert make_terms(EstimatorFields()) == ()
    assert [term.name for term in make_terms(EstimatorFields(), "estimator")] == ["estimator_loss"]
    assert [term.name for term in make_terms(EstimatorFields(), "adaptor")] == ["adaptor_loss"]
    ramp = {"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 4}
    fields = EstimatorFields(estimator_loss_coef=2.0, adaptor_loss_coef=ramp)
    terms = {term.name: term for term in make_terms(fields, "estimator", "adaptor")}
    assert set(terms) == {"estimator_loss", "adaptor_loss"}
    assert terms["estimator_loss"].coef(3) == 2.0
    assert terms["adaptor_loss"].coef(3) == 0.25  # 1 - 3/4


def test_mean_of_sums():
    # errors (1, 2) and (3, 0): sums 1 + 4 = 5 and 9 + 0 = 9; 0.75 * 5 + 0.25 * 9 = 6
    (term,) = make_terms(EstimatorFields(), "adaptor")
    critic = jnp.asarray([[1.0, 1.0, 7.0], [1.0, 1.0, 8.0]])
    output = PolicyOutput(None, None, None, {}, {"adaptor": jnp.asarray([[2.0, 3.0], [4.0, 1.0]])}, {})
    others = dict.fromkeys(Batch.__dataclass_fields__)
    batch = Batch(**(others | {"groups": {"critic": critic}, "weight": jnp.asarray([0.75, 0.25])}))
    np.testing.assert_allclose(term.fn(Outputs(output, {}), batch), 6.0, rtol=1e-6)


REFUSED = [
    ({"estimator_loss_func": "cross_entropy"}, "'mse_loss', 'l1_loss', .*'kl_div'"),
    ({"estimator_loss_kwargs": {"beta": 1.0}}, "mse_loss does not take beta; it takes none"),
    ({"estimator_loss_func": "huber_loss", "estimator_loss_kwargs": {"beta": 1.0}}, "does not take beta.*takes delta"),
    ({"estimator_loss_func": "huber_loss", "estimator_loss_kwargs": {"delta": 0.0}}, "needs beta >= 0 and delta > 0"),
    ({"estimator_loss_func": "smooth_l1_loss", "estimator_loss_kwargs": {"beta": -1.0}}, "greater than or equal to 0"),
    ({"estimator_loss_func": "smooth_l1_loss", "estimator_loss_kwargs": {"beta": float("nan")}}, "finite number"),
    ({"estimator_loss_func": "huber_loss", "estimator_loss_kwargs": {"delta": True}}, "needs a number for delta"),
    ({"estimator_loss_func": "kl_div", "estimator_loss_kwargs": {"log_target": 1.0}}, "needs true or false for log_t"),
    ({"estimator_loss_func": "binary_cross_entropy", "estimator_loss_kwargs": {"weight": 1.0}}, "takes none"),
    ({"estimator_loss_func": "gaussian_nll_loss"}, "binary_cross_entropy"),
    ({"estimator_coef": 1.0}, "Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        EstimatorFields(**fields)


def test_unknown_loss():
    with pytest.raises(ValueError, match="unknown loss 'l2'; known: mse_loss, l1_loss"):
        estimator.elementwise_loss("l2", {})
