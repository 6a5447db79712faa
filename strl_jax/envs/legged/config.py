"""The config of the legged environments, their ``env.kwargs``, with legged_gym's names."""

from pydantic import Field, model_validator

from strl_jax.envs.legged.config_ground import CameraConfig, TerrainConfig
from strl_jax.envs.legged.config_observations import NoiseConfig, NormalizationConfig
from strl_jax.envs.legged.config_rewards import RewardsConfig
from strl_jax.envs.legged.config_types import (
    Angle,
    Delays,
    Factors,
    Frictions,
    Headings,
    Limit,
    Masses,
    Part,
    PerJoint,
    Place,
    Places,
    RobotParts,
    Seconds,
    Speeds,
)
from strl_jax.section import Fraction, Section


class RobotConfig(Section):
    """The robot. The defaults name what our own quadruped has.

    Attributes:
        path: an MJCF file, a folder with one in it, or PACKAGE:FILE; null: our own quadruped.
        base: body that carries the free joint.
        joints: hinge joints in the order of actions and observations.
        feet: geoms that touch the ground.
        penalize_contacts_on: bodies whose touching the ground counts as a collision.
        terminate_after_contacts_on: bodies whose touching the ground ends the episode.
        collide: whether all primitive geoms are held by the ground, not the feet alone.
        default_joint_angles: angle of every joint at action 0, by a part of its name; of
            several that fit, the last counts.
        torque_limit: in Nm; null: the file's own force ranges.
        velocity_limit: in rad/s, of the reward ``dof_vel_limits``.
    """

    path: str | None = None
    base: str = "trunk"
    joints: RobotParts = tuple(
        f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")
    )
    feet: RobotParts = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")
    penalize_contacts_on: tuple[str, ...] = tuple(
        f"{leg}_{part}" for leg in ("FR", "FL", "RR", "RL") for part in ("thigh", "calf")
    )
    terminate_after_contacts_on: tuple[str, ...] = ("trunk",)
    collide: bool = False
    default_joint_angles: dict[Part, Angle] = Field(
        default_factory=lambda: {
            "R_hip": -0.1,
            "L_hip": 0.1,
            "FR_thigh": 0.8,
            "FL_thigh": 0.8,
            "RR_thigh": 1.0,
            "RL_thigh": 1.0,
            "calf": -1.5,
        }
    )
    torque_limit: Limit | dict[Part, Limit] | None = None
    velocity_limit: Limit = 21.0


class SimConfig(Section):
    """MuJoCo's time step in seconds, and the work of its Newton solver in each.

    With 4 iterations and 8 line searches feet slip where their friction says. With 1 and 5 a step costs half
    as much and robots learn to walk too, but on any ground as if it were not slippery.
    """

    dt: float = Field(0.005, ge=1e-5, le=0.02)
    iterations: int = Field(4, ge=1, le=100)
    ls_iterations: int = Field(8, ge=1, le=100)


class ControlConfig(Section):
    """Joint targets and the PD law that follows them.

    Attributes:
        stiffness, damping: in Nm/rad and Nm s/rad, for all joints or by a part of their names.
        action_scale: target = default angle + action_scale * action.
        decimation: simulator steps of a control step.
        delay: seconds until a new action acts, drawn for each environment; at most one control step.
    """

    stiffness: PerJoint = 20.0
    damping: PerJoint = 0.5
    action_scale: Limit = 0.25
    decimation: int = Field(4, ge=1, le=1000)
    delay: Delays = (0.0, 0.0)


class CommandRanges(Section):
    """Least and greatest command: m/s, m/s, rad/s, and the heading in rad."""

    lin_vel_x: Speeds = (-1.0, 1.0)
    lin_vel_y: Speeds = (-1.0, 1.0)
    ang_vel_yaw: Speeds = (-1.0, 1.0)
    heading: Headings = (-3.14, 3.14)


class CommandsConfig(Section):
    """What the robot is told to do.

    Attributes:
        resampling_time: seconds from one command to the next.
        heading_command: the yaw rate follows from the error of a commanded heading.
        zero_probability: share of the commands that ask it to stand still.
        smallest: planar commands that are shorter, in m/s, are 0.
        curriculum: ranges of planar velocity start at ``start`` of theirs; those of an environment
            grow by ``step`` of them after an episode whose tracking_lin_vel, summed over it and divided by
            its time limit in steps, is above 0.8.
    """

    resampling_time: Seconds = 10.0
    heading_command: bool = True
    zero_probability: Fraction = 0.05
    smallest: float = Field(0.2, ge=0, le=100)
    curriculum: bool = False
    start: Fraction = 0.5
    step: float = Field(0.1, gt=0, le=1)
    ranges: CommandRanges = CommandRanges()


