# SPDX-License-Identifier: BSD-3-Clause
"""libregx-registration: its example, which compares what arrives, in buffers that are unmapped and mapped
again where they were."""
from example import check_none, check_notifier, run
from launch import Build


def test_the_example_registers_each_buffer_once(build: Build) -> None:
    check_notifier(run(build, "example_fake", "notifier"))


def test_the_example_without_a_cache(build: Build) -> None:
    check_none(run(build, "example_fake", "none"))


def test_the_example_says_what_is_allowed(build: Build) -> None:
    done = run(build, "example_fake", "nonsense")
    assert done.returncode == 1
    assert done.stderr == ("example: backend=nonsense is not known; allowed: auto, none, hooks, notifier, "
                           "hooks+notifier, retain\n")
