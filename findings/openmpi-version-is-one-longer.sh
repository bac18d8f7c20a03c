#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the length that MPI_Get_library_version returns to be that of
# the text: the MPI standard has it tell the printable characters, and has the
# null character stored behind them, at that place.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, it is one more: the null character
# is counted, so that a program that takes that many characters has one in its
# text. MPI_Get_processor_name, MPI_Error_string and MPI_Comm_get_name do not
# count it. MPICH 4.2.1 does not, either.
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
#include <string.h>
static void show(const char *function, const char *text, int length)
{
    printf("%s: %d more than the characters of the text\n", function, length - (int)strlen(text));
}
int main(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Init(NULL, NULL);
    MPI_Get_library_version(text, &length);
    printf("%.16s\n", text);
    show("MPI_Get_library_version", text, length);
    MPI_Get_processor_name(text, &length);
    show("MPI_Get_processor_name", text, length);
    MPI_Error_string(MPI_ERR_RANK, text, &length);
    show("MPI_Error_string", text, length);
    MPI_Comm_get_name(MPI_COMM_WORLD, text, &length);
    show("MPI_Comm_get_name", text, length);
    MPI_Type_get_name(MPI_INT, text, &length);
    show("MPI_Type_get_name", text, length);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
Open MPI v5.0.7,
MPI_Get_library_version: 1 more than the characters of the text
MPI_Get_processor_name: 0 more than the characters of the text
MPI_Error_string: 0 more than the characters of the text
MPI_Comm_get_name: 0 more than the characters of the text
MPI_Type_get_name: 0 more than the characters of the text
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
