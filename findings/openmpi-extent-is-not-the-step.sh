#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the elements of a message to lie as far apart as
# MPI_Type_get_extent tells: that is what the MPI standard has the extent for.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, the extent of a struct of an int and,
# 16 bytes further on, a type without data is told as 16, but the ints are taken
# from places 0, 4 and 8: other data, and no error. A struct gets such a member
# where a list is empty for one process. If MPI_Type_create_resized sets the same
# extent they are taken from places 0, 16 and 32. A block of length 0 changes
# neither. MPICH 4.2.1 tells 20, and takes them from 0, 20 and 40.
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
static void show(const char *name, MPI_Datatype type)
{
    char bytes[64], taken[12];
    int length = 0;
    MPI_Aint lower, extent;
    for (int i = 0; i < 64; i++)
        bytes[i] = (char)i;
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Pack(bytes, 3, type, taken, sizeof(taken), &length, MPI_COMM_SELF);
    printf("%s: extent %ld, taken from %d, %d and %d\n", name, (long)extent, taken[0], taken[4], taken[8]);
    MPI_Type_free(&type);
}
int main(void)
{
    int ones[] = {1, 1}, one_and_none[] = {1, 0};
    MPI_Aint places[] = {0, 16};
    MPI_Datatype types[2], type, sized;
    MPI_Init(NULL, NULL);
    types[0] = types[1] = MPI_INT;
    MPI_Type_create_struct(2, one_and_none, places, types, &type);
    show("a block of length 0", type);
    MPI_Type_indexed(0, NULL, NULL, MPI_INT, &types[1]);
    MPI_Type_create_struct(2, ones, places, types, &type);
    MPI_Type_create_resized(type, 0, 16, &sized);
    show("an indexed type without blocks", type);
    show("the same, resized", sized);
    MPI_Type_free(&types[1]);
    MPI_Type_contiguous(0, MPI_INT, &types[1]);
    MPI_Type_create_struct(2, ones, places, types, &type);
    show("a contiguous type of nothing", type);
    MPI_Type_free(&types[1]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
a block of length 0: extent 4, taken from 0, 4 and 8
an indexed type without blocks: extent 16, taken from 0, 4 and 8
the same, resized: extent 16, taken from 0, 16 and 32
a contiguous type of nothing: extent 16, taken from 0, 4 and 8
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
