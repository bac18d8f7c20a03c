#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect "GB" to mean the same in what lstopo reads and in what it
# prints: its own output, typed in again, should describe the same machine.
# In hwloc 2.12.0 (Debian 13), and in 2.9.0, a synthetic description reads 1GB
# as 10^9 bytes and 1GiB as 2^30, while the output divides by 2^30 and calls
# that GB (and 2^20 MB, 2^10 KB). A node of 16GB is shown as 15GB, and one
# of 16GiB as 16GB.
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
    hwloc=2.12.0-4 >/dev/null
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

for size in 16GB 16GiB 15GB; do
    inside /usr/bin/lstopo-no-graphics --of console --only numa \
        --input "pack:1 [numa(memory=$size)] core:1 pu:1" | sed "s/^/$size: /"
done >"$folder/seen"
cat >"$folder/expected" <<'END'
16GB: NUMANode L#0 (P#0 15GB)
16GiB: NUMANode L#0 (P#0 16GB)
15GB: NUMANode L#0 (P#0 14GB)
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
