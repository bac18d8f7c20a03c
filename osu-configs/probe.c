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

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
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
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 64
#define INLINE_BYTES (LINE - sizeof(uint64_t))
#define WINDOW 64
#define SLOTS_MAX 256
#define SLOT_BYTES (256u << 10) // all slots of one direction together: they stay in the cache
#define PIECE_MIN (4u << 10)
#define PIECE_MAX (128u << 10)
#define SIZE_MAX_ALLOWED ((size_t)1 << 30)
#define WATCHDOG_SECONDS 60
#define BATCHES 3
#define MAILBOX_BATCHES 4096 // at most
#define MAILBOX_SECONDS 0.1
#define MAILBOX_PLACES 32
#define MAILBOX_ROUNDS 1000

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

enum way { BOUNCE, PROCESS_VM, HALVES };
enum shape { PING_PONG = 1, STREAM = 2, BOTH = PING_PONG | STREAM };
enum mode { MODE_MAILBOX, MODE_BOUNCE, MODE_PROCESS_VM, MODE_HALVES, MODE_FASTEST, MODES };

struct order {
    enum way way;
    enum shape shape;
    size_t size, piece;
    uint64_t rounds; // per batch; 0 ends the other process
    int batches;
};

struct shared {
    struct line box[2];                    // one mailbox per direction
    struct line places[MAILBOX_PLACES][2]; // those that "probe mailbox" measures
    struct order order; // what the other process shall mirror, announced by its mailbox
    _Atomic bool failed, stop;
    struct channel channel[2];
};

// Each process has one of these; "me" is 0 for the parent, which times, and 1 for the child.
struct side {
    struct shared *shared;
    int me;
    pid_t peer;
    // Private pages, at the same addresses in both processes. "expected" is what the peer sends.
    unsigned char *source, *sink, *expected;
    uint64_t posted, seen; // mailbox numbers
    uint64_t put, got;     // pieces sent and received since the channels were reset
};

static void die(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void await(_Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load_explicit(number, memory_order_acquire) < value)
        relax();
}

static void post(struct side *s)
{
    atomic_store_explicit(&s->shared->box[s->me].number, ++s->posted, memory_order_release);
}

static void await_post(struct side *s)
{
    await(&s->shared->box[!s->me].number, ++s->seen);
}

// ---- the movements ---------------------------------------------------------------------------

static uint64_t slot_count(size_t piece)
{
    uint64_t fit = SLOT_BYTES / piece;
    return fit < 2 ? 2 : fit > SLOTS_MAX ? SLOTS_MAX : fit;
}

static void bounce_send(struct side *s, const struct order *o)
{
    struct channel *c = &s->shared->channel[s->me];
    uint64_t slots = slot_count(o->piece);
    for (size_t at = 0; at < o->size; at += o->piece, s->put++) {
        size_t slot = s->put % slots, left = o->size - at;
        size_t bytes = left < o->piece ? left : o->piece;
        if (s->put >= slots)
            await(&c->freed.number, s->put - slots + 1);
        unsigned char *to =
            bytes <= INLINE_BYTES ? c->header[slot].data : c->slots + slot * o->piece;
        memcpy(to, s->source + at, bytes);
        atomic_store_explicit(&c->header[slot].number, s->put + 1, memory_order_release);
    }
}

static void bounce_receive(struct side *s, const struct order *o)
{
    struct channel *c = &s->shared->channel[!s->me];
    uint64_t slots = slot_count(o->piece);
    for (size_t at = 0; at < o->size; at += o->piece, s->got++) {
        size_t slot = s->got % slots, left = o->size - at;
        size_t bytes = left < o->piece ? left : o->piece;
        await(&c->header[slot].number, s->got + 1);
        const unsigned char *from =
            bytes <= INLINE_BYTES ? c->header[slot].data : c->slots + slot * o->piece;
        memcpy(s->sink + at, from, bytes);
        atomic_store_explicit(&c->freed.number, s->got + 1, memory_order_release);
    }
}

typedef ssize_t vm_call(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                        unsigned long, unsigned long);

// Has the kernel copy [at, end) between this process and the peer.
static void copy(struct side *s, vm_call *call, unsigned char *mine, unsigned char *theirs,
                 size_t at, size_t end)
{
    while (at < end) {
        struct iovec here = {mine + at, end - at}, there = {theirs + at, end - at};
        ssize_t done = call(s->peer, &here, 1, &there, 1, 0);
        if (done <= 0)
            die("process_vm_* (a seccomp filter or ptrace_scope may refuse it)");
        at += (size_t)done;
    }
}

