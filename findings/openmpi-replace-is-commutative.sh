#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Op_commutative to answer that MPI_REPLACE is not
# commutative: by the MPI standard it is f(a, b) = b, for which it matters
# which operand comes last.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, the answer is that it is, and the
# same for MPI_NO_OP, which is f(a, b) = a. A library that asks in order to
# know whether it may apply accumulations in another order is told that it may.
# MPICH 4.2.1 answers that neither is.
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
static void second(void *in, void *inout, int *count, MPI_Datatype *type)
{
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] = ((int *)in)[i];
}
/* Puts two values to one place, one after the other. */
static int put(MPI_Op op, int first, int last)
{
    int place = 0;
    MPI_Win window;
    MPI_Win_create(&place, sizeof(place), sizeof(place), MPI_INFO_NULL, MPI_COMM_SELF, &window);
    MPI_Win_fence(0, window);
    MPI_Accumulate(&first, 1, MPI_INT, 0, 0, 1, MPI_INT, op, window);
    MPI_Accumulate(&last, 1, MPI_INT, 0, 0, 1, MPI_INT, op, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    return place;
}
static void ask(MPI_Op op, const char *name)
{
    int answer;
    MPI_Op_commutative(op, &answer);
    printf("%s: commutative: %s\n", name, answer ? "yes" : "no");
}
int main(void)
{
    MPI_Op own;
    MPI_Init(NULL, NULL);
    MPI_Op_create(second, 0, &own);
    ask(MPI_SUM, "MPI_SUM");
    ask(own, "own operation");
    ask(MPI_REPLACE, "MPI_REPLACE");
    ask(MPI_NO_OP, "MPI_NO_OP");
    printf("MPI_REPLACE of 1, then of 2: %d\n", put(MPI_REPLACE, 1, 2));
    printf("MPI_REPLACE of 2, then of 1: %d\n", put(MPI_REPLACE, 2, 1));
    MPI_Op_free(&own);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_SUM: commutative: yes
own operation: commutative: no
MPI_REPLACE: commutative: yes
MPI_NO_OP: commutative: yes
MPI_REPLACE of 1, then of 2: 2
MPI_REPLACE of 2, then of 1: 1
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
