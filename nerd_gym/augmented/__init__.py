"""Networks inside a differentiable engine (NeuralSim): blueprints, their training, and what finds them."""

from .models.blueprint import Blueprint, Wire
from .models.file import load_augmented, save_augmented
from .models.model import AugmentedModel

__all__ = ["AugmentedModel", "Blueprint", "Wire", "load_augmented", "save_augmented"]
