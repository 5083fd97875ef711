"""How far a learned model may be believed at a state: 0 to 1, always on.

It has two parts, both learned from trajectories that the model was not trained on. A small network predicts the
logarithm of the model's one-frame error from state, force and contacts; the error is relative to the usual change over
a frame (rms over the coordinates). And a box around the training data: outside it nothing is known, so that trust falls
to 0 within half the box's width beyond its edge. :data:`MEANING` defines the scale, for everyone who prints it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from nerd_gym.robots.contacts import Contacts
from nerd_gym.robots.features import HINGE
from nerd_gym.robots.model import RobotModel
from nerd_gym.utils.files import strip_prefix

MEANING = (
    "Trust, from 0 to 1, is how small an error a learned model expects of itself in a frame: 1 at a hundredth of the "
    "usual change over a frame or less, one half at a tenth, 0 at the whole change and outside the training data."
)
WIDTH = 32
LARGEST, SMALLEST = 1e6, 1e-9  # of weights and of what they are divided by
BEYOND = 0.5  # of the box, where trust ends
HEALTHY = 5.0  # times the box, where a row is given up
DECADES = 2.0  # from the error, 1, that is not trusted at all to the one that is trusted wholly


class TrustNetwork(nn.Module):
    """Features of a frame -> expected log10 of the error."""

    def __init__(self, inputs: int):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs] -> [N]."""
        hidden = nn.functional.silu(self.second(nn.functional.silu(self.first(x))))
        return self.last(hidden)[:, 0]


class Trust:
    """Calibrated trust in a model, from the tensors named ``trust.*`` in its file; without them it is 1 everywhere."""

    def __init__(self, robot: RobotModel, tensors: dict[str, Tensor], device: torch.device | str = "cpu"):
        own = {name: value.to(device) for name, value in strip_prefix(tensors, "trust.").items()}
        self.features = TrustFeatures(robot, device)
        self._robot, self.known, self._device = robot, bool(own), device
        if not own:
            return
        for name, value in own.items():  # larger ones overflow, and then trust is no number
            if not name.endswith("_range") and value.numel() and float(value.abs().max()) > LARGEST:
                raise ValueError(f"trust.{name} has numbers beyond {LARGEST:g}")
        if float(own["std"].min()) < SMALLEST:
            raise ValueError(f"trust.std has numbers below {SMALLEST:g}")
        ranges = [own.pop(f"{name}_range") for name in ("q", "qd", "force")]
        self._q_range, self._qd_range, _ = ranges
        self._ranges = torch.cat(ranges)
        own.pop("levels", None)  # of models from when trust was a rank
        mean, std = own.pop("mean"), own.pop("std")
        network = TrustNetwork(len(mean))
        network.load_state_dict(own)
        # Normalising is folded into the first layer: one product less on every step.
        with torch.no_grad():
            weight = network.first.weight / std
            bias = network.first.bias - weight @ mean
        others = ((layer.weight.detach(), layer.bias.detach()) for layer in (network.second, network.last))
        self._layers = tuple((w.T.contiguous().to(device), b.to(device)) for w, b in ((weight, bias), *others))

    def __call__(self, q: Tensor, qd: Tensor, force: Tensor, contacts: Contacts, seen: Tensor | None = None) -> Tensor:
        """[N]: trust in the frame that starts at a state under joint forces [N, nj].

        seen [N, D]: what the model's network sees of it, from a model that tells.
        """
        if not self.known:
            return torch.ones(len(q), device=q.device)
        x = self.features(q, qd, force, contacts) if seen is None else seen
        (w1, b1), (w2, b2), (w3, b3) = self._layers
        for weight, bias in ((w1, b1), (w2, b2)):
            x = nn.functional.silu(torch.addmm(bias, x, weight), inplace=True)
        expected = torch.addmm(b3, x, w3)[:, 0]
        return (-expected / DECADES).clamp_(0.0, 1.0) * self.inside(q, qd, force)

    def inside(self, q: Tensor, qd: Tensor, force: Tensor) -> Tensor:
        """[N]: 1 in the box of the training data, 0 where it is left far behind."""
        worst = self.ratios(q, qd, force).amax(-1)
        return torch.nan_to_num_((1 + BEYOND - worst) / BEYOND, nan=0.0).clamp_(0.0, 1.0)

    def ratios(self, q: Tensor, qd: Tensor, force: Tensor) -> Tensor:
        """[N, nq + nv + nj]: how far out each coordinate is; the box of the training data ends at 1."""
        return torch.cat([q, qd, force], -1).abs_().div_(self._ranges)

    @property
    def coordinates(self) -> list[str]:
        """Names of the columns of :meth:`ratios`."""
        joints, free = self._robot.joint_names, self._robot.free_base
        place = [f"base {axis}" for axis in ("x", "y", "z", "qw", "qx", "qy", "qz")] if free else []
        rates = [f"base {kind} {axis}" for kind in ("velocity", "spin") for axis in "xyz"] if free else []
        q, qd, force = [*place, *joints], [*rates, *(f"{n} rate" for n in joints)], [f"{n} force" for n in joints]
        return q + qd + force

    def healthy_range(self) -> tuple[Tensor | float, Tensor | float]:
        """Limits of |q| [nq] and |qd| [nv] beyond which a row is given up: a multiple of the training range."""
        from nerd_gym.robots.state import Q_LIMIT, QD_LIMIT

        if not self.known:
            return Q_LIMIT, QD_LIMIT
        return (HEALTHY * self._q_range).clamp(max=Q_LIMIT), (HEALTHY * self._qd_range).clamp(max=QD_LIMIT)


