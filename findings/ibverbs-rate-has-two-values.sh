#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect ibv_rate_to_mult to give, in units of 2.5 Gbit/s, what
# ibv_rate_to_mbps gives in Mbit/s, and either to round rates that are no
# multiple or to refuse all of them. ibv_rate_to_mult(3) names no rate for
# which it fails.
# In libibverbs 56.1 (Debian 13) IBV_RATE_400_GBPS is 425000 Mbit/s, which
# is 170 units, but ibv_rate_to_mult answers 160. For 28 Gbit/s it rounds (11
# for 11.25), for 100 Gbit/s it does not (-1 for 41.25).
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
    libibverbs-dev=56.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <infiniband/verbs.h>
#include <stdio.h>
#define SHOW(rate) \
    printf(#rate ": %d Mbit/s is %g units, answered %d\n", ibv_rate_to_mbps(rate), \
           ibv_rate_to_mbps(rate) / 2500.0, ibv_rate_to_mult(rate))
int main(void)
{
    SHOW(IBV_RATE_40_GBPS);
    SHOW(IBV_RATE_100_GBPS);
    SHOW(IBV_RATE_28_GBPS);
    SHOW(IBV_RATE_50_GBPS);
    SHOW(IBV_RATE_400_GBPS);
    SHOW(IBV_RATE_1200_GBPS);
    return 0;
}
END
inside /usr/bin/tcc -I/usr/include -o /tmp/probe /probe.c -libverbs
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
IBV_RATE_40_GBPS: 40000 Mbit/s is 16 units, answered 16
IBV_RATE_100_GBPS: 103125 Mbit/s is 41.25 units, answered -1
IBV_RATE_28_GBPS: 28125 Mbit/s is 11.25 units, answered 11
IBV_RATE_50_GBPS: 53125 Mbit/s is 21.25 units, answered 20
IBV_RATE_400_GBPS: 425000 Mbit/s is 170 units, answered 160
IBV_RATE_1200_GBPS: 1275000 Mbit/s is 510 units, answered 480
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
