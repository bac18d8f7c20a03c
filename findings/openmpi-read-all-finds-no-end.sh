#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the status of MPI_File_read_all to show the end of a file, as that of
# MPI_File_read does: the MPI standard has a program find it by less being read than
# was asked for (data access routines).
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it tells that all was read, at the end
# and behind it, while the rest of the buffer stays as it was. No error is returned,
# and a loop that reads until nothing comes does not end.
# MPI_File_read_at_all, at the same places, and MPI_File_read_ordered are right, and so
# is MPICH 4.2.1 in all of these.
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
#include <string.h>
static char buffer[11];
static MPI_Status status;
static char *clear(void)
{
    memset(&status, 0, sizeof(status));
    memset(buffer, '.', 10);
    return buffer;
}
static void show(const char *function, int place)
{
    int count;
    MPI_Get_count(&status, MPI_BYTE, &count);
    printf("%s from %d: %d bytes told, the buffer is %s\n", function, place, count, buffer);
}
/* A file of 15 bytes, which is read in pieces of 10. */
int main(void)
{
    MPI_File file;
    MPI_Init(NULL, NULL);
    MPI_File_open(MPI_COMM_WORLD, "/tmp/data", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write(file, "abcdefghijklmno", 15, MPI_BYTE, &status);
    for (int place = 0; place <= 20; place += 10) {
        MPI_File_seek(file, place, MPI_SEEK_SET);
        MPI_File_read(file, clear(), 10, MPI_BYTE, &status);
        show("MPI_File_read", place);
        MPI_File_read_at_all(file, place, clear(), 10, MPI_BYTE, &status);
        show("MPI_File_read_at_all", place);
        MPI_File_seek_shared(file, place, MPI_SEEK_SET);
        MPI_File_read_ordered(file, clear(), 10, MPI_BYTE, &status);
        show("MPI_File_read_ordered", place);
        MPI_File_seek(file, place, MPI_SEEK_SET);
        MPI_File_read_all(file, clear(), 10, MPI_BYTE, &status);
        show("MPI_File_read_all", place);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_File_read from 0: 10 bytes told, the buffer is abcdefghij
MPI_File_read_at_all from 0: 10 bytes told, the buffer is abcdefghij
MPI_File_read_ordered from 0: 10 bytes told, the buffer is abcdefghij
MPI_File_read_all from 0: 10 bytes told, the buffer is abcdefghij
MPI_File_read from 10: 5 bytes told, the buffer is klmno.....
MPI_File_read_at_all from 10: 5 bytes told, the buffer is klmno.....
MPI_File_read_ordered from 10: 5 bytes told, the buffer is klmno.....
MPI_File_read_all from 10: 10 bytes told, the buffer is klmno.....
MPI_File_read from 20: 0 bytes told, the buffer is ..........
MPI_File_read_at_all from 20: 0 bytes told, the buffer is ..........
MPI_File_read_ordered from 20: 0 bytes told, the buffer is ..........
MPI_File_read_all from 20: 10 bytes told, the buffer is ..........
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
