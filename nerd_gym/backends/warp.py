"""`warp`: Newton reads the MJCF, our fused Featherstone kernel moves the robot.

Contacts are penalty forces of the candidate points against one plane per environment.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch
import warp as wp
from torch import Tensor

from ..robots.model import FREE, FRICTION_LAWS, SLIDE, RobotModel, rotation_matrix
from .base import Backend, at_least_one, cpu_threads
from .featherstone import Networks, Physics, Tree, frame_kernel

SHARD = 32  # environments in a launch at least, or handing it to a thread costs more than it saves
SHARDS_PER_THREAD = 8  # small launches taken from one queue keep all cores busy when one of them is slowed
WIDEST = 8  # rows that a thread takes at most, the floats in a register of AVX2; slices begin at multiples of it


class WarpBackend(Backend):
    """Featherstone on Warp, float32, semi-implicit Euler."""

    name = "warp"
    options = {
        "friction": "friction law, coulomb or huber (default: the robot's)",
        "reference": "True: the published simulator with its mistakes, to reproduce published figures",
        "substeps": "physics steps in a frame (default: the robot's)",
        "threads": "CPU threads (default: all)",
    }

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        friction: str | None = None,
        reference: bool = False,
        substeps: int | None = None,
        threads: int | None = None,
    ):
        super().__init__(robot, num_envs, device)
        law = robot.friction_law if friction is None else friction
        if law not in FRICTION_LAWS:
            raise ValueError(f"unknown friction {law!r}; valid: {', '.join(FRICTION_LAWS)}")
        self.reference = reference
        self.substeps = at_least_one("substeps", substeps, robot.substeps)
        init_warp()
        links = read_links(robot)
        if reference:
            links["inertia_of"] = published_inertia_pairing(robot, links)
        self._kernel = frame_kernel(len(links["parent"]), robot.nv, len(robot.candidates.radius), robot.free_base)
        self._tree = make_tree(links, robot, wp.device_from_torch(self.device))
        self._physics = make_physics(robot, self.substeps, law, reference)
        self._make_launches(threads)

    def _make_launches(self, threads: int | None) -> None:
        arrays = (self.q, self.qd, self.ground_point, self.ground_normal)
        self._launcher = Launcher(
            self._kernel, [self._tree, self._physics, Networks()], self.robot.nj, *arrays, threads
        )

    def _advance(self, joint_force: Tensor) -> None:
        self._launcher(joint_force)

    def close(self) -> None:
        self._launcher.close()


class Launcher:
    """Runs a frame kernel over a batch in place; the arrays stay where they are for the launcher's life."""

    def __init__(
        self,
        kernel: wp.Kernel,
        constants: list,
        nj: int,
        q: Tensor,
        qd: Tensor,
        ground_point: Tensor,
        ground_normal: Tensor,
        threads: int | None = None,
    ):
        self._force = torch.zeros(len(q), nj, device=q.device)
        self._slices = Slices(len(q), q.device, threads)
        arrays = [
            wp.from_torch(q),
            wp.from_torch(qd),
            wp.from_torch(self._force),
            wp.from_torch(ground_point, dtype=wp.vec3),
            wp.from_torch(ground_normal, dtype=wp.vec3),
        ]
        self._launches = self._slices.record(kernel, [*arrays, *constants])

    def __call__(self, joint_force: Tensor) -> None:
        """One frame under joint_force [N, nj]."""
        self._force.copy_(joint_force)
        self._slices.run(self._launches)

    def close(self) -> None:
        """Give back the threads."""
        self._slices.close()