// In whole pages.
static size_t half_of(size_t size)
{
    size_t half = (size / 2 + 4095) / 4096 * 4096;
    return half < size ? half : size;
}

static void send_one(struct side *s, const struct order *o)
{
    if (o->way == BOUNCE) {
        bounce_send(s, o);
        return;
    }
    if (o->way == HALVES)
        post(s); // the receiver may begin
    size_t end = o->way == HALVES ? half_of(o->size) : o->size;
    copy(s, process_vm_writev, s->source, s->sink, 0, end);
    post(s);
}

static void receive_one(struct side *s, const struct order *o)
{
    if (o->way == BOUNCE) {
        bounce_receive(s, o);
        return;
    }
    if (o->way == HALVES) {
        await_post(s);
        copy(s, process_vm_readv, s->sink, s->source, half_of(o->size), o->size);
    }
    await_post(s);
}

static void one_round(struct side *s, const struct order *o)
{
    int messages = o->shape == STREAM ? WINDOW : 1;
    if (s->me == 0) {
        for (int i = 0; i < messages; i++)
            send_one(s, o);
        if (o->shape == STREAM)
            await_post(s);
        else
            receive_one(s, o);
    } else {
        for (int i = 0; i < messages; i++)
            receive_one(s, o);
        if (o->shape == STREAM)
            post(s);
        else
            send_one(s, o);
    }
}

// ---- orders: the parent announces one, both carry it out, both check what arrived ------------

static unsigned char pattern(int from, size_t at)
{
    return (unsigned char)((at * 131u) ^ (at >> 8) ^ (from ? 0x5a : 0xa5));
}

static void fill(struct side *s, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        s->source[at] = pattern(s->me, at);
        s->expected[at] = pattern(!s->me, at);
    }
}

// Seconds of each batch go to batch[], which only the parent, who times, looks at.
static void carry_out(struct side *s, const struct order *o, double *batch)
{
    struct channel *out = &s->shared->channel[s->me];
    memset(s->sink, 0, o->size);
    for (int i = 0; i < SLOTS_MAX; i++)
        atomic_store(&out->header[i].number, 0);
    atomic_store(&s->shared->channel[!s->me].freed.number, 0);
    s->put = s->got = 0;
    post(s);
    await_post(s); // both are ready

    one_round(s, o);
    for (int b = 0; b < o->batches; b++) {
        double start = now();
        for (uint64_t i = 0; i < o->rounds; i++)
            one_round(s, o);
        batch[b] = now() - start;
    }

    post(s);
    await_post(s); // both are done: only now may the sink be read
    bool received = o->shape == PING_PONG || s->me == 1;
    if (received && memcmp(s->sink, s->expected, o->size) != 0)
        atomic_store(&s->shared->failed, true);
}

static void run(struct side *s, struct order o, double *batch)
{
    s->shared->order = o;
    post(s);
    carry_out(s, &o, batch);
}

