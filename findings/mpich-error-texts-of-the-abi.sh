#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Error_string to give, for an error class of the standard
# ABI (MPI 5.0), or for an error code of that class, the text of this class, as
# it does in a program that is built for the library's own ABI.
# In MPICH 5.0.2 (Debian sid), in a program that is built with mpi_abi.h and uses
# libmpi_abi, it gives the text that the number has in MPICH's own ABI:
# MPI_ERR_TRUNCATE is "Other MPI error", and a file that does not exist is told
# as "Error in spawn call". MPI_Error_class is right. With MPICH's own mpi.h the
# texts are right, and so they are in Open MPI 6.0.0rc2 with the standard ABI.
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
echo "deb $mirror sid main" >"$folder/sources"
cat >"$folder/apt.conf" <<END
Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder";
Dir::Etc::sourcelist "$folder/sources"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt.conf"
apt-get -qq update
apt-get -qq -y --no-install-recommends --download-only install \
    libmpich-dev=5.0.2-2 tcc=0.9.27+git20200814.62c30a4a-2+b1 libc6-dev >/dev/null
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
#ifdef STANDARD_ABI
#include <mpi_abi.h>
#else
#include <mpi.h>
#endif
#include <stdio.h>
#include <string.h>
static void show(const char *name, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    text[strcspn(text, ",\n")] = '\0';
    printf("%s: %s\n", name, text);
}
int main(void)
{
    int code, class;
    MPI_File file;
    MPI_Init(NULL, NULL);
    show("MPI_ERR_RANK", MPI_ERR_RANK);
    show("MPI_ERR_ROOT", MPI_ERR_ROOT);
    show("MPI_ERR_TRUNCATE", MPI_ERR_TRUNCATE);
    show("MPI_ERR_NO_MEM", MPI_ERR_NO_MEM);
    show("MPI_ERR_IO", MPI_ERR_IO);
    show("MPI_ERR_SESSION", MPI_ERR_SESSION);
    code = MPI_File_open(MPI_COMM_SELF, "/tmp/absent", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_Error_class(code, &class);
    printf("class of an error: %s\n", class == MPI_ERR_NO_SUCH_FILE ? "MPI_ERR_NO_SUCH_FILE" : "another one");
    show("its code", code);
    show("its class", class);
    MPI_Finalize();
    return 0;
}
END
lib=/usr/lib/x86_64-linux-gnu
mkdir "$root/abi"
ln -s "$lib/libmpi_abi_mpich.so.1.0.0" "$root/abi/libmpi_abi.so.1"
inside /usr/bin/tcc -DSTANDARD_ABI -I$lib/mpich/include -o /tmp/standard /probe.c /abi/libmpi_abi.so.1
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/own /probe.c -lmpich
export LD_LIBRARY_PATH=/abi
for abi in standard own; do
    echo "$abi ABI"
    inside /tmp/$abi
done | sed "s/ *\$//" >"$folder/seen"
cat >"$folder/expected" <<'END'
standard ABI
MPI_ERR_RANK: Invalid rank
MPI_ERR_ROOT: Invalid group
MPI_ERR_TRUNCATE: Other MPI error
MPI_ERR_NO_MEM: Quota exceeded for files
MPI_ERR_IO: Inconsistent arguments to collective routine
MPI_ERR_SESSION: Unknown error class
class of an error: MPI_ERR_NO_SUCH_FILE
its code: Error in spawn call
its class: Error in spawn call
own ABI
MPI_ERR_RANK: Invalid rank
MPI_ERR_ROOT: Invalid root
MPI_ERR_TRUNCATE: Message truncated
MPI_ERR_NO_MEM: Unable to allocate memory for MPI_Alloc_mem
MPI_ERR_IO: Other I/O error
MPI_ERR_SESSION: Invalid MPI_Session handle
class of an error: MPI_ERR_NO_SUCH_FILE
its code: File does not exist
its class: File does not exist
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
