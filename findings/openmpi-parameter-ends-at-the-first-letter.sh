#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a number of a parameter of Open MPI to be refused if it
# cannot be read as a whole.
# In Open MPI 5.0.7 (Debian 13) what follows the digits is passed over in
# silence, but for one of K, M and G: 1.5k and 1e4 are 1, a word is 0, and a
# number that begins with 0 is octal. ompi_info calls all of them values from the
# environment.
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
    openmpi-bin=5.0.7-1 >/dev/null
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

for value in 4096 4k 1.5k 1e4 0x1000 010000 4KiB four; do
    export OMPI_MCA_btl_self_eager_limit=$value
    inside /usr/bin/ompi_info --param btl self --level 9 --parsable >"$folder/answer" 2>"$folder/warnings"
    echo "$value is $(sed -n 's/.*:btl_self_eager_limit:value://p' "$folder/answer")," \
        "from $(sed -n 's/.*:btl_self_eager_limit:source://p' "$folder/answer")," \
        "warnings: $(grep -c . "$folder/warnings")"
done >"$folder/seen"
cat >"$folder/expected" <<'END'
4096 is 4096, from environment, warnings: 0
4k is 4096, from environment, warnings: 0
1.5k is 1, from environment, warnings: 0
1e4 is 1, from environment, warnings: 0
0x1000 is 4096, from environment, warnings: 0
010000 is 4096, from environment, warnings: 0
4KiB is 4096, from environment, warnings: 0
four is 0, from environment, warnings: 0
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
