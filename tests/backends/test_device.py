"""Right on an accelerator, shown without one: no host round trips in a step, kernels that compile to PTX."""

import pytest
import torch
import warp as wp

from nerd_gym.backends import backend_class
from nerd_gym.dynamics.features.advance_kernel import advance_kernel
from nerd_gym.dynamics.features.encode_kernel import encode_kernel
from nerd_gym.dynamics.features.kernel_tables import FROZEN_POSE
from nerd_gym.dynamics.models.checkpoint import save_model
from nerd_gym.dynamics.models.mlp import MlpModel
from nerd_gym.dynamics.models.residual import ResidualModel
from nerd_gym.dynamics.models.trust import fit_trust
from nerd_gym.physics.warp.distance import distance_kernel
from nerd_gym.physics.warp.frame import frame_kernel
from nerd_gym.physics.warp.frozen_pose import frozen_pose_kernel
from nerd_gym.physics.warp.tree import shape_of
from nerd_gym.robots.links import read_links
from nerd_gym.robots.state import Motion
from tests.support.device import NoHostRoundTrips, away_from_the_host
from tests.support.grid import ALL_VARIANTS, ROBOTS, robot
from tests.support.states import make_vec, true_prior

ON_DEVICE = [variant for variant in ALL_VARIANTS if backend_class(variant[1]).on_device]


@pytest.mark.parametrize(("env_id", "backend", "options"), ON_DEVICE)
def test_step_never_waits_for_the_host(env_id, backend, options):
    steps_without_the_host(make_vec(env_id, 64, backend=backend, max_episode_steps=3, **options))


@pytest.mark.parametrize("cls", [MlpModel, ResidualModel])
@pytest.mark.parametrize(("env_id", "name"), [("NeRD/Ant-v0", "ant"), ("NeRD/Anymal-v0", "anymal")])
def test_step_of_a_network_never_waits_for_the_host(env_id, name, cls, tmp_path):
    """A fresh network with the trust of an untrained one: every part of the step is there."""
    model, path = robot(name), tmp_path / "model.safetensors"
    save_model(path, fresh_tensors(cls, model), fresh_facts(cls, model))
    steps_without_the_host(make_vec(env_id, 64, backend="neural", model=path, max_episode_steps=3))


def fresh_facts(cls, model) -> dict:
    facts = {"kind": cls.kind, "robot": model.name, "robot_hash": model.hash, "frame_dt": model.frame_dt}
    return facts | {"teacher": "warp", "network": {"width": 16, "depth": 2}} | cls.new_facts(model)


def fresh_tensors(cls, model) -> dict[str, torch.Tensor]:
    made = cls(model, true_prior(model) if cls is ResidualModel else {}, fresh_facts(cls, model))
    made.normaliser.output_limit.fill_(0.1)
    n = 256
    q = torch.as_tensor(model.mj_model.qpos0, dtype=torch.float32).repeat(n, 1) + 0.1 * torch.randn(n, model.nq)
    qd, force = torch.randn(n, model.nv), torch.randn(n, model.nj)
    up = torch.tensor([[0.0, 0.0, 1.0]]).repeat(n, 1)
    train = {"q": q, "qd": qd, "force": force}
    inputs = made.network_inputs(Motion(q, qd), force, made.find_contacts(q, torch.zeros(n, 3), up))
    trust, _ = fit_trust(model, train, inputs, torch.rand(n), steps=1)
    return made.tensors() | trust


def steps_without_the_host(env):
    env.reset(seed=0)
    env.backend.host_checks = False  # as on an accelerator
    action = torch.rand(env.action_space.shape) * 2 - 1

    with away_from_the_host():
        for _ in range(5):  # over an autoreset
            obs, *_ = env.step(action)
    assert obs.isfinite().all()


def test_the_check_finds_what_it_forbids():
    x = torch.ones(3)
    with NoHostRoundTrips():
        for wrong in (lambda: x.sum().item(), lambda: x[x > 0], lambda: x.nonzero(), lambda: bool(x.any())):
            with pytest.raises(AssertionError):
                wrong()


@pytest.mark.parametrize(("env_id", "options"), [("NeRD/Ant-v0", {}), ("NeRD/Franka-v0", {}), ("NeRD/Anymal-v0", {})])
def test_with_and_without_host_checks_the_numbers_are_the_same(env_id, options):
    envs = [make_vec(env_id, 32, backend="warp", max_episode_steps=7, **options) for _ in range(2)]
    envs[1].backend.host_checks = False
    for env in envs:
        env.reset(seed=1)
    generator = torch.Generator().manual_seed(0)
    for k in range(20):
        action = 2 * torch.rand(envs[0].action_space.shape, generator=generator) - 1
        if k == 11:
            action[4] = float("nan")
        first, second = (env.step(action) for env in envs)
        for a, b in zip(first[:4], second[:4], strict=True):
            assert torch.equal(a, b)
        assert torch.equal(first[4]["final_obs"], second[4]["final_obs"])


# Kernels of two robots differ in numbers alone if both or neither have a free base and a ground.
SHAPES = {(robot(name).free_base, robot(name).ground is None): name for name in ROBOTS}


@pytest.mark.parametrize("name", SHAPES.values())
def test_kernels_compile_to_ptx(name, tmp_path):
    model = robot(name)
    shape = shape_of(model, read_links(model))
    fused = MlpModel(model, {}, fresh_facts(MlpModel, model)).fused.sizes
    kernels = [
        *(frame_kernel(shape, 1, published=published) for published in (False, True)),
        distance_kernel(shape, 1),
    ]
    kernels += [encode_kernel(fused), advance_kernel(fused)]
    if model.free_base:
        with_prior = fused._replace(prior=FROZEN_POSE, near=1)
        kernels += [frozen_pose_kernel(shape, 1, *laws) for laws in ((), (True,), (False, True))]
        kernels += [encode_kernel(with_prior), advance_kernel(with_prior)]
    for kernel in kernels:
        folder = tmp_path / kernel.key
        wp.compile_aot_module(kernel.module, device=None, arch=86, module_dir=folder, use_ptx=True)
        [ptx] = list(folder.rglob("*.ptx"))
        text = ptx.read_text()
        assert ".target sm_86" in text and f"{kernel.key}" in text
