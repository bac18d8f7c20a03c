#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Pack_external_size to tell how many bytes
# MPI_Pack_external writes: that is what the standard has it for, and in
# external32 each type has one fixed size.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, the size of one MPI_LONG is told
# as 8, the native size, and 4 bytes are written. So it is with
# MPI_UNSIGNED_LONG and with MPI_LONG_INT (12 and 8). A value that does not fit
# into 4 bytes loses its upper half, and MPI_SUCCESS is returned. MPICH 4.2.1
# tells 4 and writes 4.
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
    long value[4] = {0x0102030405060708, 0, 0, 0}, back[4] = {0, 0, 0, 0};
    char packed[64];
    MPI_Aint size = -1, written = 0, read = 0;
    MPI_Pack_external_size("external32", 1, type, &size);
    int wrong = MPI_Pack_external("external32", value, 1, type, packed, 64, &written);
    wrong |= MPI_Unpack_external("external32", packed, written, &read, back, 1, type);
    printf("%s: told %ld, written %ld, %#lx comes back as %#lx, %s\n", name, (long)size,
           (long)written, value[0], back[0], wrong ? "an error" : "no error");
}
int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    show("MPI_LONG", MPI_LONG);
    show("MPI_INT64_T", MPI_INT64_T);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_LONG: told 8, written 4, 0x102030405060708 comes back as 0x5060708, no error
MPI_INT64_T: told 8, written 8, 0x102030405060708 comes back as 0x102030405060708, no error
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
