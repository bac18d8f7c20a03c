#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect hwloc-patch to make the second topology of the first one and
# of what hwloc-diff has written, or else hwloc-diff to refuse a difference that
# it cannot write: the memory size is one of the attributes that it is for.
# In hwloc 2.12.0 (Debian 13), and in 2.9.0, the memory of a node of 2 GiB is
# patched to 1 GiB, but the number of its pages stays: the result has 524288
# pages of 4 KiB in 1 GiB. hwloc-diff does not look at pages, and finds no
# difference between this result and the true topology.
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

mkdir -p "$root/tmp"
for size in 1 2; do
    inside /usr/bin/lstopo-no-graphics --input "pack:1 [numa(memory=${size}GiB)] core:1 pu:1" --of xml |
        grep -v SyntheticDescription >"$root/tmp/$size.xml"
done
inside /usr/bin/hwloc-diff /tmp/2.xml /tmp/1.xml /tmp/difference.xml 2>"$folder/text"
inside /usr/bin/hwloc-patch /tmp/2.xml /tmp/difference.xml /tmp/patched.xml 2>/dev/null
inside /usr/bin/hwloc-diff /tmp/1.xml /tmp/patched.xml /tmp/rest.xml 2>>"$folder/text"
for name in 2 1 patched; do
    sed -n "s/.* local_memory=\"\([0-9]*\)\".*/$name.xml: \1 bytes/p
        s/.*page_type size=\"4096\" count=\"\([0-9]*\)\".*/$name.xml: \1 pages of 4096 bytes/p" "$root/tmp/$name.xml"
done >"$folder/seen"
cat "$folder/text" >>"$folder/seen"
cat >"$folder/expected" <<'END'
2.xml: 2147483648 bytes
2.xml: 524288 pages of 4096 bytes
1.xml: 1073741824 bytes
1.xml: 262144 pages of 4096 bytes
patched.xml: 1073741824 bytes
patched.xml: 524288 pages of 4096 bytes
Found 1 differences, exporting to /tmp/difference.xml
Found no difference, exporting empty topology diff to /tmp/rest.xml
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
