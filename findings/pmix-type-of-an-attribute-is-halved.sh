#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the description of an attribute (pmix_regattr_t) to arrive with the
# type that it was sent with: PMIx uses such descriptions to tell which attributes a
# library supports, and of which type each one is.
# In PMIx 5.0.7 (Debian 13, with Open MPI 5.0.7) the type comes out as if it were packed
# as an unsigned number and unpacked as a signed one whose lowest bit is the sign. Each
# hop halves an even type, and makes something unknown of an odd one. From process to
# process, by way of the server, there are two hops: PMIX_FLOAT arrives as
# PMIX_SIZE, and PMIX_SIZE as PMIX_BOOL. No error is returned. A type
# alone (PMIX_DATA_TYPE) fares likewise in PMIx_Data_pack, also in 4.2.2 and in 7.0.0rc1.
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
/* Rank 0 puts a list of attributes, each with its type. Both ranks show what they get. */
int main(void)
{
    static const pmix_data_type_t types[] = {PMIX_BYTE, PMIX_SIZE, PMIX_INT8, PMIX_FLOAT, PMIX_STRING, PMIX_UINT64};
    pmix_regattr_t attributes[6];
    pmix_data_array_t array;
    pmix_proc_t self, first;
    pmix_value_t value, *got;
    pmix_info_t collect;
    bool yes = true;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return 1;
    if (self.rank == 0) {
        memset(attributes, 0, sizeof(attributes));
        for (int index = 0; index < 6; index++) {
            attributes[index].name = (char *)PMIx_Data_type_string(types[index]);
            attributes[index].type = types[index];
        }
        memset(&value, 0, sizeof(value));
        array.type = PMIX_REGATTR;
        array.size = 6;
        array.array = attributes;
        value.type = PMIX_DATA_ARRAY;
        value.data.darray = &array;
        if (PMIx_Put(PMIX_GLOBAL, "attributes", &value) != PMIX_SUCCESS)
            puts("PMIx_Put failed");
        PMIx_Commit();
    }
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIx_Fence(NULL, 0, &collect, 1);
    PMIX_LOAD_PROCID(&first, self.nspace, 0);
    if (PMIx_Get(&first, "attributes", NULL, 0, &got) == PMIX_SUCCESS && got->type == PMIX_DATA_ARRAY) {
        pmix_regattr_t *list = got->data.darray->array;
        for (size_t index = 0; index < got->data.darray->size; index++)
            printf("rank %u: an attribute of the type %s arrives with %u, %s\n", self.rank, list[index].name,
                   list[index].type, PMIx_Data_type_string(list[index].type));
    }
    PMIx_Fence(NULL, 0, NULL, 0);
    PMIx_Finalize(NULL, 0);
    return 0;
}
END
inside /usr/bin/tcc -w -I/usr/lib/x86_64-linux-gnu/pmix2/include -o /tmp/probe /probe.c /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so
inside /usr/bin/mpirun.openmpi -n 2 --oversubscribe /tmp/probe | LC_ALL=C sort >"$folder/seen"
cat >"$folder/expected" <<'END'
rank 0: an attribute of the type PMIX_BYTE arrives with 2, PMIX_BYTE
rank 0: an attribute of the type PMIX_FLOAT arrives with 16, PMIX_FLOAT
rank 0: an attribute of the type PMIX_INT8 arrives with 7, PMIX_INT8
rank 0: an attribute of the type PMIX_SIZE arrives with 4, PMIX_SIZE
rank 0: an attribute of the type PMIX_STRING arrives with 3, PMIX_STRING
rank 0: an attribute of the type PMIX_UINT64 arrives with 15, PMIX_UINT64
rank 1: an attribute of the type PMIX_BYTE arrives with 65535, UNKNOWN
rank 1: an attribute of the type PMIX_FLOAT arrives with 4, PMIX_SIZE
rank 1: an attribute of the type PMIX_INT8 arrives with 32766, UNKNOWN
rank 1: an attribute of the type PMIX_SIZE arrives with 1, PMIX_BOOL
rank 1: an attribute of the type PMIX_STRING arrives with 32767, UNKNOWN
rank 1: an attribute of the type PMIX_UINT64 arrives with 32764, UNKNOWN
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
