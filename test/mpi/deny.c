/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program to which the kernel refuses some system calls (EPERM), as a container's seccomp
 * filter does.
 *
 *     deny process_vm|userfaultfd|io_uring|shmat PROGRAM ARGUMENT...
 *
 * process_vm: process_vm_readv and process_vm_writev. io_uring: io_uring_setup. shmat: and
 * shmctl.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../deny.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        unsigned call, other;
    } known[] = {{"process_vm", SYS_process_vm_readv, SYS_process_vm_writev},
                 {"userfaultfd", SYS_userfaultfd, SYS_userfaultfd},
                 {"io_uring", SYS_io_uring_setup, SYS_io_uring_setup},
                 {"shmat", SYS_shmat, SYS_shmctl}};
    unsigned which = 0;

    while (which < 4 && (argc < 3 || strcmp(argv[1], known[which].name) != 0)) {
        which++;
    }
    if (which == 4) {
        fprintf(stderr, "deny: needs process_vm, userfaultfd, io_uring or shmat, and a program\n");
        return 2;
    }
    const unsigned call = known[which].call, other = known[which].other;
    if (!process_deny(call, EPERM) || !process_deny(other, EPERM)) {
        perror("deny: seccomp");
        return 2;
    }
    if (syscall(call, 0, NULL, 0UL, NULL, 0UL, 0UL) != -1 || errno != EPERM) {
        fprintf(stderr, "deny: the filter does not hold\n");
        return 2;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}
