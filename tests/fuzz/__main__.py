"""`python -m tests.fuzz --files 100000 --seed 1 --out benchmarks/results/fuzz.json`; the same command goes on.

Opens mutated files of all kinds, each in a process of its own, and writes what became of them. Ends with exit code 1
if a file crashed, hung, took too much, gave numbers that are none or was refused without its name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from nerd_gym.utils.files import atomic_write
from nerd_gym.utils.progress import progress

from .harness import MEMORY, SECONDS, fuzz
from .kinds import KINDS, warm_up
from .mutations import mutated

PART = 250  # files with one seed; a stopped run loses the part that it was in


def parts(files: int, share: float) -> int:
    """How many parts a kind has."""
    return max(1, round(files * share / PART))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000, help="over all kinds, in parts of 250")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--out", type=Path, default=Path("out/fuzz.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)  # threads of the parent do not come along into a fork
    plan = {"files": args.files, "seed": args.seed}
    told: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    if told and told["plan"] != plan:
        parser.error(f"{args.out} is of {told['plan']}, not {plan}; choose another --out or remove it")
    told = told or {"plan": plan, "limits": {"memory_bytes": MEMORY, "seconds": SECONDS}, "kinds": {}}
    total = sum(parts(args.files, KINDS[name].share) for name in args.kinds)
    done = sum(told["kinds"].get(name, {}).get("parts", 0) for name in args.kinds)
    with progress(total=total * PART, initial=done * PART, unit="file", desc="fuzz") as bar:
        rows = {name: told["kinds"].setdefault(name, {"parts": 0, "outcomes": {}, "bad": []}) for name in args.kinds}
        seeds = {name: warm_up(KINDS[name]) for name in args.kinds}
        while names := [name for name in args.kinds if rows[name]["parts"] < parts(args.files, KINDS[name].share)]:
            # The one that is furthest behind, so that a run that is stopped has seen all of them.
            name = min(names, key=lambda name: rows[name]["parts"] / parts(args.files, KINDS[name].share))
            kind, row = KINDS[name], rows[name]
            files = mutated(seeds[name], kind.structured, PART, args.seed * 1_000_000 + row["parts"])
            report = fuzz(kind.open, files, kind.suffix)
            row["outcomes"] = dict(Counter(row["outcomes"]) + report.outcomes)
            row["bad"] += report.bad
            row["parts"] += 1
            with atomic_write(args.out) as part:
                part.write_text(json.dumps(told, indent=1) + "\n")
            bar.update(PART)
    for name in args.kinds:
        row = told["kinds"][name]
        print(f"{name:12s}{PART * row['parts']:8,d} files: {row['outcomes']}")
    return int(any(told["kinds"][name]["bad"] for name in args.kinds))


if __name__ == "__main__":
    sys.exit(main())
