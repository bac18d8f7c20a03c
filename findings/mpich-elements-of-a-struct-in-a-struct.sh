#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Get_elements to tell how many basic elements came,
# whatever the shape of the type: the MPI standard has it for that.
# In MPICH 4.2.1 (Debian 13), if a struct lies in a struct, it tells other
# numbers: 7 for 3 chars and an int, 4 for 3 doubles and 2 ints, and
# MPI_UNDEFINED for 6 ints and 2 chars. All of them were received as a whole,
# and MPI_Get_count is right. With the same elements in one struct both are.
# Open MPI 5.0.7 is right in all cases.
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
static char from[128], to[128];
static MPI_Datatype two(int first, MPI_Datatype of_first, MPI_Aint place, int second, MPI_Datatype of_second)
{
    int lengths[] = {first, second};
    MPI_Aint places[] = {0, place};
    MPI_Datatype types[] = {of_first, of_second}, type;
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    return type;
}
static void show(const char *name, int whole, MPI_Datatype type)
{
    int count, elements;
    MPI_Status status;
    MPI_Sendrecv(from, whole, type, 0, 0, to, whole, type, 0, 0, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, type, &count);
    MPI_Get_elements(&status, type, &elements);
    if (elements == MPI_UNDEFINED)
        printf("%s: %d came, elements: undefined\n", name, count);
    else
        printf("%s: %d came, elements: %d\n", name, count, elements);
}
int main(void)
{
    MPI_Datatype chars, doubles, ints, all[5];
    MPI_Init(NULL, NULL);
    chars = two(2, MPI_CHAR, 2, 1, MPI_CHAR);
    doubles = two(2, MPI_DOUBLE, 16, 1, MPI_DOUBLE);
    ints = two(2, MPI_INT, 8, 1, MPI_INT);
    all[0] = two(3, MPI_CHAR, 4, 1, MPI_INT);
    all[1] = two(1, chars, 4, 1, MPI_INT);
    all[2] = two(3, MPI_DOUBLE, 24, 2, MPI_INT);
    all[3] = two(1, doubles, 24, 2, MPI_INT);
    all[4] = two(1, ints, 12, 1, MPI_CHAR);
    show("{char[3], int}", 1, all[0]);
    show("{{char[2], char}, int}", 1, all[1]);
    show("{double[3], int[2]}", 1, all[2]);
    show("{{double[2], double}, int[2]}", 1, all[3]);
    show("{{int[2], int}, char}", 2, all[4]);
    for (int i = 0; i < 5; i++)
        MPI_Type_free(&all[i]);
    MPI_Type_free(&chars);
    MPI_Type_free(&doubles);
    MPI_Type_free(&ints);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
{char[3], int}: 1 came, elements: 4
{{char[2], char}, int}: 1 came, elements: 7
{double[3], int[2]}: 1 came, elements: 5
{{double[2], double}, int[2]}: 1 came, elements: 4
{{int[2], int}, char}: 2 came, elements: undefined
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
