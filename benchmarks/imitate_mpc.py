"""Train the packaged network that stands in for the QP of the trot: about ten minutes on one thread.

python benchmarks/imitate_mpc.py            writes nerd_gym/control/pretrained/trot-anymal.safetensors
python benchmarks/imitate_mpc.py --out FILE
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from nerd_gym.control.agents import COMMANDS, ENV
from nerd_gym.control.imitation import PRETRAINED, imitate
from nerd_gym.envs.factory import native
from nerd_gym.utils.files import check_output

BACKENDS = ("warp", "mujoco")
LARGEST = (0.6, 0.2, 0.4)  # command: a little beyond what the agents take
ROBOTS, ROUNDS = 10, 8  # robots on each backend


def main(out: Path, seed: int) -> None:
    """Train and save."""
    import gymnasium

    check_output(out)
    torch.set_num_threads(1)
    envs = [
        native(gymnasium.make_vec(ENV, num_envs=ROBOTS, backend=backend, array="torch", max_episode_steps=None))
        for backend in BACKENDS
    ]
    generator = torch.Generator().manual_seed(seed)
    largest = torch.tensor(LARGEST)
    # A third of each at its largest size; every fourth robot walks as by default.
    unit = 3 * torch.rand(ROUNDS + 1, ROBOTS * len(envs), 3, generator=generator) - 1.5
    unit[:, ::4] = torch.tensor([default for default, _ in COMMANDS.values()]) / largest
    commands = unit.clamp(-1, 1) * largest
    imitate(envs, commands, rounds=ROUNDS, seed=seed).save(out)
    print(f"written: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PRETRAINED)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.out, given.seed)
