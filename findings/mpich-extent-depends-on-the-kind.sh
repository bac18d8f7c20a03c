#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the extent of a type to follow from the places and alignments of
# its parts: by the MPI standard it is rounded up to the alignment, whichever
# function has made the type, and a float is aligned as an int is.
# In MPICH 4.2.1 (Debian 13) a struct of an int and, at byte 5, a float has 12
# bytes. With an int in place of the float it has 9: if all parts are of one type
# nothing is rounded, nor by MPI_Type_create_hvector and MPI_Type_create_hindexed. The
# second of two elements is taken from byte 12 or from byte 9, and no error is returned.
# Open MPI 5.0.7, and 4.1.4, tell 12 for all of these.
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
static void show(const char *name, MPI_Datatype type)
{
    char bytes[32], taken[16];
    int length = 0;
    MPI_Aint lower, extent;
    for (int i = 0; i < 32; i++)
        bytes[i] = (char)i;
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Pack(bytes, 2, type, taken, sizeof(taken), &length, MPI_COMM_SELF);
    printf("%s: extent %ld, the second one is taken from %d\n", name, (long)extent, taken[8]);
    MPI_Type_free(&type);
}
int main(void)
{
    int ones[] = {1, 1};
    MPI_Aint places[] = {0, 5};
    MPI_Datatype types[2], type;
    MPI_Init(NULL, NULL);
    types[0] = MPI_INT;
    types[1] = MPI_FLOAT;
    MPI_Type_create_struct(2, ones, places, types, &type);
    show("struct of int and float", type);
    types[1] = MPI_INT;
    MPI_Type_create_struct(2, ones, places, types, &type);
    show("struct of int and int", type);
    MPI_Type_create_hvector(2, 1, 5, MPI_INT, &type);
    show("hvector", type);
    MPI_Type_create_hindexed(2, ones, places, MPI_INT, &type);
    show("hindexed", type);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
struct of int and float: extent 12, the second one is taken from 12
struct of int and int: extent 9, the second one is taken from 9
hvector: extent 9, the second one is taken from 9
hindexed: extent 9, the second one is taken from 9
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
