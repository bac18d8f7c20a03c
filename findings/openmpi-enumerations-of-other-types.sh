#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a control variable of MPI_T that comes with an enumeration to
# be an int, and to hold one of its items: the MPI standard returns no
# enumeration for a variable of another type.
# In Open MPI 5.0.7 (Debian 13), and in 4.1.4, booleans have one, too, and are
# one byte long (MPI_C_BOOL). Sets of flags (MPI_UNSIGNED) also have one, although
# they hold a sum of items, or 0. A tool that reads an int and looks it up among
# the items shows nothing for these, and for the booleans what lies beside them.
# MPICH 4.2.1 keeps to the standard.
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
static void show(const char *wanted)
{
    char name[256], type_name[MPI_MAX_OBJECT_NAME], item_name[256];
    int length = sizeof(name), index, verbosity, binding, scope, size, items, count, is_item = 0;
    union {
        int number;
        unsigned char byte;
    } value = {0};
    MPI_Datatype type;
    MPI_T_enum items_of;
    MPI_T_cvar_handle handle;
    MPI_T_cvar_get_index(wanted, &index);
    MPI_T_cvar_get_info(index, name, &length, &verbosity, &type, &items_of, NULL, NULL, &binding, &scope);
    MPI_Type_get_name(type, type_name, &length);
    MPI_Type_size(type, &size);
    MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
    MPI_T_cvar_read(handle, &value);
    length = sizeof(name);
    MPI_T_enum_get_info(items_of, &items, name, &length);
    for (int i = 0; i < items; i++) {
        int item;
        length = sizeof(item_name);
        MPI_T_enum_get_item(items_of, i, &item, item_name, &length);
        is_item |= item == value.number;
    }
    printf("%s: %s of %d bytes, enumeration %s, the value %s\n", wanted, type_name, size, name,
           is_item ? "is an item" : "is no item");
    MPI_T_cvar_handle_free(&handle);
}
int main(void)
{
    int provided;
    MPI_Init(NULL, NULL);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    show("mpi_show_handle_leaks");
    show("btl_self_flags");
    show("btl_self_atomic_flags");
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
mpi_show_handle_leaks: MPI_C_BOOL of 1 bytes, enumeration boolean, the value is an item
btl_self_flags: MPI_UNSIGNED of 4 bytes, enumeration btl_flags, the value is no item
btl_self_atomic_flags: MPI_UNSIGNED of 4 bytes, enumeration btl_atomic_flags, the value is no item
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
