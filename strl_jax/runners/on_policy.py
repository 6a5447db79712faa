"""``OnPolicyRunner``: training, evaluation, checkpoints and inference of one run."""

import math
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
from jax.sharding import Mesh

import strl_jax
from strl_jax.builders import checks, environment
from strl_jax.builders.algorithm import assemble, changed_data
from strl_jax.builders.effects.loading import without_effect_in_load, without_effect_in_resume
from strl_jax.builders.effects.rules import without_effect
from strl_jax.builders.stored import read_fitting, read_policy
from strl_jax.builders.transfer.start import BY_COMPONENT, find_manipulator, load_policy
from strl_jax.config import Config, ConfigError, from_dict
from strl_jax.config.errors import reported_after
from strl_jax.run_folder import checkpoints, layout, run_dir
from strl_jax.run_folder.reader import CheckpointReader
from strl_jax.runners import session
from strl_jax.runners.duties.evaluation import evaluate
from strl_jax.runners.duties.saving import Saver
from strl_jax.runners.inference import InferencePolicy
from strl_jax.runners.programs import Programs
from strl_jax.runners.progress import Progress
from strl_jax.sharding import make_mesh, replicate, replicate_key
from strl_jax.types import RolloutState, TrainState


class OnPolicyRunner:
    """Trains one policy on one batch of environments.

    Args:
        env: an ``envs.base.Env``; None builds ``config.env.name``.
        train_cfg: a ``Config``, or a dict like ``train_cfg`` of st_rl and legged_gym.
        log_dir: run folder for logs and checkpoints; None writes nothing.
        mesh: devices; default: all.

    Attributes:
        config, env (an ``EpisodeEnv``), algorithm, mesh, programs: built from the arguments.
        data: constants that the algorithm's hooks read, on all devices.
        references: sources of ``data``.
        train_state, rollout_state: None before ``learn`` or ``load``.
        progress: counts, episode windows and best score.
        log_dir, checkpointer, saver: the run folder and its checkpoints, None without one.
        stopped_by: reason of an early stop of the last ``learn``, or None.

    Raises:
        ConfigError: the config is inconsistent, or does not fit the environment or the devices.
    """

    def __init__(self, env, train_cfg: Config | Mapping, log_dir: str | Path | None = None, mesh: Mesh | None = None):
        if not isinstance(train_cfg, Config):
            if env is not None:
                train_cfg = {**train_cfg, "env": {"name": type(env).__name__, **(train_cfg.get("env") or {})}}
            train_cfg, lines = from_dict(train_cfg)
            for line in lines:
                warnings.warn(line, stacklevel=2)
        self.config = environment.filled(train_cfg) if env is None else train_cfg
        with ThreadPoolExecutor(max_workers=1) as starter:  # the devices start while the simulator is imported
            devices = starter.submit(make_mesh) if mesh is None else None
            base = environment.make_env(self.config.env) if env is None else env
            self.mesh = mesh if devices is None else devices.result()
        checks.check_shards(self.config, self.mesh.size)
        self.env = environment.make_episode_env(self.config, base)
        assembled = assemble(self.config, base)
        self.algorithm, self.references = assembled.algorithm, assembled.references
        self.data = replicate(assembled.data, self.mesh)
        self.programs = Programs(self.env, self.algorithm, self.mesh, self.config, self.data)
        self.log_dir: Path | None = None
        self.checkpointer: checkpoints.Checkpointer | None = None
        self.saver: Saver | None = None
        self._owns_folder = False
        if log_dir is not None:
            self.open(log_dir)
        self.progress = Progress()
        self.train_state = self.rollout_state = None
        self.stopped_by: str | None = None
        self.repositories: list[str | Path] = list(self.config.runner.git_repos)
        source = Path(strl_jax.__file__).parents[1]  # a clone, or the site-packages of an installed wheel
        if (source / ".git").exists():
            self.repositories.insert(0, source)
        for line in without_effect(self.config, self.mesh.size, env_is_given=env is not None):
            warnings.warn(line, stacklevel=2)

    def open(self, log_dir: str | Path) -> None:
        """Selects the run folder for logs and checkpoints."""
        self.log_dir = Path(log_dir).absolute()
        self.checkpointer = checkpoints.Checkpointer(self.log_dir)
        self.saver = Saver(self.checkpointer, self.algorithm, self.config, self.mesh.size, self.references)
        self._owns_folder = self.checkpointer.latest("last") is None

    @property
    def metrics_velrmsd(self) -> float:
        """Velocity RMSD of the last evaluation in m/s; NaN if the environment does not report it."""
        return self.progress.evaluation.get("Eval/metric/tracking_error", math.nan)

    @property
    def metrics_CoT(self) -> float:
        """Cost of transport of the last evaluation; NaN if the environment does not report it."""
        return self.progress.evaluation.get("Eval/metric/CoT", math.nan)

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
            trial: an Optuna trial; receives the velocity RMSD of every evaluation, and can prune the run.

        Returns:
            ``metrics_velrmsd`` and ``metrics_CoT``.

        Raises:
            ConfigError: the algorithm cannot train this policy, a writer does not
                start, or the run folder contains another run.
            CheckpointError: a checkpoint cannot be written.
            WriterError: a writer failed; the run is saved.
            optuna.TrialPruned: the trial's pruner stopped the run; the run is saved.
        """
        checks.check_trains(self.config, self.algorithm.policy)
        if init_at_random_ep_len is None:
            init_at_random_ep_len = self.config.runner.init_at_random_ep_len
        if self.log_dir is not None:
            self._claim_folder()
        session.train(self, num_learning_iterations, init_at_random_ep_len, trial)
        return self.metrics_velrmsd, self.metrics_CoT

    def _claim_folder(self) -> None:
        """Writes the config into the run folder, which must not contain another run."""
        if not self._owns_folder:
            raise ConfigError(
                f"{self.log_dir} contains a run at iteration {self.checkpointer.latest('last')}: "
                "load it to continue, or use another folder"
            )
        if jax.process_index() == 0:
            run_dir.write_config(self.log_dir, self.config, run_dir.units(self.env.env))

    def check_start(self) -> None:
        """Checks ``runner.init_from`` and ``ckpt_manipulator`` before anything is written.

        Raises:
            ConfigError: one of them does not exist or cannot be read.
        """
        settings = self.config.runner
        if settings.ckpt_manipulator != BY_COMPONENT:
            find_manipulator(settings.ckpt_manipulator)
        if settings.init_from is not None:
            with reported_after("runner.init_from: "):
                read_policy(settings.init_from)

    def start_states(self, random_lengths: bool) -> list[str]:
        """Starts a new run: fresh states, with the policy of ``runner.init_from`` if that is set.

        Returns:
            A line for each part of that policy that was changed or not used.

        Raises:
            CheckpointError: the policy cannot be read, or does not fit.
        """
        self.train_state, self.rollout_state = self.fresh_states(random_lengths)
        settings = self.config.runner
        if settings.init_from is None:
            return []
        self.train_state, lines = load_policy(
            settings.init_from, self.algorithm, self.train_state, manipulator=settings.ckpt_manipulator
        )
        return lines

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
        self._need_states()
        return evaluate(self.programs, self.config.seed, self.train_state, self.progress)

    def save(self, kind: str = "last") -> None:
        """Starts to save a checkpoint: ``last`` (both states), ``numbered`` or ``best`` (only the train state).

        Raises:
            RuntimeError: there is no policy yet, or no run folder.
            CheckpointError: the checkpoint cannot be written.
        """
        self._need_states()
        if self.saver is None:
            raise RuntimeError("no checkpoint can be saved: the runner has no log_dir")
        self.saver.save(kind, self.progress, self.train_state, self.rollout_state)

    def load(
        self, path: str | Path, load_optimizer: bool = True, kind: str = "last", iteration: int | None = None
    ) -> list[str]:
        """Loads a checkpoint.

        Args:
            path: run folder.
            load_optimizer: False loads only weights and statistics; optimiser, environments
                and counts start from the beginning. From ``best`` and ``numbered``, only weights
                and statistics are loaded in any case.
            kind: ``last``, ``best`` or ``numbered``.
            iteration: iteration of the checkpoint; None: the newest.

        Returns:
            Notes about differences: number of shards, versions, data, and about keys without effect.

        Raises:
            CheckpointError: there is no such checkpoint, or its observations differ.
        """
        path, everything = Path(path).absolute(), load_optimizer and kind == "last"
        is_own = self.log_dir == path
        reader = self.checkpointer if is_own else CheckpointReader(path)
        train, rollout = self.programs.states
        weights = {"params": train.params, "stats": train.stats}
        target = {"train": train, "rollout": rollout} if everything else {"train": weights}
        candidates = reader.candidates((kind,), iteration)
        *_, state, meta = read_fitting(reader, candidates, self.algorithm, target, self.config, subset=not everything)
        unused = (
            without_effect_in_resume(meta["config"], self.config) if is_own else without_effect_in_load(self.config)
        )
        if not everything:
            fresh, self.rollout_state = self.fresh_states(self.config.runner.init_at_random_ep_len)
            self.train_state = fresh.replace(**state["train"])
            self.progress = Progress()
            return unused
        self.train_state, self.rollout_state = state["train"], state["rollout"]
        self.progress = Progress.from_state(meta["progress"])
        self._owns_folder |= is_own  # weights alone start a new run, which needs a new folder
        lines = layout.differences(meta, self.mesh.size) + changed_data(meta.get("data", {}), self.references)
        return lines + unused

    def get_inference_policy(self) -> InferencePolicy:
        """The current policy as a function ``policy(obs) -> mean action [B, A]``, see ``InferencePolicy``.

        Raises:
            RuntimeError: there is no policy yet.
        """
        self._need_states()
        return InferencePolicy(self.algorithm, self.train_state.params["policy"], self.train_state.stats)

    def add_git_repo_to_log(self, repo_file_path: str | Path) -> None:
        """``learn`` stores the git state of this repository too."""
        self.repositories.append(repo_file_path)

    def _need_states(self) -> None:
        if self.train_state is None and self.algorithm.variables is None:
            raise RuntimeError("there is no policy yet: call learn or load first")
        if self.train_state is None:  # only sub-policies, which are loaded already
            self.train_state, self.rollout_state = self.fresh_states(self.config.runner.init_at_random_ep_len)

    def close(self) -> None:
        """Waits for pending checkpoints and ends the threads."""
        if self.checkpointer is not None:
            self.checkpointer.close()
        self.programs.close()
