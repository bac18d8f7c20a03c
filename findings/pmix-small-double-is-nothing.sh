#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a double that one process puts by PMIx_Put to be the same number
# where another one gets it: that is what the calls are for, and PMIX_DOUBLE has 64
# bits.
# In PMIx 5.0.7 (Debian 13, with Open MPI 5.0.7) it is written as decimal text with six
# digits behind the point, and read from that: 1e-10 arrives as 0, 1/3 as 0.333333,
# and no error is returned. The process that put them gets them as they are. So it is
# with PMIX_FLOAT, and with PMIx_Data_pack in 4.2.2 and in 7.0.0rc1. A byte object
# (PMIX_BYTE_OBJECT) of the eight bytes arrives whole.
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
    openmpi-bin=5.0.7-1 libpmix-dev=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >"$root/probe.c" <<'END'
#include <pmix.h>
#include <stdio.h>
#include <string.h>
/* Rank 0 puts some numbers. Both ranks, one after the other, show what they get. */
int main(void)
{
    static const char *keys[] = {"1e-10", "1/3", "12345678.5", "float 1e-7", "bytes of 1e-10"};
    pmix_proc_t self, first;
    pmix_value_t value, *got;
    pmix_info_t collect;
    double small = 1e-10, number;
    bool yes = true;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return 1;
    if (self.rank == 0) {
        memset(&value, 0, sizeof(value));
        value.type = PMIX_DOUBLE;
        value.data.dval = small;
        PMIx_Put(PMIX_GLOBAL, keys[0], &value);
        value.data.dval = 1.0 / 3;
        PMIx_Put(PMIX_GLOBAL, keys[1], &value);
        value.data.dval = 12345678.5;
        PMIx_Put(PMIX_GLOBAL, keys[2], &value);
        value.type = PMIX_FLOAT;
        value.data.fval = 1e-7f;
        PMIx_Put(PMIX_GLOBAL, keys[3], &value);
        value.type = PMIX_BYTE_OBJECT;
        value.data.bo.bytes = (char *)&small;
        value.data.bo.size = sizeof(small);
        PMIx_Put(PMIX_GLOBAL, keys[4], &value);
        PMIx_Commit();
    }
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIx_Fence(NULL, 0, &collect, 1);
    PMIX_LOAD_PROCID(&first, self.nspace, 0);
    for (unsigned key = 0; key < 5; key++) {
        pmix_status_t status = PMIx_Get(&first, keys[key], NULL, 0, &got);
        if (status != PMIX_SUCCESS) {
            printf("rank %u: %s: %s\n", self.rank, keys[key], PMIx_Error_string(status));
            continue;
        }
        if (got->type == PMIX_FLOAT)
            number = got->data.fval;
        else if (got->type == PMIX_BYTE_OBJECT)
            memcpy(&number, got->data.bo.bytes, sizeof(number));
        else
            number = got->data.dval;
        printf("rank %u: %s arrives as %.9g\n", self.rank, keys[key], number);
    }
    PMIx_Fence(NULL, 0, NULL, 0);
    PMIx_Finalize(NULL, 0);
    return 0;
}
END
inside /usr/bin/tcc -w -I/usr/lib/x86_64-linux-gnu/pmix2/include -o /tmp/probe /probe.c /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so
inside /usr/bin/mpirun.openmpi -n 2 --oversubscribe /tmp/probe | LC_ALL=C sort >"$folder/seen"
cat >"$folder/expected" <<'END'
rank 0: 1/3 arrives as 0.333333333
rank 0: 12345678.5 arrives as 12345678.5
rank 0: 1e-10 arrives as 1e-10
rank 0: bytes of 1e-10 arrives as 1e-10
rank 0: float 1e-7 arrives as 1.00000001e-07
rank 1: 1/3 arrives as 0.333333
rank 1: 12345678.5 arrives as 12345678.5
rank 1: 1e-10 arrives as 0
rank 1: bytes of 1e-10 arrives as 1e-10
rank 1: float 1e-7 arrives as 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
