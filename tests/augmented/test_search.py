"""Global search on functions whose minima are known, and on a model's own loss."""

import pytest
import torch

from nerd_gym.augmented import AugmentedModel, Blueprint
from nerd_gym.augmented.training.search import (
    Bounds,
    basin_hopping,
    batched_loss,
    landscape,
    minimise,
    population_search,
)
from tests.support.grid import robot


def box(size, dimensions):
    return Bounds(torch.full((dimensions,), -size).double(), torch.full((dimensions,), size).double())


def valley(x):
    """Rosenbrock's; its minimum is at (1, 1)."""
    return 100 * (x[:, 1] - x[:, 0] ** 2) ** 2 + (1 - x[:, 0]) ** 2


def dimples(x):
    """Rastrigin's, with a minimum at every whole number and the lowest at 0."""
    return 10 * x.shape[1] + (x**2 - 10 * torch.cos(2 * torch.pi * x)).sum(-1)


def test_every_row_descends_on_its_own():
    start = box(2.0, 2).draw(16, torch.Generator().manual_seed(0))
    x, value, _ = minimise(valley, start, 80)
    assert (x - 1).abs().max() < 1e-6 and value.max() < 1e-12
    alone, _, _ = minimise(valley, start[3:4], 80)
    torch.testing.assert_close(alone[0], x[3], rtol=0, atol=1e-6)


def test_a_minimum_beyond_a_bound_is_found_on_it():
    bounds = Bounds(torch.tensor([-2.0, -2.0]).double(), torch.tensor([0.5, 2.0]).double())
    x, _, _ = minimise(valley, bounds.draw(8, torch.Generator().manual_seed(0)), 80, bounds)
    torch.testing.assert_close(x, torch.tensor([[0.5, 0.25]]).double().expand(8, 2), rtol=0, atol=1e-5)


def test_a_row_without_a_number_stays_and_harms_no_other():
    def broken(x):
        return torch.where(x[:, 0] > 1.5, torch.nan, 1.0) * valley(x)

    start = torch.tensor([[1.8, 0.0], [0.5, 0.5]]).double()
    x, value, _ = minimise(broken, start, 80)
    assert torch.equal(x[0], start[0]) and value[0] == torch.inf
    assert (x[1] - 1).abs().max() < 1e-6


def test_hopping_finds_what_single_descents_miss():
    bounds = box(5.12, 3)
    first = bounds.draw(16, torch.Generator().manual_seed(1))
    _, single, _ = minimise(dimples, first, 30, bounds)
    found = basin_hopping(dimples, bounds, 16, 60, 20, reach=0.1, target=1e-9, first=first)
    assert single.min() > 0.9 and found.value < 1e-9 and found.x.abs().max() < 1e-4
    assert all(b <= a for a, b in zip(found.history, found.history[1:]))
    again = basin_hopping(dimples, bounds, 16, 60, 20, reach=0.1, target=1e-9, first=first)
    assert torch.equal(again.x, found.x)


def test_a_population_finds_it_too():
    found = population_search(valley, box(2.0, 2), 48, 200, target=1e-6, seed=1)
    assert found.value <= 1e-6 and found.evaluations % 48 == 0


def test_a_landscape_has_y_in_its_rows():
    values = landscape(lambda x: x[:, 0] + 10 * x[:, 1], torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 6.0]))
    assert torch.equal(values, torch.tensor([[51.0, 52.0, 53.0], [61.0, 62.0, 63.0]]))


@pytest.mark.parametrize("lower", [torch.ones(2), torch.zeros(3), torch.zeros(1, 2)])
def test_wrong_bounds_are_told(lower):
    with pytest.raises(ValueError, match="bound"):
        Bounds(lower, torch.ones(2))


def test_a_models_loss_takes_many_points_at_once():
    torch.manual_seed(0)
    model = AugmentedModel(robot("cartpole"), Blueprint().wire("tau/*", "qd/*"), {"mass": torch.tensor([1.0, 0.5])})
    q, qd = torch.randn(5, 2).double(), torch.randn(5, 2).double()

    def loss(batch):
        return model.frame(*batch, torch.zeros(5, 2).double(), substeps=1)[1].square().mean()

    many, here = batched_loss(model, loss, (q, qd))
    torch.testing.assert_close(many(here[None])[0], loss((q, qd)))
    points = here + 0.1 * torch.randn(3, len(here)).double()
    values = many(points)
    for point, value in zip(points, values, strict=True):
        torch.nn.utils.vector_to_parameters(point, model.parameters())
        torch.testing.assert_close(loss((q, qd)), value)
    with pytest.raises(ValueError, match="unknown parameter 'colour'"):
        batched_loss(model, loss, (q, qd), ["colour"])
