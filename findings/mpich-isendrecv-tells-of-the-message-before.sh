#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the status of MPI_Isendrecv to tell of the message that it
# has received, as that of MPI_Sendrecv does: the MPI standard has it as the form
# of this function that does not block (MPI 4.0, send-receive).
# In MPICH 4.2.1 (Debian 13) tag and count are those of a message that came by
# another function before, and 0 if there was none. The data are right, and no
# error is returned. So it is with MPI_Isendrecv_replace. With MPI_PROC_NULL the
# status stays what it was. Open MPI 5.0.7 is right in all of these.
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
static int sent[] = {10, 20, 30, 40}, got[4];
static void wait(const char *name, MPI_Request *request)
{
    MPI_Status status = {0};
    int count;
    status.MPI_TAG = 77;
    MPI_Status_set_elements(&status, MPI_INT, 77);
    MPI_Wait(request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    printf("%s: tag %d, count %d\n", name, status.MPI_TAG, count);
}
static void exchange(const char *name, int count, int tag)
{
    MPI_Request request;
    got[0] = 0;
    MPI_Isendrecv(sent, count, MPI_INT, 0, tag, got, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &request);
    wait(name, &request);
    if (got[0] != 10)
        printf("and the data are wrong\n");
}
int main(void)
{
    MPI_Request request;
    MPI_Init(NULL, NULL);
    exchange("two with tag 5", 2, 5);
    MPI_Irecv(got, 4, MPI_INT, 0, 9, MPI_COMM_SELF, &request);
    MPI_Send(sent, 4, MPI_INT, 0, 9, MPI_COMM_SELF);
    wait("MPI_Irecv of four with tag 9", &request);
    exchange("two with tag 5", 2, 5);
    exchange("three with tag 6", 3, 6);
    MPI_Isendrecv_replace(sent, 2, MPI_INT, 0, 7, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &request);
    wait("MPI_Isendrecv_replace of two with tag 7", &request);
    MPI_Isendrecv(sent, 2, MPI_INT, MPI_PROC_NULL, 5, got, 4, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_SELF, &request);
    wait("MPI_PROC_NULL", &request);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
two with tag 5: tag 0, count 0
MPI_Irecv of four with tag 9: tag 9, count 4
two with tag 5: tag 9, count 4
three with tag 6: tag 9, count 4
MPI_Isendrecv_replace of two with tag 7: tag 9, count 4
MPI_PROC_NULL: tag 77, count 77
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
