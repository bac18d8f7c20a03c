#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a message that is longer than its receive to end with
# MPI_ERR_TRUNCATE, also if a process sends it to itself: the MPI standard has
# this class for it, and the receiver cannot learn otherwise that data are missing.
# In Open MPI 5.0.7 (Debian 13), in 4.1.4 and in 6.0.0rc2, with pml/ob1, of 3 ints
# that come into a receive for one, the first one is delivered, and the receive succeeds
# with a count of 1, as if no more had been sent. Sent by MPI_Ssend, of a
# type with holes, or received only later, they end with the error, and so do
# messages between two processes. MPICH 4.2.1 returns the error for all of these.
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
    libopenmpi-dev=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
static MPI_Comm self;
static void show(const char *name, int error, MPI_Status *status, int *into)
{
    int class, count;
    MPI_Error_class(error, &class);
    MPI_Get_count(status, MPI_INT, &count);
    printf("%s: %s, count %d, %d %d %d\n", name,
           class == MPI_SUCCESS        ? "MPI_SUCCESS"
           : class == MPI_ERR_TRUNCATE ? "MPI_ERR_TRUNCATE"
                                       : "another error",
           count, into[0], into[1], into[2]);
    into[0] = 0;
}
int main(void)
{
    int three[] = {1, 2, 3}, wide[] = {1, 0, 2, 0, 3, 0}, into[3] = {0};
    MPI_Datatype one, holes;
    MPI_Request request;
    MPI_Status status;
    MPI_Init(NULL, NULL);
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN);
    MPI_Type_vector(1, 1, 1, MPI_INT, &one);
    MPI_Type_create_resized(one, 0, 2 * sizeof(int), &holes);
    MPI_Type_commit(&holes);

    MPI_Irecv(into, 1, MPI_INT, 0, 0, self, &request);
    MPI_Send(three, 3, MPI_INT, 0, 0, self);
    show("MPI_Irecv and MPI_Send", MPI_Wait(&request, &status), &status, into);
    show("MPI_Sendrecv", MPI_Sendrecv(three, 3, MPI_INT, 0, 0, into, 1, MPI_INT, 0, 0, self, &status), &status, into);

    MPI_Irecv(into, 1, MPI_INT, 0, 0, self, &request);
    MPI_Ssend(three, 3, MPI_INT, 0, 0, self);
    show("MPI_Irecv and MPI_Ssend", MPI_Wait(&request, &status), &status, into);

    MPI_Irecv(into, 1, MPI_INT, 0, 0, self, &request);
    MPI_Send(wide, 3, holes, 0, 0, self);
    show("sent with holes", MPI_Wait(&request, &status), &status, into);

    MPI_Isend(three, 3, MPI_INT, 0, 0, self, &request);
    show("received later", MPI_Recv(into, 1, MPI_INT, 0, 0, self, &status), &status, into);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Type_free(&one);
    MPI_Type_free(&holes);
    MPI_Comm_free(&self);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_Irecv and MPI_Send: MPI_SUCCESS, count 1, 1 0 0
MPI_Sendrecv: MPI_SUCCESS, count 1, 1 0 0
MPI_Irecv and MPI_Ssend: MPI_ERR_TRUNCATE, count 3, 1 0 0
sent with holes: MPI_ERR_TRUNCATE, count 3, 1 0 0
received later: MPI_ERR_TRUNCATE, count 3, 1 0 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
