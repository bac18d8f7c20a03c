# SPDX-License-Identifier: BSD-3-Clause
"""The root of a release of Debian, a clone of the source tree in it, and a command there."""
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cache import cached
from packages import ALONE, bootstrap, output
from trouble import Trouble

FOLDER = Path(__file__).resolve().parent
TREE = FOLDER.parents[1]
CACHE = TREE / ".build/machine"
USER = 1000


class Place(NamedTuple):
    """Where a command runs."""
    suite: str  # of the root; "": this machine's own root, with this tree in it
    enter: str = "machine"  # a machine of its own; "chroot"; "container": as Docker starts one
    clone: str = "regx"  # from the root
    user: int = 0  # whose it is, and who runs the command
    mode: int = 0o755  # of the folder that it is in


# What is mounted, and how the root is entered. The devices are this machine's and nothing below /dev can be
# removed; /dev/shm, /tmp and /run are the command's own. A root that is to be the one of all mounts is a mount
# first. (In a chroot the kernel allows no name spaces of users, and where the root is no mount none of mounts.)
MOUNT = """
enter=$1 root=$2 clone=$3
shift 3
if [ "$root" = / ]; then
    root=/mnt
    mount --rbind / "$root"
else
    [ $enter = chroot ] || mount --bind "$root" "$root"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    mount -t tmpfs -o mode=755 run "$root/run"
fi
shm=50%
if [ $enter = container ]; then
    shm=64m
    mount -t tmpfs -o mode=755 dev "$root/dev"
    mkdir "$root/dev/shm" "$root/dev/pts"
    for name in null zero full random urandom tty; do
        : >"$root/dev/$name"
        mount --bind /dev/$name "$root/dev/$name"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t devpts -o newinstance,ptmxmode=0666 pts "$root/dev/pts"
else
    mount --rbind /dev "$root/dev"
fi
mount -t tmpfs -o mode=1777,size=$shm shm "$root/dev/shm"
mount -o remount,bind,ro "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
[ $enter = chroot ] && exec chroot "$root" env -C "/$clone" "$@"
if [ $enter = container ]; then
    mount -o remount,bind,ro "$root/sys"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    set -- python3 -B "/$clone/test/machine/docker.py" "$@"
fi
cd "$root"
pivot_root . .
umount -l .
exec env -C "/$clone" "$@"
"""


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


def bring_up_to_date(clone: Path, tree: Path = TREE) -> None:
    """Makes a clone of the tree, with what is not committed yet; what has not changed keeps its time, so that
    make sees it so."""
    listing = clone / ".build/copied"
    listing.parent.mkdir(parents=True, exist_ok=True)
    names = tracked(tree)
    before = listing.read_text().splitlines() if listing.exists() else []
    remove(clone, set(before) - set(names))
    for name in names:
        here, there = tree / name, clone / name
        if there.exists() and (there.stat().st_mtime_ns, there.stat().st_size) == \
                (here.stat().st_mtime_ns, here.stat().st_size):
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(here, there)
    listing.write_text("".join(f"{name}\n" for name in names))
    if (tree / ".git").exists():
        git = ["git", "-C", clone, "-c", f"safe.directory={clone}"]
        output([*git, "init", "--quiet"])
        output([*git, "fetch", "--quiet", "--no-tags", tree, "HEAD"])
        output([*git, "reset", "--quiet", "--mixed", "FETCH_HEAD"])


def as_user(user: int) -> list[str]:
    """Words that make a command that user's."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", "HOME=/tmp"] if user else []


def run(place: Place, words: Sequence[str], cache: Path = CACHE, **how: object) -> int:
    """Runs these words at the top of the clone there; the first time makes the root, with nothing in it but
    Debian's minimal system and the Python that a container is entered by. Answers their status."""
    if os.geteuid() != 0:
        raise Trouble("only root can make the release's root folder; run it as root")

    def enter(root: Path, clone: str) -> int:
        return subprocess.run([*ALONE, "sh", "-ec", MOUNT, "sh", place.enter, root, clone,
                               *as_user(place.user), *words], check=False, **how).returncode  # type: ignore[call-overload]

    if not place.suite:
        return enter(Path("/"), str(TREE.relative_to("/")))
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"lock-{place.suite}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("debian: waiting for another run in this root", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        folder = cached(cache, f"debian-{place.suite}", [FOLDER / "packages.py"], lambda folder: bootstrap(
            place.suite, folder, "--skip=cleanup/apt/lists", "--dpkgopt=force-unsafe-io", "--include=python3"))
        root = folder / "root"
        bring_up_to_date(root / place.clone)
        (root / place.clone).parent.chmod(place.mode)
        if place.user:
            output(["chown", "-R", f"{place.user}:{place.user}", root / place.clone])
        return enter(root, place.clone)
