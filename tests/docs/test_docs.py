"""Documents say what the results say, their examples run, and what they name exists."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import nerd_gym
from tests.support.grid import ROOT

README = ROOT / "README.md"
LEARNED = ROOT / "docs" / "guide" / "learned-dynamics.md"
GUIDES = sorted(ROOT.glob("docs/guide/*.md"))
RESULTS = sorted(ROOT.glob("docs/results/*.md"))
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "policies" / "README.md"]
DOCUMENTS = [README, *OTHERS, *GUIDES, *RESULTS]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(language: str) -> list:
    """Code blocks of a language in all documents; the empty language has commands."""
    found = []
    for document in DOCUMENTS:
        fence = rf"^```{language}\n(.*?)^```"
        codes = re.findall(fence, document.read_text(), re.DOTALL | re.MULTILINE)
        found += [pytest.param(code, id=f"{name_of(document)}-{k}") for k, code in enumerate(codes)]
    return found


# Tables.


def test_tables_are_what_the_json_files_say():
    subprocess.run([sys.executable, "docs/fill_tables.py", "--check"], cwd=ROOT, check=True)


@pytest.fixture
def checker(monkeypatch, tmp_path) -> ModuleType:
    """docs/fill_tables.py over copies of the json files and of the packaged models, which a test may spoil."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import fill_tables
    import results_json

    for name in ("RESULTS", "PRETRAINED"):
        copy = tmp_path / name
        shutil.copytree(getattr(results_json, name), copy)
        monkeypatch.setattr(results_json, name, copy)
    return fill_tables


def rewrite(path: Path, change) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def test_check_notices_a_model_without_evaluation(checker, tmp_path):
    (tmp_path / "PRETRAINED" / "ant-warp.json").unlink()
    with pytest.raises(ValueError, match=r"ant-warp\.safetensors has no evaluation"):
        checker.problems()


@pytest.mark.parametrize(
    "fact, value", [("kind", "mlp"), ("seed", 7), ("command", "nerd-gym"), ("r2", {"linear": 0.5})]
)
def test_check_notices_an_evaluation_of_another_model(checker, tmp_path, fact, value):
    def change(facts):
        for about in facts["models"].values():
            about[fact] = value

    rewrite(tmp_path / "PRETRAINED" / "anymal-warp.json", change)
    with pytest.raises(ValueError, match=r"anymal-warp\.json evaluates other models"):
        checker.problems()


def test_check_notices_a_model_that_a_table_leaves_out(checker, tmp_path, monkeypatch):
    assert list(checker.missing_models()) == []
    rewrite(tmp_path / "RESULTS" / "neural_speed.json", lambda facts: facts["rows"].pop(0))
    full = checker.TABLES["legged_models"]()
    short = "\n".join(line for line in full.splitlines() if not line.startswith("| ant | warp |"))
    monkeypatch.setitem(checker.TABLES, "legged_models", lambda: short)
    found = "\n".join(checker.missing_models())
    assert "cartpole-warp.safetensors has no row in neural_speed.json" in found
    assert "ant-warp.safetensors has no row in the table 'legged_models'" in found


def test_check_notices_two_speeds_of_one_batch_size(checker, tmp_path):
    path = tmp_path / "RESULTS" / "neural_speed.json"

    assert list(checker.double_figures()) == []
    rewrite(path, lambda facts: next(r for r in facts["rows"] if "by_batch_size" in r).update(env_steps_per_s=1))
    assert "two speeds" in "".join(checker.double_figures())


def test_a_robots_speed_is_the_same_in_every_table(checker):
    rates = {}
    for line in checker.TABLES["learned_speed"]().splitlines()[2:]:
        env, model, rate = (cell.strip() for cell in line.split("|")[1:4])
        if "(packaged)" in model:
            rates[env] = rate
    for line in checker.TABLES["legged_speed"]().splitlines()[2:]:
        cells = [cell.strip() for cell in line.split("|")]
        assert rates[cells[1]] in cells


def test_check_notices_unknown_unused_and_stale_tables(checker, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="unknown table 'nothing'"):
        checker.filled("<!-- table: nothing -->\n<!-- end -->")
    monkeypatch.setitem(checker.TABLES, "unused", lambda: "")
    rewrite(tmp_path / "RESULTS" / "ratios.json", lambda facts: facts["ratios"].update(new=1.0))
    assert list(checker.stale_documents()) == [
        "docs/results/speed.md is not what the json files say: run python docs/fill_tables.py",
        "no document uses the table 'unused'",
    ]


