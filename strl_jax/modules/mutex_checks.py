"""Checks of the attributes of a ``MutexPolicy``: each raises ``ValueError`` with one line that says what is allowed."""

from strl_jax.modules.mutex_selection import COMMAND, OBSTACLE_IDS, as_range
from strl_jax.observations import Segments

SELECTIONS = ("explicit", "field", "climb")
RESET_RULES = ("all", "when_skill", False)


def check_options(selection: str, reset_non_selected: str | bool, buffer_len: int):
    """The names are known, and the length of the buffer is at least 1."""
    if selection not in SELECTIONS:
        raise ValueError(f"selection must be one of {', '.join(SELECTIONS)}, not {selection!r}")
    if reset_non_selected not in RESET_RULES:
        rules = ", ".join(map(str, RESET_RULES))
        raise ValueError(f"reset_non_selected must be one of {rules}, not {reset_non_selected!r}")
    if buffer_len < 1:
        raise ValueError(f"action_smoothing_buffer_len must be at least 1, not {buffer_len}")


def check_number(count: int, selection: str, legacy: bool):
    """Every column of the selection has a sub-policy; with ``legacy``, ``field`` may have fewer sub-policies."""
    least, most, reason = {
        "explicit": (1, None, "one for each column"),
        "field": (1 if legacy else OBSTACLE_IDS, OBSTACLE_IDS, "one for each obstacle id"),
        "climb": (OBSTACLE_IDS + 1, OBSTACLE_IDS + 1, "one for each obstacle id, then jump-down"),
    }[selection]
    if not least <= count <= (most or count):
        allowed = f"exactly {least}" if least == most else f"{least} to {most}" if most else f"at least {least}"
        raise ValueError(f"{selection} needs {allowed} sub-policies ({reason}), not {count}")


def check_sub_policies(sub_policies: tuple, action_size: int, env_action_scale: float | tuple, actor_obs: Segments):
    """All sub-policies have the same actions and observations, and valid action scales."""
    for i, sub in enumerate(sub_policies):
        if sub.policy.action_size != action_size:
            raise ValueError(f"sub-policy {i} has {sub.policy.action_size} actions, all must have {action_size}")
        if sub.policy.actor_obs not in (None, actor_obs):
            own, expected = (
                ", ".join(f"{name}{list(shape)}" for name, shape in zip(group.names, group.shapes, strict=True))
                for group in (sub.policy.actor_obs, actor_obs)
            )
            raise ValueError(f"sub-policy {i} reads {own}; all must read {expected}")
        check_scale(f"action_scale of sub-policy {i}", sub.action_scale, action_size)
    check_scale("env_action_scale", env_action_scale, action_size)


def check_scale(what: str, scale: float | tuple[float, ...], action_size: int):
    """The scale is one number above 0, or one such number for each action."""
    numbers = (scale,) if isinstance(scale, (int, float)) else tuple(scale)
    if len(numbers) not in (1, action_size) or not all(number > 0 for number in numbers):
        raise ValueError(f"{what} must be one number above 0, or one for each of {action_size} actions, not {scale}")


def check_velocities(mapping: tuple, jump_down_vel: float | tuple | None, count: int, selection: str):
    """Each index exists and is listed once, and low <= high. Jump-down is set by ``jump_down_vel`` only."""
    indices = [index for index, _ in mapping]
    own = count - 1 if selection == "climb" else count
    for index in indices:
        if index not in range(own) or indices.count(index) > 1:
            allowed = f"it may list the sub-policies 0 to {own - 1}, each once"
            jump_down = "; the velocity of jump-down is jump_down_vel" if selection == "climb" else ""
            raise ValueError(f"cmd_vel_mapping: {index!r} is not allowed; {allowed}{jump_down}")
        check_velocity(f"cmd_vel_mapping of sub-policy {index}", dict(mapping)[index])
    if jump_down_vel is not None:
        if selection != "climb":
            raise ValueError(f"jump_down_vel needs the selection climb, not {selection}")
        check_velocity("jump_down_vel", jump_down_vel)


def check_velocity(what: str, velocity: float | tuple[float, float]):
    """The velocity is a number, or a range (low, high)."""
    low, high = as_range(velocity)
    if low > high:
        raise ValueError(f"{what} must be a velocity or a range (low, high) with low <= high, not {velocity}")


def check_observation(actor_obs: Segments, action_size: int, selection: str):
    """The components that the selection reads exist and are long enough."""
    least = {"proprioception": COMMAND + 1 + action_size}
    if selection != "explicit":
        least["engaging_block"] = 1 + OBSTACLE_IDS + (selection == "climb")
    sizes = dict(zip(actor_obs.names, actor_obs.sizes, strict=True))
    for name, size in least.items():
        if name not in sizes:
            raise ValueError(f"{selection} needs the component {name!r}; the group has {', '.join(actor_obs.names)}")
        if sizes[name] < size:
            raise ValueError(f"{selection} needs at least {size} entries of {name!r}, not {sizes[name]}")
