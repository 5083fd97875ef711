"""The contract of a physics backend: a batch of one robot, stepped a frame at a time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from nerd_gym.robots.contacts import ContactFinder, Contacts, ground_of_model
from nerd_gym.robots.features import refusal
from nerd_gym.robots.kinematics import Kinematics
from nerd_gym.robots.model import RobotModel
from nerd_gym.robots.state import Q_LIMIT, QD_LIMIT, FrameInput, rows_within

FLOAT_MAX = torch.finfo(torch.float32).max
UP = (0.0, 0.0, 1.0)


# As torch's own data loaders do: its threads do not come along into a fork, and a child that waits for them hangs.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class Backend(ABC):
    """N copies of a robot. Tasks read ``q``, ``qd`` and ``contacts``; only the backend writes them."""

    name: ClassVar[str]
    options: ClassVar[dict[str, str]] = {}  # option -> one line of help; these are the valid keywords
    learned: bool = False  # whether data, not equations alone, decide how the robot moves
    on_device: ClassVar[bool] = True  # whether a step stays on the device; False: it copies through the host
    features: ClassVar[frozenset[str]] = frozenset()  # of robots/features.py, those that it simulates
    rows_exact = True  # whether a row's bits are the same in a batch of any size

    def __init__(self, robot: RobotModel, num_envs: int, device: torch.device | str = "cpu"):
        if beyond := self.beyond(robot):
            raise refusal(robot.path.name, beyond, f"backend {self.name!r} does")
        self.robot = robot
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.frame_dt = robot.frame_dt
        self._force_shape = (num_envs, robot.nj)
        self.substeps = robot.substeps  # physics steps, or evaluations of a model, in a frame
        # Where a learned part comes from and how far it errs; what of the robot's MJCF is left out knowingly.
        self.facts: dict[str, Any] = {"ignored": list(robot.ignored)} if robot.ignored else {}
        self.kinematics = Kinematics(robot, self.device)
        # Asking the host "is any row bad?" is free on a CPU and a stall on an accelerator, where rows are
        # always masked instead. Both ways give the same numbers; tests switch this off on the CPU.
        self.host_checks = self.device.type == "cpu"
        self.q = self._default_q().repeat(num_envs, 1)
        self.qd = torch.zeros(num_envs, robot.nv, device=self.device)
        self.healthy = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        self.last: FrameInput | None = None  # where the last step started
        self.any_unhealthy = not self.host_checks  # False only if every row is known to be healthy
        # Per coordinate in a backend that knows its range better.
        self.q_limit: float | Tensor = Q_LIMIT
        self.qd_limit: float | Tensor = QD_LIMIT
        self.version = 0  # counts changes of the state, for those who keep what they computed from it
        self.ground_point = torch.zeros(num_envs, 3, device=self.device)
        self.ground_normal = torch.tensor(UP, device=self.device).repeat(num_envs, 1)
        if robot.ground is not None:
            point, normal = ground_of_model(robot)
            self.ground_point += torch.as_tensor(point, dtype=torch.float32, device=self.device)
            self.ground_normal[:] = torch.as_tensor(normal, dtype=torch.float32, device=self.device)
        self._find_contacts = ContactFinder(robot, self.kinematics)
        self._sites: dict[str, tuple[Tensor, Tensor]] = {}
        self._cache: dict[str, tuple[int, Any]] = {}

    def _default_q(self) -> Tensor:
        return torch.as_tensor(self.robot.mj_model.qpos0, dtype=torch.float32, device=self.device)

    # What a backend writes.

    @abstractmethod
    def _advance(self, joint_force: Tensor) -> None:
        """Move ``q`` and ``qd`` on by one frame under finite forces [N, nj]."""

    def _advance_rows(self, joint_force: Tensor, rows: Tensor, frames: int) -> None:
        """The same for several frames, of the rows [N] bool alone, in the steps of :meth:`_advance`; a backend may
        know a cheaper way."""
        for _ in range(frames):
            q, qd, _ = self.last = FrameInput(self.q.clone(), self.qd.clone(), joint_force)
            self._advance(joint_force)
            self.q.copy_(torch.where(rows[:, None], self.q, q))
            self.qd.copy_(torch.where(rows[:, None], self.qd, qd))
            self._rows_written(~rows)

    def _rows_written(self, mask: Tensor) -> None:
        """``q`` and ``qd`` of the masked rows were set from outside: take them over."""

    def _ground_written(self, mask: Tensor) -> None:
        """The ground of the masked rows was set from outside: take it over."""

    def _extra_state(self) -> dict[str, Any]:
        """What a snapshot needs besides q, qd and ground."""
        return {}

    def _restore_extra(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`_extra_state` gave."""

    def _extra_rows(self, state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """Those rows of what :meth:`_extra_state` gave, whose values are arrays or tensors [N, ...], or dicts of them,
        unless a backend says otherwise."""

        def chosen(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: chosen(part) for name, part in value.items()}
            return value[rows if isinstance(value, Tensor) else rows.cpu().numpy()]

        return chosen(state)

    def _distances(self) -> Tensor | None:
        """[N, C] of the candidates at the current state, if the backend finds them faster than kinematics in torch."""
        return None

    def info(self) -> dict[str, Tensor]:
        """What a backend has to say of the last step, [N] each; it goes into the environment's info."""
        return {}

    @classmethod
    def simulates(cls, robot: RobotModel) -> bool:
        """Whether the backend takes this robot without further options."""
        return not cls.beyond(robot)

    @classmethod
    def beyond(cls, robot: RobotModel) -> dict[str, list[str]]:
        """Features of the robot that the backend does not simulate, and where they are."""
        return {name: where for name, where in robot.features.items() if name not in cls.features}

    def trust_in(self, frame: FrameInput, ground: tuple[Tensor, Tensor]) -> Tensor | None:
        """[N]: how far a learned part may be believed, from 0 to 1, in a frame of any backend over its ground.

        None if nothing is learned, or nothing is known of how far it errs.
        """
        return None

    def range_ratios(self, frame: FrameInput) -> dict[str, Tensor]:
        """[N] each: how far out every coordinate of a frame is, by name; the training data end at 1."""
        return {}

    # What everyone calls.

    def reset(self, mask: Tensor, q: Tensor, qd: Tensor, ground: tuple[Tensor, Tensor] | None = None) -> None:
        """Set the masked rows, in place; the others stay as they are to the bit.

        mask [N] bool, q [N, nq], qd [N, nv], ground (point [N, 3], normal [N, 3]).
        """
        self._check("mask", mask, (self.num_envs,))
        self._check("q", q, self.q.shape)
        self._check("qd", qd, self.qd.shape)
        row = mask[:, None]
        given = [(q, self.q), (qd, self.qd)]
        if ground is not None:
            given += [(ground[0], self.ground_point), (ground[1], self.ground_normal)]
        for new, own in given:
            torch.where(row, new.to(own.dtype), own, out=own)
        if ground is not None:
            self._ground_written(mask)
        self.healthy = self.healthy | mask
        self.version += 1
        self._rows_written(mask)

    def step(self, joint_force: Tensor, rows: Tensor | None = None, frames: int = 1) -> None:
        """One frame under joint_force [N, nj], held constant; or several; or of the rows [N] bool alone, while the
        others stay as they are.

        A row that is given a force that is not finite, or that leaves the stated range, stays at its last
        healthy state and is marked in ``healthy``; the other rows do not notice.
        """
        self._check("joint_force", joint_force, self._force_shape)
        finite = None
        if not self._within(joint_force, FLOAT_MAX):
            finite = joint_force.isfinite().all(-1)
            joint_force = torch.where(finite[:, None], joint_force, 0.0)
        q, qd, _ = self.last = FrameInput(self.q.clone(), self.qd.clone(), joint_force)
        if rows is None and frames == 1:
            self._advance(joint_force)
        else:
            self._advance_rows(joint_force, torch.ones_like(self.healthy) if rows is None else rows, frames)
        self.version += 1
        if finite is None and self._within(self.q, self.q_limit) and self._within(self.qd, self.qd_limit):
            if self.any_unhealthy:
                self.any_unhealthy, self.healthy = False, torch.ones_like(self.healthy)
            return
        healthy = rows_within(self.q, self.qd, self.q_limit, self.qd_limit)
        self.any_unhealthy, self.healthy = True, healthy if finite is None else healthy & finite
        bad = ~self.healthy
        self.q.copy_(torch.where(bad[:, None], q, self.q))
        self.qd.copy_(torch.where(bad[:, None], qd, self.qd))
        self._rows_written(bad)

    def _within(self, value: Tensor, limit: float | Tensor) -> bool:
        """Whether every entry is known to be finite and at most `limit`; never known on an accelerator."""
        if not self.host_checks:
            return False
        if isinstance(limit, Tensor):
            return bool((value.abs() <= limit).all())
        low, high = torch.aminmax(value)
        return -limit <= low.item() and high.item() <= limit

    def may_hold(self, mask: Tensor) -> bool:
        """Whether any row of the mask may be true, without stalling an accelerator to find out."""
        return not self.host_checks or bool(mask.any())

    def cached(self, key: str, compute: Callable[[], Any]) -> Any:
        """`compute()`, done once per state."""
        version, value = self._cache.get(key, (-1, None))
        if version != self.version:
            value = compute()
            self._cache[key] = self.version, value
        return value

    @property
    def poses(self) -> Tensor:
        """World poses [N, F, 4, 4] of the robot's frames at the current state."""
        return self.cached("poses", lambda: self.kinematics.poses(self.q))

    @property
    def contacts(self) -> Contacts:
        """The candidate points at the current state."""
        return self.cached("contacts", self._contacts_now)

    def _contacts_now(self) -> Contacts:
        distance = self._distances()
        if distance is None:
            contacts = self._find_contacts(self.q, self.ground_point, self.ground_normal, self.poses)
            _ = contacts.distance, contacts.point  # now, because the ground's tensors change in place
            return contacts
        # Copies, because state and ground change in place and the rest of the contacts may be asked for later.
        contacts = self._find_contacts(*(x.clone() for x in (self.q, self.ground_point, self.ground_normal)))
        contacts.distance = distance
        return contacts

    def site(self, name: str) -> Tensor:
        """World position [N, 3] of a named site of the MJCF."""
        if name not in self._sites:
            self._sites[name] = self.kinematics.site(name)
        return self.cached(f"site {name}", lambda: self.kinematics.points(self.poses, self._sites[name])[:, 0])

    @property
    def last_frame(self) -> FrameInput:
        """Where the last step started, what ``last`` is as soon as there was a step."""
        if self.last is None:
            raise RuntimeError(f"{self.name} has not made a step yet")
        return self.last

    def snapshot(self) -> dict[str, Any]:
        """The full state, for :meth:`restore`."""
        fields = ("q", "qd", "healthy", "ground_point", "ground_normal")
        return {name: getattr(self, name).clone() for name in fields} | {"extra": self._extra_state()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to a snapshot, to the bit."""
        ground = ("ground_point", "ground_normal")
        moved = any(not torch.equal(getattr(self, name), snapshot[name]) for name in ground)
        for name in ("q", "qd", *ground):
            getattr(self, name).copy_(snapshot[name])
        self.healthy, self.any_unhealthy = snapshot["healthy"].clone(), True
        self.version += 1
        everyone = torch.ones_like(self.healthy)
        self._rows_written(everyone)
        if moved:
            self._ground_written(everyone)
        self._restore_extra(snapshot["extra"])

    def select_rows(self, snapshot: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """A snapshot of this batch as one for a batch of len(rows): its row i is row rows[i] of this one."""
        fields = {name: value[rows] for name, value in snapshot.items() if name != "extra"}
        return fields | {"extra": self._extra_rows(snapshot["extra"], rows)}

    def close(self) -> None:
        """Give back threads and memory."""

    def _check(self, what: str, value: Tensor, shape: tuple[int, ...]) -> None:
        if tuple(value.shape) != tuple(shape):
            raise ValueError(f"{what} has shape {tuple(value.shape)}; this batch takes {tuple(shape)}")
        if value.device.type != self.device.type:
            raise ValueError(f"{what} is on {value.device}; this batch is on {self.device}")
