#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Pack_size to give MPI_UNDEFINED, or an error, where the
# size does not fit into an int, as MPI_Type_size does in Open MPI, and as
# MPI_Pack_size does in MPICH 4.2.1.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it takes the lower 32 bits and
# returns MPI_SUCCESS: 2^28 doubles need -2147483648 bytes, 2^29 need 0. A program that
# sizes its buffer by this has none.
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
static void show(int count)
{
    int size = 1, told = 1, status;
    MPI_Datatype type;
    MPI_Type_contiguous(count, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Type_size(type, &size);
    status = MPI_Pack_size(count, MPI_DOUBLE, MPI_COMM_SELF, &told);
    printf("%d doubles: MPI_Type_size %d%s, MPI_Pack_size %d, %s\n", count, size,
           size == MPI_UNDEFINED ? " (MPI_UNDEFINED)" : "", told, status ? "an error" : "no error");
    MPI_Type_free(&type);
}
int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    show(1 << 27);
    show(1 << 28);
    show(1 << 29);
    show((1 << 29) + 1);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
134217728 doubles: MPI_Type_size 1073741824, MPI_Pack_size 1073741824, no error
268435456 doubles: MPI_Type_size -32766 (MPI_UNDEFINED), MPI_Pack_size -2147483648, no error
536870912 doubles: MPI_Type_size -32766 (MPI_UNDEFINED), MPI_Pack_size 0, no error
536870913 doubles: MPI_Type_size -32766 (MPI_UNDEFINED), MPI_Pack_size 8, no error
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
