"""README says what the results say, and its examples run."""

import re
import subprocess
import sys

from tests.conftest import ROOT


def test_tables_are_what_the_json_files_say():
    subprocess.run([sys.executable, "docs/fill_tables.py", "--check"], cwd=ROOT, check=True)


def test_python_examples_run(tmp_path):
    for document in ("README.md", "docs/your-own-robot.md"):
        text = (ROOT / document).read_text()
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            code = code.replace('"arm.xml"', repr(str(ROOT / "nerd_gym" / "robots" / "franka.xml")))
            code = code.replace('"my_robot.xml"', repr(str(ROOT / "examples" / "critter.xml")))
            subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_ci_runs_the_readmes_test_command():
    assert "make test" in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1] == "make test"
