#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a guard page (MADV_GUARD_INSTALL, since Linux 6.13) not to be
# reported as swapped out: there is no page, its data are dropped, and
# touching it brings nothing back.
# On Linux 6.18.44 (x86-64, no swap) PAGEMAP_SCAN reports it as PAGE_IS_GUARD and
# PAGE_IS_SWAPPED at once, and /proc/self/pagemap sets bit 62 (swapped) beside
# bit 58 (guard). A tool of before 6.15, which does not know the new bit, takes guard
# pages for swapped ones. The Swap field of smaps does not count them.
# It ends with 77 where it does not apply: the kernel has no guard pages, or does
# not tell of them. The packages hold only the compiler.
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
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
/* The headers of Debian 13 are older than these. */
#define GUARD_INSTALL 102
#define IS_GUARD (1 << 8)
enum { PAGE = 4096 };
static int map;
static void show(const char *name, char *page)
{
    struct page_region region = {0};
    struct pm_scan_arg scan = {0};
    uint64_t entry = 0;
    scan.size = sizeof(scan);
    scan.start = (uintptr_t)page;
    scan.end = scan.start + PAGE;
    scan.vec = (uintptr_t)&region;
    scan.vec_len = 1;
    scan.category_anyof_mask = scan.return_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED | IS_GUARD;
    if (ioctl(map, PAGEMAP_SCAN, &scan) < 0)
        _exit(77);
    pread(map, &entry, sizeof(entry), (uintptr_t)page / PAGE * sizeof(entry));
    printf("%s: PAGEMAP_SCAN:%s%s%s%s, pagemap:%s%s%s%s\n", name,
           region.categories & PAGE_IS_PRESENT ? " present" : "", region.categories & PAGE_IS_SWAPPED ? " swapped" : "",
           region.categories & IS_GUARD ? " guard" : "", region.categories == 0 ? " nothing" : "",
           entry >> 63 & 1 ? " present" : "", entry >> 62 & 1 ? " swapped" : "", entry >> 58 & 1 ? " guard" : "",
           (entry >> 62 | (entry >> 58 & 1)) == 0 ? " nothing" : "");
}
/* The Swap field of smaps for the mapping that begins at "start". */
static void show_smaps(char *start)
{
    char line[512], address[32];
    int here = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    snprintf(address, sizeof(address), "%lx-", (unsigned long)(uintptr_t)start);
    while (fgets(line, sizeof(line), smaps) != NULL) {
        if (strncmp(line, address, strlen(address)) == 0)
            here = 1;
        else if (here && strncmp(line, "Swap:", 5) == 0) {
            printf("smaps: %s", line);
            here = 0;
        }
    }
    fclose(smaps);
}
int main(void)
{
    char *fence = mmap(NULL, 5 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *memory = fence + PAGE;
    map = open("/proc/self/pagemap", O_RDONLY);
    mprotect(memory, 3 * PAGE, PROT_READ | PROT_WRITE);
    memset(memory, 1, 2 * PAGE);
    if (map < 0 || madvise(memory + PAGE, PAGE, GUARD_INSTALL) != 0)
        return 77;
    show("used page", memory);
    show("guard page", memory + PAGE);
    show("page never used", memory + 2 * PAGE);
    show_smaps(memory);
    return 0;
}
END
inside /usr/bin/tcc -w -o /tmp/probe /probe.c
uname -sr >&2
status=0
inside /tmp/probe >"$folder/seen" || status=$?
if [ "$status" = 77 ]; then
    echo "not applicable: no guard pages, or no PAGEMAP_SCAN that tells of them" >&2
    exit 77
fi
cat >"$folder/expected" <<'END'
used page: PAGEMAP_SCAN: present, pagemap: present
guard page: PAGEMAP_SCAN: swapped guard, pagemap: swapped guard
page never used: PAGEMAP_SCAN: nothing, pagemap: nothing
smaps: Swap:                  0 kB
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
