#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a buffer to be long enough for MPI_Bsend if it has, for each
# message, the bytes that MPI_Pack_size tells and MPI_BSEND_OVERHEAD: that is
# the sum that the MPI standard gives (buffer allocation and usage).
# In MPICH 4.2.1 (Debian 13) a buffer of that sum for several messages of 1, 3
# or 100 bytes has no room for the last one, and MPI_Bsend fails with
# MPI_ERR_BUFFER. With 8 bytes it has. In Open MPI 5.0.7 all fit. It helps to
# round what MPI_Pack_size tells up to a multiple of 8.
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
#include <stdlib.h>
static void show(int messages, int bytes, int rounded)
{
    char data[128] = {0};
    int size, left, sent = 0, class = MPI_SUCCESS;
    void *buffer;
    MPI_Pack_size(bytes, MPI_CHAR, MPI_COMM_SELF, &size);
    if (rounded)
        size = (size + 7) / 8 * 8;
    size = messages * (size + MPI_BSEND_OVERHEAD);
    buffer = malloc(size);
    MPI_Buffer_attach(buffer, size);
    while (sent < messages && class == MPI_SUCCESS) {
        MPI_Error_class(MPI_Bsend(data, bytes, MPI_CHAR, 0, 0, MPI_COMM_SELF), &class);
        sent += class == MPI_SUCCESS;
    }
    printf("%d messages of %d byte(s)%s: %d sent, %s\n", messages, bytes,
           rounded ? ", rounded up" : "", sent,
           class == MPI_ERR_BUFFER ? "MPI_ERR_BUFFER" : class ? "another error" : "no error");
    while (sent-- > 0)
        MPI_Recv(data, bytes, MPI_CHAR, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
}
int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    show(2, 1, 0);
    show(4, 100, 0);
    show(4, 8, 0);
    show(2, 1, 1);
    show(4, 100, 1);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
2 messages of 1 byte(s): 1 sent, MPI_ERR_BUFFER
4 messages of 100 byte(s): 3 sent, MPI_ERR_BUFFER
4 messages of 8 byte(s): 4 sent, no error
2 messages of 1 byte(s), rounded up: 2 sent, no error
4 messages of 100 byte(s), rounded up: 4 sent, no error
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
