# SPDX-License-Identifier: BSD-3-Clause
"""libregx-registration: its example on an RDMA device."""
import device
from example import check_none, check_notifier, run
from launch import Build

pytestmark = device.needed


def test_each_buffer_is_registered_once_and_arrives(build: Build) -> None:
    check_notifier(run(build, "example", "notifier"))


def test_without_a_cache_each_use_is_registered_and_arrives(build: Build) -> None:
    check_none(run(build, "example", "none"))
