#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Info_get to cut a value that is longer than the length that the
# program gives, and to succeed: the MPI standard has the value truncated then, and
# names no error (info object; deprecated since MPI 4.0).
# In MPICH 4.2.1 (Debian 13), and in 5.0.2, it cuts the value, says that the key is
# there, and fails with MPI_ERR_INFO_VALUE, so that a program with the default error
# handler is ended. So it is with a length of 0, which tells whether a key is there.
# MPI_Info_get_string, its successor, cuts without an error. Open MPI 5.0.7
# succeeds in all of these.
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
#include <string.h>
static void show(const char *call, int code, int there, const char *value)
{
    int class;
    MPI_Error_class(code, &class);
    printf("%s: %s, the key is %s, value \"%s\"\n", call,
           class == MPI_SUCCESS          ? "success"
           : class == MPI_ERR_INFO_VALUE ? "MPI_ERR_INFO_VALUE"
                                         : "another error",
           there == 1 ? "there" : "not there", value);
}
int main(void)
{
    char call[64], value[16];
    int there, code;
    MPI_Info info;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "four");
    for (int length = 5; length >= 0; length--) {
        if (length == 1 || length == 3)
            continue;
        memset(value, 0, sizeof(value));
        there = -1;
        code = MPI_Info_get(info, "key", length, value, &there);
        snprintf(call, sizeof(call), "MPI_Info_get, length %d", length);
        show(call, code, there, value);
        memset(value, 0, sizeof(value));
        there = -1;
        int size = length + (length > 0);
        code = MPI_Info_get_string(info, "key", &size, value, &there);
        snprintf(call, sizeof(call), "MPI_Info_get_string, size %d", length + (length > 0));
        show(call, code, there, value);
    }
    MPI_Info_free(&info);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include/x86_64-linux-gnu/mpich -o /tmp/probe /probe.c -lmpich
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
MPI_Info_get, length 5: success, the key is there, value "four"
MPI_Info_get_string, size 6: success, the key is there, value "four"
MPI_Info_get, length 4: success, the key is there, value "four"
MPI_Info_get_string, size 5: success, the key is there, value "four"
MPI_Info_get, length 2: MPI_ERR_INFO_VALUE, the key is there, value "fo"
MPI_Info_get_string, size 3: success, the key is there, value "fo"
MPI_Info_get, length 0: MPI_ERR_INFO_VALUE, the key is there, value ""
MPI_Info_get_string, size 0: success, the key is there, value ""
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
