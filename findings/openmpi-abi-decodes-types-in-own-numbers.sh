#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect MPI_Type_get_contents to give back the order and the
# distributions that a type was made with, as the constants of the ABI that
# the program is built for: these are arguments of the constructor.
# In Open MPI 6.0.0rc2 (Debian sid), in a program that is built for the standard ABI
# (MPI 5.0) and uses libmpi_abi, they come back as the numbers of Open MPI's own
# ABI: 0 and 1, where MPI_ORDER_C and MPI_DISTRIBUTE_BLOCK are 12 and 17. A program
# that compares them, to describe the type or to store it, finds none of
# the constants. So it is with MPI_Type_get_contents_c. The combiners are right,
# and so is a program that is built for Open MPI's own ABI. MPICH 5.0.2 is right
# with both.
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
    libopenmpi-dev=6.0.0~rc2-2 tcc=0.9.27+git20200814.62c30a4a-2+b1 libc6-dev >/dev/null
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
static const char *order(int number)
{
    return number == MPI_ORDER_C ? "MPI_ORDER_C" : number == MPI_ORDER_FORTRAN ? "MPI_ORDER_FORTRAN" : "neither order";
}
static const char *distribution(int number)
{
    return number == MPI_DISTRIBUTE_BLOCK    ? "MPI_DISTRIBUTE_BLOCK"
           : number == MPI_DISTRIBUTE_CYCLIC ? "MPI_DISTRIBUTE_CYCLIC"
           : number == MPI_DISTRIBUTE_NONE   ? "MPI_DISTRIBUTE_NONE"
                                             : "no distribution";
}
int main(void)
{
    int sizes[] = {8, 6, 4}, parts[] = {2, 2, 2}, starts[] = {1, 1, 1}, processes[] = {2, 1, 1}, integers[20];
    int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
    int defaults[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    int integer_count, address_count, type_count, combiner;
    MPI_Aint addresses[1];
    MPI_Datatype type, types[1];
    MPI_Init(NULL, NULL);

    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_get_envelope(type, &integer_count, &address_count, &type_count, &combiner);
    MPI_Type_get_contents(type, integer_count, address_count, type_count, integers, addresses, types);
    printf("%s: %s\n", combiner == MPI_COMBINER_SUBARRAY ? "MPI_COMBINER_SUBARRAY" : "another combiner",
           order(integers[10]));
    MPI_Type_free(&type);

    MPI_Type_create_darray(2, 0, 3, sizes, distributions, defaults, processes, MPI_ORDER_FORTRAN, MPI_INT, &type);
    MPI_Type_get_envelope(type, &integer_count, &address_count, &type_count, &combiner);
    MPI_Type_get_contents(type, integer_count, address_count, type_count, integers, addresses, types);
    printf("%s: %s, %s, %s, %s, %s\n",
           combiner == MPI_COMBINER_DARRAY ? "MPI_COMBINER_DARRAY" : "another combiner", distribution(integers[6]),
           distribution(integers[7]), distribution(integers[8]),
           integers[9] == MPI_DISTRIBUTE_DFLT_DARG ? "MPI_DISTRIBUTE_DFLT_DARG" : "no default", order(integers[15]));
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
END
lib=/usr/lib/x86_64-linux-gnu
mkdir "$root/abi"
ln -s "$lib/libmpi_abi_openmpi.so.1.0.0" "$root/abi/libmpi_abi.so.1"
inside /usr/bin/tcc -DSTANDARD_ABI -I$lib/openmpi/include/standard_abi -o /tmp/standard /probe.c /abi/libmpi_abi.so.1
inside /usr/bin/tcc -I$lib/openmpi/include -o /tmp/own /probe.c $lib/libmpi.so.40 $lib/libopen_mpi.so.40
export LD_LIBRARY_PATH=/abi
for abi in standard own; do
    echo "$abi ABI"
    inside /tmp/$abi
done >"$folder/seen"
cat >"$folder/expected" <<'END'
standard ABI
MPI_COMBINER_SUBARRAY: neither order
MPI_COMBINER_DARRAY: no distribution, no distribution, no distribution, no default, neither order
own ABI
MPI_COMBINER_SUBARRAY: MPI_ORDER_C
MPI_COMBINER_DARRAY: MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_DFLT_DARG, MPI_ORDER_FORTRAN
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
