"""Legged environments in which keys have an effect, and for each key one of them with another value of the key."""

from typing import Any

from strl_jax.envs.legged.config_rewards import RewardScales

SIZES = {"num_rows": 3, "num_cols": 18, "terrain_length": 5.0, "platform_size": 1.0, "border_size": 1.0}
SIZES |= {"horizontal_scale": 0.25, "block_length": 0.5, "gap_size": [0.2, 0.4]}
SIZES |= {"terrain_proportions": {"rough": 0.2, "slope_up": 0.2}}
RANGES = {f"{name}_range": [0.5, 1.5] for name in ("added_mass", "motor_strength", "stiffness", "damping")}
FLAT = {
    "rewards": {"scales": dict.fromkeys(RewardScales.model_fields, -0.5)},
    "commands": {"curriculum": True},
    "domain_rand": RANGES | {"com_displacement_range": [-0.1, 0.1]},
    "episode": {"start_length_s": 5.0, "min_height": 0.1},
    "control": {"delay": [0.0, 0.02]},
}
MOVED = [f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("thigh", "calf")]
BASES: dict[str, tuple[str, dict]] = {
    "flat": ("legged:flat", FLAT),
    "default": ("legged:rough", {}),
    "rough": ("legged:rough", {"terrain": SIZES}),
    "camera": ("legged:rough", {"terrain": SIZES, "camera": {"height": 3, "width": 4, "steps": 3}}),
    "held": ("legged:flat", {"robot": {"joints": MOVED, "held_joints": ["*"]}}),
}
SWAPPED = ("FL", "FR", "RR", "RL")
OTHER_JOINTS = [f"{leg}_{part}_joint" for leg in SWAPPED for part in ("hip", "thigh", "calf")]
FLAT_CASES: dict[str, Any] = {
    "robot.path": "HERE/robot.xml",
    "robot.joints": OTHER_JOINTS,
    "robot.feet": [f"{leg}_foot" for leg in SWAPPED],
    "robot.penalize_contacts_on": ["FR_thigh"],
    "robot.terminate_after_contacts_on": ["FR_thigh"],
    "robot.collide": True,
    "robot.default_joint_angles": {"hip": 0.0, "thigh": 0.9, "calf": -1.5},
    "robot.torque_limit": 5.0,
    "robot.velocity_limit": 5.0,
    "robot.armature": 0.05,
    "sim.dt": 0.01,
    "sim.iterations": 2,
    "sim.ls_iterations": 4,
    "control.stiffness": 5.0,
    "control.damping": 0.25,
    "control.action_scale": 0.5,
    "control.decimation": 5,
    "control.delay": [0.0, 0.01],
    "commands.resampling_time": 5.0,
    "commands.heading_command": False,
    "commands.zero_probability": 0.5,
    "commands.smallest": 0.1,
    "commands.curriculum": False,
    "commands.start": 0.25,
    "commands.step": 0.25,
    "commands.ranges.lin_vel_x": [-0.5, 0.5],
    "commands.ranges.lin_vel_y": [-0.5, 0.5],
    "commands.ranges.ang_vel_yaw": [-0.5, 0.5],
    "commands.ranges.heading": [-0.5, 0.5],
    **{f"rewards.scales.{name}": 0.25 for name in RewardScales.model_fields},
    "rewards.only_positive_rewards": False,
    "rewards.tracking_sigma": 0.5,
    "rewards.soft_dof_pos_limit": 0.5,
    "rewards.soft_dof_vel_limit": 0.5,
    "rewards.soft_torque_limit": 0.5,
    "rewards.base_height_target": 0.5,
    "rewards.feet_air_time_threshold": 0.25,
    "rewards.max_contact_force": 50.0,
    "domain_rand.friction_range": None,
    **{f"domain_rand.{name}": [0.75, 1.25] for name in RANGES},
    "domain_rand.com_displacement_range": [-0.2, 0.2],
    "domain_rand.each_episode": True,
    "domain_rand.push_interval_s": 5.0,
    "domain_rand.max_push_vel_xy": 0.5,
    "noise.add_noise": False,
    "noise.noise_level": 0.5,
    **{f"noise.noise_scales.{name}": 0.7 for name in ("lin_vel", "ang_vel", "gravity", "dof_pos", "dof_vel")},
    **{f"normalization.obs_scales.{name}": 0.7 for name in ("lin_vel", "ang_vel", "dof_pos", "dof_vel")},
    "normalization.obs_scales.height_measurements": 0.7,
    "normalization.clip_observations": 5.0,
    "normalization.clip_actions": 5.0,
    "episode.episode_length_s": 10.0,
    "episode.start_length_s": 4.0,
    "episode.max_tilt": 0.5,
    "episode.min_height": 0.2,
    "episode.joint_noise": 0.1,
    "episode.velocity_noise": 0.1,
    "episode.level_feet": True,
}
ROUGH_CASES: dict[str, Any] = {
    "terrain.horizontal_scale": 0.125,
    "terrain.border_size": 2.0,
    "terrain.curriculum": False,
    "terrain.max_init_terrain_level": 0,
    "terrain.terrain_length": 6.0,
    "terrain.num_rows": 2,
    "terrain.num_cols": 17,
    **{
        f"terrain.terrain_proportions.{name}": 0.5
        for name in ("flat", "rough", "slope_up", "slope_down", "stairs_up", "stairs_down", "gaps")
    },
    "terrain.terrain_proportions.blocks_up": 0.5,
    "terrain.terrain_proportions.blocks_down": 0.5,
    "terrain.platform_size": 1.5,
    "terrain.start_offset": 0.25,
    "terrain.rough_height": [0.02, 0.1],
    "terrain.slope": [0.1, 0.2],
    "terrain.step_height": [0.1, 0.2],
    "terrain.step_width": 0.75,
    "terrain.gap_size": [0.5, 0.75],
    "terrain.gap_depth": 0.5,
    "terrain.block_height": [0.1, 0.2],
    "terrain.block_length": 0.75,
    "terrain.seed": 1,
    "terrain.measure_heights": False,
    "terrain.measured_points_x": [0.0, 0.5],
    "terrain.measured_points_y": [0.0, 0.5],
    "terrain.engage_distance": 0.5,
    "terrain.passed_distance": 0.5,
    "camera.position": [0.1, 0.0, 0.0],
    "camera.pitch": 0.2,
    "camera.horizontal_fov": 1.0,
    "camera.height": 4,
    "camera.width": 5,
    "camera.depth_range": [0.2, 2.0],
    "camera.steps": 4,
    "camera.noise": 0.1,
    "camera.centered": True,
}
CASES: dict[str, tuple[str, Any]] = {key: ("flat", value) for key, value in FLAT_CASES.items()}
CASES |= {key: ("camera" if key.startswith("camera.") else "rough", value) for key, value in ROUGH_CASES.items()}
CASES["terrain.mesh_type"] = ("default", "plane")
CASES["robot.base"] = ("default", "FR_hip")  # refused: only one body has a free joint
CASES["robot.default_keyframe"] = ("default", "home")  # refused: the file has no keyframe
CASES["robot.held_joints"] = ("held", ["FL_*", "FR_*"])  # refused: two joints are in no list
REFUSED = ("robot.base", "robot.default_keyframe", "robot.held_joints")
NOTHING = {f"domain_rand.{name}": None for name in (*RANGES, "com_displacement_range", "friction_range")}
TERRAIN = tuple(key for key in ROUGH_CASES if key.startswith("terrain.") and "meas" not in key and "mesh" not in key)
SCAN = ("normalization.obs_scales.height_measurements", "terrain.measured_points_x", "terrain.measured_points_y")
SEEN = ["base_velocity", "contact"]
ALL_SEEN = {"actor": [*SEEN, "proprioception", "height_scan"], "critic": ["forward_depth", "engaging_block"]}


