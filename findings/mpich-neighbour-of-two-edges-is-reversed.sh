#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Neighbor_alltoall to keep the dimensions of a grid apart:
# what is sent along one of them arrives along the same one (MPI 4.0,
# neighborhood collectives on Cartesian grids). In a graph with two edges
# between the same processes the first block sent is the first received.
# In MPICH 4.2.1 (Debian 13), on a periodic grid with two dimensions of one
# process, what is sent along the first dimension arrives along the second one, and
# the two blocks of a double edge change places. No error is returned.
# With one such dimension it is right. Open MPI 5.0.7 is right in all of these.
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
    libmpich-dev=4.3.0+really4.2.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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

cat >"$root/probe.c" <<'END'
#include <mpi.h>
#include <stdio.h>
static void show(const char *name, int blocks, MPI_Comm neighbours)
{
    int from[] = {10, 20, 30, 40}, to[4];
    MPI_Neighbor_alltoall(from, 1, MPI_INT, to, 1, MPI_INT, neighbours);
    printf("%s:", name);
    for (int i = 0; i < blocks; i++)
        printf(" %d", to[i]);
    printf("\n");
    MPI_Comm_free(&neighbours);
}
int main(void)
{
    int ones[] = {1, 1}, zeros[] = {0, 0}, zero = 0, two = 2;
    MPI_Comm ring, torus, graph;
    MPI_Init(NULL, NULL);
    MPI_Cart_create(MPI_COMM_SELF, 1, ones, ones, 0, &ring);
    show("ring, 10 and 20 sent, 20 and 10 expected", 2, ring);
    MPI_Cart_create(MPI_COMM_SELF, 2, ones, ones, 0, &torus);
    show("torus, 10 to 40 sent, 20, 10, 40 and 30 expected", 4, torus);
    MPI_Dist_graph_create(MPI_COMM_SELF, 1, &zero, &two, zeros, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    show("double edge, 10 and 20 sent, 10 and 20 expected", 2, graph);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
ring, 10 and 20 sent, 20 and 10 expected: 20 10
torus, 10 to 40 sent, 20, 10, 40 and 30 expected: 40 30 20 10
double edge, 10 and 20 sent, 10 and 20 expected: 20 10
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
