"""Triangle meshes of the geoms of a MuJoCo model."""

import mujoco
import numpy as np

AROUND, ALONG = 24, 12  # number of faces around the axis and along the axis of round geoms
GEOM = mujoco.mjtGeom
Triangles = tuple[np.ndarray, np.ndarray]  # vertices [V, 3] in the geom's frame, faces [N, 3]


def triangles(model: mujoco.MjModel, geom: int) -> Triangles | None:
    """Surface of a geom; None for planes, height fields and types without a surface."""
    kind, size = GEOM(model.geom_type[geom]), model.geom_size[geom]
    if kind in (GEOM.mjGEOM_SPHERE, GEOM.mjGEOM_CAPSULE):
        return _ball(size[[0, 0, 0]], size[1] * (kind == GEOM.mjGEOM_CAPSULE))
    if kind == GEOM.mjGEOM_ELLIPSOID:
        return _ball(size, 0.0)
    if kind == GEOM.mjGEOM_CYLINDER:
        radius, half = size[:2]
        return _revolved(np.array([0, radius, radius, 0]), np.array([half, half, -half, -half]))
    if kind == GEOM.mjGEOM_BOX:
        return _box(size)
    return _mesh(model, model.geom_dataid[geom]) if kind == GEOM.mjGEOM_MESH else None


def height_field(model: mujoco.MjModel, geom: int, low: np.ndarray, high: np.ndarray) -> Triangles:
    """The part of a height field that contains the rectangle from ``low [2]`` to ``high [2]``, at least one cell.

    Args:
        model: the model.
        geom: index of a geom of type height field.
        low, high: corners of the rectangle in the geom's frame, m.
    """
    field = model.geom_dataid[geom]
    rows, columns, first = model.hfield_nrow[field], model.hfield_ncol[field], model.hfield_adr[field]
    half, rise = model.hfield_size[field, :2], model.hfield_size[field, 2]
    heights = rise * model.hfield_data[first : first + rows * columns].reshape(rows, columns)
    x, y = np.linspace(-half[0], half[0], columns), np.linspace(-half[1], half[1], rows)
    i, j = map(enclosing_nodes, (x, y), low, high)
    grid = np.stack(np.meshgrid(x[i], y[j]), axis=-1)
    vertices = np.concatenate([grid, heights[j, i][..., None]], axis=-1)
    return vertices.reshape(-1, 3), _grid_faces(*vertices.shape[:2])


def enclosing_nodes(axis: np.ndarray, low: float, high: float) -> slice:
    """The nodes of a grid axis ``[n]``, in ascending order, that enclose [low, high]; at least two nodes."""
    begin = int(np.clip(np.searchsorted(axis, low, side="right") - 1, 0, len(axis) - 2))
    return slice(begin, int(np.clip(np.searchsorted(axis, high) + 1, begin + 2, len(axis))))


def _ball(radii: np.ndarray, half: float) -> Triangles:
    """An ellipsoid whose upper and lower halves are moved apart by ``half`` each and joined by a cylinder."""
    angles = np.linspace(0, np.pi, ALONG + 2 - ALONG % 2)  # an even number, from pole to pole: none is at the equator
    rings = np.sort(np.concatenate([angles, [np.pi / 2, np.pi / 2]]))  # both halves get a ring at the equator
    vertices, faces = _revolved(np.sin(rings), np.cos(rings))
    upper = np.arange(len(vertices)) < len(vertices) // 2
    return vertices * radii + np.where(upper, half, -half)[:, None] * [0, 0, 1], faces


def _revolved(radii: np.ndarray, heights: np.ndarray) -> Triangles:
    """A surface of revolution around z, from the radius and the height of each ring."""
    angles = np.linspace(0, 2 * np.pi, AROUND + 1)
    x, y = np.multiply.outer(radii, np.cos(angles)), np.multiply.outer(radii, np.sin(angles))
    vertices = np.stack([x, y, np.broadcast_to(heights[:, None], x.shape)], axis=-1)
    return vertices.reshape(-1, 3), _grid_faces(*x.shape)


def _box(size: np.ndarray) -> Triangles:
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))]
    return signs * size, np.array(faces)


def _mesh(model: mujoco.MjModel, mesh: int) -> Triangles:
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, number = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    return model.mesh_vert[first : first + count], model.mesh_face[face : face + number]


def _grid_faces(rows: int, columns: int) -> np.ndarray:
    """Two triangles for each cell of a grid of vertices."""
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    return np.stack([np.stack([a, b, c], -1), np.stack([b, d, c], -1)], axis=2).reshape(-1, 3)
