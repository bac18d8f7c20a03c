# SPDX-License-Identifier: BSD-3-Clause
"""What is measured, and of whom."""

from dataclasses import dataclass

# What figures are set in relation to: subjects.
UCX = "ucs_rcache"
BARE = "none"  # nothing is kept, nothing is watched


@dataclass(frozen=True)
class Metric:
    name: str  # as the programs print it
    title: str
    unit: str
    base: str | None = None  # UCX, BARE, or another metric of the same subject


@dataclass(frozen=True)
class Group:
    title: str
    metrics: tuple[Metric, ...]


GROUPS = (
    Group(
        "Hit: acquire and release of a registration that is kept",
        (
            Metric("null_call", "a null system call", "ns"),
            Metric("query", "the notifier's query, in a function of its own", "ns"),
        )
        + tuple(
            Metric(f"{name}_{count}", f"{who}, {count:,} region{'s' * (count > 1)}", "ns", UCX)
            for name, who in (
                ("hit", "one thread"),
                ("hit_same", "two at once, the same"),
                ("hit_apart", "two at once, different"),
            )
            for count in (1, 100, 10000)
        ),
    ),
    Group(
        "Miss: acquire and release, beside the registration itself (which does nothing here)",
        (
            Metric("miss_near", "in one large mapping", "ns", UCX),
            Metric("miss_apart", "in a mapping of its own", "ns", UCX),
        )
        + tuple(
            Metric(f"miss_{count}", f"time per miss of {count} thread{'s' * (count > 1)}", "ns", UCX)
            for count in (1, 2, 4, 8)
        ),
    ),
    Group(
        "munmap",
        (
            Metric("many_bare", "of 40 MB with nothing registered", "us", BARE),
            Metric("many_unmapped", "of 40 MB with 5,000 regions", "us", "many_bare"),
            Metric("many_next", "the next acquire of another buffer", "us", UCX),
            Metric("many_settled", "the same, and all deregistrations", "us", UCX),
            Metric("unmap_unwatched", "of 64 KiB never registered", "us", BARE),
            Metric("unmap_watched", "of 64 KiB registered", "us", BARE),
            Metric("unmap_busy", "of 64 KiB registered, all cores busy", "us", BARE),
            Metric("unmap_busy_worst", "the same, the worst of 201", "us", BARE),
        ),
    ),
    Group(
        "fork", (Metric("fork_full", "with 1,000 regions of 64 KiB in use before", "us", BARE),)
    ),
    Group(
        "Memory held by the keeping itself",
        (
            Metric("region_bytes", "per region", "B", UCX),
            Metric("gib_bytes", "for one region of 1 GiB", "B"),
            Metric("gib_mappings", "mappings more, for 512 regions in 1 GiB", ""),
        ),
    ),
    Group(
        "First touch",
        (
            Metric("touch_small_bare", "of a page of 4 KiB", "ns", BARE),
            Metric("touch_small", "of a page of 4 KiB that is registered", "ns", "touch_small_bare"),
            Metric("touch_huge_bare", "of 2 MiB with huge pages", "ns", BARE),
            Metric("touch_huge", "of 2 MiB with huge pages, registered", "ns", "touch_huge_bare"),
            Metric("huge_got", "of the 2 MiB, in huge pages", "%"),
            Metric("huge_kept", "in huge pages, 64 KiB of each registered", "%"),
        ),
    ),
)
METRICS = {metric.name: metric for group in GROUPS for metric in group.metrics}


@dataclass(frozen=True)
class Subject:
    name: str
    program: str


SUBJECTS = {
    subject.name: subject
    for subject in (
        *(
            Subject(name, "regx")
            for name in (
                "none",
                "hooks",
                "retain",
                "notifier",
                "notifier-scan",
                "notifier-never",
                "hooks+notifier",
                "hooks+notifier-never",
            )
        ),
        Subject(UCX, "ucx"),
        Subject("grdma", "grdma"),
    )
}
