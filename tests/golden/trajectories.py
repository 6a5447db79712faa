"""Trajectories as torch pads them, cut from the steps of environments."""

import numpy as np


def trajectories(done: np.ndarray) -> list[tuple[int, slice]]:
    """Environment and steps of each trajectory of ``done[T, n]``: cut after every done, environment by environment."""
    found = []
    for env in range(done.shape[1]):
        ends = sorted({*np.flatnonzero(done[:, env]).tolist(), len(done) - 1})
        starts = [0, *(end + 1 for end in ends[:-1])]
        found += [(env, slice(start, end + 1)) for start, end in zip(starts, ends, strict=True)]
    return found


def padded(data: np.ndarray, cuts: list[tuple[int, slice]]) -> np.ndarray:
    """Trajectories of ``data[T, n, ...]`` side by side, zeros after their ends: ``[T, trajectories, ...]``."""
    result = np.zeros((len(data), len(cuts), *data.shape[2:]), data.dtype)
    for number, (env, steps) in enumerate(cuts):
        piece = data[steps, env]
        result[: len(piece), number] = piece
    return result
