"""Networks of an augmented engine as the fused Warp kernel takes them, where it can.

It can where the contact law is the penalty law, every wire adds to what is there, and networks with two hidden layers
give joint forces from angles and rates, or normal force and friction of every candidate from its own depth and motion.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nerd_gym.physics.torch.contact_net import pack_rows
from nerd_gym.physics.warp.scalar_nets import KINDS, ScalarNet

from .model import AugmentedModel

WIDEST = 128  # units in a hidden layer of all joint networks together
LINKS = ("mass", "com", "inertia", "offset", "rotation", "axis")  # values that a tree of links is made of
OTHERS = ("armature", "damping", "contact_gains", "limit_gains", "gravity")


class FusedNets(NamedTuple):
    """Packed weights with the sizes of their layers; None: no such network."""

    torque: tuple[Tensor, ScalarNet] | None
    contact: tuple[Tensor, ScalarNet] | None


def fused_nets(model: AugmentedModel) -> FusedNets | None:
    """None: only the torch engine can step this model."""
    if model.contact != "penalty" or not set(model.values) <= {*LINKS, *OTHERS}:
        return None
    torque, contact = [], []
    for k, one in enumerate(model.wires):
        groups = {name.split("/")[0] for names in one.outputs for name in names}
        reads = {name.split("/")[0] for names in one.inputs for name in names}
        if not one.wire.residual or len(one.wire.hidden) != 2:
            return None
        if groups == {"tau"} and reads <= {"q", "qd"}:
            torque.append(k)
        elif groups <= {"normal", "friction"} and reads <= {"depth", "along", "slip"}:
            contact.append(k)
        else:
            return None
    if len(contact) > 1 or len({model.wires[k].wire.activation for k in torque}) > 1:
        return None
    joint, touch = _torque(model, torque), None
    if contact and (touch := _contact(model, contact[0])) is None:
        return None
    if joint is not None and max(joint[1].first, joint[1].second) > WIDEST:
        return None
    return FusedNets(joint, touch)


def _torque(model: AugmentedModel, wires: list[int]) -> tuple[Tensor, ScalarNet] | None:
    """All networks of joints as one, whose hidden units know only the signals and the units that are their own."""
    if not wires:
        return None
    robot = model.robot
    joints = {name: k for k, name in enumerate(robot.joint_names)}
    parts = [(*element, model.scalar_nets[k]) for k in wires for element in _elements(model, k)]
    sizes = [[layer.out_features for layer in net.linears][:2] for *_, net in parts]
    first, second = (sum(size[i] for size in sizes) for i in (0, 1))
    nj = robot.nj
    layers = [
        (torch.zeros(rows, columns).double(), torch.zeros(rows).double())
        for rows, columns in ((first, 2 * nj), (second, first), (nj, second))
    ]
    zero = torch.as_tensor(robot.mj_model.qpos0[robot.joint_q])
    at = [0, 0]
    for (names, outs, net), (a, b) in zip(parts, sizes, strict=True):
        (w1, b1), (w2, b2), (w3, b3) = net.folded()
        rows, units = slice(at[0], at[0] + a), slice(at[1], at[1] + b)
        bias = b1.clone()
        for column, name in enumerate(names):
            group, joint = name.split("/", 1)
            k = joints[joint]
            layers[0][0][rows, k + nj * (group == "qd")] += w1[:, column]
            bias += w1[:, column] * float(zero[k]) * (group == "q")
        layers[0][1][rows] = bias
        layers[1][0][units, rows], layers[1][1][units] = w2, b2
        for row, name in enumerate(outs):
            k = joints[name.split("/", 1)[1]]
            layers[2][0][k, units] = w3[row]
            layers[2][1][k] = b3[row]
        at = [at[0] + a, at[1] + b]
    kind = KINDS[model.wires[wires[0]].wire.activation]
    return _packed(layers), ScalarNet(first, second, kind)


def _elements(model: AugmentedModel, k: int):
    one = model.wires[k]
    return list(zip(one.inputs, one.outputs, strict=True))


def _contact(model: AugmentedModel, k: int) -> tuple[Tensor, ScalarNet] | None:
    """One network for every candidate; None if it is not that."""
    one, net = model.wires[k], model.scalar_nets[k]
    names = model.robot.candidates.names
    groups = [name.split("/")[0] for name in one.outputs[0]]
    signals = [name.split("/")[0] for name in one.inputs[0]]
    wanted = [(tuple(f"{g}/{name}" for g in groups), tuple(f"{s}/{name}" for s in signals)) for name in names]
    if list(zip(one.outputs, one.inputs, strict=True)) != wanted:
        return None
    (w1, b1), (w2, b2), (w3, b3) = net.folded()
    weight = torch.zeros(len(w1), 3).double()
    for column, signal in enumerate(signals):
        weight[:, ("depth", "along", "slip").index(signal)] += w1[:, column]
    last, bias = torch.zeros(2, w3.shape[1]).double(), torch.zeros(2).double()
    for row, group in enumerate(groups):
        last[("normal", "friction").index(group)] = w3[row]
        bias[("normal", "friction").index(group)] = b3[row]
    kind = KINDS[one.wire.activation]
    return _packed([(weight, b1), (w2, b2), (last, bias)]), ScalarNet(len(w1), len(w2), kind)


def _packed(layers: list[tuple[Tensor, Tensor]]) -> Tensor:
    return torch.cat([pack_rows(weight.float(), bias.float()) for weight, bias in layers])