static void serve(struct side *s)
{
    double batch[BATCHES];
    for (;;) {
        await_post(s);
        struct order o = s->shared->order;
        if (o.rounds == 0)
            return;
        carry_out(s, &o, batch);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds per round: the median of batches of two milliseconds each, or of one round.
static double measure(struct side *s, struct order o)
{
    double batch[BATCHES];
    o.rounds = o.size < 8192 ? 100 : 1;
    o.batches = 1;
    run(s, o, batch);
    double once = batch[0] / (double)o.rounds;
    o.rounds = once > 0 ? (uint64_t)(0.002 / once) + 1 : 1000;
    o.batches = BATCHES;
    run(s, o, batch);
    qsort(batch, BATCHES, sizeof batch[0], compare_doubles);
    return batch[BATCHES / 2] / (double)o.rounds;
}

// The quickest so far, in seconds per round, and the pieces in which it was.
struct best {
    double time, stream;
    size_t time_piece, stream_piece;
};

static void try_piece(struct side *s, enum way way, size_t size, size_t piece, enum shape shapes,
                      struct best *best)
{
    if (shapes & PING_PONG) {
        double time = measure(s, (struct order){way, PING_PONG, size, piece, 0, 0});
        if (best->time == 0 || time < best->time)
            best->time = time, best->time_piece = piece;
    }
    if (shapes & STREAM) {
        double stream = measure(s, (struct order){way, STREAM, size, piece, 0, 0});
        if (best->stream == 0 || stream < best->stream)
            best->stream = stream, best->stream_piece = piece;
    }
}

// Whether the kernel copies between the two processes.
static bool may_copy(struct side *s)
{
    unsigned char byte;
    struct iovec mine = {&byte, 1}, theirs = {s->source, 1};
    return process_vm_readv(s->peer, &mine, 1, &theirs, 1, 0) == 1;
}

static void measure_size(struct side *s, enum mode mode, size_t size, enum shape shapes)
{
    struct best best = {0};
    size_t first = size < PIECE_MIN ? size : PIECE_MIN, last = size < PIECE_MAX ? size : PIECE_MAX;
    if (mode == MODE_PROCESS_VM)
        try_piece(s, PROCESS_VM, size, 0, shapes, &best);
    if (mode == MODE_HALVES || (mode == MODE_FASTEST && may_copy(s)))
        try_piece(s, HALVES, size, 0, shapes, &best);
    if (mode == MODE_BOUNCE || mode == MODE_FASTEST) {
        for (size_t piece = first; piece <= last; piece *= 2)
            try_piece(s, BOUNCE, size, piece, shapes, &best);
    }
    printf("%-10zu", size);
    if (shapes & PING_PONG)
        printf("%20.3f%20zu", 1e6 * best.time / 2, best.time_piece);
    if (shapes & STREAM)
        printf("%20.2f%20zu", (double)size * WINDOW / 1e6 / best.stream, best.stream_piece);
    printf("\n");
    fflush(stdout);
}

static struct line *place_of(struct side *s, uint64_t number)
{
    return s->shared->places[number / MAILBOX_ROUNDS % MAILBOX_PLACES];
}

// The other side of measure_mailbox: every number that comes goes back.
static void serve_mailbox(struct side *s)
{
    for (uint64_t number = 0; !atomic_load(&s->shared->stop); number++) {
        struct line *place = place_of(s, number);
        await(&place[0].number, number + 1);
        atomic_store_explicit(&place[1].number, number + 1, memory_order_release);
    }
}

// How long a line takes depends a little on which line it is, so many are used; the median of the
// batches leaves out those during which something else ran on a core.
static void measure_mailbox(struct side *s)
{
    static double batch[MAILBOX_BATCHES];
    int batches = 0;
    uint64_t number = 0;
    for (double begin = now(); batches < MAILBOX_BATCHES && now() - begin < MAILBOX_SECONDS;) {
        double start = now();
        for (int i = 0; i < MAILBOX_ROUNDS; i++, number++) {
            struct line *place = place_of(s, number);
            atomic_store_explicit(&place[0].number, number + 1, memory_order_release);
            await(&place[1].number, number + 1);
        }
        batch[batches++] = (now() - start) / (2 * MAILBOX_ROUNDS);
    }
    atomic_store(&s->shared->stop, true);
    atomic_store(&place_of(s, number)[0].number, number + 1); // lets the other side see it
    qsort(batch, (size_t)batches, sizeof batch[0], compare_doubles);
    printf("%-10d%20.3f\n", 8, 1e6 * batch[batches / 2]);
}

// ---- cores and processes ---------------------------------------------------------------------

static void topology(int cpu, const char *what, char *text, int bytes)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, bytes, file) == NULL)
        text[0] = 0;
    if (file != NULL)
        fclose(file);
}

// The first two cores as mpirun --map-by core --bind-to core takes them: the first allowed one,
// and the next of the same package that is not its hardware thread; else any other.
static void choose_cores(int core[2])
{
    cpu_set_t allowed;
    char package[64], threads[64], other[64];
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        die("sched_getaffinity");
    core[0] = core[1] = -1;
    for (int cpu = 0, near = 0; cpu < CPU_SETSIZE && !near; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &allowed))
            continue;
        if (core[0] < 0) {
            core[0] = cpu;
            topology(cpu, "physical_package_id", package, sizeof package);
            topology(cpu, "thread_siblings_list", threads, sizeof threads);
            continue;
        }
        topology(cpu, "thread_siblings_list", other, sizeof other);
        if (threads[0] != 0 && strcmp(threads, other) == 0)
            continue;
        topology(cpu, "physical_package_id", other, sizeof other);
        near = strcmp(package, other) == 0;
        if (core[1] < 0 || near)
            core[1] = cpu;
    }
    if (core[1] < 0) {
        fprintf(stderr, "probe: two cores are needed; this process may use one only\n");
        exit(1);
    }
}

static void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

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
