# SPDX-License-Identifier: BSD-3-Clause
"""Processes that meet after MPI_Init. (vader cannot carry these: regx must.)"""
import pytest

from launch import Build, Mpi


def test_spawned_processes_exchange_messages(mpi: Mpi) -> None:
    """MPI_Comm_spawn, twice: intercommunicator, MPI_Intercomm_merge, MPI_Comm_disconnect."""
    job = mpi("dynamic", "spawn", 2, ranks=3, regx={"rendezvous": "direct"})
    job.checked(ranks=3 + 2 * 2).carried("direct").over("shm")
    assert job.stdout.count("\n") == 3, str(job)  # each job's one line


def test_connected_processes_exchange_messages(mpi: Mpi, build: Build) -> None:
    """MPI_Comm_accept, connect and disconnect, three times over one port."""
    if build.series == (5, 0):
        pytest.skip("Open MPI 5.0 does not come back from MPI_Comm_connect, with btl/tcp either")
    job = mpi("dynamic", "connect", 2, 3, ranks=1, regx={"rendezvous": "pipeline"})
    job.ended_well().carried("pipeline").over("shm")
    assert len(job.reports) == 1 + 2 * 2 and job.total("malformed") == 0, str(job)
    lines = sorted(job.stdout.splitlines())  # the parents only pass the port's name
    assert len(lines) == 3 and "checked 0 bytes" == lines[0] < lines[1] == lines[2], str(job)
