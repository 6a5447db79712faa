"""Step and reset of environments as kernels."""

from collections.abc import Callable

from strl_jax.envs.base import Env, carried
from strl_jax.kernels.fuse import KernelError, fuse_batch


class Fused:
    """The kernels of some environments; each is built once, also when several programs use it.

    Args:
        required: an environment without kernel is an error, see ``kernels.fuse``.
    """

    def __init__(self, required: bool):
        self._required = required
        self._known: dict[tuple[int, str], tuple[Env, Callable]] = {}  # the environment is kept: its id is the key

    def step(self, env: Env) -> Callable:
        """``env.step`` as one kernel."""
        return self._function(env, "step", env.step)

    def reset(self, env: Env) -> Callable:
        """``env.reset`` as one kernel, where there is one and ``env.resets_alone``; the state is ``carried``."""
        if not getattr(env, "resets_alone", True):
            return lambda key: carried(env.reset(key))
        return self._function(env, "reset", lambda key: carried(env.reset(key)), required=False)

    def simulator(self, env: Env) -> tuple[Callable, Callable]:
        """The functions of ``env.simulator()`` as one kernel each."""
        reset, step = env.simulator()
        return self._function(env, "simulator reset", reset), self._function(env, "simulator step", step)

    def _function(self, env: Env, name: str, function: Callable, required: bool | None = None) -> Callable:
        if getattr(type(env), "at_iteration", Env.at_iteration) is not Env.at_iteration:
            if self._required:
                raise KernelError(f"{type(env).__name__}: an environment that sees the iteration has no kernel")
            return function
        if (id(env), name) not in self._known:
            self._known[id(env), name] = (
                env,
                fuse_batch(function, required=self._required if required is None else required),
            )
        return self._known[id(env), name][1]
