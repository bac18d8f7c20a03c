#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the status of a receive from MPI_PROC_NULL to have
# MPI_PROC_NULL as its source, whichever function receives: the MPI standard
# says so of all receives (null processes).
# In MPICH 4.2.1 (Debian 13) it has, with MPI_Recv, MPI_Irecv and MPI_Sendrecv.
# With MPI_Recv_init, MPI_Start and MPI_Wait the source is MPI_ANY_SOURCE, as in
# the status of a request that was never started, so that a program cannot tell
# the two apart. Open MPI 5.0.7 has MPI_PROC_NULL everywhere.
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
static void show(const char *name, MPI_Status *status)
{
    int count;
    MPI_Get_count(status, MPI_INT, &count);
    printf("%s: source %s, count %d\n", name,
           status->MPI_SOURCE == MPI_PROC_NULL    ? "MPI_PROC_NULL"
           : status->MPI_SOURCE == MPI_ANY_SOURCE ? "MPI_ANY_SOURCE"
                                                  : "another",
           count);
}
int main(void)
{
    int data = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Init(NULL, NULL);
    MPI_Recv(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &status);
    show("MPI_Recv", &status);
    MPI_Irecv(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request);
    MPI_Wait(&request, &status);
    show("MPI_Irecv", &status);
    MPI_Recv_init(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request);
    MPI_Start(&request);
    MPI_Wait(&request, &status);
    show("MPI_Recv_init, started", &status);
    MPI_Wait(&request, &status);
    show("MPI_Recv_init, not started", &status);
    MPI_Request_free(&request);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_Recv: source MPI_PROC_NULL, count 0
MPI_Irecv: source MPI_PROC_NULL, count 0
MPI_Recv_init, started: source MPI_ANY_SOURCE, count 0
MPI_Recv_init, not started: source MPI_ANY_SOURCE, count 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
