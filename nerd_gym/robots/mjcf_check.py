"""What an MJCF of a stranger may ask of MuJoCo's compiler, which makes whatever a number tells it to.

The text is searched, not parsed: MuJoCo's own parser takes files that others refuse.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

LARGEST_FILE = 2**28  # bytes of a mesh or the like
LARGEST_TEXT = 2**24  # bytes of the MJCF
MOST_ELEMENTS, MOST_COPIES, MOST_FILES = 50_000, 10_000, 100
DEEPEST = 200
TAG = re.compile(r"<(/?)(\w+)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*?)(/?)>")
ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
NUMBER = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
# By element: attributes whose numbers multiplied tell how much is made, and how much is too much.
SIZES = {
    "hfield": (("nrow", "ncol"), 2**22),
    "texture": (("width", "height"), 2**24),
    "numeric": (("size",), MOST_COPIES),
    "composite": (("count",), MOST_COPIES),
    "flexcomp": (("count",), MOST_COPIES),
}
COUNTS = ("nconmax", "njmax", "nkey", "nuserdata", "nuser_body", "nuser_jnt", "nuser_geom", "nuser_site", "nuser_cam")
COUNTS += ("nuser_tendon", "nuser_actuator", "nuser_sensor", "nstack")
FOLDERS = ("assetdir", "meshdir", "texturedir")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
LARGEST_MEMORY = 2**29


def check_mjcf(path: Path) -> None:
    """Raise a ValueError that says what is too much in an MJCF and the files that it includes or attaches."""
    _Search(path.name).look_into(path.resolve())


class _Search:
    """Goes through a file and those that it names, each once."""

    def __init__(self, name: str):
        self._name, self._copies = name, 1.0
        self._open: set[Path] = set()  # on the way to the file that is looked into
        self._done: set[Path] = set()

    def look_into(self, file: Path) -> None:
        """Check one file and what it names."""
        if file in self._open:  # which MuJoCo follows until the stack ends
            raise ValueError(f"{self._name} names {file.name} inside {file.name} itself")
        if file in self._done:
            return
        if len(self._done | self._open) >= MOST_FILES:
            raise ValueError(f"{self._name} includes more than {MOST_FILES} files")
        self._open.add(file)
        text = _text(file, self._name)
        for key, a, b in ATTRIBUTE.findall(text):
            if "%" in html.unescape(a or b):  # MuJoCo prints some with it as the format: %n writes to memory
                raise ValueError(f"{self._name} has {key}={a or b!r} in {file.name}; valid: text without %")
        tags = TAG.findall(COMMENT.sub("", text))
        folders = [file.parent]
        for _, tag, text, _ in tags:
            if tag == "compiler":
                folders += [file.parent / value for key, value in _given(text).items() if key in FOLDERS]
        depth = 0
        for elements, (closing, tag, text, empty) in enumerate(tags):
            depth += -1 if closing else 0 if empty else 1
            if depth > DEEPEST or elements > MOST_ELEMENTS:
                raise ValueError(f"{self._name} has more than {MOST_ELEMENTS} elements, or {DEEPEST} in one another")
            self._check(tag, _given(text), folders)
        self._open.remove(file)
        self._done.add(file)

    def _check(self, tag: str, given: dict[str, str], folders: list[Path]) -> None:
        _check_sizes(self._name, tag, given)
        self._copies *= max(1.0, _product(given.get("count", ""))) if tag == "replicate" else 1.0
        if self._copies > MOST_COPIES:
            raise ValueError(f"{self._name} replicates {self._copies:.3g} times; at most {MOST_COPIES} are made")
        for other in (folder / value for key, value in given.items() if key.startswith("file") for folder in folders):
            _check_file(self._name, tag, other)
            if tag in ("include", "model") and other.is_file():
                self.look_into(other.resolve())


def _given(text: str) -> dict[str, str]:
    """Attributes of an element."""
    return {key: html.unescape(a or b).replace("\0", "") for key, a, b in ATTRIBUTE.findall(text)}


def _text(path: Path, name: str) -> str:
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"{name} has {path.stat().st_size} bytes in {path.name}; at most {LARGEST_TEXT} are read")
    return path.read_bytes().decode("utf-8", "replace")


def _check_file(name: str, tag: str, path: Path) -> None:
    """What exists must be a plain file of bearable size; what does not is MuJoCo's to report."""
    if not path.exists() or (path.is_dir() and tag != "include"):
        return
    if not path.is_file() or path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{name} names {str(path)!r} in <{tag}>, which is no file or has over {LARGEST_FILE} bytes")


def _check_sizes(name: str, tag: str, given: dict[str, str]) -> None:
    if tag in SIZES:
        keys, most = SIZES[tag]
        made = 1.0
        for key in keys:
            made *= max(1.0, _product(given.get(key, "")))
        if made > most:
            raise ValueError(
                f"{name} has a <{tag}> of {' x '.join(given.get(key, '') for key in keys)}; valid: to {most}"
            )
    if tag != "size":
        return
    for key in COUNTS:
        if _product(given.get(key, "")) > MOST_ELEMENTS:
            raise ValueError(f"{name} has {key} = {given[key]}; valid: to {MOST_ELEMENTS}")
    memory = given.get("memory", "").strip()
    if _product(memory) * UNITS.get(memory[-1:].upper(), 1) > LARGEST_MEMORY:
        raise ValueError(f"{name} asks for memory = {memory}; valid: to {LARGEST_MEMORY >> 20}M")


def _product(text: str) -> float:
    """Of the numbers in a text, 1 for none."""
    out = 1.0
    for number in NUMBER.findall(text):
        try:
            out *= max(1.0, abs(float(number)))
        except ValueError:  # MuJoCo reports it
            continue
    return out
