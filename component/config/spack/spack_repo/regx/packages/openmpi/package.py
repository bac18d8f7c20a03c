# SPDX-License-Identifier: BSD-3-Clause
"""Spack's own Open MPI, with the headers that a component is built with."""
from spack_repo.builtin.packages.openmpi.package import Openmpi as BuiltinOpenmpi

from spack.package import *  # noqa: F403


class Openmpi(BuiltinOpenmpi):
    __doc__ = BuiltinOpenmpi.__doc__

    def configure_args(self):
        return [*super().configure_args(), "--with-devel-headers"]
