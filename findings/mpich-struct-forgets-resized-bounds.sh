#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Type_create_struct to keep the bounds that
# MPI_Type_create_resized gave to a member. In the standard such bounds are
# markers in the type map, and where a type map has markers, they alone make
# the bounds of the type that is built of it.
# An int resized to lower bound 20 and extent 16, once at 24, with two shorts
# at 32, has the bounds 44 and 60. Open MPI 4.1.4 and 5.0.7 say so. MPICH 4.2.1
# (Debian 13) takes the lower bound of the shorts, 32, since that is smaller.
# As a contiguous type of the same member MPICH has 20 and 16.
# So arrays of such a struct have another stride in MPICH.
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
    mpich=4.3.0+really4.2.1-1 libmpich-dev=4.3.0+really4.2.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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

export UCX_LOG_LEVEL=fatal
cat >"$root/probe.c" <<'END'
#include <mpi.h>
#include <stdio.h>
static void show(const char *name, MPI_Datatype type)
{
    MPI_Aint lower, extent;
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lower, &extent);
    printf("%s: lower bound %ld, extent %ld\n", name, (long)lower, (long)extent);
    MPI_Type_free(&type);
}
int main(void)
{
    int lengths[2] = {1, 2};
    MPI_Aint places[2] = {24, 32};
    MPI_Datatype types[2], contiguous, structure;
    MPI_Init(NULL, NULL);
    MPI_Type_create_resized(MPI_INT, 20, 16, &types[0]);
    types[1] = MPI_SHORT;
    MPI_Type_contiguous(1, types[0], &contiguous);
    MPI_Type_create_struct(2, lengths, places, types, &structure);
    show("contiguous", contiguous);
    show("struct", structure);
    MPI_Type_free(&types[0]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
contiguous: lower bound 20, extent 16
struct: lower bound 32, extent 28
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
