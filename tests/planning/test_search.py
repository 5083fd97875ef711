"""Searches on functions whose best point is known, and the sequences that their points stand for."""

from __future__ import annotations

import pytest
import torch

from nerd_gym.planning.search import METHODS
from nerd_gym.planning.sequences import default_knots, interpolation, sequences

LEARNING = [name for name in METHODS if name != "random"]


def found(method: str, best: torch.Tensor, iterations: int = 40, seed: int = 0) -> torch.Tensor:
    """The best of all points that were proposed for a bowl whose deepest point is at `best`."""
    search = METHODS[method](len(best), 32, 0.5, seed)
    proposed = []
    for _ in range(iterations):
        points = search.ask()
        assert points.shape == (32, len(best)) and points.abs().max() <= 1
        search.tell(points, -(points - best).square().sum(1))
        proposed.append(points)
    proposed = torch.cat(proposed)
    return proposed[(proposed - best).square().sum(1).argmin()]


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("best", [[0.6, -0.3, 0.1, 0.8], [1.0, 1.0, -1.0, 0.0]], ids=["inside", "corner"])
def test_the_best_point_is_found(method, best):
    best = torch.tensor(best)
    assert (found(method, best) - best).abs().max() < 0.02
    assert (found("random", best) - best).abs().max() > 0.05


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_one_search_and_draws_from_nobody_else(method):
    before = torch.get_rng_state()
    best = torch.tensor([0.3, -0.2])
    assert torch.equal(found(method, best, 3), found(method, best, 3))
    assert not torch.equal(found(method, best, 3), found(method, best, 3, seed=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_cem_never_forgets_its_best():
    search = METHODS["cem"](3, 40, 0.5, 0)
    points = search.ask()
    search.tell(points, points[:, 0])
    again = search.ask()
    assert (again == points[points[:, 0].argmax()]).all(1).any()


def test_knots_are_met_and_joined_by_straight_lines():
    points = torch.tensor([[0.0, 1.0, 1.0, -1.0]])  # two knots of two actions
    actions = sequences(points, 5, 2)
    torch.testing.assert_close(actions[:, 0], torch.tensor([[0, 1], [0.25, 0.5], [0.5, 0], [0.75, -0.5], [1, -1]]))
    assert torch.equal(interpolation(7, 7), torch.eye(7))
    assert torch.equal(interpolation(3, 1), torch.ones(3, 1))


def test_default_knots_are_at_most_the_horizon():
    assert [default_knots(horizon) for horizon in (1, 4, 20, 60, 120)] == [1, 4, 5, 10, 20]
