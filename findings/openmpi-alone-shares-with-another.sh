#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a process set that MPI_Session_get_nth_pset names to have as
# many members as MPI_Session_get_pset_info tells, and
# MPI_Group_from_session_pset to make a group of them.
# In Open MPI 5.0.7 (Debian 13), in a program started without mpirun, the third
# set, mpix://SHARED (the processes of this node), is told to have 2 members,
# although there is one process, and the group is refused. With "mpirun -n 1" the set
# has 1 member. A program that makes a group of each set that it finds
# fails only if it is started alone.
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

export OMPI_MCA_btl=self OMPI_MCA_pml=ob1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >"$root/probe.c" <<'END'
#include <mpi.h>
#include <stdio.h>
int main(void)
{
    MPI_Session session;
    int sets;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets);
    for (int i = 0; i < sets; i++) {
        char name[MPI_MAX_PSET_NAME_LEN], told[16] = "", text[MPI_MAX_ERROR_STRING];
        int length = sizeof(name), known, error, class, size = -1;
        MPI_Info info;
        MPI_Group group;
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name);
        MPI_Session_get_pset_info(session, name, &info);
        MPI_Info_get(info, "mpi_size", sizeof(told) - 1, told, &known);
        printf("%s: mpi_size %s, ", name, told);
        error = MPI_Group_from_session_pset(session, name, &group);
        if (error == MPI_SUCCESS) {
            MPI_Group_size(group, &size);
            printf("a group of %d\n", size);
            MPI_Group_free(&group);
        } else {
            MPI_Error_class(error, &class);
            MPI_Error_string(class, text, &length);
            printf("no group (%s)\n", text);
        }
        MPI_Info_free(&info);
    }
    MPI_Session_finalize(&session);
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
{
    echo "alone"
    inside /tmp/probe
    echo "mpirun -n 1"
    inside /usr/bin/mpirun.openmpi -n 1 /tmp/probe
} >"$folder/seen"
cat >"$folder/expected" <<'END'
alone
mpi://WORLD: mpi_size 1, a group of 1
mpi://SELF: mpi_size 1, a group of 1
mpix://SHARED: mpi_size 2, no group (MPI_ERR_OTHER: known error not in list)
mpirun -n 1
mpi://WORLD: mpi_size 1, a group of 1
mpi://SELF: mpi_size 1, a group of 1
mpix://SHARED: mpi_size 1, a group of 1
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