class DomainRandConfig(Section):
    """What differs between environments.

    Attributes:
        friction_range: of the ground; null: MuJoCo's 1.
        added_mass_range: kg on the base.
        com_displacement_range: m that the base's centre of mass is moved along each axis.
        motor_strength_range, stiffness_range, damping_range: factors of every motor's torque and of the gains.
        each_episode: draw anew for every episode; else once for each environment.
        push_interval_s: seconds from one push to the next; null: none.
        max_push_vel_xy: m/s, the greatest change of velocity along an axis.
    """

    friction_range: Frictions | None = (0.5, 1.25)
    added_mass_range: Masses | None = None
    com_displacement_range: Places | None = None
    motor_strength_range: Factors | None = None
    stiffness_range: Factors | None = None
    damping_range: Factors | None = None
    each_episode: bool = False
    push_interval_s: Seconds | None = 15.0
    max_push_vel_xy: float = Field(1.0, ge=0, le=100)


class EpisodeConfig(Section):
    """Episodes and how they start and end.

    Attributes:
        episode_length_s: time limit in seconds.
        start_length_s: an environment's first time limit; it grows by half after every episode
            that reaches it; null: the whole limit from the start.
        max_tilt: rad from upright beyond which it has fallen; null: none.
        min_height: m of the base under which it has fallen; null: none.
        joint_noise: the joints start at their default angle times 1 +- this.
        velocity_noise: the base starts with velocities up to this, in m/s and rad/s.
    """

    episode_length_s: Seconds = 20.0
    start_length_s: Seconds | None = None
    max_tilt: float | None = Field(1.0, gt=0, le=3.14)
    min_height: Place | None = None
    joint_noise: float = Field(0.2, ge=0, lt=1)
    velocity_noise: float = Field(0.3, ge=0, le=100)


class LeggedConfig(Section):
    """All of a legged environment.

    Attributes:
        dt: seconds of a control step.
    """

    robot: RobotConfig = RobotConfig()
    sim: SimConfig = SimConfig()
    control: ControlConfig = ControlConfig()
    commands: CommandsConfig = CommandsConfig()
    rewards: RewardsConfig = RewardsConfig()
    domain_rand: DomainRandConfig = DomainRandConfig()
    noise: NoiseConfig = NoiseConfig()
    normalization: NormalizationConfig = NormalizationConfig()
    episode: EpisodeConfig = EpisodeConfig()
    terrain: TerrainConfig = TerrainConfig()
    camera: CameraConfig | None = None

    @model_validator(mode="after")
    def _times_fit(self):
        delay = self.control.delay
        if delay[1] > self.dt:
            limits = f"it must lie in [0, {self.dt:g}], one control step"
            raise ValueError(f"control.delay: {list(delay)} is not allowed; {limits}")
        first, whole = self.episode.start_length_s, self.episode.episode_length_s
        if first is not None and first > whole:
            raise ValueError(f"episode.start_length_s: {first:g} is not allowed; it must be <= {whole:g}")
        if whole < self.dt:
            least = f"it must be >= {self.dt:g}, one step"
            raise ValueError(f"episode.episode_length_s: {whole:g} is not allowed; {least}")
        return self

    @property
    def dt(self) -> float:
        return self.sim.dt * self.control.decimation

    def steps(self, seconds: float) -> int:
        """Control steps of a time, at least 1, and no more than a counter holds: that is never."""
        return min(max(1, round(seconds / self.dt)), 2**31 - 1)

    def evaluated(self) -> "LeggedConfig":
        """Without what makes training harder or easier: no pushes, whole episodes, all commands and levels."""
        changes = {
            "domain_rand": self.domain_rand.model_copy(update={"push_interval_s": None}),
            "commands": self.commands.model_copy(update={"curriculum": False}),
            "episode": self.episode.model_copy(update={"start_length_s": None}),
            "terrain": self.terrain.model_copy(update={"curriculum": False}),
        }
        return self.model_copy(update=changes)