def _without(*names: str) -> dict[str, list[str]]:
    return {group: [name for name in seen if name not in names] or SEEN for group, seen in ALL_SEEN.items()}


def _no_columns(*names: str) -> dict[str, float]:
    return {f"terrain.terrain_proportions.{name}": 0.0 for name in names}


# Base, changes that remove the effect, groups, and the keys that have none.
NO_EFFECT: dict[str, tuple[str, dict, dict, tuple[str, ...]]] = {
    "a plane": ("flat", {}, {}, TERRAIN),
    "a camera on a plane": ("flat", {"camera": {"height": 3}}, {}, ("camera.steps",)),
    "no heading": ("flat", {"commands.heading_command": False}, {}, ("commands.ranges.heading",)),
    "no curriculum": ("flat", {"commands.curriculum": False}, {}, ("commands.start", "commands.step")),
    "no pushes": ("flat", {"domain_rand.push_interval_s": None}, {}, ("domain_rand.max_push_vel_xy",)),
    "no ranges": ("flat", NOTHING | {"control.delay": [0.0, 0.0]}, {}, ("domain_rand.each_episode",)),
    "no noise": (
        "flat",
        {"noise.add_noise": False},
        {},
        ("noise.noise_level", *(key for key in FLAT_CASES if key.startswith("noise.noise_scales."))),
    ),
    "noise of level 0": ("flat", {"noise.noise_level": 0.0}, {}, ("noise.noise_scales.gravity",)),
    "no terms": (
        "rough",
        {f"rewards.scales.{name}": 0.0 for name in RewardScales.model_fields},
        {},
        (
            "rewards.tracking_sigma",
            "rewards.soft_dof_pos_limit",
            "rewards.soft_dof_vel_limit",
            "rewards.soft_torque_limit",
            "rewards.base_height_target",
            "rewards.feet_air_time_threshold",
            "rewards.max_contact_force",
            "robot.velocity_limit",
            "robot.penalize_contacts_on",
        ),
    ),
    "no levels": (
        "rough",
        {"terrain.curriculum": False, "terrain.max_init_terrain_level": 5},
        {},
        ("terrain.max_init_terrain_level",),
    ),
    "no rough fields": ("rough", _no_columns("rough"), {}, ("terrain.rough_height", "terrain.seed")),
    "no slopes": ("rough", _no_columns("slope_up", "slope_down"), {}, ("terrain.slope",)),
    "no stairs": (
        "rough",
        _no_columns("stairs_up", "stairs_down"),
        {},
        ("terrain.step_height", "terrain.step_width"),
    ),
    "no gaps": (
        "rough",
        _no_columns("gaps") | {"terrain.gap_size": [0.2, 0.6]},
        {},
        ("terrain.gap_size", "terrain.gap_depth"),
    ),
    "no obstacles": (
        "rough",
        _no_columns("gaps", "blocks_up", "blocks_down") | {"terrain.gap_size": [0.2, 0.6], "terrain.block_length": 1.5},
        {},
        ("terrain.block_height", "terrain.block_length", "terrain.passed_distance"),
    ),
    "no scan": ("rough", {"terrain.measure_heights": False}, {}, SCAN),
    "unobserved scan": ("rough", {}, _without("height_scan"), SCAN),
    "unobserved obstacles": (
        "rough",
        {},
        _without("engaging_block"),
        ("terrain.engage_distance", "terrain.passed_distance"),
    ),
    "unobserved proprioception": (
        "flat",
        {},
        _without("proprioception"),
        (
            "normalization.clip_observations",
            *(f"normalization.obs_scales.{name}" for name in ("ang_vel", "dof_pos", "dof_vel")),
        ),
    ),
}
