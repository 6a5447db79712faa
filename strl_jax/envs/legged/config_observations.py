"""The sections ``noise`` and ``normalization`` of a legged environment's config."""

from strl_jax.envs.legged.config_types import Gain, Limit, Weight
from strl_jax.section import Section


class NoiseScales(Section):
    """Maximum error of each measurement: m/s, rad/s, the unit vector of gravity, rad, and rad/s."""

    lin_vel: Gain = 0.1
    ang_vel: Gain = 0.2
    gravity: Gain = 0.05
    dof_pos: Gain = 0.01
    dof_vel: Gain = 1.5


class NoiseConfig(Section):
    """Uniform noise of the component ``proprioception``; ``noise_level`` is a factor of all errors."""

    add_noise: bool = True
    noise_level: Gain = 1.0
    noise_scales: NoiseScales = NoiseScales()


class ObsScales(Section):
    """Factors by which observations are multiplied."""

    lin_vel: Weight = 2.0
    ang_vel: Weight = 0.25
    dof_pos: Weight = 1.0
    dof_vel: Weight = 0.05
    height_measurements: Weight = 5.0


class NormalizationConfig(Section):
    """Scales of the observations, and limits: ``proprioception`` and the actions are clipped to [-limit, limit]."""

    obs_scales: ObsScales = ObsScales()
    clip_observations: Limit = 100.0
    clip_actions: Limit = 100.0
