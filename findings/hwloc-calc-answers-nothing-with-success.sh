#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect hwloc-calc to fail for an object that does not exist. Its
# manual page (RETURN VALUE) says that it "will return nonzero if any kind of
# error occurs".
# hwloc-calc 2.12.0 (Debian 13), and 2.9.0, prints a warning and an empty set,
# and ends with 0. Of a range that exists in part it prints that part. A script
# that binds a job to $(hwloc-calc ...) does not notice either.
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

ask() {
    status=0
    answer=$(inside /usr/bin/hwloc-calc --input "pack:2 core:4 pu:2" "$1" 2>"$folder/warnings") || status=$?
    echo "$1: $answer, status $status, warnings: $(grep -c 'does not exist' "$folder/warnings")"
}
{
    ask core:7
    ask core:8
    ask core:6-9
} >"$folder/seen"
cat >"$folder/expected" <<'END'
core:7: 0x0000c000, status 0, warnings: 0
core:8: 0x0, status 0, warnings: 1
core:6-9: 0x0000f000, status 0, warnings: 2
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
