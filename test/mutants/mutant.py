# SPDX-License-Identifier: BSD-3-Clause
"""The component with one line wrong, built as a unit test or as a plugin."""
import re
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
    right: str
    wrong: str

    def text(self) -> str:
        text = (TOP / "component" / self.source).read_text()
        assert text.count(self.right) == 1, f"{self.source} has changed: {self.right}"
        return text.replace(self.right, self.wrong)

    def make(self, build: Build, folder: Path, target: str, *variables: str) -> Path:
        """Answers what `target` of mutants.am is called now."""
        source = folder / Path(self.source).name
        source.write_text(self.text())
        top = build.programs.parents[1]
        made = top / "test/mutants"
        for old in (*made.glob("mutant.*"), *made.glob("*.la"), made / "program"):
            old.unlink(missing_ok=True)
        subprocess.run(["make", "-s", "-C", top, f"test/mutants/{target}", f"MUTANT={source}",
                        *variables], check=True, timeout=300, stdin=subprocess.DEVNULL)
        return made / target

    def plugins(self, build: Build, folder: Path) -> Path:
        """A folder of plugins, of which the BTL's is wrong."""
        made = self.make(build, folder, f"{BTL}.la")
        whole = folder / "plugins"
        whole.mkdir()
        for plugin in build.component.glob("*.so"):
            shutil.copy(plugin, whole)
        shutil.copy(made.parent / ".libs" / f"{BTL}.so", whole)
        return whole

    def program(self, build: Build, folder: Path, test: str) -> Path:
        """The program that has that test, of test/unit."""
        programs = [source.relative_to(TOP).with_suffix("")
                    for source in (TOP / "test/unit").rglob("test_*.c")
                    if re.search(rf"cmocka_unit_test\w*\({test}\b", source.read_text())]
        assert len(programs) == 1, f"{test}: {programs}"
        self.make(build, folder, "program", f"PROGRAM={programs[0]}")
        return (build.programs.parents[1] / "test/mutants/program").rename(folder / "program")
