/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point-to-point messages of every kind, each byte checked.
 *
 *     transfer [--seed N] [--iterations N] [--send-owned] [--receive-owned] FILE
 *
 * Owned buffers are of MPI_Alloc_mem. FILE holds one case per line; every rank reads it:
 *
 *     SIZE SEND_OFFSET RECEIVE_OFFSET SEND_LAYOUT RECEIVE_LAYOUT PATTERN SEND RECEIVE WINDOW
 *
 * Offsets are within a page. LAYOUT: contiguous, vector, indexed. PATTERN: pair (one way, then the
 * other), both (both ways at once), self, fan (all to one rank, received by MPI_ANY_SOURCE), mixed
 * (both ways at once, by MPI_ANY_TAG; only every fourth message has that size, others are smaller).
 * SEND: send, isend, persistent, bsend, ssend. RECEIVE: recv, irecv, persistent, probe
 * (MPI_Mprobe, MPI_Mrecv), late (posted only after MPI_Probe has seen the message, in reverse
 * order). WINDOW: messages outstanding.
 */

#include "layout.h"

enum pattern { PATTERN_PAIR, PATTERN_BOTH, PATTERN_SELF, PATTERN_FAN, PATTERN_MIXED };
enum send { SEND_SEND, SEND_ISEND, SEND_PERSISTENT, SEND_BSEND, SEND_SSEND };
enum receive { RECEIVE_RECV, RECEIVE_IRECV, RECEIVE_PERSISTENT, RECEIVE_PROBE, RECEIVE_LATE };

enum { NOBODY = MPI_PROC_NULL, MIX = 4 };

static const char *const layout_names[] = {"contiguous", "vector", "indexed", NULL};
static const char *const pattern_names[] = {"pair", "both", "self", "fan", "mixed", NULL};
static const char *const send_names[] = {"send", "isend", "persistent", "bsend", "ssend", NULL};
static const char *const receive_names[] = {"recv", "irecv", "persistent", "probe", "late", NULL};

struct transfer {
    char text[256]; /* the line of the file, for messages */
    size_t size;
    size_t send_offset;
    size_t receive_offset;
    enum layout_kind send_layout;
    enum layout_kind receive_layout;
    enum pattern pattern;
    enum send send;
    enum receive receive;
    int window;
};

/* One rank's part in one step: whom it sends a window to, from how many ranks it gets one. */
struct step {
    const struct transfer *transfer;
    const struct layout *send_layouts;    /* of messages 0 to MIX - 1, then again */
    const struct layout *receive_layouts; /* the same */
    uint64_t iteration;
    int to;
    int from;    /* a rank, NOBODY, or MPI_ANY_SOURCE */
    int senders; /* 0 when from is NOBODY */
};

static uint64_t seed;
static bool send_owned, receive_owned;
static int rank;
static int ranks;

static int named(const char *const *names, const char *name, const char *line)
{
    for (int n = 0; names[n] != NULL; n++) {
        if (strcmp(names[n], name) == 0) {
            return n;
        }
    }
    check_fail("unknown word \"%s\" in: %s", name, line);
}

static bool parse(const char *line, struct transfer *transfer)
{
    char word[5][24];
    memset(transfer, 0, sizeof *transfer);
    snprintf(transfer->text, sizeof transfer->text, "%.*s", (int)strcspn(line, "\n"), line);
    if (sscanf(line, "%zu %zu %zu %23s %23s %23s %23s %23s %d", &transfer->size,
               &transfer->send_offset, &transfer->receive_offset, word[0], word[1], word[2],
               word[3], word[4], &transfer->window) != 9) {
        return false;
    }
    transfer->send_layout = (enum layout_kind)named(layout_names, word[0], line);
    transfer->receive_layout = (enum layout_kind)named(layout_names, word[1], line);
    transfer->pattern = (enum pattern)named(pattern_names, word[2], line);
    transfer->send = (enum send)named(send_names, word[3], line);
    transfer->receive = (enum receive)named(receive_names, word[4], line);
    return true;
}

static uint64_t message_key(const struct step *step, int sender, int message)
{
    return stamp_key(seed, step->iteration, sender, message);
}

static void post_sends(const struct step *step, const struct arena *arenas, MPI_Request *requests)
{
    for (int n = 0; n < step->transfer->window; n++) {
        MPI_Datatype type = arenas[n].layout->type;
        void *buffer = arena_buffer(&arenas[n]);
        requests[n] = MPI_REQUEST_NULL;
        switch (step->transfer->send) {
        case SEND_SEND:
            MPI_Send(buffer, 1, type, step->to, n, MPI_COMM_WORLD);
            break;
        case SEND_SSEND:
            MPI_Ssend(buffer, 1, type, step->to, n, MPI_COMM_WORLD);
            break;
        case SEND_BSEND:
            MPI_Bsend(buffer, 1, type, step->to, n, MPI_COMM_WORLD);
            break;
        case SEND_ISEND:
            MPI_Isend(buffer, 1, type, step->to, n, MPI_COMM_WORLD, &requests[n]);
            break;
        case SEND_PERSISTENT:
            MPI_Send_init(buffer, 1, type, step->to, n, MPI_COMM_WORLD, &requests[n]);
            MPI_Start(&requests[n]);
            break;
        }
    }
}

