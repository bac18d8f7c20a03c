#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Accumulate to take a target type that holds one int and a
# block of no doubles: the MPI standard asks that all basic components be of one
# predefined type, and a block of length 0 adds none. Where lengths are counted
# at run time such a block is common.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, MPI_SUM fails with MPI_ERR_ARG,
# wherever the block is. MPI_REPLACE works, and so does MPI_Put, and a block of
# no ints. MPICH 4.2.1 takes all of these.
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
static MPI_Win window;
static int *memory;
static void show(const char *name, int ints, MPI_Datatype first, int others, MPI_Datatype second, MPI_Op operation)
{
    MPI_Datatype types[] = {first, second}, both;
    MPI_Aint places[] = {0, 8};
    int lengths[] = {ints, others}, one = 1, result, class = MPI_SUCCESS;
    MPI_Type_create_struct(2, lengths, places, types, &both);
    MPI_Type_commit(&both);
    memory[0] = memory[2] = 5;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    result = MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, both, operation, window);
    MPI_Win_unlock(0, window);
    if (result != MPI_SUCCESS)
        MPI_Error_class(result, &class);
    printf("%s: %s, %d\n", name, class == MPI_SUCCESS ? "success" : class == MPI_ERR_ARG ? "MPI_ERR_ARG" : "another error", memory[ints ? 0 : 2]);
    MPI_Type_free(&both);
}
int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    show("sum, one int and no int", 1, MPI_INT, 0, MPI_INT, MPI_SUM);
    show("sum, one int and no double", 1, MPI_INT, 0, MPI_DOUBLE, MPI_SUM);
    show("sum, no double and one int", 0, MPI_DOUBLE, 1, MPI_INT, MPI_SUM);
    show("replace, one int and no double", 1, MPI_INT, 0, MPI_DOUBLE, MPI_REPLACE);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
sum, one int and no int: success, 6
sum, one int and no double: MPI_ERR_ARG, 5
sum, no double and one int: MPI_ERR_ARG, 5
replace, one int and no double: success, 1
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
