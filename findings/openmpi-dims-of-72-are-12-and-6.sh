#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Dims_create to make 9 times 8 of 72 processes: the MPI
# standard has it set the dimensions as close to each other as possible.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it makes 12 times 6, and 28 times
# 15 of 420, where 21 times 20 is possible. Of the numbers up to 1000 there are
# 20 for which two dimensions could be closer. The border of a block is longer
# then, so that its process has more to exchange. MPICH 4.2.1 finds the closest
# ones for all of them.
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
    int worse = 0, dimensions[3] = {0, 0, 0};
    MPI_Init(NULL, NULL);
    for (int processes = 1; processes <= 1000; processes++) {
        int pair[2] = {0, 0}, best = 1;
        MPI_Dims_create(processes, 2, pair);
        for (int side = 1; side * side <= processes; side++)
            if (processes % side == 0)
                best = side;
        if (pair[1] != best && worse++ < 6)
            printf("%d: %d and %d, not %d and %d\n", processes, pair[0], pair[1], processes / best, best);
    }
    printf("%d such numbers up to 1000\n", worse);
    MPI_Dims_create(576, 3, dimensions);
    printf("576: %d, %d and %d, not 9, 8 and 8\n", dimensions[0], dimensions[1], dimensions[2]);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
72: 12 and 6, not 9 and 8
180: 18 and 10, not 15 and 12
240: 20 and 12, not 16 and 15
288: 24 and 12, not 18 and 16
336: 24 and 14, not 21 and 16
420: 28 and 15, not 21 and 20
20 such numbers up to 1000
576: 12, 8 and 6, not 9, 8 and 8
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
