"""Probe environments: tiny tasks without physics whose exact solution is known. Each tests one part of a learner.

After Andy Jones, "Debugging RL, without the agonizing pain" (2021). Each docstring
gives what a correct learner learns: V is the critic's value, mean is the actor's mean action.
"""

from strl_jax.envs.probe.base import Probe
from strl_jax.envs.probe.control import Action, Image, Nan, StateAction, TwoGroups
from strl_jax.envs.probe.memory import Remember, Teacher
from strl_jax.envs.probe.sparse import Sparse
from strl_jax.envs.probe.style import Gait, Style, expert_pairs
from strl_jax.envs.probe.values import Constant, Cycle, Discounted, ObservedReward, Timeout

__all__ = ["PROBES", "Probe", "expert_pairs", "make"]

PROBES: dict[str, type[Probe]] = {
    "constant": Constant,
    "observed_reward": ObservedReward,
    "discounted": Discounted,
    "action": Action,
    "state_action": StateAction,
    "timeout": Timeout,
    "cycle": Cycle,
    "nan": Nan,
    "two_groups": TwoGroups,
    "remember": Remember,
    "image": Image,
    "style": Style,
    "gait": Gait,
    "teacher": Teacher,
    "sparse": Sparse,
}


def make(name: str, **kwargs) -> Probe:
    """A probe environment by name.

    Args:
        name: a key of ``PROBES``.
        **kwargs: options: ``target`` of ``action``, ``probability`` of ``nan``, ``delay`` of
            ``remember`` and ``teacher``, ``prefer`` of ``style``, ``length`` and ``cost`` of ``sparse``.

    Raises:
        ValueError: unknown name or option (the message lists the known ones), or an
            option out of range.
    """
    if name not in PROBES:
        raise ValueError(f"unknown probe environment {name!r}; known: {', '.join(PROBES)}")
    known = list(PROBES[name].__dataclass_fields__)
    for option in kwargs:
        if option not in known:
            raise ValueError(
                f"probe environment {name!r} has no option {option!r}; its options: {', '.join(known) or 'none'}"
            )
    return PROBES[name](**kwargs)
