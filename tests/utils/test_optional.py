"""Optional packages."""

import pytest

from nerd_gym.utils.optional import require


def test_missing_optional_package_names_the_extra():
    with pytest.raises(ImportError, match=r"needs no_such_package.*nerd-gym\[video\]"):
        require("no_such_package", extra="video")
