# SPDX-License-Identifier: BSD-3-Clause
"""Folders that take long to make, kept until what makes them changes."""
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def cached(cache: Path, name: str, recipe: list[Path], make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made anew if the files that say how have changed since."""
    folder = cache / name
    stamp = folder / "made-by"
    now = hashlib.sha256(b"".join(path.read_bytes() for path in recipe)).hexdigest()
    if not stamp.exists() or stamp.read_text() != now:
        print(f"{Path(sys.argv[0]).name}: fetching {name} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        stamp.write_text(now)
    return folder
