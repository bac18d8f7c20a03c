#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect an operation that was made as not commutative to be applied in
# the order of the ranks by each algorithm of MPI_Reduce that can be chosen, or one
# that cannot keep the order to be passed over: ompi_info tells of no limit.
# In Open MPI 5.0.7 (Debian 13), with 3 ranks, four of seven algorithms that
# coll_tuned_reduce_algorithm names give another result, and so do two of six of
# coll_tuned_allreduce_algorithm, in some elements of a buffer. No error is returned
# (ompi#7765). Rabenseifner's algorithms, which are for commutative operations, do
# look, and keep the order, and so does what Open MPI chooses by itself.
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

export OMPI_MCA_btl=self,sm OMPI_MCA_pml=ob1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_coll_tuned_use_dynamic_rules=1
cat >"$root/probe.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
/* Texts of up to 3 letters; the operation puts one behind the other. */
struct text {
    char letters[8];
};
static void join(void *first, void *second, int *count, MPI_Datatype *type)
{
    struct text *left = first, *right = second;
    (void)type;
    for (int i = 0; i < *count; i++) {
        struct text both = left[i];
        strncat(both.letters, right[i].letters, sizeof(both.letters) - 1 - strlen(both.letters));
        right[i] = both;
    }
}
int main(void)
{
    static struct text mine[6], reduced[6], all[6];
    int rank;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 6; i++)
        mine[i].letters[0] = (char)('A' + rank);
    MPI_Type_contiguous(sizeof(struct text), MPI_CHAR, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(join, 0, &op);
    MPI_Reduce(mine, reduced, 6, type, op, 0, MPI_COMM_WORLD);
    MPI_Allreduce(mine, all, 6, type, op, MPI_COMM_WORLD);
    if (rank == 0)
        printf("MPI_Reduce %s, MPI_Allreduce %s and %s\n", reduced[0].letters, all[0].letters, all[5].letters);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
END
inside /usr/bin/tcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -o /tmp/probe /probe.c -L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi
{
    echo "by itself: $(inside /usr/bin/mpirun.openmpi --oversubscribe -n 3 /tmp/probe)"
    for algorithm in linear chain pipeline binary binomial in-order_binary rabenseifner; do
        echo "reduce $algorithm: $(OMPI_MCA_coll_tuned_reduce_algorithm=$algorithm \
            inside /usr/bin/mpirun.openmpi --oversubscribe -n 3 /tmp/probe)"
    done
    for algorithm in basic_linear nonoverlapping recursive_doubling ring segmented_ring rabenseifner; do
        echo "allreduce $algorithm: $(OMPI_MCA_coll_tuned_allreduce_algorithm=$algorithm \
            inside /usr/bin/mpirun.openmpi --oversubscribe -n 3 /tmp/probe)"
    done
} >"$folder/seen"
cat >"$folder/expected" <<'END'
by itself: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
reduce linear: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
reduce chain: MPI_Reduce CBA, MPI_Allreduce ABC and ABC
reduce pipeline: MPI_Reduce CBA, MPI_Allreduce ABC and ABC
reduce binary: MPI_Reduce CBA, MPI_Allreduce ABC and ABC
reduce binomial: MPI_Reduce CBA, MPI_Allreduce ABC and ABC
reduce in-order_binary: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
reduce rabenseifner: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
allreduce basic_linear: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
allreduce nonoverlapping: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
allreduce recursive_doubling: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
allreduce ring: MPI_Reduce ABC, MPI_Allreduce ABC and CAB
allreduce segmented_ring: MPI_Reduce ABC, MPI_Allreduce ABC and CAB
allreduce rabenseifner: MPI_Reduce ABC, MPI_Allreduce ABC and ABC
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
