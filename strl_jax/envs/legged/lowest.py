"""The lowest points of a robot's shapes: their clearances from the ground decide what touches it."""

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from strl_jax.types import Array

GEOM = mujoco.mjtGeom
CORNERS = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T  # of a box [8, 3]


class Shapes(NamedTuple):
    """P spheres, ellipsoids, discs and points, whose lowest point is the lowest point of some geoms.

    This is exact for spheres, capsules, cylinders, ellipsoids, boxes and the convex hulls of meshes. Geoms of other
    types are replaced by their bounding boxes.

    Attributes:
        geom: index of the geom [P].
        centre: in the frame of the geom [P, 3], m.
        radius: of spheres [P], m; 0 for the others.
        axes: semi-axes of ellipsoids and discs along the axes of the geom [P, 3], m; 0 for the others.
    """

    geom: np.ndarray
    centre: np.ndarray
    radius: np.ndarray
    axes: np.ndarray

    def centres(self, position: Array, rotation: Array) -> Array:
        """Centres ``[P, 3]`` in the world, m, for all geoms' positions ``[G, 3]`` and rotations ``[G, 3, 3]``."""
        return position[self.geom] + (rotation[self.geom] * self.centre[:, None]).sum(-1)

    def reach(self, rotation: Array, normal: Array | None = None) -> Array:
        """Distance ``[P]`` in m from each centre to the shape's lowest point along the ground's normal.

        Args:
            rotation: ``[G, 3, 3]``, of all geoms.
            normal: ``[P, 3]``, unit vectors in the world; None: the z axis.
        """
        if not self.axes.any():
            return self.radius
        matrix = rotation[self.geom]
        along = matrix[:, 2] if normal is None else (matrix * normal[:, :, None]).sum(1)  # the normal in geom's frame
        return self.radius + ((along * self.axes) ** 2).sum(-1) ** 0.5


def of(model: mujoco.MjModel, geoms: np.ndarray) -> Shapes:
    """The shapes of the geoms, in the order of ``geoms``."""
    rows = [(geom, *row) for geom in geoms for row in _shapes(model, geom)]
    geom, centre, radius, axes = zip(*rows, strict=True)
    return Shapes(np.array(geom), *(np.array(values, np.float32) for values in (centre, radius, axes)))


def _shapes(model: mujoco.MjModel, geom: int) -> list[tuple[np.ndarray, float, np.ndarray]]:
    """Centre, radius and semi-axes of each shape of a geom."""
    kind, size, zero = model.geom_type[geom], model.geom_size[geom], np.zeros(3)
    ends = [np.array([0, 0, sign * size[1]]) for sign in (-1, 1)]
    if kind == GEOM.mjGEOM_SPHERE:
        return [(zero, size[0], zero)]
    if kind == GEOM.mjGEOM_CAPSULE:
        return [(end, size[0], zero) for end in ends]
    if kind == GEOM.mjGEOM_CYLINDER:
        return [(end, 0.0, np.array([size[0], size[0], 0.0])) for end in ends]
    if kind == GEOM.mjGEOM_ELLIPSOID:
        return [(zero, 0.0, size)]
    if kind == GEOM.mjGEOM_MESH:
        return [(vertex, 0.0, zero) for vertex in _hull(model, model.geom_dataid[geom])]
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return [(centre + corner * half, 0.0, zero) for corner in CORNERS]


def _hull(model: mujoco.MjModel, mesh: int) -> np.ndarray:
    """The vertices of a mesh's convex hull [V, 3]; of a flat mesh, all its vertices."""
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices = model.mesh_vert[first : first + count]
    try:
        return vertices[ConvexHull(vertices).vertices]
    except QhullError:
        return vertices
