"""MJCFs and yaml files that are well-formed, with other things in them than belong there."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from functools import cache
from xml.etree import ElementTree

from .mutations import ODD_NUMBERS, TEXTS, Mutation

FILES = ("/dev/zero", "/dev/stdin", "/etc/passwd", "../../../../etc/passwd", ".", "", "stranger.xml", "no.stl", "\0")
COUNTS = ("0", "-1", "2", "1000", "100000", "2147483647", "99999999999", "1e9")


@cache
def schema() -> dict[str, list[str]]:
    """MuJoCo's elements and the attributes that each may have."""
    import mujoco

    out: dict[str, list[str]] = {}
    name = ""
    for line in str(mujoco.mj_printSchema(False, False)).splitlines():
        match = re.match(r"\s*(\w+) \(.\)\s*(.*)", line)
        name, words = match.groups() if match else (name, line)
        out.setdefault(name, []).extend(words.split())
    return out


def _tree(data: bytes) -> tuple[ElementTree.Element, list[ElementTree.Element]]:
    root = ElementTree.fromstring(data)
    return root, list(root.iter())


def _value(rng: random.Random) -> str:
    numbers = " ".join(str(rng.choice(ODD_NUMBERS)) for _ in range(rng.choice((1, 1, 2, 3, 4, 7, 200))))
    words = ("true", "false", "auto", "free", "ball", "mesh", "hfield", "plane", "sdf", "world", "disable", "implicit")
    plain = " ".join(f"{rng.uniform(-2, 2):.3f}" for _ in range(rng.choice((1, 2, 3, 4, 6))))
    return rng.choice((numbers, numbers, plain, plain, rng.choice(words), rng.choice(TEXTS), rng.choice(COUNTS)))


def _xml(root: ElementTree.Element) -> bytes:
    text = ElementTree.tostring(root, "utf-8")
    return text.replace(b"\0", b"")


def xml_attribute(data: bytes, rng: random.Random) -> bytes:
    """An element has an attribute of MuJoCo's, changed, new or missing."""
    root, elements = _tree(data)
    element = rng.choice(elements)
    names = [*element.attrib, *element.attrib, *schema().get(element.tag, [])] or ["name"]
    name = rng.choice(names)
    if name in element.attrib and rng.random() < 0.2:
        del element.attrib[name]
    else:
        element.set(name, _value(rng))
    return _xml(root)


def xml_element(data: bytes, rng: random.Random) -> bytes:
    """An element is moved, doubled, missing, or another of MuJoCo's."""
    root, elements = _tree(data)
    parents = {child: parent for parent in elements for child in parent}
    element = rng.choice(list(parents))
    way = rng.randrange(5)
    if way == 0:
        parents[element].remove(element)
    elif way == 1:
        rng.choice(elements).append(deepcopy(element))  # a tree that holds itself has no end
    elif way == 2:
        for _ in range(rng.choice((1, 2, 50)) if len(elements) < 1000 else 1):
            parents[element].append(deepcopy(element))
    elif way == 3:
        element.tag = rng.choice(list(schema()))
    else:
        tag = rng.choice(list(schema()))
        new = ElementTree.SubElement(element, tag)
        for name in rng.sample(schema()[tag], min(2, len(schema()[tag]))):
            new.set(name, _value(rng))
    return _xml(root)


def xml_files(data: bytes, rng: random.Random) -> bytes:
    """Files are named that are not for us."""
    root, _ = _tree(data)
    file, world = rng.choice(FILES).replace("\0", "x"), root.find("worldbody")
    asset = ElementTree.SubElement(root, "asset")
    ways = {
        "include": {"file": file},
        "mesh": {
            "name": "m",
            "file": file,
            "content_type": rng.choice(("model/stl", "model/obj", "model/vnd.msh", "")),
        },
        "hfield": {"name": "m", "file": file, "size": "1 1 1 1", "nrow": "0", "ncol": "0"},
        "texture": {"name": "m", "type": rng.choice(("2d", "cube")), "file": file, "nrow": rng.choice(COUNTS)},
        "skin": {"name": "m", "file": file},
        "model": {"name": "m", "file": file},
    }
    kind = rng.choice(list(ways))
    ElementTree.SubElement(root if kind == "include" else asset, kind, ways[kind])
    if world is not None and kind in ("mesh", "hfield"):
        ElementTree.SubElement(world, "geom", {"type": kind, kind: "m"})
    if rng.random() < 0.3:
        compiler = {name: rng.choice(FILES).replace("\0", "x") for name in ("meshdir", "texturedir", "assetdir")}
        ElementTree.SubElement(root, "compiler", compiler)
    return _xml(root)


