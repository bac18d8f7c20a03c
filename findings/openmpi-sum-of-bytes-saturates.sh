#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_SUM of MPI_UNSIGNED_CHAR to treat all elements of a
# buffer alike, and to wrap around as the same sum in C does (200 + 100 is 44).
# The description of MPI_SUM in the standard has nothing of saturation.
# In Open MPI 5.0.7 (Debian 13, x86-64), and in 4.1.4, the first 128 of 130
# elements become 255, and the last two become 44: the instructions of the
# component op/avx saturate, and the loop over what remains of the buffer does
# not. Signed bytes and 16-bit integers are summed in the same way. With
# OMPI_MCA_op=^avx all elements become 44.
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
int main(void)
{
    unsigned char in[130], sum[130];
    MPI_Init(NULL, NULL);
    for (int i = 0; i < 130; i++) {
        in[i] = 200;
        sum[i] = 100;
    }
    MPI_Reduce_local(in, sum, 130, MPI_UNSIGNED_CHAR, MPI_SUM);
    for (int i = 0; i < 130; i++)
        if (i == 0 || sum[i] != sum[i - 1])
            printf("200 + 100 is %d from element %d on\n", sum[i], i);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
{
    echo 'with op/avx:'
    inside /tmp/probe
    echo 'without:'
    OMPI_MCA_op=^avx inside /tmp/probe
} >"$folder/seen"
cat >"$folder/expected" <<'END'
with op/avx:
200 + 100 is 255 from element 0 on
200 + 100 is 44 from element 128 on
without:
200 + 100 is 44 from element 0 on
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
