// SPDX-License-Identifier: BSD-3-Clause
//
// What two processes on one node do without MPI: the reference that compare runs beside its rows.
// Two processes, each bound to a core of its own, share one memory segment:
//
//   probe CORE CORE latency|bandwidth -m MIN:MAX
//                                 messages through shared slots, in pieces: the sender copies in
//                                 while the receiver copies out
//
// One-way time is half a ping-pong; bandwidth is a stream of 64 messages and a reply, as
// osu_latency and osu_bw define them. The columns read like theirs. Both processes run the same
// loops.

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 64
#define INLINE_BYTES (LINE - sizeof(uint64_t))
#define WINDOW 64
#define SLOTS_MAX 256
#define SLOT_BYTES ((size_t)256 << 10) // all slots of one direction: they stay in the cache
#define PIECE_MIN ((size_t)4 << 10)
#define PIECE_MAX ((size_t)64 << 10)
#define SIZE_LIMIT ((size_t)1 << 30)
#define BATCHES 5
#define BATCH_BYTES ((size_t)32 << 20) // of a batch, but no more messages than
#define BATCH_MESSAGES ((size_t)1024)
#define ROUNDS 50 // of the mailbox
#define WATCHDOG_SECONDS 60

// A line that carries its own number and, for small messages, the message.
struct line {
    _Alignas(LINE) _Atomic uint64_t number;
    unsigned char data[INLINE_BYTES];
};

// One direction of the bounce: full slots are announced in their header, freed ones counted.
struct channel {
    struct line header[SLOTS_MAX];
    struct line freed;
    _Alignas(4096) unsigned char slots[SLOT_BYTES];
};

struct shared {
    struct line box[2]; // one mailbox per direction
    struct channel channel[2];
};

// Each process has one of these; "me" is 0 for the parent, which prints, and 1 for the child.
struct side {
    struct shared *shared;
    int me;
    unsigned char *source, *sink;
    uint64_t posted, seen; // mailbox numbers
};

static void die(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

// Neither a lost partner nor a stopped one may leave a process spinning.
static void end_badly(int number)
{
    static const char lost[] = "probe: the other process ended early\n";
    static const char late[] = "probe: no end within 60 s\n";
    const char *text = number == SIGCHLD ? lost : late;
    (void)!write(STDERR_FILENO, text, strlen(text));
    _exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Leaves out what else ran on a core for a while.
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof values[0], compare_doubles);
    return values[count / 2];
}

static void await(_Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load_explicit(number, memory_order_acquire) < value) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
}

static void announce(_Atomic uint64_t *number, uint64_t value)
{
    atomic_store_explicit(number, value, memory_order_release);
}

static void post(struct side *s)
{
    announce(&s->shared->box[s->me].number, ++s->posted);
}

static void await_post(struct side *s)
{
    await(&s->shared->box[!s->me].number, ++s->seen);
}

static void meet(struct side *s)
{
    post(s);
    await_post(s);
}

// The machine's phase, as phase.c prints it; without the width, which no reference needs.
static void print_mailbox(struct side *s)
{
    double batch[BATCHES];
    for (size_t b = 0; b < BATCHES; b++) {
        double start = now();
        for (int i = 0; i < ROUNDS; i++) {
            if (s->me == 0)
                post(s);
            await_post(s);
            if (s->me == 1)
                post(s);
        }
        batch[b] = (now() - start) / (2 * ROUNDS);
    }
    if (s->me == 0)
        printf("# mailbox (us), width: %.3f 0\n", 1e6 * median(batch, BATCHES));
}

// Of the way of one message, what this process does. count: pieces so far, in this direction.
static void bounce(struct side *s, size_t size, bool sends, uint64_t *count)
{
    // Of an eighth: few pieces do not overlap, many small ones are slow to hand over.
    size_t piece = size / 8 < PIECE_MIN ? PIECE_MIN : size / 8 > PIECE_MAX ? PIECE_MAX : size / 8;
    struct channel *c = &s->shared->channel[sends ? s->me : !s->me];
    uint64_t slots = SLOT_BYTES / piece;
    for (size_t at = 0; at < size; at += piece) {
        size_t bytes = size - at < piece ? size - at : piece;
        uint64_t number = ++*count;
        size_t slot = number % slots;
        unsigned char *there =
            bytes <= INLINE_BYTES ? c->header[slot].data : c->slots + slot * piece;
        if (sends) {
            if (number > slots)
                await(&c->freed.number, number - slots);
            memcpy(there, s->source + at, bytes);
            announce(&c->header[slot].number, number);
        } else {
            await(&c->header[slot].number, number);
            memcpy(s->sink + at, there, bytes);
            announce(&c->freed.number, number);
        }
    }
}

