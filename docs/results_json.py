"""The json files that commands of the project wrote, and today's words for what older ones recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PRETRAINED = ROOT / "nerd_gym" / "dynamics" / "pretrained"

# A json stays as its command wrote it. Longer names first: the first that fits is taken.
WORDS = {
    "sketched": "residual",
    "sketch among the inputs": "prior among the inputs",
    "sketch": "frozen-pose prior",
    "free fall": "free-fall prior",
    "pose_updates": "pose updates",
    "joint limits ahead": "predicted limit distance",
    "distance ahead": "predicted distance",
    "distance a frame later": "predicted distance",
    "lr": "learning rate",
}
_OLD = re.compile(r"\b(" + "|".join(WORDS) + r")\b")


def modern(text: str) -> str:
    """A recorded word as the documents say it."""
    return _OLD.sub(lambda match: WORDS[match[1]], text)


def load(name: str) -> dict[str, Any]:
    """A json of benchmarks/results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


@dataclass(frozen=True)
class Packaged:
    """A packaged model: the facts in its file, and the evaluation beside it."""

    path: Path
    facts: dict[str, Any]
    evaluation: dict[str, Any]

    @property
    def teacher(self) -> str:
        """As tables name it."""
        return self.evaluation["teacher"] + ", `reference=True`" * (self.evaluation["physics"] == "reference")

    @property
    def free_base(self) -> bool:
        """Whether the robot has one."""
        return any(
            "position" in result for students in self.evaluation["results"].values() for result in students.values()
        )

    @property
    def name(self) -> str:
        """What the evaluation calls this model: the one that was made as the file was."""
        for name, about in self.evaluation["models"].items():
            if facts_that_count(about) == facts_that_count(self.facts):
                return name
        raise ValueError(f"{self.path.stem}.json evaluates other models than {self.path.name}: evaluate it again")


def facts_that_count(facts: dict[str, Any]) -> dict[str, Any]:
    """What tells a model from others."""
    counted = {key: facts.get(key) for key in ("seed", "command", "r2")}
    return counted | {"kind": modern(facts["kind"])}


def packaged_models() -> Iterator[Packaged]:
    """Every packaged model, by name."""
    for path in sorted(PRETRAINED.glob("*.safetensors")):
        beside = path.with_suffix(".json")
        if not beside.exists():
            raise ValueError(f"{path.name} has no evaluation beside it: nerd-gym evaluate, then keep evaluation.json")
        with safe_open(path, "np") as file:
            facts = json.loads(file.metadata()["facts"])
        yield Packaged(path, facts, json.loads(beside.read_text()))
