#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect "fi_info -c" to take each capability of fi_getinfo(3) by its
# name, above all those that fi_info itself prints, and fi_tostr to have a name
# for each.
# In libfabric 2.1.0 (Debian 13) "fi_info -c" has a list of its own. It refuses
# FI_AV_USER_ID and FI_PEER, which "fi_info -v" prints for several providers.
# FI_TAGGED_MULTI_RECV is in neither list: fi_tostr prints nothing for it, as if
# the bit were not set.
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
    libfabric-bin=2.1.0-1.1 libfabric-dev=2.1.0-1.1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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

cat >"$root/probe.c" <<'END'
#include <rdma/fabric.h>
#include <stdint.h>
#include <stdio.h>
#define SHOW(name) bits = name; printf(#name " is printed as '%s'\n", fi_tostr(&bits, FI_TYPE_CAPS))
int main(void)
{
    uint64_t bits;
    SHOW(FI_MULTI_RECV);
    SHOW(FI_AV_USER_ID);
    SHOW(FI_PEER);
    SHOW(FI_TAGGED_MULTI_RECV);
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include -o /tmp/probe /probe.c -lfabric
{
    inside /tmp/probe
    for name in FI_MULTI_RECV FI_AV_USER_ID FI_PEER FI_TAGGED_MULTI_RECV; do
        inside /usr/bin/fi_info -c "$name" >"$folder/answer" 2>&1 || true
        if grep -q "Unrecognized capability: $name" "$folder/answer"; then
            echo "fi_info -c $name: not recognised"
        else
            echo "fi_info -c $name: recognised"
        fi
    done
} >"$folder/seen"
cat >"$folder/expected" <<'END'
FI_MULTI_RECV is printed as 'FI_MULTI_RECV'
FI_AV_USER_ID is printed as 'FI_AV_USER_ID'
FI_PEER is printed as 'FI_PEER'
FI_TAGGED_MULTI_RECV is printed as ''
fi_info -c FI_MULTI_RECV: recognised
fi_info -c FI_AV_USER_ID: not recognised
fi_info -c FI_PEER: not recognised
fi_info -c FI_TAGGED_MULTI_RECV: not recognised
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
