# SPDX-License-Identifier: BSD-3-Clause
"""docker.py COMMAND…: runs it with no more rights than Docker gives root in a container: fourteen capabilities, and
the system calls that its default seccomp profile allows without others. On x86-64."""
import ctypes
import os
import platform
import struct
import sys

CAPABILITIES = ("chown", "dac_override", "fsetid", "fowner", "mknod", "net_raw", "setgid", "setuid", "setfcap", "setpcap",
                "net_bind_service", "sys_chroot", "kill", "audit_write")
REFUSED = {
    "vhangup": 153, "pivot_root": 155, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
    "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227,
    "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279, "perf_event_open": 298,
    "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "kcmp": 312, "finit_module": 313,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "set_mempolicy_home_node": 450}
CLONE, CLONE3, NEW_NAMESPACES = 56, 435, 0x7E020000
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16  # where they are in what a filter sees
ERRNO, ALLOW = 0x50000, 0x7FFF0000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def program() -> bytes:
    """The filter; each of its instructions says how many to leave out next, if true and if not."""
    lines = [(LOAD, 0, 0, NUMBER),
             (EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERRNO | ENOSYS)]
    for number in REFUSED.values():
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | EPERM)]
    lines += [(EQUAL, 0, 3, CLONE), (LOAD, 0, 0, FIRST_ARGUMENT),
              (ANY_BIT, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, ERRNO | EPERM),
              (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def main() -> None:
    if platform.machine() != "x86_64":
        sys.exit("docker.py: knows the system calls of x86-64 alone")
    code = program()
    filter_ = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held := ctypes.create_string_buffer(code)))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0) != 0:
        sys.exit(f"docker.py: no seccomp filter: {os.strerror(ctypes.get_errno())}")
    del held
    kept = "".join(f",+{name}" for name in CAPABILITIES)
    os.execvp("setpriv", ["setpriv", f"--bounding-set=-all{kept}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
