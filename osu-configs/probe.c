// SPDX-License-Identifier: BSD-3-Clause
//
// What the machine is like at the moment: two processes without MPI, each bound to a core of its own.
//
//   probe ADDRESS NAME CORE CORE
//
// As the companion's ranks it connects to compare and sleeps in recv. For each line that comes it answers "LINE COPY":
// how long a cache line takes from one core to the other (ns, one way), and how fast 256 KiB go through shared
// memory, copied in by the one and out by the other (GB/s). A hypervisor moves the cores: both change by themselves,
// some times an hour. Each is the best of a few tries, which take less than a millisecond.

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PLACES 5 // lines, whose times differ a little
#define ROUNDS 50
#define COPIES 3
#define COPIED ((size_t)256 << 10)

struct line {
    _Alignas(64) _Atomic uint64_t number;
};

static struct shared {
    struct line box[PLACES + 1][2]; // the last one is where both meet
    _Alignas(4096) unsigned char bytes[COPIED];
} * shared;

static unsigned char own[COPIED];
static uint64_t count;
static int me; // 0: the parent

static void die(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void ping_pong(struct line box[2])
{
    count++;
    if (me == 0)
        atomic_store_explicit(&box[0].number, count, memory_order_release);
    while (atomic_load_explicit(&box[!me].number, memory_order_acquire) < count)
        ;
    if (me == 1)
        atomic_store_explicit(&box[1].number, count, memory_order_release);
}

static void measure(double *line, double *copy)
{
    *line = *copy = 1e9;
    for (int place = 0; place < PLACES; place++) {
        double start = now();
        for (int i = 0; i < ROUNDS; i++)
            ping_pong(shared->box[place]);
        double each = (now() - start) / (2 * ROUNDS);
        *line = each < *line ? each : *line;
    }
    for (int i = 0; i < COPIES; i++) {
        ping_pong(shared->box[PLACES]);
        double start = now();
        if (me == 1)
            memcpy(shared->bytes, own, COPIED);
        ping_pong(shared->box[PLACES]); // the parent goes on when the child has copied
        if (me == 0)
            memcpy(own, shared->bytes, COPIED);
        double seconds = now() - start;
        *copy = seconds < *copy ? seconds : *copy;
    }
}

static int connected(const char *address)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strncmp(address, "unix:", 5) != 0)
        die("unix:PATH is wanted");
    snprintf(name.sun_path, sizeof name.sun_path, "%s", address + 5);
    if (connect(to, (struct sockaddr *)&name, sizeof name) != 0)
        die(address);
    return to;
}

static void bind_to(const char *core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)atoi(core), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("a core cannot be used");
}

int main(int argc, char **argv)
{
    int wake[2];
    char text[64], byte;
    double line, copy;

    if (argc != 5) {
        fprintf(stderr, "probe: ADDRESS NAME CORE CORE are wanted: compare starts this\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(wake) != 0)
        die("no memory");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    me = child == 0;
    bind_to(argv[3 + me]);
    memset(own, 1, sizeof own);
    if (me == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(wake[1]);
        while (read(wake[0], &byte, 1) == 1)
            measure(&line, &copy);
        return 0;
    }
    int to = connected(argv[1]);
    signal(SIGPIPE, SIG_IGN);
    snprintf(text, sizeof text, "%s 0\n", argv[2]);
    while (send(to, text, strlen(text), MSG_NOSIGNAL) > 0) {
        do {
            if (recv(to, &byte, 1, 0) != 1)
                return 0;
        } while (byte != '\n');
        if (write(wake[1], "", 1) != 1)
            die("wake");
        measure(&line, &copy);
        snprintf(text, sizeof text, "%.1f %.2f\n", 1e9 * line, (double)COPIED / 1e9 / copy);
    }
    return 0;
}
