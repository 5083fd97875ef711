"""Write frames to an mp4 or gif."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .files import check_output
from .optional import require

SUFFIXES = (".mp4", ".gif")


def check_film(path: str | Path) -> None:
    """Refuse a path that no film can be written to."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"cannot write video {path.name!r}; valid endings: {', '.join(SUFFIXES)}")
    check_output(path)


class VideoWriter:
    """Frames [height, width, 3] uint8 into a file that appears only when it is whole.

    `quality` of an mp4 is from 0 to 10.
    """

    def __init__(self, path: str | Path, fps: float, quality: int = 7):
        self.path = Path(path)
        check_film(self.path)
        require("imageio_ffmpeg", extra="video")
        imageio = require("imageio.v2", extra="video")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._part = self.path.with_name(f".{self.path.stem}.part{self.path.suffix}")
        self._writer: Any  # imageio's; None when it is closed
        if self.path.suffix == ".mp4":
            self._writer = imageio.get_writer(self._part, fps=fps, quality=quality, macro_block_size=2)
        else:
            self._writer = imageio.get_writer(self._part, duration=1000 / fps, loop=0)

    def add(self, frame: np.ndarray) -> None:
        """Append a frame."""
        self._writer.append_data(frame)

    def close(self) -> None:
        """Finish the file; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._part.replace(self.path)
            self._writer = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._writer.close()
            self._part.unlink(missing_ok=True)
            self._writer = None


def label(picture: np.ndarray, text: str) -> np.ndarray:
    """Write text into the upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    ImageDraw.Draw(image).text((14, 10), text, fill=(40, 44, 52), font=ImageFont.load_default(20))
    return np.asarray(image)
