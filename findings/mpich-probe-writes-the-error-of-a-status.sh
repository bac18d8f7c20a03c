#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the field MPI_ERROR of a status to stay as the program has set
# it: by the MPI standard only functions that return several statuses may
# change it, and these only if they return MPI_ERR_IN_STATUS.
# In MPICH 4.2.1 (Debian 13) MPI_Recv, and MPI_Wait for a receive, leave it alone.
# MPI_Probe, MPI_Mprobe, MPI_Sendrecv_replace, and MPI_Wait for the null
# request, set it to 0, so that a program that keeps an error there, or looks at
# this field to see what failed, loses it. In Open MPI 5.0.7 all keep it.
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
static MPI_Status status;
static void show(const char *name)
{
    printf("%s: MPI_ERROR %s\n", name,
           status.MPI_ERROR == MPI_ERR_OTHER ? "kept" : status.MPI_ERROR ? "changed" : "set to 0");
    status.MPI_ERROR = MPI_ERR_OTHER;
}
int main(void)
{
    int from = 1, to;
    MPI_Comm self = MPI_COMM_SELF;
    MPI_Message message;
    MPI_Request request, receive, null = MPI_REQUEST_NULL;
    MPI_Init(NULL, NULL);
    status.MPI_ERROR = MPI_ERR_OTHER;
    MPI_Isend(&from, 1, MPI_INT, 0, 0, self, &request);
    MPI_Probe(0, 0, self, &status);
    show("MPI_Probe");
    MPI_Mprobe(0, 0, self, &message, &status);
    show("MPI_Mprobe");
    MPI_Mrecv(&to, 1, MPI_INT, &message, &status);
    show("MPI_Mrecv");
    MPI_Wait(&request, &status);
    show("MPI_Wait for a send");
    MPI_Wait(&null, &status);
    show("MPI_Wait for nothing");
    MPI_Irecv(&to, 1, MPI_INT, 0, 0, self, &receive);
    MPI_Isend(&from, 1, MPI_INT, 0, 0, self, &request);
    MPI_Wait(&receive, &status);
    show("MPI_Wait for a receive");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&from, 1, MPI_INT, 0, 0, &to, 1, MPI_INT, 0, 0, self, &status);
    show("MPI_Sendrecv");
    MPI_Sendrecv_replace(&from, 1, MPI_INT, 0, 0, 0, 0, self, &status);
    show("MPI_Sendrecv_replace");
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_Probe: MPI_ERROR set to 0
MPI_Mprobe: MPI_ERROR set to 0
MPI_Mrecv: MPI_ERROR kept
MPI_Wait for a send: MPI_ERROR kept
MPI_Wait for nothing: MPI_ERROR set to 0
MPI_Wait for a receive: MPI_ERROR kept
MPI_Sendrecv: MPI_ERROR kept
MPI_Sendrecv_replace: MPI_ERROR set to 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
