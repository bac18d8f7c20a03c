#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Dist_graph_neighbors to give the first neighbours of a process to
# a program that asks for fewer than there are: the MPI standard has it return the
# first part of the list then (distributed graph topologies).
# In MPICH 4.2.1 (Debian 13), and in 5.0.2, it fails with MPI_ERR_ARG, and returns
# none, so that a program with the default error handler is ended. Asked for no
# incoming and all outgoing ones it fails, too. With room for more than there are it works.
# MPI_Graph_neighbors, asked for one of two, returns that one. Open MPI 5.0.7 returns
# the first part in all of these.
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
static MPI_Comm graph;
static void ask(int incoming, int outgoing)
{
    int sources[4] = {-1, -1, -1, -1}, weights[4] = {0}, targets[4] = {-1, -1, -1, -1}, others[4] = {0};
    int code = MPI_Dist_graph_neighbors(graph, incoming, sources, weights, outgoing, targets, others), class;
    MPI_Error_class(code, &class);
    printf("asked for %d of 3 and %d of 2: ", incoming, outgoing);
    if (code == MPI_SUCCESS)
        printf("success, weights %d %d %d and %d %d\n", weights[0], weights[1], weights[2], others[0], others[1]);
    else
        printf("%s, weights %d %d %d and %d %d\n", class == MPI_ERR_ARG ? "MPI_ERR_ARG" : "another error", weights[0],
               weights[1], weights[2], others[0], others[1]);
}
/* A process with three edges from itself and two to itself, told apart by their weights. */
int main(void)
{
    static const int nobody[3] = {0, 0, 0}, in[3] = {5, 6, 7}, out[2] = {8, 9}, ends[1] = {2}, edges[2] = {0, 0};
    int one[1] = {-1}, code;
    MPI_Comm plain;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, 3, nobody, in, 2, nobody, out, MPI_INFO_NULL, 0, &graph);
    MPI_Comm_set_errhandler(graph, MPI_ERRORS_RETURN);
    ask(3, 2);
    ask(4, 4);
    ask(2, 2);
    ask(3, 1);
    ask(0, 2);
    MPI_Graph_create(MPI_COMM_SELF, 1, ends, edges, 0, &plain);
    code = MPI_Graph_neighbors(plain, 0, 1, one);
    printf("MPI_Graph_neighbors, asked for 1 of 2: %s, neighbour %d\n", code == MPI_SUCCESS ? "success" : "an error",
           one[0]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
asked for 3 of 3 and 2 of 2: success, weights 5 6 7 and 8 9
asked for 4 of 3 and 4 of 2: success, weights 5 6 7 and 8 9
asked for 2 of 3 and 2 of 2: MPI_ERR_ARG, weights 0 0 0 and 0 0
asked for 3 of 3 and 1 of 2: MPI_ERR_ARG, weights 0 0 0 and 0 0
asked for 0 of 3 and 2 of 2: MPI_ERR_ARG, weights 0 0 0 and 0 0
MPI_Graph_neighbors, asked for 1 of 2: success, neighbour 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