# Statements.


def test_legged_models_err_less_than_their_teacher_with_half_its_substeps(checker):
    """As docs/results/learned-models.md says."""
    import results_json

    for packaged in results_json.packaged_models():
        if not packaged.free_base:
            continue
        for students in packaged.evaluation["results"].values():
            ours, half = students[packaged.name], students["half the substeps"]
            for measure in packaged.evaluation["units"]:
                if measure in ours:
                    err, bound = (who[measure]["mean over 100"] for who in (ours, half))
                    assert err < bound, (packaged.path.name, measure)


def test_number_of_episodes_is_that_of_the_results():
    episodes = json.loads((ROOT / "benchmarks" / "results" / "policies.json").read_text())["episodes"]
    for document in (README, ROOT / "docs" / "results" / "policies.md"):
        assert re.search(rf"\b{episodes} (first )?episodes per seed", document.read_text())


def test_trust_is_defined_once():
    """The guide on learned dynamics defines it; results and other guides link there."""
    assert [document for document in DOCUMENTS if "trust is 1 " in document.read_text().lower()] == [LEARNED]
    for document in [*GUIDES, *RESULTS]:
        if "trust" in document.read_text().replace("model_trust", ""):
            assert "#trust" in document.read_text() or document == LEARNED, name_of(document)


def test_old_words_are_gone():
    old = r"\b(sketch\w*|two looks|looks at|lanes|torque network|earns?)\b|--visits|--residual"
    for document in DOCUMENTS:
        text = document.read_text().replace("saved as kind `sketched` by version 0.1", "")
        assert re.search(old, text) is None, name_of(document)


def test_versions_agree():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    newest = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert cited == newest == nerd_gym.__version__


def test_order_of_imports_is_the_one_that_is_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    sentence = re.search(r"Imports point one way.*?: (`utils`.*?)\. ", (ROOT / "CONTRIBUTING.md").read_text())
    assert sentence and [re.findall(r"`(.+?)`", layer) for layer in sentence[1].split(" → ")] == [
        layer.split(" | ") for layer in reversed(layers)
    ]


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_ci_runs_the_readmes_test_command():
    assert "make test" in README.read_text()
    assert (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1] == "make test"


# Links and paths.


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=name_of)
def test_relative_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{name_of(document)}: {link}"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in anchors, f"{name_of(document)}: {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_paths_in_the_text_exist(document):
    places = "nerd_gym|tests|benchmarks|docs|examples|policies"
    for path in re.findall(rf"(?<![\w/.])((?:{places})/[\w./*-]*[\w*/])", document.read_text()):
        assert list(ROOT.glob(path.rstrip("/"))), f"{name_of(document)}: {path}"


# Examples and commands.


@pytest.mark.parametrize("code", blocks("python"))
def test_python_example_runs(code, tmp_path):
    for name in ("policies", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "my_robot.xml").symlink_to(ROOT / "examples" / "critter.xml")
    (tmp_path / "arm.xml").symlink_to(ROOT / "examples" / "three_link_arm.xml")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize("code", blocks("py"))
def test_python_fragment_imports_what_exists(code):
    imports = [line for line in code.splitlines() if re.match(r"(from|import) .*nerd_gym", line)]
    subprocess.run([sys.executable, "-c", "\n".join(imports)], check=True)


def commands() -> list[str]:
    """Every `nerd-gym` command in a block or a line of text."""
    found = set()
    for document in DOCUMENTS:
        text = document.read_text()
        lines = [
            line for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.M) for line in block.splitlines()
        ]
        lines += re.findall(r"`(nerd-gym [^`]+)`", text)
        found |= {line.split("#")[0].strip() for line in lines if line.startswith("nerd-gym ")}
    return sorted(found)


def test_commands_and_their_options_exist():
    helps: dict[str, str] = {}
    for command in commands():
        words = command.split()[1:]
        name = " ".join(words[:2] if words[0] in ("rl", "collision") and len(words) > 1 else words[:1])
        if name not in helps:
            call = [sys.executable, "-m", "nerd_gym.cli", *name.split(), "--help"]
            helps[name] = subprocess.run(call, check=True, capture_output=True, text=True).stdout
        for option in re.findall(r"(?<!\S)--[\w-]+", command):
            assert re.search(rf"{option}\b", helps[name]), command
