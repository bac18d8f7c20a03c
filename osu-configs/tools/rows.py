# SPDX-License-Identifier: BSD-3-Clause
"""Configuration files: one section per row, as osu-configs/rows/strategies.conf explains.

Whatever is wrong with one is Trouble that starts with FILE:LINE.
"""

import configparser
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.osu import BENCHMARKS
from tools.sizes import parse, several
from tools.trouble import Trouble

DEFAULTS = "defaults"
FOLDER = Path(__file__).parents[1] / "rows"
PEERS = FOLDER / "peers.conf"
PER_BENCHMARK = ("sizes", "options", "buffers", "ranks", "pin_cost")  # may be written KEY.BENCHMARK
KEYS = ("mca", "environment", "openmpi", "memlock", "memory", "swap", "benchmark", "timeout",
        *PER_BENCHMARK)  # fmt: skip
# Profiles of btl_regx_pin_cost, as pin-costs.md has them: nanoseconds of a call, and of each page.
PIN_COSTS = {"none": "", "ucx": "16000:246", "nic": "93000:375"}
BUFFERS = "same, fresh, freed, rotate:N, slide:N, touched"
# Of a benchmark's options, what compare sets. A value may be attached, a long name abbreviated.
OWN_OPTION = re.compile(r"-[mcbix].*|--(me|mes|mess|messa|messag|message.*|v|va|val.*|b|bu|buf.*)(=.*)?")


@dataclass(frozen=True)
class Case:
    """What is run of a row: one benchmark, with one choice of buffers."""

    benchmark: str
    sizes: tuple[int, ...]
    options: tuple[str, ...]  # of them the companion knows -W and -o
    buffers: str
    ranks: int
    pin_cost: str = ""  # empty: as the row says

    @property
    def window(self) -> int:
        """Messages at a time; 0: it is not said."""
        return int(self.options[self.options.index("-W") + 1]) if "-W" in self.options else 0

    @property
    def owned(self) -> bool:
        """Buffers are MPI_Alloc_mem's."""
        return "-o" in self.options


@dataclass(frozen=True)
class Row:
    name: str
    mca: dict[str, str]
    environment: dict[str, str]
    openmpi: tuple[int, ...]  # major versions; empty: any
    memlock: str  # what a rank may lock: bytes, or "unlimited"; empty: as it is
    timeout: float
    memory: int  # MiB of the emulated machine's; 0: as it has by default
    swap: int  # the same
    cases: tuple[Case, ...]
    where: str = field(compare=False)  # FILE:LINE, for messages
    slower: float = 0  # percent by which its companion spins, for --self-check

    @property
    def is_regx(self) -> bool:
        return "regx" in self.mca.get("btl", "").split(",")

    @property
    def pin_cost(self) -> str:
        """Empty: the row is not over a device whose registrations cost what one likes."""
        return self.mca.get("btl_regx_pin_cost", "none") if self.regx("transport") == "pinned" else ""

    def regx(self, parameter: str) -> str:
        return self.mca.get(f"btl_regx_{parameter}", "auto")


def called(text: str) -> Path:
    """The file of rows of that path; or, of a name alone that is not in the current folder, of ours."""
    file = Path(text)
    return FOLDER / text if text == file.name and not file.exists() and (FOLDER / text).exists() else file


def read(files: list[Path]) -> list[Row]:
    rows: dict[str, Row] = {}
    for file in files:
        for row in _File(file).rows():
            if row.name in rows:
                raise Trouble(f'{row.where}: row "{row.name}" is there already, in'
                              f" {rows[row.name].where}")
            rows[row.name] = row
    return list(rows.values())


def for_openmpi(rows: list[Row], major: int) -> list[Row]:
    left = [row for row in rows if not row.openmpi or major in row.openmpi]
    if not left:
        raise Trouble(f"no row is for Open MPI {major}")
    return left


# ---- values: each takes a text, and raises ValueError with what is allowed


def _words(pattern: str, wanted: str) -> Callable[[str], list[str]]:
    def convert(text: str) -> list[str]:
        words = shlex.split(text)
        for word in words:
            if not re.fullmatch(pattern, word):
                raise ValueError(f'"{word}"; wanted: {wanted}')
        return words
    return convert


def _mca(text: str) -> dict[str, str]:
    words = shlex.split(text)
    flags, names, values = words[::3], words[1::3], words[2::3]
    if len(words) % 3 or set(flags) - {"--mca", "-mca"}:
        raise ValueError("malformed; wanted: --mca NAME VALUE …")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is named twice")
    pairs = dict(zip(names, values))
    # Left open, Open MPI's choice depends on the machine's own parameter files.
    if "pml" not in pairs or (pairs["pml"] == "ob1" and "btl" not in pairs):
        raise ValueError("it must name pml, and with pml ob1 also btl")
    return pairs


def _environment(text: str) -> dict[str, str]:
    words = _words(r"[A-Za-z_][A-Za-z0-9_]*=.*", "NAME=VALUE …")(text)
    return dict(word.split("=", 1) for word in words)


def _options(text: str) -> tuple[str, ...]:
    if re.search(r"-W(?! [1-9][0-9]{0,4}( |$))", text):
        raise ValueError("wanted: -W N, 1 to 99999 messages at a time")
    for option in shlex.split(text):
        if OWN_OPTION.fullmatch(option):
            raise ValueError(f"{option} is compare's to set (sizes, iterations, buffers, content check)")
    return tuple(shlex.split(text))


def _memlock(text: str) -> str:
    return text if text in ("", "unlimited") else str(parse(text))


def _mebibytes(text: str) -> int:
    size = parse(text) if text else 0
    if size % (1 << 20):
        raise ValueError(f'"{text}" is no whole number of MiB')
    return size >> 20


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise ValueError(f'"{text}"; allowed: 1 to 99999 (seconds)')
    return float(text)


