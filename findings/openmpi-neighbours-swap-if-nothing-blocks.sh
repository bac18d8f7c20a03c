#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Ineighbor_alltoall, and the persistent form, to deliver
# what MPI_Neighbor_alltoall delivers. On a periodic grid that is what was sent
# to the left of one process arriving from the right at the other one, also
# where both neighbours are the same process (MPI 4.0, neighborhood
# collectives on Cartesian grids).
# In Open MPI 5.0.7 (Debian 13) only the blocking form is right in a dimension of
# one process, or of two: the others return left and right swapped, and no
# error (ompi#14430). MPI_Ineighbor_alltoall does so in 4.1.4, too. MPICH 4.2.1
# is right here.
# The output seen is what "expected" holds below.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
: >"$folder/status"
mkdir -p "$folder/lists/partial" "$folder/archives/partial"
for name in bin lib lib64 sbin; do
    mkdir -p "$root/usr/$name"
    ln -s "usr/$name" "$root/$name"
done
# The mirror is the one that this machine uses for Debian.
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
echo "deb $mirror trixie main" >"$folder/sources"
cat >"$folder/apt.conf" <<END
Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder";
Dir::Etc::sourcelist "$folder/sources"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt.conf"
apt-get -qq update
apt-get -qq -y --no-install-recommends --download-only install \
    libopenmpi-dev=5.0.7-1 openmpi-bin=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
for package in "$folder"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
done
# "inside COMMAND" runs a command of these packages, as root or as an ordinary user.
inside() {
    mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp"
    map=
    [ "$(id -u)" = 0 ] || map=--map-root-user
    # shellcheck disable=SC2016,SC2086
    unshare --mount $map sh -c 'root=$1; shift
        for name in proc dev sys; do mount --rbind "/$name" "$root/$name" || exit; done
        exec chroot "$root" "$@"' sh "$root" "$@"
}

export OMPI_MCA_btl=self OMPI_MCA_pml=ob1
cat >"$root/probe.c" <<'END'
#include <mpi.h>
#include <stdio.h>
int main(void)
{
    int one = 1, from[] = {10, 20}, to[3][2];
    MPI_Comm ring;
    MPI_Request request;
    MPI_Init(NULL, NULL);
    MPI_Cart_create(MPI_COMM_SELF, 1, &one, &one, 0, &ring);
    MPI_Neighbor_alltoall(from, 1, MPI_INT, to[0], 1, MPI_INT, ring);
    MPI_Ineighbor_alltoall(from, 1, MPI_INT, to[1], 1, MPI_INT, ring, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Neighbor_alltoall_init(from, 1, MPI_INT, to[2], 1, MPI_INT, ring, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    printf("sent to the left %d, to the right %d\n", from[0], from[1]);
    for (int i = 0; i < 3; i++)
        printf("%s: from the left %d, from the right %d\n",
               i == 0 ? "blocking" : i == 1 ? "nonblocking" : "persistent", to[i][0], to[i][1]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
sent to the left 10, to the right 20
blocking: from the left 20, from the right 10
nonblocking: from the left 10, from the right 20
persistent: from the left 10, from the right 20
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
