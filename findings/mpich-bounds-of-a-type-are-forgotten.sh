#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect bounds that MPI_Type_create_resized has set to hold for a
# type that is built of the resized one, too: by the MPI standard, if a type has
# markers of its bounds they alone count, and not what lies beyond them
# (lower-bound and upper-bound markers).
# In MPICH 4.2.1 (Debian 13) the bounds are those of all parts, so that the
# second of two such structs is taken from another place: other data, and no
# error. If each part has markers the answer is right.
# Open MPI 5.0.7, and 4.1.4, tell -4 to 8 and 12 to 24, and take AQMc.
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
    libmpich-dev=4.3.0+really4.2.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <stdio.h>
static MPI_Datatype show(const char *name, MPI_Datatype first, MPI_Datatype second)
{
    MPI_Datatype types[] = {first, second}, both;
    MPI_Aint places[] = {0, 16}, lower, extent;
    int ones[] = {1, 1};
    MPI_Type_create_struct(2, ones, places, types, &both);
    MPI_Type_get_extent(both, &lower, &extent);
    printf("%s: %ld to %ld\n", name, (long)lower, (long)(lower + extent));
    return both;
}
int main(void)
{
    MPI_Datatype letter, types[3];
    char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", out[5] = "";
    int size = 0;
    MPI_Init(NULL, NULL);
    MPI_Type_create_resized(MPI_CHAR, -4, 12, &letter);
    types[0] = show("letter of -4 to 8, and one at 16", letter, MPI_CHAR);
    types[1] = show("letter, and one of -4 to 8 at 16", MPI_CHAR, letter);
    types[2] = show("both of -4 to 8", letter, letter);
    MPI_Type_commit(&types[0]);
    MPI_Pack(letters, 2, types[0], out, 4, &size, MPI_COMM_SELF);
    printf("two of the first one take %s\n", out);
    for (int i = 0; i < 3; i++)
        MPI_Type_free(&types[i]);
    MPI_Type_free(&letter);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
letter of -4 to 8, and one at 16: -4 to 17
letter, and one of -4 to 8 at 16: 0 to 24
both of -4 to 8: -4 to 24
two of the first one take AQVl
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
