"""`mlp`: a residual model without a computation of contact: the network learns all of it.

Of a robot with a free base it learns the residual over free fall, of one with a fixed base the whole change.
"""

from __future__ import annotations

from typing import Any

from .free_fall import ConstantVelocity, FreeFall
from .prior import Prior
from .residual import ResidualModel


class MlpModel(ResidualModel):
    """A prior that needs no data, and a wider network."""

    kind = "mlp"
    default_network = {"width": 256, "depth": 3}

    @classmethod
    def prior_class(cls, facts: dict[str, Any]) -> type[Prior]:
        return FreeFall if facts.get("free_fall_prior", False) else ConstantVelocity  # files of the first version
