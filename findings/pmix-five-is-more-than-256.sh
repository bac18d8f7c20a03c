#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect PMIx_Value_compare to tell which of two numbers is greater: its
# results are named PMIX_VALUE1_GREATER and PMIX_VALUE2_GREATER, and PMIX_EQUAL.
# In PMIx 5.0.7 (Debian 13, x86-64), and in 7.0.0rc1, numbers are compared byte by byte
# as they lie in memory, on this processor from the lowest byte: 5 is greater than
# 256, -1 than 5, and 1.5 than 2.5. Within one byte it is right by chance. So it
# is with ranks, process ids and times. Strings are compared as one expects, and
# PMIX_EQUAL is right.
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
    libpmix-dev=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <pmix.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
static void show(const char *name, pmix_data_type_t type, void *one, void *two)
{
    pmix_value_t values[2];
    pmix_value_cmp_t result;
    memset(values, 0, sizeof(values));
    PMIx_Value_load(&values[0], one, type);
    PMIx_Value_load(&values[1], two, type);
    result = PMIx_Value_compare(&values[0], &values[1]);
    printf("%s: %s\n", name,
           result == PMIX_VALUE1_GREATER   ? "the first is greater"
           : result == PMIX_VALUE2_GREATER ? "the second is greater"
           : result == PMIX_EQUAL          ? "equal"
                                           : "another answer");
}
int main(void)
{
    uint32_t five = 5, six = 6, more = 256;
    uint64_t wide = 5, wider = 256;
    pmix_rank_t rank = 5, other_rank = 256;
    pid_t process = 5, other_process = 256;
    int minus = -1, plus = 5;
    double half = 1.5, whole = 2.5;
    struct timeval soon = {5, 0}, late = {256, 0};
    show("PMIX_UINT32 5 and 5", PMIX_UINT32, &five, &five);
    show("PMIX_UINT32 5 and 6", PMIX_UINT32, &five, &six);
    show("PMIX_UINT32 5 and 256", PMIX_UINT32, &five, &more);
    show("PMIX_UINT64 5 and 256", PMIX_UINT64, &wide, &wider);
    show("PMIX_PROC_RANK 5 and 256", PMIX_PROC_RANK, &rank, &other_rank);
    show("PMIX_PID 5 and 256", PMIX_PID, &process, &other_process);
    show("PMIX_INT -1 and 5", PMIX_INT, &minus, &plus);
    show("PMIX_DOUBLE 1.5 and 2.5", PMIX_DOUBLE, &half, &whole);
    show("PMIX_TIMEVAL 5 s and 256 s", PMIX_TIMEVAL, &soon, &late);
    show("PMIX_STRING a and b", PMIX_STRING, "a", "b");
    return 0;
}
END
inside /usr/bin/tcc -w -I/usr/lib/x86_64-linux-gnu/pmix2/include -o /tmp/probe /probe.c /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
PMIX_UINT32 5 and 5: equal
PMIX_UINT32 5 and 6: the second is greater
PMIX_UINT32 5 and 256: the first is greater
PMIX_UINT64 5 and 256: the first is greater
PMIX_PROC_RANK 5 and 256: the first is greater
PMIX_PID 5 and 256: the first is greater
PMIX_INT -1 and 5: the first is greater
PMIX_DOUBLE 1.5 and 2.5: the first is greater
PMIX_TIMEVAL 5 s and 256 s: the first is greater
PMIX_STRING a and b: the second is greater
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
