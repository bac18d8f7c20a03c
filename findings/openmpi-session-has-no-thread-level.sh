#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Session_get_info to tell the thread level of a session,
# whether it was asked for or not: by the MPI standard, and by its manual page
# in Open MPI, it returns all hints that are supported and have a default.
# In Open MPI 5.0.7 (Debian 13) a session that was made without hints has none
# at all, so that a library cannot find out whether it may use threads. If
# "thread_level" was given it comes back. MPICH 4.2.1 tells
# MPI_THREAD_MULTIPLE for a session without hints.
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
static void show(const char *asked)
{
    char level[64];
    int keys, known;
    MPI_Info info = MPI_INFO_NULL, told;
    MPI_Session session;
    if (asked != NULL) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "thread_level", asked);
    }
    MPI_Session_init(info, MPI_ERRORS_RETURN, &session);
    MPI_Session_get_info(session, &told);
    MPI_Info_get_nkeys(told, &keys);
    MPI_Info_get(told, "thread_level", sizeof(level) - 1, level, &known);
    printf("asked for %s, hints: %d, thread_level %s\n", asked != NULL ? asked : "nothing", keys,
           known ? level : "is not told");
    MPI_Info_free(&told);
    MPI_Session_finalize(&session);
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
}
int main(void)
{
    show(NULL);
    show("MPI_THREAD_SINGLE");
    show("MPI_THREAD_MULTIPLE");
    show(NULL);
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
asked for nothing, hints: 0, thread_level is not told
asked for MPI_THREAD_SINGLE, hints: 1, thread_level MPI_THREAD_SINGLE
asked for MPI_THREAD_MULTIPLE, hints: 1, thread_level MPI_THREAD_MULTIPLE
asked for nothing, hints: 0, thread_level is not told
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
