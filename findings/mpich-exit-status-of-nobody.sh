#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect mpiexec to end with the exit status of one of the processes, if
# some of them end with another one than 0: a batch script looks at it to tell what
# went wrong. The MPI standard leaves it open.
# In MPICH 4.2.1 (Debian 13), and in 5.0.2, it ends with the bits of all of them:
# with 7, if one process returns 3 and the other one 5, and with 3 for 1 and 2,
# which no process has returned. "mpiexec -help" does not say so. With
# -print-all-exitcodes ("print exit codes of all processes") it prints 256 times
# what they have returned. Open MPI 5.0.7 ends with the status of one of them.
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
    mpich=4.3.0+really4.2.1-1 libmpich-dev=4.3.0+really4.2.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <stdlib.h>
int main(int count, char **arguments)
{
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Finalize();
    return atoi(arguments[1 + rank]);
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
for pair in "0 0" "0 4" "1 2" "3 5" "64 128"; do
    status=0
    # shellcheck disable=SC2086
    inside /usr/bin/mpiexec.mpich -print-all-exitcodes -n 2 /tmp/probe $pair >"$folder/text" || status=$?
    echo "the processes return $pair, mpiexec ends with $status"
    sed -n 's/.*Exit codes: .*] /mpiexec prints /p' "$folder/text"
done >"$folder/seen"
cat >"$folder/expected" <<'END'
the processes return 0 0, mpiexec ends with 0
mpiexec prints 0,0
the processes return 0 4, mpiexec ends with 4
mpiexec prints 0,1024
the processes return 1 2, mpiexec ends with 3
mpiexec prints 256,512
the processes return 3 5, mpiexec ends with 7
mpiexec prints 768,1280
the processes return 64 128, mpiexec ends with 192
mpiexec prints 16384,32768
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
