#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the count of a status to show the end of a file: the
# MPI standard has a program find it by less being read than was asked for (data
# access routines).
# In MPICH 4.2.1 (Debian 13) it does in a view without holes. If the view has
# holes, MPI_File_read_at tells that all was read, wherever it begins, and fills
# the buffer with what is not in the file. A loop that reads until nothing comes
# does not end. Open MPI 5.0.7, and 4.1.4, tell 5 and then 0, and leave the rest
# of the buffer alone.
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
static MPI_File file;
static void read_10(const char *name, MPI_Offset place, MPI_Datatype view)
{
    int buffer[10], count, written = 0;
    MPI_Status status;
    for (int i = 0; i < 10; i++)
        buffer[i] = -1;
    MPI_File_set_view(file, 0, MPI_INT, view, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, place, buffer, 10, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    for (int i = 0; i < 10; i++)
        written += buffer[i] != -1;
    printf("%s, from %ld on: %d told, %d written to the buffer\n", name, (long)place, count, written);
}
int main(void)
{
    int numbers[20];
    MPI_Datatype holes;
    MPI_Init(NULL, NULL);
    for (int i = 0; i < 20; i++)
        numbers[i] = 100 + i;
    MPI_File_open(MPI_COMM_SELF, "/tmp/numbers", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write(file, numbers, 20, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Type_create_resized(MPI_INT, 0, 8, &holes);
    MPI_Type_commit(&holes);
    read_10("all 20", 15, MPI_INT);
    read_10("all 20", 20, MPI_INT);
    read_10("10 of them", 5, holes);
    read_10("10 of them", 10, holes);
    read_10("10 of them", 1000, holes);
    MPI_File_close(&file);
    MPI_Type_free(&holes);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
all 20, from 15 on: 5 told, 5 written to the buffer
all 20, from 20 on: 0 told, 0 written to the buffer
10 of them, from 5 on: 10 told, 10 written to the buffer
10 of them, from 10 on: 10 told, 10 written to the buffer
10 of them, from 1000 on: 10 told, 10 written to the buffer
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
