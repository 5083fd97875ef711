"""Wrong words on the command line: one line that names the word, exit code 2, before any work, and no file left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nerd_gym import cli
from tests.support.grid import ROOT

POLICY = str(ROOT / "policies" / "cartpole" / "swingup-warp-seed0.safetensors")
STRIKES = "strikes.csv"
SEMICYLINDER = str(ROOT / "nerd_gym" / "collision" / "pretrained" / "semicylinder.safetensors")
CARTPOLE, ANT = "NeRD/Cartpole-v0", "NeRD/Ant-v0"
# Commands that would run, shortly, if the bad words were not there.
COMMANDS = {
    "play": ["play", CARTPOLE, "--steps", "1"],
    "compare": ["compare", CARTPOLE, "--policy", "zero", "--no-video"],
    "bench": ["bench", CARTPOLE, "--repeats", "1", "--seconds", "0.01"],
    "demo": ["demo", "--no-video"],
    "generate": ["generate", "cartpole", "--out", "made.h5"],
    "train": ["train", "cartpole", "--out", "made.safetensors"],
    "evaluate": ["evaluate", "cartpole", "--no-video"],
    "export": ["export", POLICY, "--onnx", "made.onnx"],
    "rl train": ["rl", "train", CARTPOLE, "--out", "made"],
    "rl play": ["rl", "play", POLICY, "--steps", "1"],
    "rl eval": ["rl", "eval", POLICY],
    "plan": ["plan", CARTPOLE, "--horizon", "2", "--iterations", "1", "--candidates", "4", "--out", "made"],
    "augment": ["augment", "cartpole", "--data", "none.h5", "--wire", "tau/*: qd/@", "--out", "made.safetensors"],
    "collision generate": ["collision", "generate", "square", "--out", "made.h5"],
    "collision train": ["collision", "train", "square", "--out", "made.safetensors"],
    "collision identify": ["collision", "identify", "square", "--samples", STRIKES, "--out", "made.safetensors"],
    "collision finetune": ["collision", "finetune", "square", "--samples", STRIKES, "--out", "made.safetensors"],
    "collision evaluate": ["collision", "evaluate", "square"],
}
NO_NUMBERS = ("x", "", "1.5", "nan", "inf", "1e3", "0x10", "1,000")
NO_COUNTS = ("0", "-1", "-1000000", "1000000000000", "99999999999999999999999", *NO_NUMBERS)
NO_SEEDS = ("-1", "99999999999999999999999", *NO_NUMBERS)
NO_SHARES = ("-0.1", "nan", "inf", "-inf", "x", "", "1e400")
NO_TRANSITIONS = ("0", "-1", "-1k", "nan", "inf", "1e400", "x", "", "1T", "k", "99999999999999999999")
NO_DEVICES = ("cuda", "cuda:7", "meta", "foo", "", "cpu:x", "mps", "cuda:-1")
NO_PAIRS = ("task", "=", "=1", "task=", "colour=red", "task=fly", "substeps=0", "threads=0", "threads=x", "model=no.x")
NO_SAMPLES = ("no.csv", "file.txt", "folder", "text.csv", "equal.csv", "few.csv", "short.csv")
NO_PATHS = ("/proc/none/made", "file.txt/below/made", "/dev/null/made")
OPTIONS = {
    "play": {
        "--num-envs": NO_COUNTS,
        "--steps": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--device": NO_DEVICES,
        "--option": NO_PAIRS,
        "--backend": ("bullet", "", "warp:x=1", "Warp"),
        "--agent": ("genius", "no.safetensors", "no.onnx", "no.pth", "folder", "text.safetensors", "text.onnx", "a:b"),
        "--video": ("film.avi", "film", "folder", *(f"{p}.mp4" for p in NO_PATHS)),
        "--layout": ("x", ""),
        "--activation": ("x", ""),
        "--colour": ("red",),
    },
    "compare": {
        "--episodes": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--margin": NO_SHARES,
        "--displaced": NO_SHARES,
        "--backends": ("bullet", "warp:x", "warp:x=1", "warp:substeps=0", "warp", "", "neural:model=no.safetensors"),
        "--policy": ("genius", "no.safetensors", "folder", "text.safetensors", "os:system", "no.py:f", "text.pth"),
        "--option": NO_PAIRS[:6],
        "--layout": ("x",),
        "--activation": ("x",),
        "--out": ("file.txt", *NO_PATHS),
    },
    "bench": {
        "--num-envs": NO_COUNTS,
        "--repeats": NO_COUNTS,
        "--seconds": ("0", *NO_SHARES),
        "--threads": NO_COUNTS,
        "--backends": ("bullet", "", "warp:x=1"),
        "--out": ("folder", *NO_PATHS),
    },
    "demo": {
        "--episodes": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--policies": ("none", "file.txt", "folder"),
        "--out": ("file.txt", *NO_PATHS),
    },
    "generate": {
        "--transitions": NO_TRANSITIONS,
        "--frames": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--task-share": ("2", *NO_SHARES),
        "--preset": ("x", ""),
        "--backend": ("bullet", ""),
        "--policies": ("no.safetensors", "text.safetensors", "folder"),
        "--starts": ("x", ""),
        "--option": ("x", "x=1", "substeps=0", "threads=-1"),
        "--out": ("folder", "file.txt", *NO_PATHS),
    },
    "train": {
        "--data": ("no.h5", "file.txt", "folder", "/dev/null"),
        "--model": ("x", ""),
        "--steps": NO_COUNTS,
        "--batch": NO_COUNTS,
        "--lr": ("0", *NO_SHARES),
        "--polish": ("-1", *NO_NUMBERS),
        "--size": ("x", "x=1", "width=0", "width=x", "width=-1", "width=1.5", "width=99999999"),
        "--transitions": NO_COUNTS,
        "--force-net": ("x", ""),
        "--optimiser": ("x", ""),
        "--newest": ("2", *NO_SHARES),
        "--device": NO_DEVICES,
        "--seed": NO_SEEDS,
        "--start": ("no.safetensors", "text.safetensors"),
        "--refine": ("no.safetensors", "text.safetensors"),
        "--mjcf": ("no.xml",),
        "--data-transitions": ("1k",),
        "--out": ("folder", *NO_PATHS),
    },
    "evaluate": {
        "--rollouts": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--model": ("no.safetensors", "text.safetensors", "folder", POLICY),
        "--teacher": ("bullet", ""),
        "--scenario": ("none such",),
        "--out": ("file.txt", *NO_PATHS),
    },
    "export": {"--activation": ("x",), "--onnx": ("made.txt", "folder", *(f"{p}.onnx" for p in NO_PATHS))},
    "rl train": {
        "--lib": ("x", ""),
        "--algo": ("x", "", "sac"),  # rl-games is run with PPO alone
        "--backend": ("bullet", ""),
        "--task": ("fly",),
        "--seed": NO_SEEDS,
        "--steps": NO_TRANSITIONS,
        "--until": NO_TRANSITIONS,
        "--num-envs": NO_COUNTS,
        "--set": ("x", "=", "params=", "no.such=1", "run.num_envs=0", "run.num_envs=x", "run.x=1", "run.steps=-1"),
        "--config": ("no.yaml", "file.txt", "folder"),
        "--option": NO_PAIRS,
        "--threads": NO_COUNTS,
        "--device": NO_DEVICES,
        "--out": ("file.txt", *NO_PATHS),
    },
    "rl play": {
        "--num-envs": NO_COUNTS,
        "--steps": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--backend": ("bullet", ""),
        "--video": ("film.avi", "folder", *(f"{p}.mp4" for p in NO_PATHS)),
    },
    "rl eval": {
        "--episodes": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--backends": ("bullet", "warp:x", "warp:x=1", ""),
        "--out": ("folder", *NO_PATHS),
    },
    "plan": {
        "--backend": ("bullet", "", "warp:x=1"),
        "--method": ("x", "", "CMA"),
        "--horizon": ("301", *NO_COUNTS),
        "--iterations": NO_COUNTS,
        "--candidates": ("3", *NO_COUNTS),
        "--knots": ("3", *NO_COUNTS),
        "--sigma": ("0", "11", *NO_SHARES),
        "--seed": NO_SEEDS,
        "--check": ("bullet", "", "warp:x", "warp:x=1", "warp:substeps=0", "neural:model=no.safetensors"),
        "--device": NO_DEVICES,
        "--option": NO_PAIRS,
        "--out": ("file.txt", *NO_PATHS),
    },
    "augment": {
        "--data": ("no.h5", "text.safetensors", "folder"),
        "--wire": ("x", "", "tau/*", "tau/*: none/*", "tau/*: time", "tau/a b: "),
        "--activation": ("relu", ""),
        "--contact": ("glue", ""),
        "--identify": ("colour", "upper"),
        "--lasso": ("0", *NO_SHARES),
        "--horizon": ("-1", *NO_NUMBERS),
        "--windows": NO_COUNTS,
        "--starts": NO_COUNTS,
        "--hops": ("-1", *NO_NUMBERS),
        "--optimiser": ("sgd", ""),
        "--steps": NO_COUNTS,
        "--lr": ("0", *NO_SHARES),
        "--seed": NO_SEEDS,
        "--out": ("folder", *NO_PATHS),
    },
    "collision generate": {
        "--collisions": NO_TRANSITIONS,
        "--seed": NO_SEEDS,
        "--threads": NO_COUNTS,
        "--out": ("folder", "file.txt", *NO_PATHS),
    },
    "collision train": {
        "--data": ("no.h5", "file.txt", "folder"),
        "--wide-data": ("no.h5",),
        "--recipe": ("x", ""),
        "--width": NO_COUNTS,
        "--depth": ("0", "-1", "99", *NO_NUMBERS),
        "--steps": NO_COUNTS,
        "--batch": NO_COUNTS,
        "--lr": ("0", *NO_SHARES),
        "--seed": NO_SEEDS,
        "--device": NO_DEVICES,
        "--out": ("folder", *NO_PATHS),
    },
    "collision identify": {
        "--samples": NO_SAMPLES,
        "--model": ("no.safetensors", "text.safetensors", POLICY, SEMICYLINDER),
        "--seed": NO_SEEDS,
        "--out": ("folder", *NO_PATHS),
    },
    "collision finetune": {
        "--samples": NO_SAMPLES,
        "--model": ("no.safetensors", "text.safetensors", POLICY, SEMICYLINDER),
        "--recipe": ("x", ""),
        "--seed": NO_SEEDS,
        "--out": ("folder", *NO_PATHS),
    },
    "collision evaluate": {
        "--samples": NO_SAMPLES[:4],
        "--model": ("no.safetensors", "text.safetensors", POLICY, SEMICYLINDER),
        "--collisions": NO_COUNTS,
        "--seed": NO_SEEDS,
        "--out": ("file.txt", *NO_PATHS),
    },
}
CASES = [
    (command, option, value)
    for command, options in OPTIONS.items()
    for option, values in options.items()
    for value in values
]
# Other first words than an environment, a robot or a policy.
WORDS = [
    ["bogus"],
    [],
    ["--colour"],
    ["list", "x"],
    ["rl"],
    ["rl", "bogus"],
    ["play"],
    ["plan"],
    ["train"],
    ["export", POLICY],
]
WORDS += [
    ["play", "NeRD/Dog-v0"],
    ["play", ""],
    ["plan", "NeRD/Dog-v0"],
    ["compare", "NeRD/Dog-v0", "--policy", "zero"],
    ["compare", CARTPOLE],
]
WORDS += [["bench", "NeRD/Dog-v0"], ["generate", "dog"], ["generate", "no.xml"], ["generate", "text.xml"]]
WORDS += [["train", "dog"], ["evaluate", "dog"], ["evaluate", "text.xml"], ["train", "cartpole", "--mjcf", "text.xml"]]
WORDS += [["export", "no.safetensors", "--onnx", "made.onnx"], ["export", "text.safetensors", "--onnx", "made.onnx"]]
WORDS += [["rl", "train", "NeRD/Dog-v0"], ["rl", "play", "no.safetensors"], ["rl", "eval", "folder"], ["rl", "eval"]]
WORDS += [["rl", "play", "text.safetensors"], ["play", ANT, "--agent", POLICY], ["compare", ANT, "--policy", POLICY]]
WORDS += [["collision"], ["collision", "bogus"], ["collision", "generate", "cube"], ["collision", "train", "cube"]]
WORDS += [["collision", "evaluate", "cube"], ["collision", "finetune", "square"], ["collision", "identify"]]
WORDS += [
    ["bench", CARTPOLE, "--num-envs"],
    ["play", "NeRD/Robot-v0"],
    ["play", "NeRD/Robot-v0", "--option", "mjcf=no.xml"],
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where relative names of the cases mean something."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name in ("file.txt", "text.safetensors", "text.onnx", "text.pth", "text.xml"):
        Path(name).write_text("not what its name says\n")
    head, row = "speed,point,direction,vn,vt,omega\n", "0.5,0.01,0.1,0.6,0.1,2\n"
    tables = {STRIKES: head + row + row.replace("0.01", "0.02") * 9, "equal.csv": head + row * 10}
    tables |= {"few.csv": head + row, "short.csv": "speed,vn\n1,2\n", "text.csv": "not what its name says\n"}
    for name, text in tables.items():
        Path(name).write_text(text)
    return tmp_path


def ends(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as end:  # the parser's own
        return int(end.code or 0)


def names(value: str) -> tuple[str, ...]:
    """Words for a value, one of which a message must have."""
    key, _, rest = value.rpartition(":")[2].partition("=")
    return (
        value,
        key.split(".")[0] or "=",
        rest or key,
        *(["inf"] if "e400" in value else []),
        Path(value).name or value,
    )


def refused(words: list[str], capsys, valid: tuple[str, ...] = ("",)) -> None:
    before = set(Path().rglob("*"))
    assert ends(words) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    last = told.strip().splitlines()[-1]
    if "nerd-gym: " in told:
        assert last.startswith("nerd-gym: ") and any(word in last for word in valid)
    assert set(Path().rglob("*")) == before  # nothing half-written is left


@pytest.mark.parametrize(("command", "option", "value"), CASES, ids=[" ".join(case)[:60] for case in CASES])
def test_a_bad_value_is_named(command, option, value, folder, capsys):
    refused([*COMMANDS[command], option, value], capsys, (*names(value), f"option {option[2:]!r}"))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_other_words_are_refused(words, folder, capsys):
    refused(words, capsys)


def test_there_are_cases_for_every_command():
    assert len(CASES) + len(WORDS) >= 300 and OPTIONS.keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    "words",
    [["play", CARTPOLE, "--device", "cuda:7"], ["bench", CARTPOLE, "--num-envs", "-1"], ["export", "a", "--onnx", "b"]],
    ids=" ".join,
)
def test_a_process_ends_with_one_line(words, folder):
    done = subprocess.run([sys.executable, "-m", "nerd_gym.cli", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("nerd-gym: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "told"), [("generate", "the same command goes on"), ("play", "nothing half-written")]
)
def test_a_stopped_command_says_how_to_go_on(command, told, folder, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nerd_gym.data.dataset.generate", stop)
    monkeypatch.setattr("nerd_gym.policies.play.play", stop)
    assert cli.main(COMMANDS[command]) == 2
    assert told in capsys.readouterr().err