class Slices:
    """Runs kernels over the rows of a batch, on all threads of a CPU or on torch's CUDA stream.

    One recorded launch per slice of the rows; a kernel's last argument is the first row of the slice.
    """

    def __init__(self, rows: int, device: torch.device, threads: int | None = None):
        self._device = device
        threads = cpu_threads(threads) if device.type == "cpu" else 1
        shards = 1 if threads == 1 else max(1, min(SHARDS_PER_THREAD * threads, rows // SHARD))
        inner = np.linspace(0, rows, shards + 1)[1:-1].astype(int) // WIDEST * WIDEST
        self._edges = [0, *inner.tolist(), rows]
        self._helpers = min(threads, shards) - 1
        self._pool = ThreadPoolExecutor(self._helpers, "nerd-gym-warp") if self._helpers else None

    def record(self, kernel: wp.Kernel, inputs: list, width: int = 1) -> list[wp.Launch]:
        """Prepare a kernel, of which a thread takes `width` rows.

        Its arrays must stay where they are as long as the launches are used.
        """
        device = wp.device_from_torch(self._device)
        load_with_notice(kernel, device)
        return [
            wp.launch(kernel, dim=-(-(end - start) // width), inputs=[*inputs, start], device=device, record_cmd=True)
            for start, end in pairwise(self._edges)
        ]

    def run(self, launches: list[wp.Launch]) -> None:
        """All slices of a kernel."""
        if self._device.type == "cuda":
            launches[0].launch(stream=wp.stream_from_torch(torch.cuda.current_stream(self._device)))
            return
        queue = iter(launches)

        def work() -> None:
            for launch in queue:  # taking the next from a list's iterator is atomic
                launch.launch()

        others = [self._pool.submit(work) for _ in range(self._helpers)]
        work()
        for other in others:
            other.result()

    def close(self) -> None:
        """Give back the threads."""
        if self._pool:
            self._pool.shutdown()


def init_warp() -> None:
    """Start Warp without its banner and its line per module; compiling is announced by load_with_notice."""
    if wp.config.log_level == wp.LOG_INFO:  # the user has not asked for another level
        wp.config.log_level = wp.LOG_WARNING
    wp.init()


def read_links(robot: RobotModel) -> dict[str, np.ndarray]:
    """The robot as a tree of links, one per joint, each with its frame at the joint and turned like its body.

    Newton's importer gives the bodies' inertias, with bodies that have no joint merged into the one that carries
    them. A body with several joints becomes a chain of links of which the last has its inertia. ``frames`` says
    for every MJCF body which link carries it, and how it is turned and placed in that link's frame.
    """
    init_warp()
    import newton  # here, because importing it starts Warp

    m = robot.mj_model
    builder = newton.ModelBuilder(up_axis=newton.Axis.Z)
    builder.add_mjcf(str(robot.path), collapse_fixed_joints=True, parse_visuals=False, parse_sites=False)
    carried = [float(m.body_mass[m.body_weldid == b].sum()) for b in range(1, m.nbody) if m.body_jntnum[b]]
    masses = [float(builder.body_mass[child]) for child in builder.joint_child]
    if len(masses) != len(carried) or not np.allclose(masses, carried, rtol=1e-4):
        raise ValueError(
            f"{robot.name}: Newton reads bodies of {np.round(masses, 4)} kg, MuJoCo of {np.round(carried, 4)} kg; "
            "give each body an explicit <inertial> (Newton does not know, for one, the compiler's settotalmass)"
        )
    count = m.njnt
    links = {
        "parent": np.full(count, -1, np.int32),
        "slide": (m.jnt_type == SLIDE).astype(np.int32),
        "inertia_of": np.arange(count, dtype=np.int32),
        "offset": np.zeros((count, 3)),
        "turn": np.tile(np.eye(3), (count, 1, 1)),
        "axis": np.where(m.jnt_type[:, None] == FREE, 0.0, m.jnt_axis),
        "mass": np.zeros(count),
        "com": np.zeros((count, 3)),
        "inertia": np.zeros((count, 3, 3)),
    }
    frames = {0: (-1, np.eye(3), np.zeros(3))}
    children = iter(builder.joint_child)
    for body in range(1, m.nbody):
        link, turn, place = frames[int(m.body_parentid[body])]
        place = place + turn @ m.body_pos[body]
        turn = turn @ rotation_matrix(m.body_quat[body])
        joints = range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body])
        for joint in joints:
            if m.jnt_type[joint] == FREE:
                link, turn, place = joint, np.eye(3), np.zeros(3)
                continue
            links["parent"][joint], links["turn"][joint] = link, turn
            links["offset"][joint] = place + turn @ m.jnt_pos[joint]
            link, turn, place = joint, np.eye(3), -m.jnt_pos[joint]
        frames[body] = link, turn, place
        if len(joints):
            child = next(children)
            links["mass"][link] = builder.body_mass[child]
            links["com"][link] = np.array(builder.body_com[child], float) + place
            links["inertia"][link] = np.array(builder.body_inertia[child], float).reshape(3, 3)
    return links | {"frames": frames}


def published_inertia_pairing(robot: RobotModel, links: dict[str, np.ndarray]) -> np.ndarray:
    """Whose inertia stands for each link's in the mass matrix of the published simulator.

    It numbers ANYmal's legs LF, RF, LH, RH as bodies and RH, LH, RF, LF as joints, and pairs body k with
    joint k: every leg carries the inertia of the leg diagonally opposite. Other robots are paired rightly.
    """
    order = np.arange(len(links["parent"]), dtype=np.int32)
    if robot.name == "anymal":
        order[1:] = order[1:].reshape(4, 3)[::-1].reshape(-1)
    return order


def make_tree(links: dict[str, np.ndarray], robot: RobotModel, device: wp.context.Device) -> Tree:
    """Put the links, the joints' springs and limits, and the contact candidates into Warp arrays."""
    m = robot.mj_model
    first = int(robot.free_base)
    count = len(links["parent"])

    def per_link(values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        return np.concatenate([np.full(first, fill), np.asarray(values, float)])

    skew = np.zeros((count, 3, 3))
    x, y, z = links["axis"].T
    skew[:, 0, 1], skew[:, 0, 2], skew[:, 1, 2] = -z, y, -x
    skew -= skew.transpose(0, 2, 1)
    dofs = np.arange(robot.nv)
    shift = 5 * first
    parents = np.where(links["parent"] < first, 5 if first else -1, links["parent"] + shift)
    dof_parent = np.where(dofs < 6 * first, dofs - 1, 0)
    dof_parent[6 * first :] = parents[first:]
    link, local = [], []
    for body, point in zip(robot.candidates.body, robot.candidates.position, strict=True):
        carrier, turn, place = links["frames"][int(body)]
        link.append(carrier)
        local.append(place + turn @ point)
    zero = m.qpos0[robot.joint_q]
    values = {
        "parent": (links["parent"], wp.int32),
        "slide": (links["slide"], wp.int32),
        "dof_parent": (dof_parent, wp.int32),
        "offset": (links["offset"], wp.vec3),
        "turn": (links["turn"], wp.mat33),
        "turn_sin": (links["turn"] @ skew, wp.mat33),
        "turn_cos": (links["turn"] @ skew @ skew, wp.mat33),
        "axis": (np.einsum("lij,lj->li", links["turn"], links["axis"]), wp.vec3),
        "mass": (links["mass"], wp.float32),
        "com": (links["com"], wp.vec3),
        "inertia": (links["inertia"], wp.mat33),
        "inertia_of": (links["inertia_of"], wp.int32),
        "armature": (per_link(links.get("armature", m.dof_armature[robot.joint_qd])), wp.float32),
        "damping": (per_link(links.get("damping", m.dof_damping[robot.joint_qd])), wp.float32),
        "stiffness": (per_link(m.jnt_stiffness[first:]), wp.float32),
        "zero": (per_link(zero), wp.float32),
        "rest": (per_link(m.qpos_spring[robot.joint_q] - zero), wp.float32),
        "lower": (per_link(robot.joint_range[:, 0] - zero, -np.inf), wp.float32),
        "upper": (per_link(robot.joint_range[:, 1] - zero, np.inf), wp.float32),
        "contact_link": (np.array(link, int), wp.int32),
        "contact_point": (np.array(local, float).reshape(-1, 3), wp.vec3),
        "contact_radius": (robot.candidates.radius, wp.float32),
    }
    return filled(Tree(), values, device)


def filled(struct, values: dict[str, tuple], device: wp.context.Device):
    """A Warp struct with arrays made of (values, dtype)."""
    for name, (value, dtype) in values.items():
        array = np.ascontiguousarray(value, np.int32 if dtype is wp.int32 else np.float32)
        if not array.size and dtype in (wp.vec3, wp.mat33):
            array = array.reshape(0, *dtype._shape_)
        setattr(struct, name, wp.array(array, dtype=dtype, device=device))
    return struct


def make_physics(robot: RobotModel, substeps: int, law: str | None = None, reference: bool = False) -> Physics:
    """The scalars of a robot's physics, with its own friction law if none is given."""
    physics = Physics()
    physics.dt = robot.frame_dt / substeps
    physics.substeps = substeps
    physics.published = int(reference)
    physics.huber = int((law or robot.friction_law) == "huber")
    physics.gravity = wp.vec3(*map(float, robot.mj_model.opt.gravity))
    physics.limit_ke, physics.limit_kd = robot.limit_gains
    physics.ke, physics.kd, physics.kf, physics.mu = robot.contact_gains
    return physics


def load_with_notice(kernel: wp.Kernel, device: wp.context.Device) -> None:
    """Load a kernel; if it must be compiled, say so and show the time that passes."""
    done = threading.Event()

    def notice() -> None:
        start = time.monotonic()
        if done.wait(1.5):
            return
        line = f"nerd_gym: compiling the Warp kernel {kernel.key} (once; kept in {wp.config.kernel_cache_dir})"
        live = sys.stderr.isatty()
        print(line, file=sys.stderr, end="" if live else "\n", flush=True)
        while not done.wait(0.5):
            if live:
                print(f"\r{line} {time.monotonic() - start:4.0f} s", file=sys.stderr, end="", flush=True)
        if live:
            print(file=sys.stderr)

    watcher = threading.Thread(target=notice, daemon=True)
    watcher.start()
    try:
        kernel.module.load(device, block_dim=256 if device.is_cuda else 1)
    finally:
        done.set()
        watcher.join()
