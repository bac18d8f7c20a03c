#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_MAX to treat all elements of a buffer alike, also where one of
# the two numbers is NaN. The MPI standard does not say which one wins then, but a
# program may look for NaN in this way.
# In Open MPI 5.0.7 (Debian 13, x86-64), and in 4.1.4, of 37 elements the first 36
# keep NaN if it comes from the result so far, and lose it if it comes from the
# new buffer. With the last one it is the other way round, since it is
# computed by a loop behind the instructions of op/avx. MPI_MIN does the same. With
# OMPI_MCA_op=^avx, and in MPICH 4.2.1, all elements are alike.
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
static void show(const char *name, MPI_Op op, float in, float so_far)
{
    float buffer[37], result[37];
    int first = 0, last;
    for (int i = 0; i < 37; i++) {
        buffer[i] = in;
        result[i] = so_far;
    }
    MPI_Reduce_local(buffer, result, 37, MPI_FLOAT, op);
    for (int i = 0; i < 36; i++)
        first += result[i] != result[i];
    last = result[36] != result[36];
    printf("%s: NaN in %d of the first 36, and in %d of the last 1\n", name, first, last);
}
int main(void)
{
    float zero = 0, nan = zero / zero;
    MPI_Init(NULL, NULL);
    show("MPI_MAX, NaN so far", MPI_MAX, 1, nan);
    show("MPI_MAX, NaN in the buffer", MPI_MAX, nan, 1);
    show("MPI_MIN, NaN so far", MPI_MIN, 1, nan);
    show("MPI_MIN, NaN in the buffer", MPI_MIN, nan, 1);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
{
    inside /tmp/probe
    echo "without op/avx"
    OMPI_MCA_op=^avx inside /tmp/probe
} >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_MAX, NaN so far: NaN in 36 of the first 36, and in 0 of the last 1
MPI_MAX, NaN in the buffer: NaN in 0 of the first 36, and in 1 of the last 1
MPI_MIN, NaN so far: NaN in 36 of the first 36, and in 0 of the last 1
MPI_MIN, NaN in the buffer: NaN in 0 of the first 36, and in 1 of the last 1
without op/avx
MPI_MAX, NaN so far: NaN in 0 of the first 36, and in 0 of the last 1
MPI_MAX, NaN in the buffer: NaN in 36 of the first 36, and in 1 of the last 1
MPI_MIN, NaN so far: NaN in 0 of the first 36, and in 0 of the last 1
MPI_MIN, NaN in the buffer: NaN in 36 of the first 36, and in 1 of the last 1
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