def xml_bomb(data: bytes, rng: random.Random) -> bytes:
    """Few words that ask for much."""
    root, elements = _tree(data)
    world = root.find("worldbody")
    world = ElementTree.SubElement(root, "worldbody") if world is None else world
    count, way = rng.choice(COUNTS), rng.randrange(9)
    if way == 0:
        parent = world
        for _ in range(rng.choice((1, 2, 4))):
            parent = ElementTree.SubElement(parent, "replicate", {"count": count, "euler": "0 0 1", "offset": "1 0 0"})
        ElementTree.SubElement(parent, rng.choice(("geom", "site")), {"size": "0.1"})
    elif way == 1:
        sizes = {"name": "h", "nrow": count, "ncol": rng.choice(COUNTS), "size": "1 1 1 1"}
        ElementTree.SubElement(ElementTree.SubElement(root, "asset"), "hfield", sizes)
    elif way == 2:
        sizes = {"name": "t", "type": "2d", "builtin": "flat", "width": count, "height": rng.choice(COUNTS)}
        ElementTree.SubElement(ElementTree.SubElement(root, "asset"), "texture", sizes)
    elif way == 3:
        names = ("memory", "nconmax", "njmax", "nkey", "nstack", "nuserdata", "nuser_body", "nuser_geom", "nuser_jnt")
        ElementTree.SubElement(root, "size", {rng.choice(names): rng.choice((*COUNTS, "100G", "1E", "-1"))})
    elif way == 4:
        body = world
        for _ in range(rng.choice((10, 400, 3000))):
            body = ElementTree.SubElement(body, "body", {"pos": "0 0 0.1"})
        ElementTree.SubElement(body, "geom", {"size": "0.1"})
        if rng.random() < 0.5:
            ElementTree.SubElement(body, "joint")
    elif way == 5:
        grid = {"name": "f", "type": "grid", "count": f"{count} {rng.choice(COUNTS)} 1", "spacing": "0.1 0.1 0.1"}
        ElementTree.SubElement(rng.choice((world, *(e for e in elements if e.tag == "body"))), "flexcomp", grid)
    elif way == 6:
        cable = {"prefix": "c", "type": "cable", "count": f"{count} 1 1", "curve": "s", "size": "1"}
        ElementTree.SubElement(ElementTree.SubElement(world, "body"), "composite", cable)
    elif way == 7:
        plugin = {"plugin": rng.choice(("mujoco.elasticity.cable", "mujoco.sdf.torus", "no.such"))}
        ElementTree.SubElement(ElementTree.SubElement(root, "extension"), "plugin", plugin)
    else:
        custom = ElementTree.SubElement(root, "custom")
        name = rng.choice(("substeps", "contact_gains", "limit_gains", "other"))
        ElementTree.SubElement(custom, "numeric", {"name": name, "size": count, "data": _value(rng)})
    return _xml(root)


XML: list[Mutation] = [xml_attribute, xml_attribute, xml_attribute, xml_element, xml_element, xml_files, xml_bomb]


def yaml_piece(data: bytes, rng: random.Random) -> bytes:
    """What yaml has besides plain values stands somewhere."""
    lines = data.decode("utf-8", "replace").splitlines()
    at = rng.randrange(len(lines))
    indent = re.match(r" *", lines[at])
    space = indent.group() if indent else ""
    nest = rng.choice((5, 25, 3000))
    bomb = "\n".join([f"{space}a0: &a0 [x, x]", *(f"{space}a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 40))])
    pieces = (
        bomb,
        f"{space}<<: *default",
        f"{space}x: &x [*x]",
        f"{space}x: !!python/object/apply:os.system [id]",
        f"{space}x: !!python/name:os.system",
        f"{space}x: !!binary {'A' * 4000}",
        f"{space}x: !!set {{a, b}}",
        f"{space}x: {'[' * nest}{']' * nest}",
        f"{space}x: {'{a: ' * nest}1{'}' * nest}",
        f"{space}? [a, b]\n{space}: c",
        f"{space}2001-01-01: 1e999",
        f"{space}x: {'9' * 5000}",
        f"{space}x: 0x{'f' * 3000}",
        f"{space}x: 1:59:59:59:59",
        f"{space}x: .nan",
        "--- \n...\n---",
        "%YAML 9.9",
        "\t- x",
        f"{space}run: {rng.choice(('[]', '7', '{num_envs: .inf}', '{steps: 1e400, num_envs: 1}', 'null'))}",
        f"{space}run: {{num_envs: {rng.choice(COUNTS)}, steps: {rng.choice(COUNTS)}}}",
    )
    lines.insert(at, rng.choice(pieces))
    return "\n".join(lines).encode("utf-8", "replace")


def yaml_value(data: bytes, rng: random.Random) -> bytes:
    """The value of one key is another."""
    text = data.decode("utf-8", "replace")
    match = rng.choice(list(re.finditer(r": *([^\s#{][^\n#]*)", text)))
    values = (
        "null",
        "true",
        "[]",
        "{}",
        "[1, 2]",
        "{a: {b: c}}",
        "~",
        "'",
        '"\\x00"',
        "*x",
        "!!int x",
        "- 1",
        "@",
        "`",
    )
    other = rng.choice((*values, *TEXTS[:5], *map(str, ODD_NUMBERS), *COUNTS))
    return (text[: match.start(1)] + other + text[match.end(1) :]).encode("utf-8", "replace")


YAML: list[Mutation] = [yaml_piece, yaml_value, yaml_value]
