#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a type that MPI_Type_dup has made to have no name: as the MPI
# standard has it, MPI_Type_get_name gives an empty string for a type that the
# program has not named, and a name is not copied with the object.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it has one, "Dup " and the name of
# the other type, also if that name was the program's. A copy of a copy has it twice. A
# type made by MPI_Type_contiguous, and a communicator made by MPI_Comm_dup,
# have none. In MPICH 4.2.1 no copy has one.
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
static void show(const char *what, MPI_Datatype type)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Type_get_name(type, name, &length);
    printf("%s: '%s'\n", what, name);
}
int main(void)
{
    MPI_Datatype pair, copy, again;
    MPI_Comm named, other;
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Init(NULL, NULL);
    MPI_Type_dup(MPI_INT, &copy);
    show("copy of MPI_INT", copy);
    MPI_Type_dup(copy, &again);
    show("copy of the copy", again);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    show("pair", pair);
    MPI_Type_set_name(pair, "a pair");
    MPI_Type_free(&copy);
    MPI_Type_dup(pair, &copy);
    show("copy of a named pair", copy);
    MPI_Comm_dup(MPI_COMM_SELF, &named);
    MPI_Comm_set_name(named, "a name");
    MPI_Comm_dup(named, &other);
    MPI_Comm_get_name(other, name, &length);
    printf("copy of a named communicator: '%s'\n", name);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
copy of MPI_INT: 'Dup MPI_INT'
copy of the copy: 'Dup Dup MPI_INT'
pair: ''
copy of a named pair: 'Dup a pair'
copy of a named communicator: ''
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
