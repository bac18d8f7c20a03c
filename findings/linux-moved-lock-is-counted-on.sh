#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect VmLck, which RLIMIT_MEMLOCK limits, to be the memory that is
# locked, and 0 when nothing is locked any more. mremap(2) has MREMAP_DONTUNMAP
# move the pages, and their lock with them, away from the old mapping.
# On Linux 6.18.44 (x86-64) the old mapping is no longer locked, but still counted:
# each such move of 256 KiB adds 256 KiB to VmLck, which stay when both mappings
# are gone, and after munlockall. After four moves a process with a limit of
# 1 MiB can lock nothing more. mremap without this flag does not do it. The flag is
# for programs that page memory by userfaultfd.
# It ends with 77 where it does not apply: the kernel has no MREMAP_DONTUNMAP, or
# the limit is below 1 MiB. The packages hold only the compiler.
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
    tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
enum { SIZE = 256 << 10 };
/* VmLck, and the sum of what smaps tells as locked. */
static void show(const char *name)
{
    char line[512];
    unsigned long counted = 0, locked = 0, value;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "VmLck: %lu", &counted);
    fclose(file);
    file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Locked: %lu", &value) == 1)
            locked += value;
    fclose(file);
    printf("%s: locked %lu KiB, VmLck %lu KiB\n", name, locked, counted);
}
static char *get(void)
{
    return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
/* Moves a locked mapping, and ends both. */
static int move(int flag, int tell)
{
    char *from = get(), *to;
    int error = mlock(from, SIZE) != 0 ? errno : 0;
    if (tell)
        show("locked");
    to = mremap(from, SIZE, SIZE, MREMAP_MAYMOVE | flag, get());
    if (to == MAP_FAILED)
        _exit(77);
    if (tell)
        show("moved");
    munmap(from, SIZE);
    munmap(to, SIZE);
    if (tell)
        show("unmapped");
    return error;
}
int main(void)
{
    struct rlimit limit;
    int error;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_max < 4 * SIZE)
        return 77;
    limit.rlim_cur = limit.rlim_max = 4 * SIZE;
    setrlimit(RLIMIT_MEMLOCK, &limit);
    /* The limit does not bind root. An ordinary user cannot do this, and need not. */
    setuid(65534);
    show("begin");
    move(MREMAP_FIXED, 1);
    puts("with MREMAP_DONTUNMAP");
    for (int i = 0; i < 4; i++)
        move(MREMAP_DONTUNMAP, i == 0);
    munlockall();
    show("after four, and munlockall");
    error = mlock(get(), 4096);
    printf("to lock 4 KiB of 1 MiB: %s\n", error == 0 ? "works" : strerror(errno));
    return 0;
}
END
inside /usr/bin/tcc -w -o /tmp/probe /probe.c
uname -sr >&2
status=0
inside /tmp/probe >"$folder/seen" || status=$?
if [ "$status" = 77 ]; then
    echo "not applicable: no MREMAP_DONTUNMAP, or a limit below 1 MiB" >&2
    exit 77
fi
cat >"$folder/expected" <<'END'
begin: locked 0 KiB, VmLck 0 KiB
locked: locked 256 KiB, VmLck 256 KiB
moved: locked 256 KiB, VmLck 256 KiB
unmapped: locked 0 KiB, VmLck 0 KiB
with MREMAP_DONTUNMAP
locked: locked 256 KiB, VmLck 256 KiB
moved: locked 256 KiB, VmLck 512 KiB
unmapped: locked 0 KiB, VmLck 256 KiB
after four, and munlockall: locked 0 KiB, VmLck 1024 KiB
to lock 4 KiB of 1 MiB: Cannot allocate memory
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
