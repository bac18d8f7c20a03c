# SPDX-License-Identifier: BSD-3-Clause
"""What the node's kernel did for want of memory while a run lasted, whoever made it do so."""

from pathlib import Path

VMSTAT = Path("/proc/vmstat")
SWAPS = Path("/proc/swaps")
# By the kernel's names: faults for which a page was read; pages read from and written to swap
# space; processes that were ended.
NAMES = {
    "pgmajfault": "major_faults",
    "pswpin": "swapped_in",
    "pswpout": "swapped_out",
    "oom_kill": "killed",
}
# Without want of memory there are faults, too: for pages of files that are read for the first time.
FOR_WANT = ("swapped_in", "swapped_out", "killed")


class Paging:
    """Counts from when it is made."""

    def __init__(self) -> None:
        # The first line of /proc/swaps is a header.
        self.has_swap = SWAPS.exists() and len(SWAPS.read_text().splitlines()) > 1
        self.before = self._read()

    def counts(self) -> dict[str, int]:
        """Until now, by name; nothing on a node without swap space."""
        if not self.has_swap:
            return {}
        now = self._read()
        return {name: now[name] - count for name, count in self.before.items() if name in now}

    @staticmethod
    def _read() -> dict[str, int]:
        try:
            lines = VMSTAT.read_text().splitlines()
        except OSError:
            return {}
        values = dict(line.split() for line in lines)
        return {name: int(values[key]) for key, name in NAMES.items() if key in values}
