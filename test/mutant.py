# SPDX-License-Identifier: BSD-3-Clause
"""The component with one line wrong, built as a unit test or as a plugin."""
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from launch import TOP, Build

BTL = "mca_btl_regx"


@dataclass(frozen=True)
class Mutant:
    name: str
    source: str  # in component
    right: str = ""
    wrong: str = ""
    before: str = ""  # the whole source: a macro in place of what it calls

    def text(self) -> str:
        text = (TOP / "component" / self.source).read_text()
        assert not self.right or text.count(self.right) == 1, f"{self.source} has changed: {self.right}"
        return self.before + (text.replace(self.right, self.wrong) if self.right else text)

    def make(self, build: Build, folder: Path, target: str, *variables: str) -> Path:
        """Answers what `target` of mutants.am is called now."""
        source = folder / Path(self.source).name
        source.write_text(self.text())
        top = build.programs.parents[1]
        made = top / "test/mutants"
        for old in (*made.glob("mutant.*"), *made.glob("*.so"), made / "program"):
            old.unlink(missing_ok=True)
        subprocess.run(["make", "-s", "-C", top, f"test/mutants/{target}", f"MUTANT={source}",
                        *variables], check=True, timeout=600, stdin=subprocess.DEVNULL)
        return made / target

    def plugins(self, build: Build, folder: Path) -> Path:
        """A folder of plugins, of which the BTL's is wrong."""
        made = self.make(build, folder, f"{BTL}.so")
        whole = folder / "plugins"
        shutil.copytree(build.component, whole)
        shutil.copy(made, whole)
        return whole

    def program(self, build: Build, folder: Path, test: str) -> Path:
        """That unit test's program."""
        return Path(shutil.move(self.make(build, folder, "program", f"PROGRAM={test}"), folder / "program"))
