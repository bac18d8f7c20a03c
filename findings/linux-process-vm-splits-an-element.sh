#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect process_vm_readv and process_vm_writev to move an element of an
# iovec as a whole or not at all: process_vm_readv(2) (manpages-dev 6.9.1) promises
# that a partial transfer does not split a single element.
# On Linux 6.18.44 (x86-64) it does. Of an element of 8192 bytes, of which the second page
# is gone, the first 4096 are read, and if it begins at byte 100 of the page, 3996
# are. It is so for writing, and if it is the own memory that ends. A program that counts
# whole elements takes for untouched what has been overwritten, and one that expects an
# error for its only element gets none.
# The packages hold only the compiler and the manual page.
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
    manpages-dev=6.9.1-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
enum { page = 4096 };
static char *map(void)
{
    return mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void show(const char *name, ssize_t result, size_t asked)
{
    printf("%s: ", name);
    if (result < 0)
        printf("%s\n", strerror(errno));
    else
        printf("%zd of %zu bytes\n", result, asked);
}
/* The child has two pages, a hole, and a page. The parent has the same, and besides a buffer without a hole. */
int main(void)
{
    struct iovec local = {0}, remote[2];
    char *holes = map(), *buffer = map();
    pid_t child;
    memset(holes, 1, 4 * page);
    munmap(holes + 2 * page, page);
    child = fork();
    if (child == 0) {
        pause();
        return 0;
    }
    local.iov_base = buffer;
    local.iov_len = 4 * page;
    remote[0].iov_base = holes + page;
    remote[0].iov_len = 2 * page;
    show("read an element whose second page is gone", process_vm_readv(child, &local, 1, remote, 1, 0), 2 * page);
    printf("byte 4095 of the buffer is %d, byte 4096 is %d\n", buffer[page - 1], buffer[page]);
    remote[0].iov_base = holes + page + 100;
    show("the same, from byte 100 on", process_vm_readv(child, &local, 1, remote, 1, 0), 2 * page);
    remote[0].iov_base = holes;
    remote[0].iov_len = page;
    remote[1].iov_base = holes + page;
    remote[1].iov_len = 2 * page;
    show("read a whole element, and then such a one", process_vm_readv(child, &local, 1, remote, 2, 0), 3 * page);
    remote[0].iov_base = holes + 2 * page;
    show("read an element that is gone", process_vm_readv(child, &local, 1, remote, 1, 0), page);
    local.iov_len = 2 * page;
    show("write to an element whose second page is gone", process_vm_writev(child, &local, 1, remote + 1, 1, 0),
         2 * page);
    local.iov_base = holes + page;
    remote[0].iov_base = buffer;
    remote[0].iov_len = 2 * page;
    show("read to an element whose second page is gone", process_vm_readv(child, &local, 1, remote, 1, 0), 2 * page);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
END
inside /usr/bin/tcc -o /tmp/probe /probe.c
{
    echo "lines of process_vm_readv(2) on splitting:" \
        "$(zcat "$root/usr/share/man/man2/process_vm_readv.2.gz" | grep -c "that splits a single")"
    inside /tmp/probe
} >"$folder/seen"
cat >"$folder/expected" <<'END'
lines of process_vm_readv(2) on splitting: 1
read an element whose second page is gone: 4096 of 8192 bytes
byte 4095 of the buffer is 1, byte 4096 is 0
the same, from byte 100 on: 3996 of 8192 bytes
read a whole element, and then such a one: 8192 of 12288 bytes
read an element that is gone: Bad address
write to an element whose second page is gone: 4096 of 8192 bytes
read to an element whose second page is gone: 4096 of 8192 bytes
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}