class _File:
    def __init__(self, file: Path):
        self.file = file
        self.parser = configparser.ConfigParser(interpolation=None, default_section=DEFAULTS)
        self.parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            self.text = file.read_text(encoding="utf-8")
            self.parser.read_string(self.text)
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Trouble(f"{file}: cannot be read: not a text file") from None
        except configparser.ParsingError as error:
            where = getattr(error, "lineno", None) or error.errors[0][0]
            raise Trouble(f'{file}:{where}: malformed line; wanted: "key = value", below a [name]') from None
        except configparser.Error as error:  # something is there twice
            where = getattr(error, "lineno", 1)
            raise Trouble(f"{file}:{where}: {error.message.partition(']: ')[2]}") from None
        if not self.parser.sections():
            raise Trouble(f"{file}:1: no row in this file; one begins with its [name] in a line")
        peers = configparser.ConfigParser(interpolation=None)
        peers.read(PEERS, encoding="utf-8")
        for section in self.parser.sections():
            if "mca" not in self.parser[section] and section in peers:
                self.parser[section].update(
                    {key: peers[section][key] for key in ("mca", "environment", "openmpi") if key in peers[section]})

    def line(self, section: str, key: str) -> int:
        """Where the row's key is, or else that of the defaults, or else where the row begins."""
        lines, inside = {}, ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\[(.*)\]", line):
                inside, name = header[1], ""
            elif entry := re.match(r"([^\s#;=:][^=:]*?)\s*[=:]", line):
                name = entry[1]
            else:
                continue
            lines[inside, name] = number
        places = ((section, key), (DEFAULTS, key), (section, ""))
        return next((lines[place] for place in places if place in lines), 1)

    def trouble(self, message: object, section: str, key: str = "") -> Trouble:
        return Trouble(f"{self.file}:{self.line(section, key)}: {message}")

    def value(self, section: str, key: str, convert: Callable[[str], Any], otherwise: str = "") -> Any:
        try:
            return convert((self.parser[section].get(key) or otherwise).strip())
        except ValueError as error:
            raise self.trouble(f"{key}: {error}", section, key) from None

    def rows(self) -> list[Row]:
        for section in (DEFAULTS, *self.parser.sections()):
            for key in self.parser[section]:
                self.check_key(section, key)
        return [self.row(section) for section in self.parser.sections()]

    def check_key(self, section: str, key: str) -> None:
        base, dot, benchmark = key.partition(".")
        if base not in KEYS or (dot and base not in PER_BENCHMARK):
            raise self.trouble(f'unknown key "{key}"; allowed: {", ".join(KEYS)}', section, key)
        if dot:
            self.check_benchmark(section, key, benchmark)

    def check_benchmark(self, section: str, key: str, name: str) -> None:
        if name not in BENCHMARKS:
            raise self.trouble(f'unknown benchmark "{name}"; allowed: {", ".join(BENCHMARKS)}', section, key)

    def row(self, section: str) -> Row:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", section):
            raise self.trouble(f'malformed row name "{section}"; allowed: letters, digits, _ . + -', section)
        for key in ("mca", "benchmark"):
            if not self.parser[section].get(key):
                raise self.trouble(f'row "{section}" has no "{key}"', section)
        majors = _words("[0-9]{1,2}", "major versions, for example 5 6")
        return Row(
            name=section, mca=self.value(section, "mca", _mca),
            environment=self.value(section, "environment", _environment),
            openmpi=tuple(map(int, self.value(section, "openmpi", majors))),
            memlock=self.value(section, "memlock", _memlock),
            timeout=self.value(section, "timeout", _seconds, "120"),
            memory=self.value(section, "memory", _mebibytes), swap=self.value(section, "swap", _mebibytes),
            cases=tuple(case for benchmark in self.value(section, "benchmark", shlex.split)
                        for case in self.cases(section, benchmark)),
            where=f"{self.file}:{self.line(section, '')}")

    def cases(self, section: str, benchmark: str) -> list[Case]:
        self.check_benchmark(section, "benchmark", benchmark)
        kind = BENCHMARKS[benchmark]

        def key(base: str) -> str:
            special = f"{base}.{benchmark}"
            return special if self.parser[section].get(special) else base

        if not self.parser[section].get(key("sizes")):
            raise self.trouble(f'row "{section}" has no "sizes" for {benchmark}', section)
        buffers = _words(r"same|fresh|freed|touched|(rotate|slide):[1-9][0-9]{0,5}",
                         BUFFERS)  # fmt: skip
        if kind.buffers:
            buffers = _words("|".join(kind.buffers), f"{', '.join(kind.buffers)}, for {benchmark}")
        costs = self.value(section, key("pin_cost"), _words("|".join(PIN_COSTS) + r"|[0-9]{1,10}:[0-9]{1,10}",
                           f"{', '.join(PIN_COSTS)} or CALL:PAGE (ns)"))  # fmt: skip
        if costs and "--mca btl_regx_transport pinned" not in self.parser[section]["mca"]:
            raise self.trouble(f'pin_cost: row "{section}" is not of btl_regx_transport pinned', section, key("pin_cost"))
        ranks = self.value(section, key("ranks"), _words("[2-9]|[1-9][0-9]{1,2}", "numbers from 2 to 999"),
                           "2")  # fmt: skip
        return [Case(benchmark, self.value(section, key("sizes"), several),
                     self.value(section, key("options"), _options), choice, int(number), cost)
                for choice in self.value(section, key("buffers"), buffers, "same")
                # Benchmarks of two ranks have two, whatever the row says of the others.
                for number in (ranks if kind.groups else ["2"]) for cost in costs or [""]]  # fmt: skip
