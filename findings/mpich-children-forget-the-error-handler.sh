#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a new communicator to have the error handler of the one that it
# was made of, whichever function makes it: the MPI standard has it inherit that
# (error handlers for communicators).
# In MPICH 4.2.1 (Debian 13) it does if MPI_Comm_dup, MPI_Comm_split or
# MPI_Cart_create makes it. MPI_Comm_create and MPI_Comm_create_group give it
# MPI_ERRORS_ARE_FATAL, so that a program that handles errors is ended by the first
# one. Open MPI 5.0.7 has it inherited by all of these.
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
static void show(const char *name, MPI_Comm child)
{
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(child, &handler);
    printf("%s: %s\n", name,
           handler == MPI_ERRORS_RETURN      ? "MPI_ERRORS_RETURN"
           : handler == MPI_ERRORS_ARE_FATAL ? "MPI_ERRORS_ARE_FATAL"
                                             : "another one");
    MPI_Comm_free(&child);
}
int main(void)
{
    int one = 1, no = 0;
    MPI_Comm parent, child;
    MPI_Group group;
    MPI_Request request;
    MPI_Init(NULL, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    MPI_Comm_group(parent, &group);
    MPI_Comm_dup(parent, &child);
    show("MPI_Comm_dup", child);
    MPI_Comm_idup(parent, &child, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    show("MPI_Comm_idup", child);
    MPI_Comm_split(parent, 0, 0, &child);
    show("MPI_Comm_split", child);
    MPI_Cart_create(parent, 1, &one, &no, 0, &child);
    show("MPI_Cart_create", child);
    MPI_Comm_create(parent, group, &child);
    show("MPI_Comm_create", child);
    MPI_Comm_create_group(parent, group, 0, &child);
    show("MPI_Comm_create_group", child);
    MPI_Group_free(&group);
    MPI_Comm_free(&parent);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_Comm_dup: MPI_ERRORS_RETURN
MPI_Comm_idup: MPI_ERRORS_RETURN
MPI_Comm_split: MPI_ERRORS_RETURN
MPI_Cart_create: MPI_ERRORS_RETURN
MPI_Comm_create: MPI_ERRORS_ARE_FATAL
MPI_Comm_create_group: MPI_ERRORS_ARE_FATAL
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
