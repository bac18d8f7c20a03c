#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Type_create_f90_real to give a type for each precision and
# range that a type of the compiler has, however many pairs were asked for
# before: the types are predefined, there are two of them for this, and the
# program may not free them.
# In MPICH 4.2.1 (Debian 13) it fails from the 63rd pair on, with an internal error
# whose text says that there were too many requests. Pairs of before still
# have their type. With Open MPI 5.0.7 there is no such limit.
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
int main(void)
{
    int pairs = 0, status = MPI_SUCCESS, class, size;
    MPI_Datatype type;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 100 && status == MPI_SUCCESS; i++) {
        status = MPI_Type_create_f90_real(1 + i % 10, 1 + i / 10, &type);
        pairs += status == MPI_SUCCESS;
    }
    MPI_Error_class(status, &class);
    printf("pairs with a type: %d, then %s\n", pairs,
           class == MPI_ERR_INTERN ? "MPI_ERR_INTERN" : class ? "another error" : "no error");
    status = MPI_Type_create_f90_real(1, 1, &type);
    MPI_Type_size(type, &size);
    printf("the first pair again: %s, %d bytes\n", status ? "an error" : "no error", size);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
pairs with a type: 62, then MPI_ERR_INTERN
the first pair again: no error, 4 bytes
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
