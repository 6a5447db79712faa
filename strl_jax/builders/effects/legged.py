"""The keys of a legged environment that have no effect; see ``rules``."""

from collections.abc import Iterator

from pydantic import BaseModel

from strl_jax.envs.legged.config import LeggedConfig

Keys = Iterator[tuple[str, str]]  # dotted key inside env.kwargs, reason
OF_TERMS = {  # parameter -> the reward terms that use it
    "rewards.tracking_sigma": ("tracking_lin_vel", "tracking_ang_vel"),
    "rewards.soft_dof_pos_limit": ("dof_pos_limits",),
    "rewards.soft_dof_vel_limit": ("dof_vel_limits",),
    "rewards.soft_torque_limit": ("torque_limits",),
    "rewards.base_height_target": ("base_height",),
    "rewards.feet_air_time_threshold": ("feet_air_time",),
    "rewards.max_contact_force": ("feet_contact_forces",),
    "robot.velocity_limit": ("dof_vel_limits",),
    "robot.penalize_contacts_on": ("collision",),
}
OF_KINDS = {  # parameter of the terrain -> the kinds of fields that use it
    "rough_height": ("rough",),
    "seed": ("rough",),
    "slope": ("slope_up", "slope_down"),
    "step_height": ("stairs_up", "stairs_down"),
    "step_width": ("stairs_up", "stairs_down"),
    "gap_size": ("gaps",),
    "gap_depth": ("gaps",),
    "block_height": ("blocks_up", "blocks_down"),
    "block_length": ("blocks_up", "blocks_down"),
    "passed_distance": ("gaps", "blocks_up", "blocks_down"),
}
POINTS = ("measured_points_x", "measured_points_y")
ON_A_PLANE = ("mesh_type", "measure_heights", *POINTS)


def keys(config: LeggedConfig, observed: set[str] | None) -> Keys:
    """Dotted keys without effect, each with the reason.

    Args:
        observed: the components that a network observes; None: all.
    """
    yield from _terrain(config)
    yield from _observations(config, observed)
    yield from _rewards(config)
    if not config.commands.heading_command:
        yield "commands.ranges.heading", "it needs heading_command: true"
    if not config.commands.curriculum:
        for name in ("start", "step"):
            yield f"commands.{name}", "it needs commands.curriculum: true"
    rand = config.domain_rand
    if rand.push_interval_s is None:
        yield "domain_rand.max_push_vel_xy", "push_interval_s is null"
    ranges = (rand.friction_range, rand.added_mass_range, rand.com_displacement_range, rand.motor_strength_range)
    if (
        not any((*ranges, rand.stiffness_range, rand.damping_range))
        and config.control.delay[0] == config.control.delay[1]
    ):
        yield "domain_rand.each_episode", "no property is drawn: all ranges are null and there is no range of delays"


def _terrain(config: LeggedConfig) -> Keys:
    terrain = config.terrain
    if terrain.mesh_type == "plane":
        for name in names(type(terrain)):
            if name not in ON_A_PLANE:
                yield f"terrain.{name}", "mesh_type is plane"
        yield "camera.steps", "the ground is a plane"
        return
    for name, kinds in OF_KINDS.items():
        if not set(kinds) & set(terrain.kinds):
            yield f"terrain.{name}", f"no column of the terrain is {' or '.join(kinds)}"
    if not terrain.curriculum:
        yield "terrain.max_init_terrain_level", "it needs terrain.curriculum: true"


def _observations(config: LeggedConfig, observed: set[str] | None) -> Keys:
    noise = config.noise
    if not noise.add_noise:
        yield "noise.noise_level", "it needs add_noise: true"
    if not noise.add_noise or noise.noise_level == 0:
        for name in names(type(noise.noise_scales)):
            yield f"noise.noise_scales.{name}", "there is no noise"

    def unseen(component: str) -> bool:
        return observed is not None and component not in observed

    why = "no group of env.groups has the component {}"
    scan = ("normalization.obs_scales.height_measurements", *(f"terrain.{name}" for name in POINTS))
    if not config.terrain.measure_heights:
        for key in scan:
            yield key, "it needs terrain.measure_heights: true"
    elif unseen("height_scan"):
        for key in scan:
            yield key, why.format("height_scan")
    if unseen("forward_depth"):
        yield "camera", why.format("forward_depth")
    if unseen("engaging_block"):
        for name in ("engage_distance", "passed_distance"):
            yield f"terrain.{name}", why.format("engaging_block")
    if unseen("proprioception"):
        scales = (f"normalization.obs_scales.{name}" for name in ("ang_vel", "dof_pos", "dof_vel"))
        for key in ("noise", "normalization.clip_observations", *scales):
            yield key, why.format("proprioception")


def _rewards(config: LeggedConfig) -> Keys:
    for key, terms in OF_TERMS.items():
        if any(getattr(config.rewards.scales, term) for term in terms):
            continue
        if key != "rewards.tracking_sigma" or not config.commands.curriculum:  # the curriculum reads the tracking
            yield key, f"the weight of {' and '.join(terms)} is 0"


def names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of all values in a model, also of those in its sections."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from names(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
