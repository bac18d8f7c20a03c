#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect UFFDIO_MOVE, where it returns EAGAIN, to tell in "move" how
# many bytes it has moved, so that a program can go on from there: that is what
# ioctl_userfaultfd(2) has the field for.
# On Linux 6.18.44 (x86-64, one node, two processors), if the kernel meanwhile
# compacts memory, so that a page is being migrated, it tells less than it has
# moved: pages behind the told ones are at the target, too, with their data, and
# no longer at the source. A program that goes on from "move" gets EEXIST, and
# one that copies the rest from the source instead copies zeros. Here it takes
# up to some seconds until it happens.
# It ends with 77 where it does not apply: the kernel has no UFFDIO_MOVE, or the
# user may not have memory compacted. The packages hold only the compiler.
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
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { PAGE = 4096, COUNT = 256 };
static int map;
static int is_there(char *page)
{
    uint64_t entry = 0;
    pread(map, &entry, sizeof(entry), (uintptr_t)page / PAGE * sizeof(entry));
    return entry >> 62 != 0;
}
/* Moves all pages from the one of number "first" on; "told" is how many of them the kernel says that it has moved. */
static int move(int fd, char *source, char *target, int first, int *told)
{
    struct uffdio_move order = {0};
    int result;
    order.dst = (uintptr_t)target + first * PAGE;
    order.src = (uintptr_t)source + first * PAGE;
    order.len = (COUNT - first) * PAGE;
    result = ioctl(fd, UFFDIO_MOVE, &order) != 0 ? errno : 0;
    *told = order.move > 0 ? order.move / PAGE : 0;
    return result;
}
int main(void)
{
    static char page[PAGE];
    struct uffdio_api api = {UFFD_API, UFFD_FEATURE_MOVE, 0};
    struct uffdio_register area = {0};
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC), compact = open("/proc/sys/vm/compact_memory", O_WRONLY), seen = 0;
    char *source = mmap(NULL, 2 * COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *target = source + COUNT * PAGE;
    time_t end = time(NULL) + 60;
    pid_t child;
    map = open("/proc/self/pagemap", O_RDONLY);
    madvise(source, 2 * COUNT * PAGE, MADV_NOHUGEPAGE);
    area.range.start = (uintptr_t)source;
    area.range.len = 2 * COUNT * PAGE;
    area.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (fd < 0 || compact < 0 || map < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &area) != 0)
        return 77;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            write(compact, "1", 1);
    }
    while (!seen && time(NULL) < end) {
        int told, moved, more, result, again, right = 1, gone = 1;
        for (int i = 0; i < COUNT; i++) {
            struct uffdio_copy copy = {(uintptr_t)source + i * PAGE, (uintptr_t)page, PAGE, 0, 0};
            memset(page, i, PAGE);
            ioctl(fd, UFFDIO_COPY, &copy);
        }
        result = move(fd, source, target, 0, &told);
        for (moved = told; moved < COUNT && is_there(target + moved * PAGE); moved++) {
            gone &= !is_there(source + moved * PAGE);
            for (int i = 0; i < PAGE; i++)
                right &= target[moved * PAGE + i] == (char)moved;
        }
        if (moved > told) {
            seen = 1;
            fprintf(stderr, "of %d pages %d were moved, and %d told of\n", COUNT, moved, told);
            again = move(fd, source, target, told, &more);
            printf("UFFDIO_MOVE: %s\n", strerror(result));
            printf("more pages are at the target than it tells of\n");
            printf("their data are right: %s\n", right ? "yes" : "no");
            printf("they are gone from the source: %s\n", gone ? "yes" : "no");
            printf("UFFDIO_MOVE from where it tells: %s\n", strerror(again));
        }
        madvise(source, 2 * COUNT * PAGE, MADV_DONTNEED);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
END
inside /usr/bin/tcc -o /tmp/probe /probe.c
uname -sr >&2
status=0
inside /tmp/probe >"$folder/seen" || status=$?
if [ "$status" = 77 ]; then
    echo "not applicable: no UFFDIO_MOVE, or no right to use it or to have memory compacted" >&2
    exit 77
fi
cat >"$folder/expected" <<'END'
UFFDIO_MOVE: Resource temporarily unavailable
more pages are at the target than it tells of
their data are right: yes
they are gone from the source: yes
UFFDIO_MOVE from where it tells: File exists
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
