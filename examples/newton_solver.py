"""A plain Newton scene, stepped by a learned model and by Newton's own solver: how far do they part?

python examples/newton_solver.py cartpole --worlds 16 --frames 100
"""

from __future__ import annotations

import argparse

import newton
import numpy as np
import warp as wp

from nerd_gym import RobotModel
from nerd_gym.dynamics import SolverNeRD


def build(robot: RobotModel, worlds: int) -> newton.Model:
    """Copies of the robot's MJCF, one in each world."""
    gravity = tuple(robot.mj_model.opt.gravity)  # the importer does not read it
    one = newton.ModelBuilder(up_axis=newton.Axis.Z, gravity=gravity)
    one.add_mjcf(str(robot.path), collapse_fixed_joints=True)
    for shape in range(one.shape_count):  # contact gains of the penalty method, which MJCF has no word for
        one.shape_material_ke[shape], one.shape_material_kd[shape] = robot.contact_gains[:2]
        one.shape_material_kf[shape], one.shape_material_mu[shape] = robot.contact_gains[2:]
    scene = newton.ModelBuilder(up_axis=newton.Axis.Z, gravity=gravity)
    scene.replicate(one, worlds)
    return scene.finalize()


def simulate(model: newton.Model, robot: RobotModel, solver: str, options: argparse.Namespace) -> np.ndarray:
    """Joint coordinates [frames + 1, worlds, nq] of a random start under random joint forces."""
    random = np.random.default_rng(options.seed)
    shape = (model.world_count, robot.nv)
    state, control = model.state(), model.control()
    start = state.joint_q.numpy().reshape(model.world_count, robot.nq)
    start[:, robot.joint_q] += random.uniform(-0.5, 0.5, (model.world_count, robot.nj))
    state.joint_q.assign(start.ravel())
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    if solver == "nerd":  # takes whole frames and finds its own contacts
        engine, substeps, collisions, contacts = SolverNeRD(model, robot, options.model), 1, None, None
    else:
        engine, substeps = newton.solvers.SolverFeatherstone(model), robot.substeps
        collisions = newton.CollisionPipeline(model)
        contacts = collisions.contacts()
    after = model.state()
    path = [start.copy()]
    for _ in range(options.frames):
        force = np.zeros(shape, np.float32)
        force[:, -robot.nj :] = 0.2 * robot.force_limit * random.uniform(-1, 1, (shape[0], robot.nj))
        control.joint_f.assign(force.ravel())
        for _ in range(substeps):
            if collisions is not None:
                collisions.collide(state, contacts)
            state.clear_forces()
            engine.step(state, after, control, contacts, robot.frame_dt / substeps)
            state, after = after, state
        path.append(state.joint_q.numpy().reshape(model.world_count, robot.nq).copy())
    return np.stack(path)


def main(args: list[str] | None = None) -> None:
    """Run one solver or both, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("robot", nargs="?", default="cartpole", choices=["cartpole", "pendulum_contact", "franka"])
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--solver", default="both", choices=["nerd", "featherstone", "both"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a model of your own; by default the packaged one")
    options = parser.parse_args(args)
    wp.config.log_level = wp.LOG_WARNING
    robot = RobotModel.named(options.robot)
    model = build(robot, options.worlds)
    solvers = ("nerd", "featherstone") if options.solver == "both" else (options.solver,)
    paths = {s: simulate(model, robot, s, options) for s in solvers}
    for solver, path in paths.items():
        print(f"{solver:12s} world 0 ends at {np.array2string(path[-1, 0], precision=4)}")
    if len(paths) == 2:
        apart = np.abs(paths["nerd"] - paths["featherstone"]).max(-1)  # [frames + 1, worlds]
        for frame in sorted({1, min(10, options.frames), options.frames}):
            print(f"frame {frame:4d}: apart by {np.median(apart[frame]):.1e} (median), {apart[frame].max():.1e} (most)")


if __name__ == "__main__":
    main()
