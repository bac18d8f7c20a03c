# SPDX-License-Identifier: BSD-3-Clause
"""Attempts: a run is made again when the machine's phase changed meanwhile, but not for ever."""

from collections.abc import Callable

from comparing import phase
from comparing.launch import Outcome
from comparing.load import Load
from comparing.paging import Paging
from comparing.phase import Mailbox
from comparing.result import Conditions

ATTEMPTS = 1 + 3  # a run across which the phase changed is repeated at most three times


def within_one_phase(
    mailbox: Mailbox, once: Callable[[], Outcome], sees_others: bool = True
) -> tuple[Outcome, Conditions]:
    """sees_others: whether other programs can be told from what works for the run."""
    before = mailbox.last if mailbox.last is not None else mailbox.measure()
    for attempt in range(1, ATTEMPTS + 1):
        load, paging = Load(), Paging()
        outcome = once()
        paged = paging.counts()
        others = load.others() if sees_others else 0.0
        after = mailbox.measure()
        if outcome.status != 0 or not phase.moved(before, after) or attempt == ATTEMPTS:
            break
        before = after
    return outcome, Conditions(
        phase=phase.name(before, after),
        mailbox=(before, after),
        attempts=attempt,
        seconds=outcome.seconds,
        others=others,
        paging=paged,
    )
