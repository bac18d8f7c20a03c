#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect mpirun to map and bind 3 ranks by NUMA node if nothing is
# said: "mpirun --help map-by" and "mpirun --help bind-to" name numa as the
# default for more than two processes, and core for up to two.
# In Open MPI 5.0.7 (Debian 13, with PRRTE 3.0.8) 3 ranks and 8 ranks are mapped
# by core and bound to one core each, as 2 are. On the described machine of two
# packages, with two NUMA nodes each, the first package is filled first.
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
    openmpi-bin=5.0.7-1 hwloc=2.12.0-4 >/dev/null
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

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
inside /usr/bin/lstopo-no-graphics --input "pack:2 numa:2 core:2 pu:1" --of xml /tmp/machine.xml 2>/dev/null
{
    inside /usr/bin/mpirun.openmpi --help map-by | grep default | sed 's/^ */map-by: /'
    inside /usr/bin/mpirun.openmpi --help bind-to | grep np | sed 's/^ */bind-to: /'
    for ranks in 2 3 8; do
        echo "$ranks ranks:"
        inside /usr/bin/mpirun.openmpi --prtemca hwloc_use_topo_file /tmp/machine.xml \
            --display map --do-not-launch -n "$ranks" true |
            sed -n 's/^ *\(Mapping policy: [A-Z]*\).*\(Binding policy: [A-Z]*\).*/\1, \2/p; s/.*Process \(rank: .*\)/\1/p'
    done
} >"$folder/seen"
cat >"$folder/expected" <<'END'
map-by: core (default: np <= 2)
map-by: numa (default: np > 2)
bind-to: core (default: np <= 2)
bind-to: numa (default: np > 2)
2 ranks:
Mapping policy: BYCORE, Binding policy: CORE
rank: 0 Bound: package[0][core:0]
rank: 1 Bound: package[0][core:1]
3 ranks:
Mapping policy: BYCORE, Binding policy: CORE
rank: 0 Bound: package[0][core:0]
rank: 1 Bound: package[0][core:1]
rank: 2 Bound: package[0][core:2]
8 ranks:
Mapping policy: BYCORE, Binding policy: CORE
rank: 0 Bound: package[0][core:0]
rank: 1 Bound: package[0][core:1]
rank: 2 Bound: package[0][core:2]
rank: 3 Bound: package[0][core:3]
rank: 4 Bound: package[1][core:4]
rank: 5 Bound: package[1][core:5]
rank: 6 Bound: package[1][core:6]
rank: 7 Bound: package[1][core:7]
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
