# SPDX-License-Identifier: BSD-3-Clause
"""Configuration files: one section per row, as osu-configs/strategies.conf explains.

Whatever is wrong with one is Trouble that starts with FILE:LINE.
"""

import configparser
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from comparing.osu import BENCHMARKS
from comparing.size import Range, parse
from comparing.trouble import Trouble

DEFAULTS = "defaults"
PER_BENCHMARK = ("sizes", "full", "options", "buffers", "ranks")  # may be written KEY.BENCHMARK
KEYS = ("mca", "environment", "openmpi", "memlock", "memory", "swap", "benchmark", "timeout")
KEYS += PER_BENCHMARK
BUFFERS = re.compile(r"same|fresh|freed|buffered|touched|(rotate|slide|strided):[1-9][0-9]{0,5}")
# Of a benchmark's options, what compare sets.
OWN_OPTIONS = ("-m", "-c", "-b")
OWN_LONG_OPTIONS = ("--message-size", "--validation", "--buffer-num", "--buffers")
MIB = 1 << 20
ITERATIONS = re.compile(r"(?:^| )(?:-i|--iterations)[ =]?([0-9]+)")


def is_own(option: str) -> bool:
    """Whether compare sets it; its value may be attached, and a long name abbreviated."""
    name = option.partition("=")[0]
    return option.startswith(OWN_OPTIONS) or (
        len(name) > 2 and any(own.startswith(name) for own in OWN_LONG_OPTIONS)
    )


def buffers_of(benchmark: str) -> tuple[str, ...]:
    """Those that a benchmark has; empty: all."""
    kind = BENCHMARKS[benchmark]
    if not kind.for_groups:
        return ()
    return ("same", "touched") if kind.companion and not kind.is_collective else ("same",)


@dataclass(frozen=True)
class Case:
    """What is run of a row: one benchmark, with one choice of buffers."""

    benchmark: str
    sizes: Range
    options: tuple[str, ...]
    buffers: str
    ranks: int = 2


@dataclass(frozen=True)
class Row:
    name: str
    mca: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    openmpi: tuple[int, ...]  # major versions; empty: any
    memlock: str  # what a rank may lock: bytes, or "unlimited"; empty: as it is
    timeout: float
    cases: tuple[Case, ...]
    where: str = field(compare=False)  # FILE:LINE, for messages
    memory: int = 0  # MiB of the emulated machine's; 0: as it has by default
    swap: int = 0  # likewise

    def parameter(self, name: str) -> str | None:
        return dict(self.mca).get(name)

    @property
    def is_regx(self) -> bool:
        return "regx" in (self.parameter("btl") or "").split(",")

    @property
    def wire(self) -> str:
        """What carries a peer's bytes, in Open MPI's own names: the BTL, or else the PML."""
        if self.parameter("pml") != "ob1":
            return str(self.parameter("pml"))
        others = [btl for btl in str(self.parameter("btl")).split(",") if btl != "self"]
        return "+".join(others)


def read(files: list[Path], full: bool) -> list[Row]:
    rows: list[Row] = []
    for file in files:
        for row in _File(file).rows(full):
            for other in rows:
                if other.name == row.name:
                    raise Trouble(
                        f'{row.where}: row "{row.name}" is there already, in {other.where}'
                    )
            rows.append(row)
    return rows


def for_openmpi(rows: list[Row], major: int) -> list[Row]:
    """Those that this Open MPI can run."""
    left = [row for row in rows if not row.openmpi or major in row.openmpi]
    if not left:
        raise Trouble(f"no row is for Open MPI {major}")
    return left


