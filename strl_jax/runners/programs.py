"""Compiled programs of a run, built in threads: XLA releases the interpreter lock while it compiles."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import InitVar, dataclass
from functools import cached_property

import jax
from jax.sharding import Mesh

from strl_jax.algorithms import train_step
from strl_jax.algorithms.base import Algorithm
from strl_jax.config import Config
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.runners.evaluation import make_evaluate
from strl_jax.sharding import replicated


@dataclass(eq=False)
class Programs:
    """Compiles the programs of a run in the background.

    Args:
        config: its batch sizes and the number of steps of an iteration.
        data: constants that the algorithm's hooks read, on all devices.

    Attributes:
        states: shapes of the train state and the rollout state.
        seconds: compile time by program.
    """

    env: EpisodeEnv
    algorithm: Algorithm
    mesh: Mesh
    config: Config
    data: InitVar[dict]

    def __post_init__(self, data: dict):
        self._start_threads()
        self._futures: dict[tuple, Future] = {}
        self._lowered: dict[str, Future] = {}
        self._data = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated(self.mesh)), data
        )
        self._parts, self._num_steps = (self.env, self.algorithm, self.mesh), self.config.runner.num_steps_per_env
        self._init_options = {"num_steps": self._num_steps, "data": self._data}
        self.states = train_step.abstract_states(*self._parts, self.config.env.num_envs, **self._init_options)
        self.seconds: dict[str, float] = {}

    def _start_threads(self) -> None:
        # Tracing is Python code and holds the interpreter lock, so one thread does it, in the order of the requests.
        self._tracer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trace")
        self._compiler = ThreadPoolExecutor(max_workers=4, thread_name_prefix="compile")
        self._closed = False

    def request(self, name: str, **options) -> None:
        """Starts to compile the program ``name``: ``init``, ``step``, ``evaluate`` or ``update``."""
        key = (name, *options.items())
        if key not in self._futures:
            if self._closed:
                self._start_threads()
            lowered = self._tracer.submit(self._lower, name, **options)
            self._lowered[name] = lowered
            self._futures[key] = self._compiler.submit(self._compile, name, lowered, time.perf_counter())

    def get(self, name: str, **options) -> Callable:
        """Waits for the compiled program ``name``; starts to compile it if it was not requested."""
        self.request(name, **options)
        return self._futures[name, *options.items()].result()

    def results(self, name: str):
        """Shapes of the results of the program ``name``, None if it was not requested. Waits until it is traced."""
        lowered = self._lowered.get(name)
        return None if lowered is None else lowered.result().out_info

    def idle(self) -> bool:
        """Whether all requested programs are compiled."""
        return all(future.done() for future in self._futures.values())

    def close(self) -> None:
        """Ends the threads without waiting; a compilation in progress ends before the interpreter exits.

        A later request starts new ones.
        """
        self._closed = True
        for pool in (self._tracer, self._compiler):
            pool.shutdown(wait=False, cancel_futures=True)
        self._futures = {key: future for key, future in self._futures.items() if not future.cancelled()}

    def _compile(self, name: str, lowered: Future, start: float) -> Callable:
        compiled = lowered.result().compile()
        self.seconds[name] = time.perf_counter() - start
        return compiled

    def _lower(self, name: str, **options):
        train, rollout = self.states
        key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=replicated(self.mesh))
        match name:
            case "init":
                init = train_step.make_init(*self._parts, self.config.env.num_envs, **self._init_options, **options)
                # A key without a sharding: with one, every function inside would be traced a second time.
                return init.lower(jax.random.key(0))
            case "step":
                return train_step.make_train_step(*self._parts, self._num_steps).lower(train, rollout, self._data)
            case "evaluate":
                return make_evaluate(*self._parts, self.config.runner.num_eval_envs).lower(train, key)
            case "update":
                update = train_step.make_update(self.algorithm, self.mesh)
                return update.lower(train, self.rollout_shapes, rollout.memory, self._data, key)

    @cached_property
    def rollout_shapes(self):
        """Shapes of a rollout of all shards."""
        collect = train_step.make_collect(*self._parts, self._num_steps)
        return jax.eval_shape(collect, *self.states, self._data)[2]
