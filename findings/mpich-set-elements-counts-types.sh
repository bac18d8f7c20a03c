#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Get_elements to return the number that a program has set by
# MPI_Status_set_elements: the MPI standard says so in these words, for programs
# that make requests of their own (generalized requests).
# In MPICH 4.2.1 (Debian 13) the number is taken for a count of the type: with a type
# of an int and a double 1 becomes 2, and 3 becomes 6, and MPI_Get_count tells a
# whole type where half a one was set (mpich#7764, mended later). With a basic type
# it is right. Open MPI 5.0.7, and 4.1.4, are right in all cases.
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
    MPI_Status status;
    printf("%s:", name);
    for (int given = 1; given < 4; given++) {
        int elements, count;
        MPI_Status_set_elements(&status, type, given);
        MPI_Get_elements(&status, type, &elements);
        MPI_Get_count(&status, type, &count);
        printf("%s of %d there are %d, count ", given == 1 ? "" : ";", given, elements);
        printf(count == MPI_UNDEFINED ? "undefined" : "%d", count);
    }
    printf("\n");
}
int main(void)
{
    int ones[] = {1, 1};
    MPI_Aint places[] = {0, 8};
    MPI_Datatype types[2], type;
    MPI_Init(NULL, NULL);
    show("int", MPI_INT);
    types[0] = MPI_INT;
    types[1] = MPI_DOUBLE;
    MPI_Type_create_struct(2, ones, places, types, &type);
    MPI_Type_commit(&type);
    show("int and double", type);
    MPI_Type_free(&type);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_commit(&type);
    show("3 ints", type);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
int: of 1 there are 1, count 1; of 2 there are 2, count 2; of 3 there are 3, count 3
int and double: of 1 there are 2, count 1; of 2 there are 4, count 2; of 3 there are 6, count 3
3 ints: of 1 there are 3, count 1; of 2 there are 6, count 2; of 3 there are 9, count 3
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
