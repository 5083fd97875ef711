"""Keyword options of an environment: which are the task's, which the backend's, and which are nobody's."""

from __future__ import annotations

from typing import Any

from nerd_gym.backends import DEFAULT, backend_class, installed_backends
from nerd_gym.registration import EnvSpec

from .task import option_names


class UnknownOption(TypeError, ValueError):
    """A keyword that is neither the task's nor the backend's.

    A TypeError in Python's own words: TorchRL tries ``frameskip`` on every environment and goes on without it if it is
    told so in these words.
    """


def chosen_backend(spec: EnvSpec, backend: str | None, physics: str | None = None) -> str:
    """The name of the backend from either keyword; without both the environment's default."""
    if backend is not None and physics is not None and backend != physics:
        raise ValueError(f"backend is {backend!r} and physics is {physics!r}: they mean the same, give one")
    given = physics if backend is None else backend
    return given if given is not None else spec.backend or DEFAULT


def split_options(task_class: type, backend: str, options: dict[str, Any]) -> tuple[dict, dict]:
    """Sort keyword options into the task's and the backend's; one that is neither's is an error."""
    of_task = option_names(task_class.config_class)
    of_backend = backend_class(backend).options
    for name in options:
        if name not in of_task and name not in of_backend:
            elsewhere = [b for b in installed_backends() if b != backend and name in backend_class(b).options]
            hint = f" (it is an option of backend {', '.join(map(repr, elsewhere))})" if elsewhere else ""
            raise UnknownOption(
                f"unknown option {name!r}{hint}; {task_class.__name__} takes {', '.join(of_task) or 'none'}; "
                f"backend {backend!r} takes {', '.join(of_backend)} "
                f"(got an unexpected keyword argument {name!r})"
            )
    task = {name: value for name, value in options.items() if name in of_task}
    return task, {name: value for name, value in options.items() if name not in of_task}
