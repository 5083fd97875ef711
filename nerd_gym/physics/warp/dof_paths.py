"""What a frozen-pose kernel is made for, and the dofs on the way from the base to each link."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import warp as wp

from .tree import Tree


class Shape(NamedTuple):
    """What a kernel is made for."""

    parents: tuple[int, ...]  # [L] links
    contacts: int

    @property
    def deepest(self) -> int:
        """The longest path from the base to a link, in joints."""
        return max(len(path) for path in self.paths())

    def paths(self) -> list[list[int]]:
        """Of every link, the dofs from the base to it."""
        paths: list[list[int]] = []
        for link, parent in enumerate(self.parents):
            paths.append([*paths[parent], link + 5] if link else [])
        return paths


@wp.struct
class DofPaths:
    """Of every link, the dofs from the base to it."""

    depth: wp.array(dtype=wp.int32)  # [L]
    dof: wp.array2d(dtype=wp.int32)  # [L, deepest]


def shape_of(tree: Tree) -> Shape:
    """Of a robot with a free base."""
    return Shape(tuple(int(parent) for parent in tree.parent.numpy()), len(tree.contact_link))


def make_dof_paths(shape: Shape, device: wp.Device) -> DofPaths:
    """As Warp arrays."""
    paths = DofPaths()
    lists = shape.paths()
    dof = np.zeros((len(lists), max(1, shape.deepest)), np.int32)
    for link, path in enumerate(lists):
        dof[link, : len(path)] = path
    paths.depth = wp.array([len(path) for path in lists], dtype=wp.int32, device=device)
    paths.dof = wp.array(dof, dtype=wp.int32, device=device)
    return paths
