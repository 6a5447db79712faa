"""Step and reset of environments as kernels."""

from collections.abc import Callable

from strl_jax.envs.base import Env, carried
from strl_jax.kernels.fuse import KernelError, fuse_batch


class Fused:
    """The kernels of some environments; each is built once, also when several programs use it.

    Args:
        required: a step without kernel is an error, see ``kernels.fuse``. A reset without kernel never is.
    """

    def __init__(self, required: bool):
        self._required = required
        self._known: dict[tuple[int, str], tuple[Env, Callable]] = {}  # the environment is kept: its id is the key

    def step(self, env: Env) -> Callable:
        """``env.step`` as one kernel."""
        return self._function(env, "step", env.step, self._required)

    def reset(self, env: Env) -> Callable:
        """``env.reset`` as one kernel, where there is one and ``env.resets_alone``; the state is ``carried``."""

        def reset(key):
            return carried(env.reset(key))

        return self._function(env, "reset", reset, False) if getattr(env, "resets_alone", True) else reset

    def simulator(self, env: Env) -> tuple[Callable, Callable]:
        """The functions of ``env.simulator()``; the step is one kernel."""
        reset, step = env.simulator()
        return reset, self._function(env, "simulator step", step, self._required)

    def _function(self, env: Env, name: str, function: Callable, required: bool) -> Callable:
        where = f"env.kernel: {name} of {type(env).__name__}"
        if getattr(type(env), "at_iteration", Env.at_iteration) is not Env.at_iteration:
            if required:
                raise KernelError(f"{where}: an environment that sees the iteration has no kernel; use auto or off")
            return function
        if (id(env), name) not in self._known:
            fused = fuse_batch(function, required=required)

            def call(*arguments):
                try:
                    return fused(*arguments)
                except KernelError as error:
                    raise KernelError(f"{where} cannot be a kernel: {error}; use auto or off") from None

            self._known[id(env), name] = (env, call)
        return self._known[id(env), name][1]
