"""Pictures of any backend: MuJoCo draws the robot from q, so that frames are comparable."""

# MuJoCo is a compiled module without stubs: the checker knows none of its names.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from torch import Tensor

from nerd_gym.robots.features import FREE, PLANE, SLIDE
from nerd_gym.robots.model import RobotModel, custom_numeric
from nerd_gym.utils.video import label

if TYPE_CHECKING:
    from .vector import NerdVectorEnv

WIDTH, HEIGHT = 640, 480
GHOST_COLOUR = (0.95, 0.5, 0.1)
TEACHER_COLOUR = (0.15, 0.4, 0.85)
MARK_COLOUR = (0.2, 0.65, 0.3, 0.6)
MARK_HEIGHT = 0.0005  # m
FLOOR = "nerd_gym_floor"


class Renderer:
    """Draws one robot on its ground, with a camera that follows it."""

    def __init__(self, robot: RobotModel, width: int = WIDTH, height: int = HEIGHT):
        self.robot = robot
        self.model = build_scene(robot, width, height)
        self._data = mujoco.MjData(self.model)
        self._ghost = mujoco.MjData(self.model)
        self._floor = self.model.geom(FLOOR).id
        self._size = (height, width)
        self._gl: mujoco.Renderer | None = None
        self._viewer = None
        self._camera = mujoco.MjvCamera()
        self._camera.azimuth = 110.0
        self._place_camera()

    def frame(
        self,
        env: NerdVectorEnv,
        row: int = 0,
        ghost_q: np.ndarray | None = None,
        colour: tuple[float, float, float] | None = None,
    ) -> np.ndarray:
        """Row `row` of an environment as uint8 [height, width, 3], all in one colour if one is given.

        `ghost_q` [nq] is drawn over it in orange.
        """
        self._take(env, row)
        gl = self._context()
        gl.update_scene(self._data, self._camera)
        if colour is not None:
            _paint(gl.scene, 0, (*colour, 1.0))
        if ghost_q is not None:
            self._add_ghost(gl.scene, ghost_q)
        if (marks := env.task.marks(env.state)) is not None:
            _add_marks(gl.scene, marks[row].cpu().double().numpy())
        return gl.render()

    def _context(self) -> mujoco.Renderer:
        if self._gl is None:
            try:
                self._gl = mujoco.Renderer(self.model, *self._size)
            except Exception as error:
                raise RuntimeError(
                    "MuJoCo could not open a graphics context. Without a screen, install EGL "
                    "(Debian: libegl1) and set MUJOCO_GL=egl before mujoco is imported."
                ) from error
        return self._gl

    def show(self, env: NerdVectorEnv, row: int = 0) -> None:
        """Row `row` in a window."""
        self._take(env, row)
        if self._viewer is None:
            # The window library ends the whole process where there is no screen; an error is kinder.
            if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                raise RuntimeError("there is no screen for render_mode='human'; use render_mode='rgb_array' or a video")
            import mujoco.viewer

            self._viewer = mujoco.viewer.launch_passive(self.model, self._data)
        self._viewer.sync()

    def close(self) -> None:
        """Give back the graphics context and the window."""
        for part in (self._gl, self._viewer):
            if part is not None:
                part.close()
        self._gl = self._viewer = None

    def _take(self, env: NerdVectorEnv, row: int) -> None:
        backend = env.backend
        self._data.qpos[:] = backend.q[row].cpu().numpy()
        if self.robot.ground is not None:
            normal = backend.ground_normal[row].cpu().double().numpy()
            self.model.geom_pos[self._floor] = backend.ground_point[row].cpu().numpy()
            mujoco.mju_quatZ2Vec(self.model.geom_quat[self._floor], normal)
        mujoco.mj_forward(self.model, self._data)
        if self._travels:
            # Follow the base along the ground, but let its bouncing show.
            self._camera.lookat[:2] = self._data.xpos[self._root, :2]

    def _place_camera(self) -> None:
        m, data = self.model, self._data
        mujoco.mj_forward(m, data)
        self._root = int(m.jnt_bodyid[0])
        self._travels = m.jnt_type[0] in (FREE, SLIDE)
        moving = [g for g in range(m.ngeom) if m.body_weldid[m.geom_bodyid[g]] != 0]
        points, reach = data.geom_xpos[moving], m.geom_rbound[moving, None]
        low, high = (points - reach).min(0), (points + reach).max(0)
        self._camera.distance = 1.6 * float(np.linalg.norm(high - low))
        self._camera.lookat[:] = (low + high) / 2
        if self.robot.free_base:
            self._camera.lookat[2] = 0.4 * high[2]
        if not self._travels:  # it moves around its foot: have all that it can reach in the picture
            self._camera.lookat[:] = data.xanchor[0]
            span = np.linalg.norm(points - data.xanchor[0], axis=1, keepdims=True) + reach
            self._camera.distance = 1.7 * float(span.max())
        given = custom_numeric(m, "camera", (self._camera.distance, -16.0, 1.0))
        self._camera.distance, self._camera.elevation = given[:2]

    def _add_ghost(self, scene: mujoco.MjvScene, q: np.ndarray) -> None:
        self._ghost.qpos[:] = q
        mujoco.mj_forward(self.model, self._ghost)
        first = scene.ngeom
        mujoco.mjv_addGeoms(
            self.model,
            self._ghost,
            mujoco.MjvOption(),
            mujoco.MjvPerturb(),
            int(mujoco.mjtCatBit.mjCAT_DYNAMIC),
            scene,
        )
        _paint(scene, first, (*GHOST_COLOUR, 0.55))


