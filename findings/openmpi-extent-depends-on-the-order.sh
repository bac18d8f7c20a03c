#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the extent of a struct type to be the same in whichever order
# its members are listed: by the MPI standard it is taken of the lowest and the
# highest place, and rounded up once, to the alignment.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, a struct of two ints and a double
# has 16 bytes, as in C, in four of the six orders. If the second int and the
# double are listed before the first int it has 24, since it is rounded up with
# each member. Of an array all elements but the first are then taken from another
# place: other data, and no error. MPI_Type_create_resized helps.
# MPICH 4.2.1 tells 16 for all orders.
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
#include <stddef.h>
#include <stdio.h>
struct point {
    int first, second;
    double third;
};
static const char *const names[] = {"first", "second", "third"};
static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
static void show(const int *order)
{
    char bytes[64], taken[32];
    int ones[] = {1, 1, 1}, length = 0;
    MPI_Aint all_places[3], places[3], lower, extent;
    MPI_Datatype all_types[] = {MPI_INT, MPI_INT, MPI_DOUBLE}, types[3], type;
    all_places[0] = offsetof(struct point, first);
    all_places[1] = offsetof(struct point, second);
    all_places[2] = offsetof(struct point, third);
    for (int i = 0; i < 3; i++) {
        places[i] = all_places[order[i]];
        types[i] = all_types[order[i]];
    }
    MPI_Type_create_struct(3, ones, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lower, &extent);
    for (int i = 0; i < 64; i++)
        bytes[i] = (char)i;
    MPI_Pack(bytes, 2, type, taken, sizeof(taken), &length, MPI_COMM_SELF);
    printf("%s, %s, %s: %ld of %d bytes, the next one is taken %d bytes later\n", names[order[0]], names[order[1]],
           names[order[2]], (long)extent, (int)sizeof(struct point), taken[length / 2] - taken[0]);
    MPI_Type_free(&type);
}
int main(void)
{
    MPI_Init(NULL, NULL);
    for (int i = 0; i < 6; i++)
        show(orders[i]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
first, second, third: 16 of 16 bytes, the next one is taken 16 bytes later
first, third, second: 16 of 16 bytes, the next one is taken 16 bytes later
second, first, third: 16 of 16 bytes, the next one is taken 16 bytes later
second, third, first: 24 of 16 bytes, the next one is taken 24 bytes later
third, first, second: 16 of 16 bytes, the next one is taken 16 bytes later
third, second, first: 24 of 16 bytes, the next one is taken 24 bytes later
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
