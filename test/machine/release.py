# SPDX-License-Identifier: BSD-3-Clause
"""The root of another release of Debian, a copy of the source tree in it, and a command there."""
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from packages import ALONE, bootstrap, output

PLACE = "regx"  # of the copy, from the root
LIST = "copied"  # what was copied last
# The root is a mount of its own, and becomes the one of all mounts: in a chroot the kernel allows no name
# spaces of users, and without a mount none at all. The devices are this
# machine's and nothing below /dev can be removed; /dev/shm and /run are the command's own. A command that
# was killed may have left packages half installed.
MOUNT = """
root=$1 place=$2
shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -o remount,bind,ro "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 run "$root/run"
chroot "$root" dpkg --configure -a >&2
cd "$root"
pivot_root . .
umount -l .
exec env -C "/$place" "$@"
"""


def make(suite: str, folder: Path) -> None:
    """Puts that release's minimal system into `folder`/root, with the lists of its packages."""
    bootstrap(suite, folder, "--skip=cleanup/apt/lists", "--include=python3")


def tracked(tree: Path) -> list[str]:
    """The files of the tree that are its source."""
    if (tree / ".git").exists():
        words = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others",
                 "--exclude-standard"]
        names = output(words).split("\0")
    else:
        names = [str(path.relative_to(tree)) for path in tree.rglob("*")
                 if ".build" not in path.parts and "__pycache__" not in path.parts]
    return sorted(name for name in names if (tree / name).is_file())


def remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def copy_tree(tree: Path, folder: Path) -> None:
    """Brings the copy up to date; what has not changed keeps its time, so that make sees it so."""
    copy = folder / "root" / PLACE
    copy.mkdir(exist_ok=True)
    names = tracked(tree)
    before = (folder / LIST).read_text().splitlines() if (folder / LIST).exists() else []
    remove(copy, set(before) - set(names))
    for name in names:
        here, there = tree / name, copy / name
        if there.exists() and (there.stat().st_mtime_ns, there.stat().st_size) == \
                (here.stat().st_mtime_ns, here.stat().st_size):
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(here, there)
    (folder / LIST).write_text("".join(f"{name}\n" for name in names))


def command(folder: Path, words: Sequence[str]) -> list[str]:
    """What runs these words at the top of the copy."""
    return [*ALONE, "sh", "-ec", MOUNT, "sh", str(folder / "root"), PLACE, *words]
