# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *  # noqa: F403


class Regx(AutotoolsPackage):
    """A BTL component of Open MPI with rendezvous strategies and registration backends to choose from. A job
    that does not ask for it is not changed by it."""

    license("BSD-3-Clause")

    version("0.1.0")  # not released: from a clone, by spack dev-build or spack develop

    variant("verbs", default=True, description="Use RDMA devices")
    variant("ucx", default=True, description="Use the memory hooks of UCX where Open MPI has loaded it")

    # A build is good for one series of Open MPI: Spack builds anew for others.
    depends_on("c", type="build")
    depends_on("openmpi@4.1,5.0,6.0")
    depends_on("pmix", when="^openmpi@5:")
    depends_on("ucx", when="+ucx")
    depends_on("hwloc@2:")
    depends_on("rdma-core@40:", when="+verbs")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.7:", type="run")  # of regx-doctor

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()  # noqa: F405

    def configure_args(self):
        return [f"--with-openmpi={self.spec['openmpi'].prefix}", *self.with_or_without("verbs"),
                *self.with_or_without("ucx", activation_value="prefix")]

    def setup_run_environment(self, env):
        """Its prefix is not Open MPI's, which therefore is told where to look."""
        theirs = self.spec["openmpi"].prefix.lib.openmpi
        env.set("OMPI_MCA_opal_mca_base_component_path", f"{self.prefix.lib.openmpi}:{theirs}")
