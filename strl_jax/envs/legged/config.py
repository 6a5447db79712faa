"""The config of the legged environments (``env.kwargs``), with the names of legged_gym."""

from pydantic import Field, model_validator

from strl_jax.envs.legged.config_ground import CameraConfig, TerrainConfig
from strl_jax.envs.legged.config_observations import NoiseConfig, NormalizationConfig
from strl_jax.envs.legged.config_rewards import RewardsConfig
from strl_jax.envs.legged.config_types import (
    Angle,
    Delays,
    Factors,
    Feet,
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
    """The robot. The defaults fit this library's quadruped.

    Attributes:
        path: an MJCF file, a folder that contains one, or PACKAGE:FILE; null: this library's quadruped.
        base: body with the free joint.
        joints: hinge joints in the order of actions and observations: names, or patterns such as ``*_knee_joint``,
            whose joints are in the order of the file.
        held_joints: joints that are no actions and that a PD law holds at their default angles, as names or patterns;
            ``*``: all joints that are not in ``joints``. They are no part of observations, rewards and ``domain_rand``.
        feet: each foot is a geom, a body (all its geoms that can collide), a pattern (all such geoms with names that
            fit it) or a list of geoms.
        penalize_contacts_on: bodies for which a contact with the ground is a collision.
        terminate_after_contacts_on: bodies for which a contact with the ground ends the episode.
        collide: spheres, capsules and boxes that can collide in the file also collide with the ground, not only
            the feet.
        default_keyframe: name of the file's keyframe whose joint angles are the default angles; null: none.
        default_joint_angles: angle in rad of each joint at action 0, by a part of its name; if
            several parts fit, the last one is used. With ``default_keyframe``, the default is {}, and only joints that
            differ from the keyframe are listed. A held joint without an angle stays at the file's reference angle.
        torque_limit: in Nm; null: the smallest of the limits in the file; a held joint may have none.
        armature: inertia of the rotors in kg m^2, for all joints or by a part of their names; null: as in the file.
        velocity_limit: in rad/s, for the reward ``dof_vel_limits``.
    """

    path: str | None = None
    base: str = "trunk"
    joints: RobotParts = tuple(
        f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")
    )
    held_joints: tuple[str, ...] = ()
    feet: Feet = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")
    penalize_contacts_on: tuple[str, ...] = tuple(
        f"{leg}_{part}" for leg in ("FR", "FL", "RR", "RL") for part in ("thigh", "calf")
    )
    terminate_after_contacts_on: tuple[str, ...] = ("trunk",)
    collide: bool = False
    default_keyframe: str | None = None
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
    armature: PerJoint | None = None
    velocity_limit: Limit = 21.0

    @model_validator(mode="before")
    @classmethod
    def _angles_of_the_keyframe(cls, data):
        if isinstance(data, dict) and data.get("default_keyframe") is not None:
            return {"default_joint_angles": {}} | data
        return data


class SimConfig(Section):
    """MuJoCo's time step, and the iterations of its Newton solver.

    With 4 iterations and 8 line-search iterations, the friction of the feet keeps its physical limit. With 1 and
    5, a step takes half the time and robots learn to walk, but on slippery ground the feet slip too little.

    Attributes:
        dt: time step in seconds.
        iterations, ls_iterations: iterations of the solver, and of its line search, in each time step.
    """

    dt: float = Field(0.005, ge=1e-5, le=0.02)
    iterations: int = Field(4, ge=1, le=100)
    ls_iterations: int = Field(8, ge=1, le=100)


class ControlConfig(Section):
    """Joint targets and PD control.

    Attributes:
        stiffness, damping: gains in Nm/rad and Nm s/rad, for all joints (also the held ones) or by a part of their
            names.
        action_scale: target = default angle + action_scale * action.
        decimation: simulator steps in a control step.
        delay: range of the seconds until a new action takes effect, drawn for each environment; at most one
            control step.
    """

    stiffness: PerJoint = 20.0
    damping: PerJoint = 0.5
    action_scale: Limit = 0.25
    decimation: int = Field(4, ge=1, le=1000)
    delay: Delays = (0.0, 0.0)


class CommandRanges(Section):
    """Minimum and maximum of each command: velocities in m/s, the yaw rate in rad/s, the heading in rad."""

    lin_vel_x: Speeds = (-1.0, 1.0)
    lin_vel_y: Speeds = (-1.0, 1.0)
    ang_vel_yaw: Speeds = (-1.0, 1.0)
    heading: Headings = (-3.14, 3.14)


class CommandsConfig(Section):
    """Velocity commands.

    Attributes:
        resampling_time: seconds between commands.
        heading_command: the commanded yaw rate is computed from the error of a commanded heading.
        zero_probability: fraction of commands to stand still.
        smallest: planar velocity commands shorter than this, in m/s, become 0.
        curriculum: an environment starts with the fraction ``start`` of the ranges of planar velocity. The
            fraction increases by ``step`` after an episode whose sum of tracking_lin_vel, divided by the
            time limit in steps, is above 0.8.
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
    """Differences between environments.

    Attributes:
        friction_range: friction of the ground; null: 1, as in MuJoCo.
        added_mass_range: kg on the base.
        com_displacement_range: m by which the base's centre of mass is moved along each axis.
        motor_strength_range: factor of the torque, drawn for each motor.
        stiffness_range, damping_range: factors of the PD gains, drawn once for all motors of a robot.
        each_episode: draw for each episode; false: once for each environment.
        push_interval_s: seconds between pushes; null: no pushes.
        max_push_vel_xy: maximum change of velocity along an axis, in m/s.
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
    """Start and end of episodes.

    Attributes:
        episode_length_s: time limit in seconds.
        start_length_s: an environment's first time limit in seconds; it increases by half after each episode
            that reaches it; null: the whole limit from the start.
        max_tilt: angle from upright in rad above which the robot has fallen; null: none.
        min_height: height of the base in m below which the robot has fallen; null: none.
        level_feet: tilt the base at the start so that all feet are on the ground; false: the base is upright, and the
            lowest foot is on the ground.
        joint_noise: the initial angle of a joint is its default angle times a factor in 1 +- joint_noise.
        velocity_noise: maximum initial velocity of the base, in m/s and rad/s.
    """

    episode_length_s: Seconds = 20.0
    start_length_s: Seconds | None = None
    max_tilt: float | None = Field(1.0, gt=0, le=3.14)
    min_height: Place | None = None
    level_feet: bool = False
    joint_noise: float = Field(0.2, ge=0, lt=1)
    velocity_noise: float = Field(0.3, ge=0, le=100)


class LeggedConfig(Section):
    """All settings of a legged environment.

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
            limits = f"it must be within [0, {self.dt:g}], one control step"
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
        """A time as control steps, at least 1, and at most 2^31 - 1, which no run reaches."""
        return min(max(1, round(seconds / self.dt)), 2**31 - 1)

    def evaluated(self) -> "LeggedConfig":
        """The config for evaluation: no pushes and no curricula of episode lengths, commands or levels."""
        changes = {
            "domain_rand": self.domain_rand.model_copy(update={"push_interval_s": None}),
            "commands": self.commands.model_copy(update={"curriculum": False}),
            "episode": self.episode.model_copy(update={"start_length_s": None}),
            "terrain": self.terrain.model_copy(update={"curriculum": False}),
        }
        return self.model_copy(update=changes)
