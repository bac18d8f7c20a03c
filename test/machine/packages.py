# SPDX-License-Identifier: BSD-3-Clause
"""Debian's packages, from the mirror that this machine uses, without touching its own apt state."""
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trouble import Trouble

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# When the command or this script ends, however it does, all that the command started ends too, and all
# mounts with it.
ALONE = ["setpriv", "--pdeathsig", "KILL",
         "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def output(command: Sequence[str | Path], patience: float = 900) -> str:
    """What a command prints; Trouble with its last words if it fails."""
    words = [str(word) for word in command]
    try:
        run = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             errors="replace", check=False, timeout=patience)
    except FileNotFoundError:
        raise Trouble(f"{words[0]} is not installed; component/config/setup test installs it") \
            from None
    except subprocess.TimeoutExpired:
        raise Trouble(f"{words[0]} did not end within {patience:.0f} s") from None
    if run.returncode != 0:
        said = (run.stderr or run.stdout).strip().splitlines()[-5:]
        raise Trouble(f"{words[0]} failed: " + " / ".join(said))
    return run.stdout


def codename() -> str:
    """Of the Debian that runs here, such as bookworm."""
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.M)
    if not found:
        raise Trouble("/etc/os-release names no release of Debian")
    return found[1]


def source(suite: str) -> str:
    """The line of a sources.list for that suite, on the mirror of this machine's own release."""
    targets = output(["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)",
                      "Created-By: Packages"])
    for target in targets.splitlines():
        name, component, uri = target.split(" ", 2)
        if (name, component) == (codename(), "main"):
            return f"deb [signed-by={KEYRING}] {uri} {suite} main\n"
    raise Trouble(f"apt's configuration names no source of {codename()}")


def bootstrap(suite: str, folder: Path, *words: str) -> Path:
    """That release's minimal system and more, as mmdebstrap's words say, in `folder`/root. Meanwhile mmdebstrap
    has this machine's /dev/shm mounted there: were it ended half-way, who removes the folder would empty that."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        settings, sources = Path(name) / "apt.conf", Path(name) / "sources.list"
        settings.write_text(output(["apt-config", "dump", "Acquire"]))
        sources.write_text(source(suite))
        output([*ALONE, "mmdebstrap", "--variant=minbase", f"--aptopt={settings}", *words, suite, folder / "root", sources],
               patience=3600)
    return folder / "root"


class Packages:
    """The packages of one suite, with lists and archives in a folder of their own."""

    def __init__(self, suite: str, folder: Path) -> None:
        self.folder = folder
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text("")
        (folder / "sources.list").write_text(source(suite))
        self.options = [f"-oDir::State={folder}/state", f"-oDir::State::status={folder}/status",
                        f"-oDir::Cache={folder}/cache", "-oAPT::Sandbox::User=root",
                        f"-oDir::Etc::sourcelist={folder}/sources.list",
                        "-oDir::Etc::sourceparts=/dev/null"]
        output(["apt-get", *self.options, "update"])

    def depends(self, package: str) -> list[str]:
        """The names of the packages that one needs."""
        shown = output(["apt-cache", *self.options, "show", "--no-all-versions", package])
        line = re.search(r"^Depends: (.*)$", shown, re.M)
        return re.findall(r"(?:^|, )([a-z0-9][a-z0-9.+-]*)", line[1]) if line else []

    def which(self, names: Sequence[str]) -> list[str]:
        """Those that the suite has."""
        shown = output(["apt-cache", *self.options, "pkgnames"]).split()
        return [name for name in names if name in shown]

    def download(self, package: str, to: Path) -> Path:
        """Fetches and unpacks one package into a folder."""
        run = ["env", "-C", self.folder, "apt-get", *self.options, "download", package]
        for old in self.folder.glob("*.deb"):
            old.unlink()
        output(run)
        archive, = self.folder.glob("*.deb")
        output(["dpkg-deb", "--extract", archive, to])
        archive.unlink()
        return to