static void measure_size(struct side *s, bool stream, size_t size)
{
    size_t fit = BATCH_BYTES / size, messages = stream ? WINDOW : 1;
    size_t rounds = ((fit < BATCH_MESSAGES ? fit : BATCH_MESSAGES) + messages - 1) / messages;
    double batch[BATCHES + 1]; // the first is not counted
    uint64_t sent = 0, received = 0;
    for (size_t b = 0; b <= BATCHES; b++) {
        double start = now();
        for (size_t i = 0; i < (rounds > 0 ? rounds : 1) * messages; i++) {
            bounce(s, size, s->me == 0, s->me == 0 ? &sent : &received);
            if (!stream)
                bounce(s, size, s->me == 1, s->me == 1 ? &sent : &received);
            else if (i % messages == messages - 1)
                s->me == 0 ? await_post(s) : post(s);
        }
        batch[b] = (now() - start) / (double)(rounds > 0 ? rounds : 1);
    }
    meet(s); // before the numbers begin again
    memset(s->shared->channel[s->me].header, 0, sizeof s->shared->channel[0].header);
    announce(&s->shared->channel[s->me].freed.number, 0);
    meet(s);
    double time = median(batch + 1, BATCHES);
    if (s->me == 0)
        printf("%-10zu%20.3f\n", size,
               stream ? (double)size * WINDOW / 1e6 / time : 1e6 * time / 2);
}

static void *map(size_t bytes, int flags)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

// Makes the second process, and returns in both, each on a core of its own.
static void split(struct side *s, size_t max, const int core[2])
{
    cpu_set_t set;
    s->shared = map(sizeof(struct shared), MAP_SHARED);
    s->source = map(max, MAP_PRIVATE);
    s->sink = map(max, MAP_PRIVATE);
    signal(SIGCHLD, end_badly);
    signal(SIGALRM, end_badly);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    s->me = child == 0;
    alarm(WATCHDOG_SECONDS);
    if (s->me == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&set);
    CPU_SET((size_t)core[s->me], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("this core cannot be had");
    memset(s->source, 1, max);
    memset(s->sink, 2, max);
    meet(s);
}

int main(int argc, char **argv)
{
    size_t min = 1, max = 1;
    int core[2];
    char rest, *what = argc > 3 ? argv[3] : "";
    bool stream = argc == 6 && strcmp(what, "bandwidth") == 0;
    bool known = stream || (argc == 6 && strcmp(what, "latency") == 0);
    bool sized = known && strcmp(argv[4], "-m") == 0 &&
                 sscanf(argv[5], "%zu:%zu%c", &min, &max, &rest) == 2 && min >= 1 && min <= max &&
                 max <= SIZE_LIMIT;
    if (!sized || sscanf(argv[1], "%d%c", &core[0], &rest) != 1 ||
        sscanf(argv[2], "%d%c", &core[1], &rest) != 1 || core[0] < 0 || core[1] < 0) {
        fputs("probe: usage: CORE CORE latency|bandwidth -m MIN:MAX (1 to 1073741824)\n", stderr);
        return 2;
    }
    struct side s = {0};
    split(&s, max, core);
    if (s.me == 0)
        printf("%-10s%20s\n", "# Size", stream ? "Bandwidth (MB/s)" : "Latency (us)");
    print_mailbox(&s);
    for (size_t size = min; size <= max; size *= 2) {
        measure_size(&s, stream, size);
        print_mailbox(&s);
    }
    if (s.me == 1) {
        await_post(&s); // the parent lets go first: SIGCHLD means trouble until then
        return 0;
    }
    signal(SIGCHLD, SIG_DFL);
    post(&s);
    wait(NULL);
    return 0;
}