def _paint(scene: mujoco.MjvScene, first: int, rgba: tuple[float, ...]) -> None:
    """The robot's geoms of the scene, from number `first` on, in one colour."""
    for geom in scene.geoms[first : scene.ngeom]:
        if geom.category == mujoco.mjtCatBit.mjCAT_DYNAMIC:
            geom.matid = -1
            geom.rgba[:] = rgba


def _add_marks(scene: mujoco.MjvScene, marks: np.ndarray) -> None:
    """Discs [M, 4]: centre and radius."""
    for x, y, z, radius in marks[marks[:, 3] > 0]:
        if scene.ngeom < scene.maxgeom:
            kind, size = mujoco.mjtGeom.mjGEOM_CYLINDER, np.array([radius, MARK_HEIGHT, 0.0])
            colour = np.array(MARK_COLOUR, np.float32)
            mujoco.mjv_initGeom(scene.geoms[scene.ngeom], kind, size, np.array([x, y, z]), np.eye(3).flatten(), colour)
            scene.ngeom += 1


def overlay(env: NerdVectorEnv, ghost_q: Tensor, rows: int, text: str) -> np.ndarray:
    """The first rows side by side, each in blue with a ghost of `ghost_q` [N, nq] over it in orange, and a caption."""
    ghosts = ghost_q.cpu().numpy()
    pictures = [env.renderer.frame(env, row, ghosts[row], colour=TEACHER_COLOUR) for row in range(rows)]
    return label(np.concatenate(pictures, 1), text)


def build_scene(robot: RobotModel, width: int, height: int) -> mujoco.MjModel:
    """The robot with sky, light and a chequered floor, which stands where its ground is."""
    spec = mujoco.MjSpec.from_file(str(robot.path))
    spec.visual.global_.offwidth, spec.visual.global_.offheight = max(width, 640), max(height, 480)
    spec.visual.quality.shadowsize = 2048
    spec.visual.headlight.ambient = [0.35, 0.35, 0.37]
    spec.visual.headlight.diffuse = [0.35, 0.35, 0.35]
    spec.visual.headlight.specular = [0.1, 0.1, 0.1]
    for pair in list(spec.pairs):
        spec.delete(pair)  # nothing collides in a picture
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            spec.delete(geom)  # the floor below stands in its place
    spec.stat.extent = 2.5
    spec.visual.map.shadowclip = 2.0
    texture, builtin = mujoco.mjtTexture, mujoco.mjtBuiltin
    spec.add_texture(
        name="nerd_gym_sky",
        type=texture.mjTEXTURE_SKYBOX,
        builtin=builtin.mjBUILTIN_GRADIENT,
        rgb1=[0.78, 0.86, 0.94],
        rgb2=[0.97, 0.98, 0.99],
        width=256,
        height=1536,
    )
    spec.add_texture(
        name="nerd_gym_tiles",
        type=texture.mjTEXTURE_2D,
        builtin=builtin.mjBUILTIN_CHECKER,
        rgb1=[0.86, 0.87, 0.88],
        rgb2=[0.74, 0.76, 0.78],
        mark=mujoco.mjtMark.mjMARK_EDGE,
        markrgb=[0.6, 0.62, 0.65],
        width=300,
        height=300,
    )
    tiles = custom_numeric(robot.mj_model, "camera", (0.0, 0.0, 1.0))[2]
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "nerd_gym_tiles"
    spec.add_material(
        name="nerd_gym_tiles", textures=textures, texrepeat=[tiles, tiles], texuniform=True, reflectance=0.08
    )
    spec.worldbody.add_light(
        pos=[1.5, -1.5, 5],
        dir=[-0.3, 0.3, -1],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACK,
        castshadow=True,
        diffuse=[0.55, 0.55, 0.52],
    )
    spec.worldbody.add_geom(
        name=FLOOR,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0, 0, 0.5],
        pos=[0, 0, _floor_height(robot)],
        material="nerd_gym_tiles",
        contype=0,
        conaffinity=0,
    )
    model = spec.compile()
    model.geom_sameframe[model.geom(FLOOR).id] = 0  # or its pose would be ignored
    return model


def _floor_height(robot: RobotModel) -> float:
    m = robot.mj_model
    data = mujoco.MjData(m)
    mujoco.mj_forward(m, data)
    solid = [g for g in range(m.ngeom) if m.geom_type[g] != PLANE]
    lowest = min((data.geom_xpos[g, 2] - m.geom_rbound[g] for g in solid), default=0.0)
    return custom_numeric(m, "floor_height", (float(np.clip(lowest, -np.inf, 0.0)),))[0]
