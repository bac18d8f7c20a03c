#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_MAX to compare MPI_UNSIGNED_LONG as the unsigned type
# and MPI_OFFSET as the signed type that they are in the MPI standard.
# In Open MPI 4.1.4 (Debian 12) it is the other way round: the greater one of
# 2^63 and 1 is 1, and the greater one of -1 and 7 is -1. MPI_UINT64_T and
# MPI_COUNT, which are as wide, are right. No error is returned. It is not a
# matter of the processor: OMPI_MCA_op=^avx changes nothing.
# Open MPI 5.0.7 (Debian 13) has mended the first, and not the second.
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
echo "deb $mirror bookworm main" >"$folder/sources"
cat >"$folder/apt.conf" <<END
Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder";
Dir::Etc::sourcelist "$folder/sources"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt.conf"
apt-get -qq update
apt-get -qq -y --no-install-recommends --download-only install \
    libopenmpi-dev=4.1.4-3+b1 openmpi-bin=4.1.4-3+b1 tcc=0.9.27+git20200814.62c30a4a-1 libc6-dev >/dev/null
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
int main(void)
{
    unsigned long a = 1UL << 63, b = 1, c = a, d = 1;
    MPI_Offset e = -1, f = 7;
    MPI_Count g = -1, h = 7;
    MPI_Init(NULL, NULL);
    MPI_Reduce_local(&a, &b, 1, MPI_UNSIGNED_LONG, MPI_MAX);
    MPI_Reduce_local(&c, &d, 1, MPI_UINT64_T, MPI_MAX);
    MPI_Reduce_local(&e, &f, 1, MPI_OFFSET, MPI_MAX);
    MPI_Reduce_local(&g, &h, 1, MPI_COUNT, MPI_MAX);
    printf("MPI_UNSIGNED_LONG: of 2^63 and 1: %lu\n", b);
    printf("MPI_UINT64_T: of 2^63 and 1: %lu\n", d);
    printf("MPI_OFFSET: of -1 and 7: %lld\n", (long long)f);
    printf("MPI_COUNT: of -1 and 7: %lld\n", (long long)h);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_UNSIGNED_LONG: of 2^63 and 1: 1
MPI_UINT64_T: of 2^63 and 1: 9223372036854775808
MPI_OFFSET: of -1 and 7: -1
MPI_COUNT: of -1 and 7: 7
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