static int receive_tag(const struct step *step, int message)
{
    bool any = step->from == MPI_ANY_SOURCE || step->transfer->pattern == PATTERN_MIXED;
    return any ? MPI_ANY_TAG : message;
}

static void post_receives(const struct step *step, const struct arena *arenas,
                          MPI_Request *requests)
{
    int count = step->senders * step->transfer->window;
    for (int n = 0; n < count; n++) {
        MPI_Datatype type = arenas[n].layout->type;
        void *buffer = arena_buffer(&arenas[n]);
        int tag = receive_tag(step, n);
        if (step->transfer->receive == RECEIVE_PERSISTENT) {
            MPI_Recv_init(buffer, 1, type, step->from, tag, MPI_COMM_WORLD, &requests[n]);
            MPI_Start(&requests[n]);
        } else {
            MPI_Irecv(buffer, 1, type, step->from, tag, MPI_COMM_WORLD, &requests[n]);
        }
    }
}

/* The kinds of receive that are not posted ahead. */
static void receive_now(const struct step *step, const struct arena *arenas, MPI_Request *requests,
                        MPI_Status *statuses)
{
    int count = step->senders * step->transfer->window;
    bool sends_wait = step->transfer->send == SEND_SEND || step->transfer->send == SEND_SSEND;

    if (step->transfer->receive == RECEIVE_LATE && !sends_wait && step->from != MPI_ANY_SOURCE) {
        /* When the last has come they all have, in order: take them in reverse. */
        MPI_Probe(step->from, count - 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int n = count - 1; n >= 0; n--) {
            MPI_Irecv(arena_buffer(&arenas[n]), 1, arenas[n].layout->type, step->from, n,
                      MPI_COMM_WORLD, &requests[n]);
        }
        MPI_Waitall(count, requests, statuses);
        return;
    }
    for (int n = 0; n < count; n++) {
        MPI_Datatype type = arenas[n].layout->type;
        void *buffer = arena_buffer(&arenas[n]);
        int from = step->from;
        int tag = receive_tag(step, n);
        MPI_Message message;
        MPI_Status probed;
        int elements;
        switch (step->transfer->receive) {
        case RECEIVE_LATE:
            MPI_Probe(from, tag, MPI_COMM_WORLD, &probed);
            MPI_Recv(buffer, 1, type, probed.MPI_SOURCE, probed.MPI_TAG, MPI_COMM_WORLD,
                     &statuses[n]);
            break;
        case RECEIVE_PROBE:
            MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, &probed);
            MPI_Get_elements(&probed, MPI_BYTE, &elements);
            check_that((size_t)elements == arenas[n].layout->size, "MPI_Mprobe says %d bytes: %s",
                       elements, step->transfer->text);
            MPI_Mrecv(buffer, 1, type, &message, &statuses[n]);
            break;
        default:
            MPI_Recv(buffer, 1, type, from, tag, MPI_COMM_WORLD, &statuses[n]);
            break;
        }
    }
}

/* What came: from whom, in which order, how much, and every byte of it. */
static void check_received(const struct step *step, const struct arena *arenas,
                           const MPI_Status *statuses)
{
    int count = step->senders * step->transfer->window;
    int *next = calloc((size_t)ranks, sizeof *next);
    for (int n = 0; n < count; n++) {
        int source = statuses[n].MPI_SOURCE;
        int message = statuses[n].MPI_TAG;
        int elements;
        check_that(source >= 0 && source < ranks && message == next[source]++,
                   "message %d from %d out of order: %s", message, source, step->transfer->text);
        MPI_Get_elements(&statuses[n], MPI_BYTE, &elements);
        check_that((size_t)elements == arenas[n].layout->size, "%d bytes came: %s", elements,
                   step->transfer->text);
        arena_check(&arenas[n], message_key(step, source, message), step->transfer->text);
    }
    free(next);
}

static struct arena *make_arenas(const struct step *step, int count, const struct layout *layouts,
                                 size_t offset, bool owned)
{
    struct arena *arenas = check_memory((size_t)(count + 1) * sizeof *arenas);
    for (int n = 0; n < count; n++) {
        arenas[n] = arena_make(&layouts[n % MIX], offset,
                               stamp_key(~seed, step->iteration, rank, n), owned);
    }
    return arenas;
}

static void free_arenas(struct arena *arenas, int count)
{
    for (int n = 0; n < count; n++) {
        arena_free(&arenas[n]);
    }
    free(arenas);
}

static void finish(MPI_Request *requests, int count, MPI_Status *statuses)
{
    MPI_Waitall(count, requests, statuses);
    for (int n = 0; n < count; n++) {
        if (requests[n] != MPI_REQUEST_NULL) { /* persistent */
            MPI_Request_free(&requests[n]);
        }
    }
}

