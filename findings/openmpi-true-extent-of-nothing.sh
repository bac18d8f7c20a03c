#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Type_get_true_extent to answer 0 and 0 for a type that
# holds no data, as MPI_Type_contiguous(0, ...) has it in Open MPI, and as
# MPICH 4.2.1 answers. Such types are common: a distributed array gives one
# to each process for which nothing is left.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, the true lower bound is 2^63 - 1
# and the true extent is 1, so that a program that adds the two to size a
# buffer overflows. MPI_Type_get_extent and MPI_Type_size are right.
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
    libopenmpi-dev=5.0.7-1 openmpi-bin=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
    MPI_Aint lower, extent, true_lower, true_extent;
    int size;
    MPI_Type_commit(&type);
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    printf("%s: size %d, extent %ld, true bound %ld, true extent %ld\n", name, size,
           (long)extent, (long)true_lower, (long)true_extent);
}
int main(void)
{
    /* Four rows over three processes, two for each: nothing is left for the last. */
    int rows = 4, block = MPI_DISTRIBUTE_BLOCK, two = 2, three = 3;
    MPI_Datatype nothing, array;
    MPI_Init(NULL, NULL);
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_create_darray(3, 2, 1, &rows, &block, &two, &three, MPI_ORDER_C, MPI_INT, &array);
    show("contiguous", nothing);
    show("darray", array);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
contiguous: size 0, extent 0, true bound 0, true extent 0
darray: size 0, extent 16, true bound 9223372036854775807, true extent 1
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
