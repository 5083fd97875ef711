"""What a network is told of a robot's contact candidates."""

from __future__ import annotations

import torch
from torch import Tensor

from ..robots.contacts import Contacts
from .frames import Frame

# A candidate farther away than this is hidden: four radii of its sphere, but at least 0.12 m (the paper's choice).
SEEN_RADII = 4.0
SEEN_AT_LEAST = 0.12


def masked_features(contacts: Contacts, frame: Frame, radius: Tensor) -> Tensor:
    """The paper's features [N, 7 C]: normals, points on the plane and centre distances of the C candidates.

    Normals and points are in the robot's frame; a candidate that is far away has zeros. radius is [C].
    """
    depth = contacts.distance + radius
    seen = (depth < (SEEN_RADII * radius).clamp_min(SEEN_AT_LEAST))[..., None]
    on_plane = contacts.centre - depth[..., None] * contacts.ground_normal[:, None]
    parts = (frame.vectors(contacts.normal), frame.points(on_plane), depth[..., None])
    return torch.cat([torch.where(seen, part, 0.0).flatten(1) for part in parts], 1)
