#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a file with the view "external32" to hold big-endian numbers,
# whichever function writes them: the MPI standard has all data converted that
# are read or written through such a view (file interoperability).
# In MPICH 4.2.1 (Debian 13) MPI_File_write_at and MPI_File_write_at_all do
# convert. MPI_File_iwrite_at and MPI_File_iwrite write the numbers as they
# are in memory, and MPI_File_iread_at reads them so: 1 becomes 16777216, and no
# error is returned. Open MPI 5.0.7 converts in all of these.
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
int main(void)
{
    int one = 1, number = 0;
    unsigned char bytes[4];
    MPI_File file;
    MPI_Request request;
    MPI_Init(NULL, NULL);
    MPI_File_open(MPI_COMM_SELF, "/tmp/numbers", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
    MPI_File_write_at(file, 0, &one, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_write_at_all(file, 1, &one, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_iwrite_at(file, 2, &one, 1, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_seek(file, 3, MPI_SEEK_SET);
    MPI_File_iwrite(file, &one, 1, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 0, &number, 1, MPI_INT, MPI_STATUS_IGNORE);
    printf("MPI_File_read_at: %d\n", number);
    MPI_File_iread_at(file, 0, &number, 1, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    printf("MPI_File_iread_at: %d\n", number);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    const char *functions[] = {"MPI_File_write_at", "MPI_File_write_at_all", "MPI_File_iwrite_at", "MPI_File_iwrite"};
    for (int i = 0; i < 4; i++) {
        MPI_File_read_at(file, 4 * i, bytes, 4, MPI_BYTE, MPI_STATUS_IGNORE);
        printf("%s: %02x %02x %02x %02x\n", functions[i], bytes[0], bytes[1], bytes[2], bytes[3]);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_File_read_at: 1
MPI_File_iread_at: 16777216
MPI_File_write_at: 00 00 00 01
MPI_File_write_at_all: 00 00 00 01
MPI_File_iwrite_at: 01 00 00 00
MPI_File_iwrite: 01 00 00 00
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
