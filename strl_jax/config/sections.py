"""The sections of a config."""

import re
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from strl_jax.algorithms.appo import AmpFields, APPOConfig
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.ppo import EstimatorPPOConfig, PPOConfig
from strl_jax.algorithms.schedules import LengthSchedule
from strl_jax.algorithms.tppo import EstimatorTPPOConfig, TPPOConfig
from strl_jax.config.errors import ConfigError, hint, not_one_of
from strl_jax.config.policy import FIELDS, MemoryFields, PolicyConfig, policy_config
from strl_jax.section import MOST, Count, Keywords, Names, Section, Text

LOGGERS = ("tensorboard", "wandb", "none")
IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def _known_logger(name: str) -> str:
    if name not in LOGGERS and not IMPORT_PATH.fullmatch(name):
        raise ValueError(f"it must be one of {', '.join(LOGGERS)} or an import path pkg.mod:Class{hint(name, LOGGERS)}")
    return name


def _known_manipulator(name: str) -> str:
    if name != "by_component" and not IMPORT_PATH.fullmatch(name):
        raise ValueError("it must be by_component or an import path pkg.mod:function")
    return name


def _import_path(path: str) -> str:
    if not IMPORT_PATH.fullmatch(path):
        raise ValueError("it must be an import path pkg.mod:Class")
    return path


ImportPath = Annotated[str, AfterValidator(_import_path)]
Logger = Annotated[str, AfterValidator(_known_logger)]
Manipulator = Annotated[str, AfterValidator(_known_manipulator)]


class GroupsConfig(Section):
    """The observation components that each network sees, in order.

    Attributes:
        actor, critic: names of components; null: all components of the environment,
            in its order.
        teacher: components of a teacher; null: those in the run folder of the teacher or in its obs_segments;
            without both, the critic's or the actor's (algorithm.label_action_with_critic_obs).
        amp: components that the discriminator of an adversarial motion prior sees before and
            after a step; null: the environment's ref_obs.
        rnd: components of random network distillation; null: the actor's.
    """

    actor: Names | None = None
    critic: Names | None = None
    teacher: Names | None = None
    amp: Names | None = None
    rnd: Names | None = None


# YAML reads the words on and off as booleans.
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(lambda x: {True: "on", False: "off"}.get(x, x))]


class EnvConfig(Section):
    """The environments.

    Attributes:
        name: ``brax:NAME:BACKEND``, ``legged:flat``, ``legged:rough``, ``playground:NAME``, ``probe:NAME``, or
            the import path ``my_package.my_module:make_env`` of a callable that returns an environment.
        num_envs: number of environments on all devices together.
        episode_length: time limit in steps; null: the environment's default.
        episode_length_schedule: time limit in steps by iteration, a schedule as of learning_rate; null: always
            episode_length. Evaluations, play and the scale of the logged reward terms use episode_length.
        pool_fraction: number of initial states that are drawn for the resets of an iteration,
            as a fraction of num_envs.
        kernel: on: step and reset of the environment are one kernel each, see ``strl_jax.kernels``; auto: likewise
            where that is possible; off: XLA compiles them.
        kwargs: keyword arguments of the environment.
        groups: the observation components that each network sees.
    """

    name: Text
    num_envs: Count = 4096
    episode_length: Count | None = None
    episode_length_schedule: LengthSchedule | None = None
    pool_fraction: float = Field(0.25, gt=0, le=1)
    kernel: Switch = "off"
    kwargs: Keywords = Field(default_factory=dict)
    groups: GroupsConfig = GroupsConfig()


class RunnerConfig(Section):
    """The training loop, its log and its checkpoints.

    Attributes:
        runner_class_name, policy_class_name, algorithm_class_name: class names of st_rl.
        num_steps_per_env: steps of each environment in an iteration.
        max_iterations: maximum number of iterations.
        max_env_steps: maximum number of steps of all environments together, or null; the run
            ends at the first of the two limits.
        save_interval: iterations between numbered checkpoints; 0: only one, after the training.
        last_interval: iterations between saves of ``last``, the full state.
        log_interval: iterations between logged lines.
        eval_interval: iterations between evaluations; 0: no evaluation.
        num_eval_envs: number of environments of an evaluation.
        eval_after_load: evaluate a loaded policy (of --resume, init_from or load) before the first iteration; the
            row of that iteration has the results, unless it is evaluated itself.
        best_metric: name in the log of the evaluation's result that selects the best checkpoint.
        best_direction: max or min: whether the largest or the smallest value is the best.
        callbacks: import paths ``pkg.mod:Class`` of callbacks, see strl_jax/runners/callbacks.py.
        init_at_random_ep_len: the first episodes start at random time steps.
        init_from: run folder of the policy from which a new run starts, or null; its best checkpoint is used; if
            there is none, the last, or else a numbered one.
        ckpt_manipulator: by_component, or the import path ``pkg.mod:function`` of a function that
            changes the weights of init_from so that they fit.
        log_root: folder that contains all experiments.
        experiment_name: folder in log_root that contains the run folders.
        run_name: suffix of the name of the run folder.
        logger: tensorboard, wandb, none, or the import path ``pkg.mod:Class`` of a
            writer; or a list of them.
        wandb_project: project in Weights & Biases.
        git_repos: repositories whose git state is saved with the run, in addition to this library's.
        time_split: measure once how the time of an iteration divides into collection and learning.
    """

    runner_class_name: Literal["OnPolicyRunner"] = "OnPolicyRunner"
    policy_class_name: Text = "ActorCritic"
    algorithm_class_name: Text = "PPO"
    num_steps_per_env: Count = 24
    max_iterations: Count = 1500
    max_env_steps: int | None = Field(None, ge=1)
    save_interval: int = Field(50, ge=0, le=MOST)
    last_interval: Count = 50
    log_interval: Count = 1
    eval_interval: int = Field(0, ge=0, le=MOST)
    num_eval_envs: Count = 128
    eval_after_load: bool = False
    best_metric: str = Field("Eval/mean_return", pattern=r"^Eval/.")
    best_direction: Literal["max", "min"] = "max"
    callbacks: tuple[ImportPath, ...] = ()
    init_at_random_ep_len: bool = True
    init_from: Text | None = None
    ckpt_manipulator: Manipulator = "by_component"
    log_root: Text = "logs"
    experiment_name: str = Field("default", pattern=r"^[^./\x00][^/\x00]*$")
    run_name: str = Field("", pattern=r"^[^/\x00]*$")
    logger: Logger | tuple[Logger, ...] = "tensorboard"
    wandb_project: Text = "strl_jax"
    git_repos: tuple[Text, ...] = ()
    time_split: bool = True


