"""Tests share through tests/support alone, and touch nothing private of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# This file has examples of what is forbidden.
FILES = sorted(path for path in HERE.rglob("*.py") if path.parent.name != "docs" and path != Path(__file__))
# Private attributes that are not ours: methods of NamedTuple, and what Stable-Baselines3 offers for a rollout alone.
OTHERS = ("_replace", "_asdict", "_fields", "_setup_learn")
TEST_MODULE = re.compile(r"(tests|\.*)\.?(\w+\.)*(test_\w+|conftest)(\.|$)")


def modules(node: ast.AST) -> list[str]:
    """Modules that a statement imports; code in a text, for another process, counts too."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.findall(r"\b(?:from|import) (tests\.[\w.]+)", node.value)
    return []


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def other_libraries(tree: ast.AST) -> set[str]:
    """Names of modules that a file imports as a whole, but for ours: what is private in them is not ours to forbid."""
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    theirs = [alias for alias in aliases if alias.name.split(".")[0] not in ("nerd_gym", "tests", "benchmarks")]
    return {(alias.asname or alias.name).split(".")[0] for alias in theirs}


def problems(code: str) -> Iterator[str]:
    """What a test file must not do."""
    tree = ast.parse(code)
    others = other_libraries(tree)
    for node in ast.walk(tree):
        for module in modules(node):
            if TEST_MODULE.match(module):
                yield f"imports {module}"
            if module.startswith("nerd_gym") and any(private(part) for part in module.split(".")):
                yield f"imports {module}"
        ours = isinstance(node, ast.Attribute) and ast.unparse(node).split(".")[0] not in others
        if ours and private(node.attr) and node.attr not in OTHERS:
            yield f"reads .{node.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "monkeypatch.setattr"):
            words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            for word in words:
                if any(private(part) for part in word.split(".")) and word not in OTHERS:
                    yield f"reads {word!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_files_import_support_alone_and_read_nothing_private(path):
    assert list(problems(path.read_text())) == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("from tests.conftest import ROOT", "imports tests.conftest.ROOT"),
        ("import tests.envs.test_vector", "imports tests.envs.test_vector"),
        ("from .test_vector import digest", "imports .test_vector.digest"),
        ("run('from tests.envs.test_vector import digest')", "imports tests.envs.test_vector"),
        ("from nerd_gym.robots.rotations import _A", "imports nerd_gym.robots.rotations._A"),
        ("backend._advance(force)", "reads ._advance"),
        ("import torch, nerd_gym\ntorch._utils, nerd_gym._lazy", "reads ._lazy"),
        ("getattr(backend, '_cache')", "reads '_cache'"),
        ("monkeypatch.setattr('nerd_gym.robots.rotations._A', 0)", "reads 'nerd_gym.robots.rotations._A'"),
    ],
)
def test_the_check_finds_what_it_forbids(code, problem):
    assert list(problems(code)) == [problem]
    assert list(problems("from tests.support.grid import robot\nrow._replace(q=0)\n__import__('x').__name__")) == []
