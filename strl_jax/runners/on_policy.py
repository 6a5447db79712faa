"""``OnPolicyRunner``: training, evaluation, checkpoints and inference of one run."""

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from strl_jax.builders import checks, environment
from strl_jax.builders.algorithm import assemble
from strl_jax.builders.effects.rules import without_effect
from strl_jax.config import Config, ConfigError
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.claim import FolderClaim
from strl_jax.run_folder.reader import CheckpointReader
from strl_jax.runners import call_checks, devices, folder, loading, session, st_rl_names
from strl_jax.runners.callbacks import Callback, Callbacks, checked, make_callbacks
from strl_jax.runners.duties.evaluation import evaluate
from strl_jax.runners.duties.trial import make_trial
from strl_jax.runners.inference import InferencePolicy
from strl_jax.runners.log import git_state
from strl_jax.runners.programs import Programs
from strl_jax.runners.progress import Progress
from strl_jax.sharding import replicate, replicate_key
from strl_jax.types import RolloutState, TrainState


class OnPolicyRunner:
    """Trains one policy on one batch of environments.

    Args:
        env: an ``envs.base.Env``; None builds ``config.env.name``.
        train_cfg: a ``Config``, or a dict like ``train_cfg`` of st_rl and legged_gym.
        log_dir: run folder for logs and checkpoints, which ``learn`` and ``save`` lock until ``close``; None
            writes nothing.
        device: the device that trains, such as ``cuda:0``, see ``devices.find_device``; None: all devices.
        mesh: several chosen devices, instead of ``device``.
        callbacks: objects of subclasses of ``runners.callbacks.Callback``; those of the config follow them.

    Attributes:
        config, env (an ``EpisodeEnv``), algorithm, mesh, programs: built from the arguments.
        data: constants that the algorithm's hooks read, on all devices.
        references: sources of ``data``.
        train_state, rollout_state: None before ``learn`` or ``load``.
        progress: counts, episode windows and best score.
        has_new_episodes: the environments have not made a step since a policy was loaded without their state.
        infos: what the loaded checkpoint was saved with, see ``save``; otherwise None.
        log_dir, checkpointer, saver: the run folder and its checkpoints, None without one.
        stopped_by: reason of an early stop of the last ``learn``, or None.
        callbacks: calls the methods of all callbacks.

    Raises:
        ConfigError: the config is inconsistent, or does not fit the environment or the devices.
    """

    def __init__(
        self,
        env,
        train_cfg: Config | Mapping,
        log_dir: str | Path | None = None,
        device: Any = None,
        *,
        mesh: Mesh | None = None,
        callbacks: Sequence[Callback] = (),
    ):
        checks.check_jax_options()
        self.start_folder = Path.cwd()  # an environment may change it
        if device is not None and mesh is not None:
            raise ConfigError("device: not allowed together with mesh, which names the devices")
        config = call_checks.read_config(train_cfg, env)
        self.config = environment.filled(config) if env is None else config
        with ThreadPoolExecutor(max_workers=1) as starter:  # the devices start while the simulator is imported
            started = starter.submit(devices.mesh_on, device) if mesh is None else None
            base = environment.make_env(self.config.env) if env is None else env
            self.mesh = mesh if started is None else started.result()
        checks.check_shards(self.config, self.mesh.size)
        self.env = environment.make_episode_env(self.config, base)
        with contextlib.chdir(self.start_folder):
            assembled = assemble(self.config, base)
        self.algorithm, self.references = assembled.algorithm, assembled.references
        self.data = replicate(assembled.data, self.mesh)
        self.programs = Programs(self.env, self.algorithm, self.mesh, self.config, self.data)
        made = make_callbacks(self.config.runner.callbacks)
        self.callbacks = Callbacks(self, [*map(checked, callbacks), *made])
        self.terminates = self.just_loaded = False
        self.claim: FolderClaim | None = None
        folder.select(self, None if log_dir is None else self.start_folder / log_dir)
        self.progress = Progress()
        self.train_state = self.rollout_state = self.infos = None
        self.has_new_episodes = False
        self.stopped_by: str | None = None
        named = [self.start_folder / path for path in self.config.runner.git_repos]
        self.repositories = [*git_state.own_repository(), *named]
        for line in without_effect(self.config, self.mesh.size, env_is_given=env is not None):
            warnings.warn(line, stacklevel=2)

    def open(self, log_dir: str | Path) -> None:
        """Selects the run folder for logs and checkpoints, and locks it if it exists; ``ConfigError`` if in use."""
        folder.select(self, Path(log_dir).absolute())
        if self.log_dir.is_dir():
            self.claim.take()

    @property
    def metrics_velrmsd(self) -> float:
        """Velocity RMSD of the last evaluation in m/s; NaN if the environment does not report it."""
        return self.progress.evaluation.get("Eval/metric/tracking_error", math.nan)

    @property
    def metrics_CoT(self) -> float:
        """Cost of transport of the last evaluation; NaN if the environment does not report it."""
        return self.progress.evaluation.get("Eval/metric/CoT", math.nan)

    @property
    def metrics_return(self) -> float:
        """Mean return of the last evaluation; NaN before the first."""
        return self.progress.evaluation.get("Eval/mean_return", math.nan)

    @property
    def current_learning_iteration(self) -> int:
        """Finished iterations."""
        return self.progress.iteration

    @property
    def device(self) -> jax.Device:
        """The device that trains, the first of several."""
        return self.mesh.devices.flat[0]

    @cached_property
    def alg(self) -> st_rl_names.Alg:
        """The algorithm with st_rl's attributes ``actor_critic`` and ``learning_rate``."""
        return st_rl_names.Alg(self)

    def __getattr__(self, name: str):
        return st_rl_names.missing(type(self).__name__, name)

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one iteration, over all environments."""
        return self.config.env.num_envs * self.config.runner.num_steps_per_env

    def learn(
        self, num_learning_iterations: int, init_at_random_ep_len: bool | None = None, trial=None
    ) -> tuple[float, float]:
        """Trains for a number of iterations, or until ``runner.max_env_steps`` is reached.

        Args:
            num_learning_iterations: iterations to add.
            init_at_random_ep_len: start the first episodes at random ages; None: as in the config.
            trial: an Optuna trial, which can prune the run. It gets the velocity RMSD of every evaluation, to be
                minimised, or the mean return, to be maximised, if the environment has no ``tracking_error``.

        Returns:
            ``metrics_velrmsd`` and ``metrics_CoT``.

        Raises:
            ConfigError: the algorithm cannot train this policy, a writer does not start, the run folder
                contains another run, or there is no evaluation for the trial or it has the wrong direction.
            CheckpointError: a checkpoint cannot be written.
            WriterError: a writer failed; the run is saved.
            optuna.TrialPruned: the trial's pruner stopped the run; the run is saved.
        """
        checks.check_trains(self.config, self.algorithm.policy)
        iterations = session.within_budget(self, num_learning_iterations)
        trial = make_trial(self, trial, iterations)
        if self.claim is not None:
            self.claim.start(self.config, run_dir.units(self.env.env))
        loading.start_episodes(self, init_at_random_ep_len)
        self.has_new_episodes = False
        default = self.config.runner.init_at_random_ep_len
        session.train(self, iterations, default if init_at_random_ep_len is None else init_at_random_ep_len, trial)
        return self.metrics_velrmsd, self.metrics_CoT

    def terminate_early(self) -> None:
        """Ends ``learn`` as a stop signal does: after this iteration, or with several processes one or two later."""
        self.terminates = True

    def fresh_states(self, random_lengths: bool) -> tuple[TrainState, RolloutState]:
        """States of a new run with the config's seed, see ``train_step.make_init``."""
        init = self.programs.get("init", random_lengths=random_lengths)
        return init(replicate_key(jax.random.key(self.config.seed), self.mesh))

    def evaluation(self) -> dict[str, float]:
        """Runs deterministic episodes on fresh environments. The states of the training do not change.

        Returns:
            ``Eval/*`` scalars: mean, std, min and max of return and length, and the
            environment's metrics.

        Raises:
            RuntimeError: there is no policy yet.
        """
        loading.need_states(self)
        self.callbacks("on_eval_start")
        values = evaluate(self.programs, self.config.seed, self.train_state, self.progress)
        self.callbacks("on_eval_end", values)
        return values

    def save(self, path: str | Path = "last", infos: Any = None) -> None:
        """Starts to save a checkpoint in the run folder.

        Args:
            path: ``last`` (both states), ``numbered`` or ``best`` (only the train state).
            infos: values for JSON that are stored too; ``load`` puts them into ``infos``.

        Raises:
            RuntimeError: there is no policy yet, or no run folder.
            ConfigError: ``path`` is a path, or another program is training in the run folder.
            CheckpointError: the checkpoint cannot be written.
        """
        loading.need_states(self)
        call_checks.check_kind(path)
        if self.saver is None:
            raise RuntimeError("no checkpoint can be saved: the runner has no log_dir")
        if not (self.log_dir / run_dir.CONFIG).is_file():
            self.claim.start(self.config, run_dir.units(self.env.env))
        self.saver.save(str(path), self.progress, self.train_state, self.rollout_state, infos)

    def load(
        self,
        path: str | Path,
        load_optimizer: bool = True,
        map_location: Any = None,
        *,
        kind: str = "last",
        iteration: int | None = None,
    ) -> list[str]:
        """Loads a checkpoint; its iteration is kept. ``init_from`` starts a new run from a policy.

        Args:
            path: run folder, or a ``model_*.pt`` of st_rl, rsl_rl or legged_gym.
            load_optimizer: False loads only weights, statistics and counts; the optimiser starts from the beginning.
            map_location: no effect; the arrays are placed on the runner's devices.
            kind: ``last``, ``best`` or ``numbered``. Only ``last`` contains the environments, which are loaded with
                the optimiser; otherwise they start from the beginning.
            iteration: iteration of the checkpoint; None: the newest.

        Returns:
            Notes about differences: number of shards, versions, data, and about keys without effect; parts of a
            torch file that were not used.

        Raises:
            CheckpointError: there is no such checkpoint, or its observations or sizes differ.
            TorchFileError: the file cannot be read, or does not fit the config; a line for each fault.
        """
        path = Path(path).absolute()
        call_checks.check_load(self, path, map_location, kind, iteration)
        self.callbacks("on_load_checkpoint_start", path)
        is_own = self.log_dir == path
        if is_own:
            self.claim.look()
        if path.suffix == call_checks.TORCH:
            notes = loading.load_torch_file(self, path, load_optimizer)
        else:
            reader = self.checkpointer if is_own else CheckpointReader(path)
            notes = loading.load_run(self, reader, load_optimizer, kind, iteration)
        if self.claim is not None:
            self.claim.continues(is_own and kind == "last" and path.suffix != call_checks.TORCH)
        self.just_loaded = True
        self.callbacks("on_load_checkpoint_end", path)
        return notes

    def init_from(self, path: str | Path) -> list[str]:
        """Starts a new run from the policy of another run, as ``runner.init_from`` does; see ``loading.start``."""
        notes = loading.start(self, Path(path).absolute(), self.config.runner.init_at_random_ep_len)
        self.progress, self.infos, self.has_new_episodes = Progress(), None, True
        if self.claim is not None:
            self.claim.continues(False)
        return notes

    def get_inference_policy(self, device: Any = None) -> InferencePolicy:
        """The current policy as a function ``policy(obs) -> mean action [B, A]``, see ``InferencePolicy``.

        Args:
            device: the device that computes the actions, see ``devices.find_device``; None: that of the training.

        Raises:
            RuntimeError: there is no policy yet.
            ConfigError: there is no such device.
        """
        loading.need_states(self)
        place = None if device is None else devices.find_device(device)
        return InferencePolicy(self.algorithm, self.train_state.params["policy"], self.train_state.stats, place)

    def add_git_repo_to_log(self, repo_file_path: str | Path) -> None:
        """``learn`` stores the git state of this repository too."""
        self.repositories.append(Path(repo_file_path).absolute())

    def close(self) -> None:
        """Waits for pending checkpoints, unlocks the run folder and ends the threads."""
        try:
            folder.release(self)
        finally:
            self.programs.close()
