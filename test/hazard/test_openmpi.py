# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI's own death in MPI_Finalize is told apart from one that regx might cause (openmpi.py)."""
from dataclasses import replace

import pytest

import openmpi
from job import Job
from launch import Build

# As printed: libgcc lay where the component of the callback had been.
SAID = """\
[machine:00177] *** Process received signal ***
[machine:00177] Signal: Segmentation fault (11)
[machine:00177] Signal code: {code}
[machine:00177] Failing at address: 0x7f5683aeb{place:03x}
[machine:00177] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f56846d5050]
[machine:00177] [ 1] /lib/x86_64-linux-gnu/libgcc_s.so.1(__umodti3+0x150)[0x7f5683aeb{place:03x}]
[machine:00177] [ 2] {caller}[0x564a98c03e30]
[machine:00177] *** End of error message ***
"""
UNMAPPED = "Address not mapped (1)"


def test_no_other_crash_is_excused(build: Build) -> None:
    found = openmpi.callbacks(build.pkglibdir)
    if not found:
        pytest.skip("the callback of Open MPI's PMIx component was not found")
    begin = found[0].begin
    assert begin + 8 not in found[0].places

    def died(job: Job) -> bool:
        return openmpi.died_in_finalize(job, 2, build.pkglibdir)

    own = Job("mpirun", 128 + 11, "checked 10 bytes\n",
              SAID.format(code=UNMAPPED, place=begin, caller=""))
    assert died(own)
    for why, stderr in {
            "another place": SAID.format(code=UNMAPPED, place=begin + 8, caller=""),
            "mapped": SAID.format(code="Invalid permissions (2)", place=begin, caller=""),
            "from regx": SAID.format(code=UNMAPPED, place=begin, caller="/regx.so(progress+0x30)"),
            "two crashes": own.stderr + SAID.format(code=UNMAPPED, place=begin + 8, caller="")}.items():
        assert not died(replace(own, stderr=stderr)), why
    assert not died(replace(own, stdout="")), "before it was done"
    assert not died(replace(own, status=0)), "it ended well"
