# SPDX-License-Identifier: BSD-3-Clause
"""Folders that take long to make, kept until what makes them changes."""
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from trouble import Trouble


def mounts_below(folder: Path) -> list[str]:
    """What is mounted there: to remove the folder would empty that too."""
    below = str(folder.resolve()).replace(" ", "\\040") + "/"
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [place for place in places if place.startswith(below)]


def cached(cache: Path, name: str, recipe: list[Path], make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made anew if the files that say how have changed since."""
    folder = cache / name
    stamp = folder / "made-by"
    now = hashlib.sha256(b"".join(path.read_bytes() for path in recipe)).hexdigest()
    if not stamp.exists() or stamp.read_text() != now:
        if mounts := mounts_below(folder):
            raise Trouble(f"unmount {' '.join(mounts)} first: {folder} is to be made anew")
        print(f"{Path(sys.argv[0]).name}: fetching {name} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        stamp.write_text(now)
    return folder
