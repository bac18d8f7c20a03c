# SPDX-License-Identifier: BSD-3-Clause
"""Runs a rank as if it were in a container of its own: in user, PID, mount, IPC and network
namespaces of its own, with the /dev/shm of all.

    container.py COMMAND...

PMIx calls its server by the address of the loopback device, and this rank's own device does not lead
there. So a process outside accepts what calls at that port inside, and passes it on.
"""
import array
import ctypes
import os
import re
import signal
import socket
import sys
import threading

SPACES = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc",
          "--net"]
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
INSIDE = "REGX_TEST_CONTAINER"


def port() -> int:
    names = [name for name in os.environ if name.startswith("PMIX_SERVER_URI")]
    found = re.search(r":(\d+)$", os.environ[min(names)])
    assert found, "no port of PMIx"
    return int(found.group(1))


def carry(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def pass_on(channel: socket.socket) -> None:
    """Ends with the rank."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    inside = socket.socket(fileno=array.array("i", ancillary[0][2])[0])
    while True:
        rank, _ = inside.accept()
        server = socket.create_connection(("127.0.0.1", port()))
        for pair in ((rank, server), (server, rank)):
            threading.Thread(target=carry, args=pair, daemon=True).start()


def be_inside(channel: socket.socket, command: list[str]) -> None:
    if os.system("ip link set lo up") != 0:
        sys.exit("the loopback device cannot be set up")
    listener = socket.create_server(("127.0.0.1", port()))
    channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])
    del os.environ[INSIDE]
    os.execvp(command[0], command)


def main(command: list[str]) -> None:
    if INSIDE in os.environ:
        be_inside(socket.socket(fileno=int(os.environ[INSIDE])), command)
    here, there = socket.socketpair()
    if os.fork() == 0:
        pass_on(here)
    there.set_inheritable(True)
    os.environ[INSIDE] = str(there.fileno())
    os.execvp("unshare", ["unshare", *SPACES, sys.executable, __file__, *command])


main(sys.argv[1:])
