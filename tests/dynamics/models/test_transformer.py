"""The transformer's history: what it keeps, and what it forgets."""

import pytest
import torch

from nerd_gym.dynamics.models.networks import CausalTransformer, RingCache
from nerd_gym.dynamics.models.transformer import TransformerModel
from nerd_gym.robots.state import Motion
from tests.support.models import fitted
from tests.support.states import ground, wide_state


def big_transformer(window: int = 10) -> CausalTransformer:
    """With random weights for which every earlier token matters."""
    torch.manual_seed(0)
    network = CausalTransformer(6, 4, layers=3, heads=4, width=32, window=window)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return network


@torch.no_grad()
def test_the_cache_gives_what_the_whole_sequence_gives():
    network = big_transformer()
    tokens = torch.randn(5, 30, 6)
    resets = {0: (), 1: (7,), 2: (7, 8), 3: (1, 15, 29), 4: (22,)}
    cache = RingCache(network, 5, "cpu")
    outputs = []
    for t in range(30):
        cache.forget(torch.tensor([t in resets[row] for row in range(5)]))
        outputs.append(network.step(tokens[:, t], cache))
    found = torch.stack(outputs, 1)
    for row, at in resets.items():
        for start, end in zip((0, *at), (*at, 30), strict=True):
            expected = network(tokens[row : row + 1, start:end])[0]
            torch.testing.assert_close(found[row, start:end], expected, atol=1e-5, rtol=1e-4)
    assert (found[1, 10:14] - network(tokens)[1, 10:14]).abs().max() > 1e-3  # the past matters


@torch.no_grad()
def test_a_token_attends_to_its_layers_windows_and_nothing_later():
    network = big_transformer(window=4)
    tokens = torch.randn(1, 20, 6)
    changed = tokens.clone()
    changed[:, 5] += 1.0
    differs = (network(tokens) - network(changed)).abs().amax((0, 2))
    reach = 5 + 3 * (4 - 1)  # three layers, each three tokens back
    assert (differs[:5] == 0).all() and (differs[5 : reach + 1] > 0).all() and (differs[reach + 1 :] < 1e-6).all()


def rollout(model, history, start: Motion, forces, point, normal, forget=None):
    """States after each frame; forget maps frames to masks."""
    out, state = [], start
    for t, force in enumerate(forces):
        if forget and t in forget:
            history.forget(forget[t])
        state = model.predict(state, force, model.find_contacts(state.q, point, normal), history)
        out.append(torch.cat(state, 1))
    return torch.stack(out), state


@pytest.fixture
def remembering():
    """A transformer of the pendulum, a start and forces for it."""
    model = fitted(TransformerModel, "pendulum_contact")
    q, qd = wide_state(model.robot, 6)
    forces = 100 * torch.randn(16, 6, 2, generator=torch.Generator().manual_seed(0))
    return model, Motion(q, qd), forces, *ground(model.robot, 6)


def test_forgetting_a_row_never_touches_another(remembering):
    model, start, forces, point, normal = remembering
    mask = torch.tensor([False, False, True, False, False, False])
    kept, _ = rollout(model, model.new_history(6), start, forces, point, normal)
    forgot, _ = rollout(model, model.new_history(6), start, forces, point, normal, {7: mask})
    assert torch.equal(kept[:, ~mask], forgot[:, ~mask]) and torch.equal(kept[:7], forgot[:7])
    assert not torch.equal(kept[7, mask], forgot[7, mask])


def test_a_snapshot_comes_back_to_the_bit(remembering):
    model, start, forces, point, normal = remembering
    history = model.new_history(6)
    _, middle = rollout(model, history, start, forces[:7], point, normal)
    snapshot = history.snapshot()
    first, _ = rollout(model, history, middle, forces[7:], point, normal)
    history.restore(snapshot)
    second, _ = rollout(model, history, middle, forces[7:], point, normal)
    assert torch.equal(first, second)
    fresh, _ = rollout(model, model.new_history(6), middle, forces[7:], point, normal)
    assert not torch.equal(first, fresh)


def test_rows_of_a_snapshot_go_on_in_a_batch_of_another_size(remembering):
    model, start, forces, point, normal = remembering
    history = model.new_history(6)
    _, middle = rollout(model, history, start, forces[:7], point, normal)
    rows = torch.tensor([4, 1, 4])
    other = model.new_history(3)
    other.restore(other.select_rows(history.snapshot(), rows))
    expected, _ = rollout(model, history, middle, forces[7:], point, normal)
    there = Motion(middle.q[rows], middle.qd[rows])
    found, _ = rollout(model, other, there, forces[7:, rows], point[rows], normal[rows])
    torch.testing.assert_close(found, expected[:, rows], atol=1e-4, rtol=1e-4)
    fresh, _ = rollout(model, model.new_history(3), there, forces[7:, rows], point[rows], normal[rows])
    assert (fresh - found).abs().max() > 100 * (found - expected[:, rows]).abs().max()


def test_a_state_that_is_not_finite_leaves_no_trace_after_it_is_forgotten(remembering):
    model, start, forces, point, normal = remembering
    history = model.new_history(6)
    broken = Motion(start.q.clone(), start.qd.clone())
    broken.qd[3] = float("nan")
    rollout(model, history, broken, forces[:1], point, normal)
    history.forget(torch.ones(6, dtype=torch.bool))
    found, _ = rollout(model, history, start, forces, point, normal)
    expected, _ = rollout(model, model.new_history(6), start, forces, point, normal)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
