#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect 100Gbps, 100000Mbps and 100000000000bps to be one bandwidth
# for UCX, as they are for every network: prefixes of bits per second are
# powers of 1000.
# In UCX 1.18.1 (Debian 13) they are powers of 1024, in bits as in bytes. The
# three spellings are three bandwidths: the first is 2.4 % above the second, and
# 7.4 % above the third. Protocols are chosen by such numbers. The unit in which
# ucx_info prints them, MBps, is 1048576 bytes per second, too.
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
apt-get -qq -y --no-install-recommends --download-only install ucx-utils=1.18.1+ds-2+b1 >/dev/null
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

for speed in 100Gbps 100000Mbps 100000000Kbps 100000000000bps; do
    answer=$(UCX_BCOPY_BW=$speed inside /usr/bin/ucx_info -c | grep '^UCX_BCOPY_BW=')
    echo "$speed: $answer"
done >"$folder/seen"
cat >"$folder/expected" <<'END'
100Gbps: UCX_BCOPY_BW=12800.00MBps
100000Mbps: UCX_BCOPY_BW=12500.00MBps
100000000Kbps: UCX_BCOPY_BW=12207.03MBps
100000000000bps: UCX_BCOPY_BW=11920.93MBps
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