static void run_step(const struct step *step)
{
    const struct transfer *transfer = step->transfer;
    int sent = step->to == NOBODY ? 0 : transfer->window;
    int received = step->senders * transfer->window;
    bool posted = transfer->receive == RECEIVE_IRECV || transfer->receive == RECEIVE_PERSISTENT;
    struct arena *out =
        make_arenas(step, sent, step->send_layouts, transfer->send_offset, send_owned);
    struct arena *in =
        make_arenas(step, received, step->receive_layouts, transfer->receive_offset, receive_owned);
    MPI_Request *requests = check_memory((size_t)(sent + received + 1) * sizeof *requests);
    MPI_Status *statuses = check_memory((size_t)(sent + received + 1) * sizeof *statuses);
    void *attached = NULL;

    for (int n = 0; n < sent; n++) {
        arena_fill(&out[n], message_key(step, rank, n));
    }
    if (transfer->send == SEND_BSEND && sent > 0) {
        int packed;
        MPI_Pack_size(1, step->send_layouts[0].type, MPI_COMM_WORLD, &packed);
        packed = (packed + MPI_BSEND_OVERHEAD + 64) * sent;
        attached = check_memory((size_t)packed);
        MPI_Buffer_attach(attached, packed);
    }
    if (posted) {
        post_receives(step, in, requests + sent);
    }
    if (sent > 0) {
        post_sends(step, out, requests);
    }
    if (!posted && received > 0) {
        receive_now(step, in, requests + sent, statuses + sent);
    }
    if (posted) {
        finish(requests + sent, received, statuses + sent);
    }
    finish(requests, sent, statuses);
    if (attached != NULL) {
        int size;
        MPI_Buffer_detach(&attached, &size);
        free(attached);
    }
    check_received(step, in, statuses + sent);
    for (int n = 0; n < sent; n++) { /* a send changes nothing */
        arena_check(&out[n], message_key(step, rank, n), "send buffer");
    }
    free_arenas(out, sent);
    free_arenas(in, received);
    free(requests);
    free(statuses);
}

static void make_layouts(struct layout layouts[MIX], const struct transfer *transfer,
                         enum layout_kind kind)
{
    const size_t parts[MIX] = {1, 1000, 2, 64};
    for (int n = 0; n < MIX; n++) {
        size_t part = transfer->pattern == PATTERN_MIXED ? parts[n] : 1;
        layouts[n] = layout_make(kind, transfer->size / part);
    }
}

static void run_transfer(const struct transfer *transfer, uint64_t iteration)
{
    struct layout send_layouts[MIX];
    struct layout receive_layouts[MIX];
    struct step step = {.transfer = transfer,
                        .send_layouts = send_layouts,
                        .receive_layouts = receive_layouts,
                        .iteration = iteration,
                        .to = NOBODY,
                        .from = NOBODY};
    int top = 1; /* the least power of two that is not below the number of ranks */
    while (top < ranks) {
        top *= 2;
    }
    int peer = top > 1 ? rank ^ (int)(1 + iteration % (uint64_t)(top - 1)) : rank;
    int root = (int)(iteration % (uint64_t)ranks);

    make_layouts(send_layouts, transfer, transfer->send_layout);
    make_layouts(receive_layouts, transfer, transfer->receive_layout);
    switch (transfer->pattern) {
    case PATTERN_FAN:
        if (rank == root) {
            step.from = ranks > 1 ? MPI_ANY_SOURCE : NOBODY;
            step.senders = ranks - 1;
        } else {
            step.to = root;
        }
        run_step(&step);
        MPI_Barrier(MPI_COMM_WORLD); /* or the next step's messages match MPI_ANY_SOURCE */
        break;
    case PATTERN_SELF:
        step.to = step.from = rank;
        step.senders = 1;
        run_step(&step);
        break;
    case PATTERN_BOTH:
    case PATTERN_MIXED:
        if (peer < ranks && peer != rank) {
            step.to = step.from = peer;
            step.senders = 1;
            run_step(&step);
        }
        break;
    case PATTERN_PAIR:
        for (int way = 0; way < 2 && peer < ranks && peer != rank; way++) {
            bool sends = (rank < peer) == (way == 0);
            step.to = sends ? peer : NOBODY;
            step.from = sends ? NOBODY : peer;
            step.senders = sends ? 0 : 1;
            run_step(&step);
        }
        break;
    }
    for (int n = 0; n < MIX; n++) {
        layout_free(&send_layouts[n]);
        layout_free(&receive_layouts[n]);
    }
}

int main(int argc, char **argv)
{
    uint64_t cases = 0;
    char line[256];

    rank = check_begin(&argc, &argv, 2);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seed = check_number(&argc, argv, "--seed", 1);
    const uint64_t iterations = check_number(&argc, argv, "--iterations", 2);
    send_owned = check_option(&argc, argv, "--send-owned", 1) != NULL;
    receive_owned = check_option(&argc, argv, "--receive-owned", 1) != NULL;
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    check_that(file != NULL, "needs one readable file of cases");
    while (fgets(line, sizeof line, file) != NULL) {
        struct transfer transfer;
        check_that(parse(line, &transfer), "not a case: %s", line);
        for (uint64_t n = 0; n < iterations; n++) {
            run_transfer(&transfer, cases * iterations + n);
        }
        cases++;
    }
    fclose(file);
    return check_end();
}
