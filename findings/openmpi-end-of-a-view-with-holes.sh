#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_SEEK_END to put the pointer to where the data of the view
# end, whatever the view: the MPI standard counts offsets in etypes of the view,
# and holes do not belong to it.
# In Open MPI 5.0.7 (Debian 13), in a file of 10 bytes, it is put to 10 if the
# view has no holes. If the view has one byte of every four, three in all, it is
# put to 9 instead of 3: from one before the end no byte can be read, and what
# is written at the end goes to byte 36, instead of 12. No error is returned.
# 4.1.4 puts it to 1, and MPICH 4.2.1 to 3.
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
static void look(MPI_File file, int first, MPI_Datatype type, const char *view)
{
    char byte = '-';
    MPI_Offset end, size;
    MPI_Status status;
    int count;
    MPI_File_set_view(file, first, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_File_seek(file, 0, MPI_SEEK_END);
    MPI_File_get_position(file, &end);
    MPI_File_seek(file, -1, MPI_SEEK_END);
    MPI_File_read(file, &byte, 1, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    printf("%s, from byte %d on: the end is %lld, %d byte read before it: %c\n", view, first, (long long)end, count,
           byte);
    MPI_File_get_size(file, &size);
    MPI_File_seek(file, 0, MPI_SEEK_END);
    MPI_File_write(file, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_get_byte_offset(file, end, &end);
    printf("the file has %lld bytes, and one is written to byte %lld\n", (long long)size, (long long)end);
    MPI_File_set_size(file, size);
}
int main(void)
{
    MPI_File file;
    MPI_Datatype type;
    MPI_Init(NULL, NULL);
    MPI_File_open(MPI_COMM_SELF, "/tmp/file", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write_at(file, 0, "0123456789", 10, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Type_create_resized(MPI_BYTE, 0, 4, &type);
    MPI_Type_commit(&type);
    look(file, 0, MPI_BYTE, "each byte");
    look(file, 0, type, "every fourth byte");
    look(file, 1, type, "every fourth byte");
    look(file, 2, type, "every fourth byte");
    MPI_Type_free(&type);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
each byte, from byte 0 on: the end is 10, 1 byte read before it: 9
the file has 10 bytes, and one is written to byte 10
every fourth byte, from byte 0 on: the end is 9, 0 byte read before it: -
the file has 10 bytes, and one is written to byte 36
every fourth byte, from byte 1 on: the end is 9, 0 byte read before it: -
the file has 10 bytes, and one is written to byte 37
every fourth byte, from byte 2 on: the end is 8, 0 byte read before it: -
the file has 10 bytes, and one is written to byte 34
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
