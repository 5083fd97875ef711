"""NeRD/Strike-v0."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nerd_gym.collision.scenes.columns import NOMINAL, PARAMETERS, STRIKE, ranges
from nerd_gym.collision.scenes.frames import to_world
from nerd_gym.collision.scenes.robot import Scene, flat_pose, rest_height, scene_of, strike_robot
from nerd_gym.collision.scenes.shapes import Shape, shape_named
from nerd_gym.robots.model import RobotModel

from .random import EnvRandom
from .strike_goals import GOAL_SIZE, MOST, RADIUS, SEGMENT, SPREAD, TURNS, Goal, route_points, start_goal, yaw_error
from .task import Drive, State, Task, TaskConfig, total

APPROACH = 1  # frames of 4 ms until the striker touches
TOUCHED = 5  # frames after which it is withdrawn at the latest: where the collisions of the networks end too
SLIDE = 10  # frames between two looks at who has come to rest
AT_REST = 0.002  # m/s, and rad/s times 5 cm
LEVER = 0.05  # m
AWAY = 0.25  # m, how far the striker waits from where it touches
DEEPEST = 1e-4  # m, that a given start may have the striker inside the block


@dataclass(frozen=True)
class StrikeConfig(TaskConfig):
    """Options of Strike; friction and damping ratios are the table's and the striker's in MuJoCo."""

    task: Literal["single", "route"] = "single"
    shape: Literal["semicylinder", "square", "triangle"] = "semicylinder"
    route: Literal["random", 1, 2, 3] = "random"
    mu_striker: float = NOMINAL["mu_striker"]
    mu_table: float = NOMINAL["mu_table"]
    zeta_striker: float = NOMINAL["zeta_striker"]
    zeta_table: float = NOMINAL["zeta_table"]


class Strike(Task):
    """Strike a block on a table so that it slides to a target. A step lasts until the block rests, 2 s at most.

    ============  ==========================================================================
    action        3, clipped to [-1, 1]: impact point; speed from 0.1 to 1 m/s; direction from
                  -30 to 30 degrees off the inward normal. The point of a semicylinder is an
                  angle on its arc, 60 degrees times the action. A square or triangle is hit on
                  the face at pi times the action from its x axis; the rest of that angle,
                  from one end of the face's sector to the other, is the place on the face
    observation   10: x, y, cos and sin of the yaw; position of the sub-goal in the block's axes,
                  cos and sin of its yaw relative to the block; distance; strikes since the last
                  sub-goal / 10. In m
    reward        single: -10 distance (m) - 0.1 abs(yaw error). route: distance, 5 x what the
                  strike gained (m); at a sub-goal orientation, 1 - abs(yaw error) / largest, and
                  efficiency, 2 / strikes since the last one; zone, -1 for leaving the safe zone
    termination   single: after the strike. route: all sub-goals reached, or the block more than
                  0.15 m away from the segment under way
    horizon       20 strikes
    start         the block at rest at the origin; single: a target 4 to 12 cm away, yaw within
                  0.6 rad; route: segments of 0.3 +- 0.08 m, a sub-goal has a radius of 4 cm and is
                  reached with the struck side looking back along the segment
    options       task: single, route; shape: semicylinder, square, triangle; route: random (1 to
                  3 segments, turns within 1 rad), 1, 2, 3; mu_striker, mu_table, zeta_striker,
                  zeta_table: friction and damping ratios
    ============  ==========================================================================

    A square looks the same after a quarter turn and a triangle after a third: a yaw error is the smallest of these.
    """

    robot_name = "strike_semicylinder"
    config_class = StrikeConfig
    config: StrikeConfig
    horizon = 20
    action_size = 3
    obs_size = 10
    goal_size = GOAL_SIZE
    frames = 500  # 2 s
    waits = True

    def __init__(self, robot: RobotModel, config: StrikeConfig, device: torch.device | str = "cpu"):
        super().__init__(robot, config, device)
        self.shape: Shape = shape_named(config.shape)
        self._height = rest_height(robot)
        bounds = ranges(self.shape)
        low, high = self.tensor([bounds[name] for name in STRIKE]).T
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._largest_yaw = math.pi / self.shape.faces

    @classmethod
    def robot_of(cls, config: TaskConfig) -> RobotModel:
        assert isinstance(config, StrikeConfig)
        return strike_robot(config.shape, **{name: getattr(config, name) for name in PARAMETERS})

    @property
    def actuation(self) -> dict[str, Any]:
        scale = dict(zip(STRIKE, self._half.tolist(), strict=True))
        return {"kind": "strike", "scale": scale, "unit": "m/s, rad or m, rad"}

    @property
    def picture_dt(self) -> float:
        return SLIDE * self.frame_dt

    # Starts.

    def initial_state(self, rng: EnvRandom) -> tuple[Tensor, Tensor]:
        yaw = rng.centred(math.pi if self.shape.faces > 1 else 0.5, 1)[:, 0]
        if self.config.task == "route" and self.shape.faces == 1:
            yaw = yaw + math.pi  # its arc is on the side that the route leads away from
        block = torch.zeros(rng.num_envs, 2, device=self.device)
        striker = block + self.tensor([AWAY, 0.0])
        qd = torch.zeros(rng.num_envs, self.robot.nv, device=self.device)
        return torch.cat([flat_pose(block, yaw, self._height), striker], -1), qd

    def initial_goal(self, rng: EnvRandom, q: Tensor) -> Tensor:
        if self.config.task == "single":
            return self._single_target(rng, scene_of(q).yaw)
        lengths = SEGMENT + rng.centred(SPREAD, MOST)
        ones = torch.ones(rng.num_envs, device=self.device)
        if self.config.route == "random":
            count = 1 + (MOST * rng.uniform(0.0, 1.0, 1)[:, 0]).floor().clamp(max=MOST - 1)
            turns = rng.centred(1.0, MOST) * self.tensor([0.0, 1.0, 1.0])
        else:
            given = TURNS[self.config.route]
            count = len(given) * ones
            turns = self.tensor([*given, *(0.0,) * (MOST - len(given))]).expand(rng.num_envs, MOST)
        return start_goal(route_points(lengths, turns), count)

    def _single_target(self, rng: EnvRandom, yaw: Tensor) -> Tensor:
        """Roughly where one strike can lead: away from a side, or from a place on the arc."""
        unit = rng.uniform(0.0, 1.0, 4)
        if self.shape.faces == 1:
            side = 1.4 * (unit[:, 0] - 0.5)
        else:
            face = (self.shape.faces * unit[:, 0]).floor().clamp(max=self.shape.faces - 1)
            side = face * (2 * math.pi / self.shape.faces) + 0.5 * (unit[:, 1] - 0.5)
        heading, length = yaw + math.pi + side, 0.04 + 0.08 * unit[:, 2]
        target = length[:, None] * torch.stack([heading.cos(), heading.sin()], -1)
        points = torch.zeros(len(yaw), MOST + 1, 3, device=self.device)
        points[:, 1:, :2] = target[:, None]
        points[:, 1:, 2] = (yaw + 1.2 * (unit[:, 3] - 0.5))[:, None]
        return start_goal(points, torch.ones_like(yaw))

    def refused_start(self, q: Tensor, qd: Tensor) -> tuple[Tensor, str]:
        return self.shape.striker_gap(*scene_of(q)) < -DEEPEST, "the striker is inside the block"

    # Strikes.

    def strike_of(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Columns [N, 3] (speed, point, direction) and the face [N] that actions ask for."""
        place, speed, direction = action.clamp(-1, 1).unbind(-1)
        face = torch.zeros_like(place)
        if self.shape.faces > 1:
            turns = 0.5 * self.shape.faces * place  # in sectors
            face = turns.round()
            place = 2 * (turns - face)
        columns = torch.stack([speed, place, direction], -1)
        return self._middle + self._half * columns, face % self.shape.faces

    def joint_force(self, action: Tensor, state: State) -> Tensor:
        """The striker keeps its velocity."""
        finite = action.isfinite().all(-1, keepdim=True)
        return torch.where(finite, 0.0, torch.nan).expand(-1, self.robot.nj)

    def drive(self, action: Tensor, state: State) -> Iterator[Drive]:
        force = self.joint_force(action, state)
        scene, strike = scene_of(state.q), self.strike_of(action.nan_to_num())
        touch = to_world(self.shape, scene.block, scene.yaw, *strike)
        heading = touch.velocity / touch.velocity.norm(dim=-1, keepdim=True)
        away = touch.position - AWAY * heading

        def placed(rows: Tensor, striker: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return rows, torch.cat([state.q[:, :7], striker], 1), torch.cat([state.qd[:, :6], velocity], 1)

        there = torch.ones_like(scene.yaw, dtype=torch.bool)
        start, still = touch.position - APPROACH * self.frame_dt * touch.velocity, torch.zeros_like(away)
        yield Drive(force, frames=APPROACH, place=placed(there, start, touch.velocity), picture=True)
        yield Drive(force)
        for _ in range(1, TOUCHED):
            # Once the surfaces have parted: the striker would catch up with the block, which slows down.
            gone = there & (self.shape.striker_gap(*scene_of(state.q)) > 0)
            there = there & ~gone
            yield Drive(force, place=placed(gone, away, still) if bool(gone.any()) else None)
        moving, place = self._moving(state), placed(there, away, still)
        for _ in range((self.frames - APPROACH - TOUCHED) // SLIDE):
            yield Drive(force, moving, SLIDE, place, picture=True)
            moving, place = self._moving(state), None
            if not bool(moving.any()):
                return

    def _moving(self, state: State) -> Tensor:
        speeds = state.qd[:, :6].abs()
        return (speeds[:, :3] > AT_REST).any(-1) | (LEVER * speeds[:, 3:] > AT_REST).any(-1)

    # Goals.

    def _errors(self, state: State, goal: Goal) -> tuple[Tensor, Tensor, Scene]:
        """Distance from the current sub-goal, and yaw error."""
        scene = scene_of(state.q)
        return goal.away(scene.block), yaw_error(scene.yaw, goal.point()[:, 2], self.shape.faces), scene

    def observe(self, state: State) -> Tensor:
        goal = Goal.of(state.goal)
        distance, turn, scene = self._errors(state, goal)
        c, s = scene.yaw.cos(), scene.yaw.sin()
        x, y = (goal.point()[:, :2] - scene.block).unbind(-1)
        relative = torch.stack([c * x + s * y, c * y - s * x], -1)
        rest = torch.stack([c, s, turn.cos(), -turn.sin(), distance, goal.strikes / 10], -1)
        return torch.cat([scene.block, rest[:, :2], relative, rest[:, 2:]], -1)

    def reward(self, state: State, action: Tensor, joint_force: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        goal = Goal.of(state.goal)
        distance, turn, scene = self._errors(state, goal)
        if self.config.task == "single":
            terms = {"distance": -10 * distance, "orientation": -0.1 * turn.abs()}
            return total(terms), terms
        reached = (distance < RADIUS).float()
        terms = {
            "distance": 5 * (goal.distance - distance),
            "orientation": reached * (1 - turn.abs() / self._largest_yaw),
            "efficiency": reached * 2 / (goal.strikes + 1),
            "zone": -(~goal.inside(scene.block)).float(),
        }
        return total(terms), terms

    def terminated(self, state: State) -> Tensor:
        goal = Goal.of(state.goal)
        if self.config.task == "single":
            return torch.ones_like(goal.index, dtype=torch.bool)
        distance, _, scene = self._errors(state, goal)
        done = (distance < RADIUS) & (goal.index + 1 >= goal.count)
        return done | ~goal.inside(scene.block)

    def next_goal(self, state: State) -> Tensor:
        goal = Goal.of(state.goal)
        block = scene_of(state.q).block
        reached = (goal.away(block) < RADIUS) & goal.inside(block)
        ahead = goal._replace(index=goal.index + reached, strikes=torch.where(reached, 0.0, goal.strikes + 1))
        return ahead._replace(distance=ahead.away(block)).rows()

    def marks(self, state: State) -> Tensor:
        """Sub-goals that are still to be reached, each with a dot towards which its x axis points."""
        goal = Goal.of(state.goal)
        places = goal.points[:, 1:]
        number = torch.arange(MOST, device=self.device)
        shown = (number >= goal.index[:, None]) & (number < goal.count[:, None])
        ahead = places[..., 2:].cos(), places[..., 2:].sin()
        dots = places[..., :2] + 1.5 * RADIUS * torch.cat(ahead, -1)
        centres = torch.cat([places[..., :2], dots], 1)
        radius = torch.cat([shown * RADIUS, shown * RADIUS / 5], 1)
        return torch.cat([centres, torch.zeros_like(radius)[..., None], radius[..., None]], -1)

    def measures(self, state: State) -> dict[str, Tensor]:
        goal = Goal.of(state.goal)
        distance, turn, _ = self._errors(state, goal)
        return {
            "distance to the sub-goal (m)": distance,
            "yaw error (rad)": turn.abs(),
            "sub-goals reached": goal.index,
        }
