# SPDX-License-Identifier: BSD-3-Clause
"""Ways to run the program `shadow`: parameters of regx, and the freedom that they give a program."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from job import Job
from launch import Mpi


@dataclass(frozen=True)
class Way:
    regx: dict[str, object] = field(default_factory=dict)
    freedom: tuple[str, ...] = ()
    ranks: int = 2
    used: tuple[str, ...] = ()  # counters of the report that are not 0 then

    def run(self, mpi: Mpi, seed: int, operations: int, folder: Path,
            environment: Mapping[str, str] | None = None, **how: Any) -> Job:
        # Another thread's arena does not fit into the room that the program leaves for others.
        return mpi("shadow", seed, operations, folder / "shared", *self.freedom, ranks=self.ranks,
                   regx=self.regx,
                   environment={"MALLOC_ARENA_MAX": "1", **(environment or {})}, **how)


CHUNKS: dict[str, object] = {"rndv_eager_limit": 0, "chunk_size": "16K", "chunk_depth": 2}
PINNED: dict[str, object] = {"transport": "pinned", **CHUNKS}
WAYS = {
    "windows": Way(ranks=3, used=("onesided",)),
    "staged": Way({"rendezvous": "staged", **CHUNKS}, ranks=3, used=("stages_taken",)),
    "alloc_mem": Way({"rendezvous": "together"}, used=("pieces_owned",)),
    "remap": Way({"rendezvous": "remap", **CHUNKS}, ranks=3,
                 used=("remap_pages", "remap_copied_bytes")),
    "drain": Way({"rendezvous": "pipeline", "backend": "hooks", "inuse": "drain",
                  **CHUNKS}, ("drain",), used=("drain_waits",)),
    # Without waiting a copy to a slot would crash.
    "drain-bounce": Way({"rendezvous": "bounce", "backend": "hooks", "inuse": "drain",
                         "slot_size": "16K", "pool_size": "64K"}, ("drain",),
                        used=("drain_waits",)),
    # The kernel reads the whole at once: it is chance whether a call has to wait for that.
    "drain-read": Way({"rendezvous": "read", "backend": "hooks+notifier", "inuse": "drain",
                       **CHUNKS}, ("drain",), used=("messages_read",)),
    "revocable": Way({"rendezvous": "pipeline", "backend": "notifier", "grant": "revocable",
                      "inuse": "ignore", **CHUNKS}, ("replace",), used=("regrants",)),
    "revocable-direct": Way({"rendezvous": "direct", "backend": "hooks+notifier",
                             "grant": "revocable", "inuse": "ignore", **CHUNKS}, ("replace",),
                            used=("regrants",)),
    # Over a device that pins a backend has to tell of each change, or old bytes are seen.
    "pinned": Way({"rendezvous": "pipeline", "backend": "notifier", **PINNED}, ranks=3,
                  used=("bytes_pinned", "onesided")),
    "pinned-read": Way({"rendezvous": "read", "backend": "none", **PINNED}, used=("bytes_pinned",)),
    "pinned-drain": Way({"rendezvous": "direct", "backend": "hooks+notifier", "inuse": "drain", **PINNED},
                        ("drain",), used=("bytes_pinned", "drain_waits")),
    "pinned-revocable": Way({"rendezvous": "direct", "backend": "hooks+notifier", "grant": "revocable",
                             "inuse": "ignore", **PINNED}, ("replace",), used=("bytes_pinned", "regrants")),
}
