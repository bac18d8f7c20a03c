// SPDX-License-Identifier: BSD-3-Clause
//
// What two processes on one node do without MPI: the reference that compare runs beside its arms.
// Two processes, each bound to a core of its own, share one memory segment:
//
//   probe mailbox      one cache line handed back and forth; tells the machine's phase
//   probe bounce       messages through shared slots, the sender copying in while the receiver
//                      copies out; per size with the piece that is best for it
//   probe process_vm   messages written by the sender with process_vm_writev
//   probe halves       one half written so, while the receiver reads the other, process_vm_readv
//   probe fastest      per size the quicker of bounce and halves (piece 0); where the kernel does
//                      not copy between processes, bounce
//
// One-way time is half a ping-pong; bandwidth is a stream of 64 messages and a reply, as
// osu_latency and osu_bw define them. The columns read like theirs.
//
// This file is the command line and the two processes; probing/ has the rest.

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probing/probe.h"

#define SIZE_MAX_ALLOWED ((size_t)1 << 30)
#define WATCHDOG_SECONDS 60

// Neither a lost partner nor a stopped one may leave a process spinning.
static void end_badly(int signal_number)
{
    static const char lost[] = "probe: the other process ended early\n";
    static const char late[] = "probe: no end within 60 s\n";
    if (signal_number == SIGCHLD)
        (void)!write(STDERR_FILENO, lost, sizeof lost - 1);
    else
        (void)!write(STDERR_FILENO, late, sizeof late - 1);
    _exit(1);
}

static void *map(size_t bytes, int flags, int fd)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

static const char *const mode_names[MODES] = {"mailbox", "bounce", "process_vm", "halves",
                                              "fastest"};

static void usage(FILE *to)
{
    fputs("usage: probe mailbox\n"
          "       probe bounce|process_vm|halves|fastest [-m [MIN:]MAX] [-s latency|bandwidth]\n"
          "Two processes bound to the first two allowed cores, without MPI: one-way time in us\n"
          "and, for all but mailbox, the bandwidth of a stream in MB/s, per message size.\n"
          "  -m, --message-size [MIN:]MAX   sizes in bytes, doubled from MIN (8) to MAX (4194304)\n"
          "  -s, --shape latency|bandwidth  one of the two alone\n",
          to);
}

static size_t parse_size(const char *text, char **end)
{
    errno = 0;
    unsigned long value = strtoul(text, end, 10);
    return errno != 0 || *end == text || *text == '-' || value > SIZE_MAX_ALLOWED ? 0 : value;
}

static bool parse_range(const char *text, size_t *min, size_t *max)
{
    char *end;
    size_t first = parse_size(text, &end);
    if (*end == ':') {
        *min = first;
        first = parse_size(end + 1, &end);
    }
    *max = first;
    return *end == 0 && *min > 0 && *min <= *max;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"message-size", required_argument, NULL, 'm'},
                                            {"shape", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    size_t min = 8, max = 4u << 20;
    enum shape shapes = BOTH;
    for (int option; (option = getopt_long(argc, argv, "m:s:h", options, NULL)) != -1;) {
        if (option == 'h')
            return usage(stdout), 0;
        if (option == 's' && strcmp(optarg, "latency") == 0) {
            shapes = PING_PONG;
            continue;
        }
        if (option == 's' && strcmp(optarg, "bandwidth") == 0) {
            shapes = STREAM;
            continue;
        }
        if (option != 'm')
            return usage(stderr), 2;
        if (!parse_range(optarg, &min, &max)) {
            fprintf(stderr, "probe: -m %s: allowed are [MIN:]MAX, 1 to 1073741824 bytes\n", optarg);
            return 2;
        }
    }
    const char *name = optind == argc - 1 ? argv[optind] : "";
    enum mode mode = MODE_MAILBOX;
    while (mode < MODES && strcmp(name, mode_names[mode]) != 0)
        mode++;
    if (mode == MODES)
        return usage(stderr), 2;
    bool mailbox = mode == MODE_MAILBOX;

    int core[2];
    choose_cores(core);
    int fd = memfd_create("regx-probe", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0)
        die("memfd_create");
    struct side s = {.shared = map(sizeof(struct shared), MAP_SHARED, fd)};
    s.source = map(max, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    s.sink = map(max, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    s.expected = map(max, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    struct sigaction action = {.sa_handler = end_badly, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("fork");
    s.me = child == 0;
    s.peer = child == 0 ? parent : child;
    alarm(WATCHDOG_SECONDS);
    if (s.me == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); // either side writes to the other (Yama)
    bind_to(core[s.me]);
    if (!mailbox)
        fill(&s, max);
    post(&s);
    await_post(&s); // both have their pages and their core

    if (s.me == 1) {
        if (mailbox)
            serve_mailbox(&s);
        else
            serve(&s);
        await_post(&s); // the parent lets go first: SIGCHLD means trouble until then
        return 0;
    }

    printf("# regx probe: %s between two processes without MPI, cores %d and %d\n", name, core[0],
           core[1]);
    if (mailbox) {
        printf("%-10s%20s\n", "# Size", "Latency (us)");
        measure_mailbox(&s);
    } else {
        printf("%-10s", "# Size");
        if (shapes & PING_PONG)
            printf("%20s%20s", "Latency (us)", "Piece (B)");
        if (shapes & STREAM)
            printf("%20s%20s", "Bandwidth (MB/s)", "Piece (B)");
        printf("\n");
        for (size_t size = min; size <= max; size *= 2)
            measure_size(&s, mode, size, shapes);
        s.shared->order.rounds = 0;
        post(&s);
    }
    signal(SIGCHLD, SIG_DFL);
    post(&s);
    waitpid(child, NULL, 0);
    if (atomic_load(&s.shared->failed)) {
        fprintf(stderr, "probe: WRONG DATA: a message did not arrive as it was sent\n");
        return 1;
    }
    return 0;
}
