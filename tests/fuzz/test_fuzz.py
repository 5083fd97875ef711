"""Files from strangers: opened or refused by name, but no crash, hang, flood of memory or number that is none."""

import sys

import pytest
import torch

from tests.fuzz.harness import fuzz
from tests.fuzz.kinds import KINDS, warm_up
from tests.fuzz.mutations import mutated

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are set as Linux has them")
FEW, MANY = 60, 100_000


def check(name: str, count: int, seed: int) -> None:
    kind = KINDS[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads of the parent do not come along into a fork
    try:
        report = fuzz(kind.open, mutated(warm_up(kind), kind.structured, count, seed), kind.suffix)
    finally:
        torch.set_num_threads(threads)
    print(name, dict(report.outcomes))
    assert sum(report.outcomes.values()) == count
    assert not report.bad, "\n".join(report.bad[:20])


@pytest.mark.parametrize("name", KINDS)
def test_a_few_mutated_files(name):
    check(name, FEW, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_mutated_files(name):
    check(name, round(MANY * KINDS[name].share), seed=1)


@pytest.mark.parametrize("name", KINDS)
def test_the_files_that_are_mutated_are_fine(name, tmp_path):
    kind = KINDS[name]
    for content in kind.seeds():
        path = tmp_path / f"seed{kind.suffix}"
        path.write_bytes(content)
        kind.open(path)
