"""Training sessions of a run on one device, for tests of resumed runs."""

import jax

from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh


def learn(config: dict, path, iterations: int, resume: bool = False) -> OnPolicyRunner:
    """The closed runner after so many iterations more; ``resume`` loads the run in ``path`` first."""
    runner = OnPolicyRunner(None, config, path, mesh=make_mesh(jax.devices()[:1]))
    if resume:
        assert runner.load(path) == []
    runner.learn(iterations)
    runner.close()
    return runner
