"""`python -m nerd_gym.cli`, for torchrun and for programs that start commands."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
