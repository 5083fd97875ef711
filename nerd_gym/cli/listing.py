"""What `nerd-gym list` prints."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

from nerd_gym.backends import BACKENDS
from nerd_gym.collision.models.contact_model import PRETRAINED as CONTACTS
from nerd_gym.dynamics.models.checkpoint import PRETRAINED
from nerd_gym.registration import ENVS


def listing() -> str:
    """Environments with their spaces and options, then the backends."""
    lines = [f"{'environment':26s}{'obs':>5s}{'act':>5s}{'steps':>7s}{'ms/step':>9s}  options (first is default)"]
    for env_id, spec in ENVS.items():
        cls = spec.task_class()
        if spec.requires:  # what it has depends on what is given
            row = f"{env_id:26s}{'-':>5s}{'-':>5s}{spec.horizon:7d}{'-':>9s}"
        else:
            task = cls(spec.robot({}), spec.config({}))
            period = ("<=" if task.waits else "") + f"{1000 * task.frame_dt * task.frames:.1f}"
            row = f"{env_id:26s}{task.obs_size:5d}{task.action_size:5d}{spec.horizon:7d}{period:>9s}"
        lines.append(f"{row}  {'; '.join(_options(cls.config_class, spec.requires)) or '-'}")
    lines += ["", f"{'backend':26s}{'installed':12s}what it is"]
    for name, entry in BACKENDS.items():
        missing = entry.missing()
        state = "yes" if not missing else f"no: pip install {' '.join(missing)}"
        lines.append(f"{name:26s}{state:12s}{entry.summary}")
    models = sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))
    lines += ["", f"packaged models of neural (robot-teacher): {', '.join(models)}"]
    contacts = sorted(path.stem.removeprefix("contacts-") for path in CONTACTS.glob("contacts-*.safetensors"))
    lines += [f"packaged contacts of hybrid (robot-teacher): {', '.join(contacts)}"]
    return "\n".join(lines)


def _options(config: type, required: tuple[str, ...]) -> list[str]:
    hints = get_type_hints(config)
    out = [f"{name}=... (required)" for name in required]
    for field in (f for f in fields(config) if f.name not in required):
        kind = hints[field.name]
        values = [str(field.default)]
        if get_origin(kind) is Literal:
            values += [str(v) for v in get_args(kind) if v != field.default]
        elif kind is bool:
            values.append(str(not field.default))
        out.append(f"{field.name}={'|'.join(values)}")
    return out
