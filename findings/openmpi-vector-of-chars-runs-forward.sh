#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a vector of MPI_CHAR with a stride of -1 to take the letters
# from the last to the first: the MPI standard allows negative strides, and
# each block begins one element before the one before it.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it takes the letters that follow, in
# forward order: wrong data, and no error. Of four letters one is right. The
# same goes for MPI_BYTE, and for MPI_Type_create_hvector. MPI_SHORT with a
# stride of -1 is right, and so is MPI_CHAR with -2, or listed one by one.
# MPICH 4.2.1 is right.
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
static void show(const char *name, int start, MPI_Datatype type)
{
    char letters[] = "abcdefgh", packed[16] = "";
    int position = 0;
    MPI_Aint lower, extent;
    MPI_Type_commit(&type);
    MPI_Type_get_true_extent(type, &lower, &extent);
    MPI_Pack(letters + start, 1, type, packed, sizeof(packed), &position, MPI_COMM_SELF);
    printf("%s: from %c, lower bound %ld: %s\n", name, letters[start], (long)lower, packed);
    MPI_Type_free(&type);
}
int main(void)
{
    MPI_Datatype type;
    int lengths[] = {1, 1, 1, 1};
    MPI_Aint places[] = {0, -1, -2, -3};
    MPI_Init(NULL, NULL);
    MPI_Type_vector(4, 1, -1, MPI_CHAR, &type);
    show("vector of MPI_CHAR, stride -1", 3, type);
    MPI_Type_create_hvector(4, 1, -1, MPI_BYTE, &type);
    show("hvector of MPI_BYTE, stride -1", 3, type);
    MPI_Type_create_hindexed(4, lengths, places, MPI_CHAR, &type);
    show("the same as hindexed", 3, type);
    MPI_Type_vector(2, 1, -2, MPI_CHAR, &type);
    show("vector of MPI_CHAR, stride -2", 3, type);
    MPI_Type_vector(4, 1, -1, MPI_SHORT, &type);
    show("vector of MPI_SHORT, stride -1", 6, type);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
vector of MPI_CHAR, stride -1: from d, lower bound 0: defg
hvector of MPI_BYTE, stride -1: from d, lower bound 0: defg
the same as hindexed: from d, lower bound -3: dcba
vector of MPI_CHAR, stride -2: from d, lower bound -2: db
vector of MPI_SHORT, stride -1: from g, lower bound -6: ghefcdab
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