class TrustFeatures:
    """What the network sees if the model has no inputs to share.

    Sines, cosines and magnitudes of the state and the force, and the nearest contacts.
    """

    def __init__(self, robot: RobotModel, device: torch.device | str = "cpu"):
        self._joint_q, self._ground = robot.joint_q, robot.ground is not None
        hinge = robot.mj_model.jnt_type[-robot.nj :] == HINGE
        self._hinge = torch.as_tensor(hinge, device=device)
        limit = np.where(robot.force_limit > 0, robot.force_limit, 1.0)
        self._scale = torch.as_tensor(limit, dtype=torch.float32, device=device)

    def __call__(self, q: Tensor, qd: Tensor, force: Tensor, contacts: Contacts) -> Tensor:
        """[N, inputs]."""
        joints = q[:, self._joint_q].contiguous()  # sines of a strided tensor take three times as long
        sine = torch.where(self._hinge, torch.sin(joints), joints)
        size = torch.log(qd.abs() + 1e-2)
        parts = [sine, torch.cos(joints), qd, size, size.amax(-1, keepdim=True), force / self._scale]
        if self._ground:
            near = contacts.distance
            parts += [near.clamp(-0.02, 0.02) * 50, near.clamp(-0.2, 0.2) * 5]
        return torch.cat(parts, -1)


def fit_trust(
    robot: RobotModel,
    train: dict[str, Tensor],
    features: Tensor,
    error: Tensor,
    seed: int = 0,
    steps: int = 1500,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Tensors of the trust, how well it ranks the errors of frames that neither model nor trust has seen, and how many
    of these are trusted less than one half.

    train: q, qd, force of the training data, for the box. features [M, inputs] of held-back frames; error [M]: the
    model's one-frame error there. Three quarters of them calibrate, the rest judge.
    """
    target = torch.log10(error.clamp(min=1e-9))
    cut = 3 * len(target) // 4
    mean, std = features[:cut].mean(0), features[:cut].std(0).clamp(min=1e-6)
    x = (features - mean) / std
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = TrustNetwork(x.shape[1])
    with torch.no_grad():
        network.last.bias.fill_(target[:cut].mean())
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = torch.randint(cut, (1024,), generator=generator)
        loss = nn.functional.smooth_l1_loss(network(x[rows]), target[rows], beta=0.3)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        expected = network(x)
    hinge = torch.ones(robot.nq, dtype=torch.bool)
    hinge[robot.joint_q] = torch.as_tensor(robot.mj_model.jnt_type[-robot.nj :] == HINGE)
    unlimited = hinge.clone()
    if robot.free_base:
        unlimited[:7] = True  # a base may walk anywhere
    q_range = torch.where(unlimited, torch.inf, train["q"].abs().flatten(0, -2).amax(0))
    tensors = {f"trust.{key}": value for key, value in network.state_dict().items()}
    tensors |= {
        "trust.q_range": q_range,
        "trust.qd_range": train["qd"].abs().flatten(0, -2).amax(0),
        "trust.force_range": train["force"].abs().flatten(0, -2).amax(0).clamp(min=1e-6),
        "trust.mean": mean,
        "trust.std": std,
    }
    doubted = float((expected[cut:] > -0.5 * DECADES).float().mean())
    return tensors, {"rank_correlation": rank_correlation(expected[cut:], target[cut:]), "below_half": doubted}


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, of [M] and [M]."""
    ranks = [x.argsort().argsort().double() for x in (a, b)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])