class Config(Section):
    """All settings of a run.

    Attributes:
        seed: seed of all random numbers.
        compat: ``default``, ``st_rl`` (the torch library's behaviour in all respects), or a mapping of differences.
        env: the environments.
        policy: the actor-critic.
        algorithm: the settings of the algorithm.
        runner: the training loop, its log and its checkpoints.
    """

    seed: int = Field(1, ge=0, lt=2**32)
    compat: Literal["default", "st_rl"] | Compat = "default"
    env: EnvConfig
    policy: PolicyConfig = PolicyConfig()
    algorithm: PPOConfig = PPOConfig()
    runner: RunnerConfig = RunnerConfig()

    @property
    def resolved_compat(self) -> Compat:
        """``compat`` as a ``Compat``."""
        if isinstance(self.compat, Compat):
            return self.compat
        return Compat.st_rl() if self.compat == "st_rl" else Compat()

    @property
    def update_steps(self) -> int:
        """Number of steps of each environment that an update learns from."""
        return int(getattr(self.algorithm, "buffer_dilation_ratio", 1.0) * self.runner.num_steps_per_env)

    @model_validator(mode="after")
    def _minibatches_fit(self):
        self.check_minibatches(1)
        return self

    def check_minibatches(self, num_devices: int) -> None:
        """Checks that each device can divide its samples into ``algorithm.num_mini_batches``.

        A policy with a memory learns from whole environments: these are its samples.

        Raises:
            ValueError: it cannot; the message names the numbers that can.
        """
        number, steps, envs = self.algorithm.num_mini_batches, self.update_steps, self.env.num_envs // num_devices
        whole = isinstance(self.policy, MemoryFields)
        samples = envs if whole else envs * steps
        drops_rest = self.resolved_compat.contiguous_envs if whole else self.resolved_compat.reuse_permutation
        if number <= samples and (drops_rest or samples % number == 0):
            return
        where = "an iteration" if num_devices == 1 else f"each of {num_devices} devices"
        what = f"{envs} whole environments" if whole else f"{samples} samples ({steps} steps x {envs} environments)"
        rule, fitting = "be at most", ""
        if not drops_rest:
            numbers = ", ".join(str(n) for n in range(1, 65) if samples % n == 0)
            rule, fitting = "divide", f"; up to 64 these do: {numbers}"
        allowed = f"it must {rule} the {what} of {where}{fitting}"
        raise ValueError(f"algorithm.num_mini_batches: {number} is not allowed; {allowed}")


class ATPPOConfig(AmpFields, TPPOConfig):
    """TPPO with a discriminator."""


ALGORITHMS: dict[str, type[PPOConfig]] = {
    "PPO": PPOConfig,
    "EstimatorPPO": EstimatorPPOConfig,
    "TPPO": TPPOConfig,
    "EstimatorTPPO": EstimatorTPPOConfig,
    "APPO": APPOConfig,
    "ATPPO": ATPPOConfig,
}


@lru_cache
def config_class(policy_class_name: str, algorithm_class_name: str) -> type[Config]:
    """``Config`` with the ``policy`` and ``algorithm`` sections of these classes.

    Raises:
        ConfigError: an unknown class.
    """
    for key, name, known in (
        ("policy_class_name", policy_class_name, FIELDS),
        ("algorithm_class_name", algorithm_class_name, ALGORITHMS),
    ):
        if name not in known:
            raise ConfigError(f"runner.{key}: {not_one_of(name, tuple(known))}")
    policy, algorithm = policy_config(policy_class_name), ALGORITHMS[algorithm_class_name]
    if (policy, algorithm) == (PolicyConfig, PPOConfig):
        return Config
    return _with_sections((policy, ...), (algorithm, ...))


def any_config() -> type[Config]:
    """``Config`` whose ``policy`` and ``algorithm`` may be those of any class, for the schema."""
    policy, algorithm = Union[tuple(map(policy_config, FIELDS))], Union[tuple(ALGORITHMS.values())]  # noqa: UP007
    return _with_sections((policy, PolicyConfig()), (algorithm, PPOConfig()))


def _with_sections(policy: tuple[Any, Any], algorithm: tuple[Any, Any]) -> type[Config]:
    """``Config`` with another type and default of these two sections."""
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, policy=policy, algorithm=algorithm)
