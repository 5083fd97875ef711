"""Where the policies are that come with the project."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def shipped_policies() -> Path:
    """Their folder: in the package if that was installed from a wheel, beside it in a checkout."""
    installed = PACKAGE / "shipped_policies"
    return installed if installed.is_dir() else PACKAGE.parent / "policies"