class _File:
    def __init__(self, file: Path):
        self.file = file
        try:
            self.text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Trouble(f"{file}: cannot be read: not a text file") from None
        self.parser = configparser.ConfigParser(interpolation=None, default_section=DEFAULTS)
        self.parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            self.parser.read_string(self.text)
        except configparser.DuplicateSectionError as error:
            raise Trouble(f'{file}:{error.lineno}: row "{error.section}" is there twice') from None
        except configparser.DuplicateOptionError as error:
            raise Trouble(
                f'{file}:{error.lineno}: key "{error.option}" is twice in row "{error.section}"'
            ) from None
        except configparser.MissingSectionHeaderError as error:
            raise Trouble(
                f"{file}:{error.lineno}: a row begins with its [name] in a line"
            ) from None
        except configparser.ParsingError as error:
            raise Trouble(
                f'{file}:{error.errors[0][0]}: malformed line; wanted: "key = value" or "[name]"'
            ) from None
        if not self.parser.sections():
            raise Trouble(f"{file}:1: no row in this file; one begins with its [name] in a line")

    def line(self, section: str, key: str | None = None) -> int:
        """Where the row's key is, or else that of the defaults, or else where the row begins."""
        lines: dict[tuple[str, str | None], int] = {}
        inside = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\[(.*)\]", line):
                inside = header[1]
                lines[inside, None] = number
            elif entry := re.match(r"([^\s#;=:][^=:]*?)\s*[=:]", line):
                lines[inside, entry[1]] = number
        places = ((section, key), (DEFAULTS, key), (section, None))
        return next((lines[place] for place in places if place in lines), 1)

    def trouble(self, message: str, section: str, key: str | None = None) -> Trouble:
        return Trouble(f"{self.file}:{self.line(section, key)}: {message}")

    def rows(self, full: bool) -> list[Row]:
        for key in self.parser.defaults():
            self.check_key(DEFAULTS, key)
        return [self.row(section, full) for section in self.parser.sections()]

    def check_key(self, section: str, key: str) -> None:
        base, dot, benchmark = key.partition(".")
        if base not in KEYS or (dot and base not in PER_BENCHMARK):
            allowed = ", ".join(KEYS)
            raise self.trouble(f'unknown key "{key}"; allowed: {allowed}', section, key)
        if dot and benchmark not in BENCHMARKS:
            raise self.unknown_benchmark(benchmark, section, key)

    def unknown_benchmark(self, benchmark: str, section: str, key: str) -> Trouble:
        allowed = ", ".join(BENCHMARKS)
        return self.trouble(f'unknown benchmark "{benchmark}"; allowed: {allowed}', section, key)

    def row(self, section: str, full: bool) -> Row:
        row = self.parser[section]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", section):
            raise self.trouble(
                f'malformed row name "{section}"; allowed: letters, digits, _ . + -', section
            )
        for key in row:
            self.check_key(section, key)
        benchmarks = self.words(section, "benchmark", required=True)
        for benchmark in benchmarks:
            if benchmark not in BENCHMARKS:
                raise self.unknown_benchmark(benchmark, section, "benchmark")
        cases = [
            Case(
                benchmark,
                self.sizes(section, benchmark, full),
                self.options(section, benchmark),
                choice,
                ranks,
            )
            for benchmark in benchmarks
            for choice in self.buffers(section, benchmark)
            for ranks in self.ranks(section, benchmark)
        ]
        return Row(
            name=section,
            mca=self.mca(section),
            environment=self.environment(section),
            openmpi=self.openmpi(section),
            memlock=self.memlock(section),
            timeout=self.timeout(section),
            cases=tuple(cases),
            where=f"{self.file}:{self.line(section)}",
            memory=self.mebibytes(section, "memory"),
            swap=self.mebibytes(section, "swap"),
        )

    def words(self, section: str, key: str, required: bool = False) -> list[str]:
        value = self.parser[section].get(key)
        if not value:
            if required:
                raise self.trouble(f'row "{section}" has no "{key}"', section)
            return []
        try:
            return shlex.split(value)
        except ValueError as error:
            raise self.trouble(f"malformed {key}: {error}", section, key) from None

    def key_for(self, section: str, base: str, benchmark: str) -> str:
        special = f"{base}.{benchmark}"
        return special if special in self.parser[section] else base

    def buffers(self, section: str, benchmark: str) -> list[str]:
        key = self.key_for(section, "buffers", benchmark)
        choices = self.words(section, key) or ["same"]
        for choice in choices:
            if not BUFFERS.fullmatch(choice):
                raise self.trouble(
                    f'unknown buffers "{choice}"; allowed: same, fresh, freed, rotate:N, '
                    "slide:N, strided:N, buffered, touched",
                    section,
                    key,
                )
            allowed = buffers_of(benchmark)
            if allowed and choice not in allowed:
                raise self.trouble(
                    f"{benchmark} has no {choice} buffers; allowed: {', '.join(allowed)}",
                    section,
                    key,
                )
        return choices

    def ranks(self, section: str, benchmark: str) -> list[int]:
        """Benchmarks of two ranks have two, whatever the row says of the others."""
        key = self.key_for(section, "ranks", benchmark)
        words = self.words(section, key)
        if not all(re.fullmatch(r"[1-9][0-9]{0,2}", word) and int(word) > 1 for word in words):
            raise self.trouble("malformed ranks; wanted: numbers from 2 to 999", section, key)
        if not BENCHMARKS[benchmark].for_groups:
            if key != "ranks" and words != ["2"]:
                raise self.trouble(f"{benchmark} is for two ranks", section, key)
            return [2]
        return [int(word) for word in words] or [2]

    def sizes(self, section: str, benchmark: str, full: bool) -> Range:
        key = self.key_for(section, "full" if full else "sizes", benchmark)
        if full and not self.parser[section].get(key):
            key = self.key_for(section, "sizes", benchmark)
        value = self.parser[section].get(key)
        if not value:
            raise self.trouble(f'row "{section}" has no "sizes" for {benchmark}', section)
        try:
            return Range.parse(value)
        except ValueError as error:
            raise self.trouble(str(error), section, key) from None

    def options(self, section: str, benchmark: str) -> tuple[str, ...]:
        key = self.key_for(section, "options", benchmark)
        options = self.words(section, key)
        for option in options:
            if is_own(option):
                raise self.trouble(
                    f"{option} is not for options: compare sets it (sizes, buffers, content check)",
                    section,
                    key,
                )
        least = BENCHMARKS[benchmark].iterations_min
        given = ITERATIONS.search(" ".join(options))
        if given and int(given[1]) < least:
            raise self.trouble(
                f"{benchmark} with {given[1]} iterations: one time in a thousand is asked for;"
                f" allowed: {least} or more",
                section,
                key,
            )
        return tuple(options)

    def mca(self, section: str) -> tuple[tuple[str, str], ...]:
        words = self.words(section, "mca", required=True)
        triples = [tuple(words[i : i + 3]) for i in range(0, len(words), 3)]
        if any(len(t) != 3 or t[0] not in ("--mca", "-mca") for t in triples):
            raise self.trouble("malformed mca; wanted: --mca NAME VALUE …", section, "mca")
        pairs = tuple((name, value) for _, name, value in triples)
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise self.trouble(f"mca names {name} twice", section, "mca")
        # Left open, Open MPI's choice depends on the machine's own parameter files.
        if "pml" not in names or (dict(pairs)["pml"] == "ob1" and "btl" not in names):
            raise self.trouble("mca must name pml, and with pml ob1 also btl", section, "mca")
        return pairs

    def environment(self, section: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for word in self.words(section, "environment"):
            name, equals, value = word.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise self.trouble(
                    f'malformed environment "{word}"; wanted: NAME=VALUE …', section, "environment"
                )
            pairs.append((name, value))
        return tuple(pairs)

    def openmpi(self, section: str) -> tuple[int, ...]:
        words = self.words(section, "openmpi")
        if not all(re.fullmatch(r"[0-9]{1,2}", word) for word in words):
            raise self.trouble(
                "malformed openmpi; wanted: major versions, for example 5 6", section, "openmpi"
            )
        return tuple(int(word) for word in words)

    def memlock(self, section: str) -> str:
        value = self.parser[section].get("memlock") or ""
        if value in ("", "unlimited"):
            return value
        try:
            return str(parse(value))
        except ValueError as error:
            raise self.trouble(f"memlock: {error}, or unlimited", section, "memlock") from None

    def mebibytes(self, section: str, key: str) -> int:
        value = self.parser[section].get(key)
        if not value:
            return 0
        try:
            size = parse(value)
        except ValueError as error:
            raise self.trouble(f"{key}: {error}", section, key) from None
        if size % MIB:
            raise self.trouble(f'{key}: "{value}" is no whole number of MiB', section, key)
        return size // MIB

    def timeout(self, section: str) -> float:
        value = self.parser[section].get("timeout") or "120"
        if not re.fullmatch(r"[1-9][0-9]{0,4}", value):
            raise self.trouble(
                f'malformed timeout "{value}"; allowed: 1 to 99999 (seconds)', section, "timeout"
            )
        return float(value)
