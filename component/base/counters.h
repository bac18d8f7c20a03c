/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What regx counts about itself, so that the path taken is never silent. One structure per
 * process, made by btl/, written by every layer, read by the report. The tables below are the only
 * lists of counters: the structure, the report's keys and their documentation are made from them.
 */
#ifndef REGX_BASE_COUNTERS_H
#define REGX_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The paths that large messages take, one by each strategy that has a path (rendezvous/dispatch.c,
 * whose table is made from this one): X(name, help). */
#define REGX_RENDEZVOUS_PATHS(X)                                                                   \
    X(bounce, "copied through slots of the bounce pool")                                           \
    X(staged, "copied by the sender to a staging buffer, and out of it by the receiver")           \
    X(pipeline, "written in registered chunks")                                                    \
    X(direct, "written as a whole from a registered buffer")                                       \
    X(read, "read by the receiver")                                                                \
    X(together, "copied by receiver and sender at the same time")                                  \
    X(remap, "written to pages that are then moved to the user's buffer")

/* All paths, in the same form. The report has messages_NAME and bytes_NAME. */
#define REGX_PATHS(X)                                                                              \
    X(eager, "sent eagerly, in one fragment with their header, or headers of ob1 alone")           \
    X(frag, "sent in fragments: the data is not contiguous, or no rendezvous was possible")        \
    REGX_RENDEZVOUS_PATHS(X)                                                                       \
    X(fallback, "not sent by the requested path; also counted under the path that was used")

typedef enum regx_path {
#define REGX_PATH_ENUM(name, help) REGX_PATH_##name,
    REGX_PATHS(REGX_PATH_ENUM)
#undef REGX_PATH_ENUM
        REGX_PATH_COUNT
} regx_path_t;

/* Why a message goes by its path: X(text, name). From no_copies on it is a fallback. A CTS carries
 * the reason, since the receiver chooses and the sender counts. */
#define REGX_WHYS(X)                                                                               \
    X("no rendezvous: short, or not contiguous", eager)                                            \
    X("asked for", asked)                                                                          \
    X("auto: the kernel does not copy to this peer", refused)                                      \
    X("the buffer is new", new)                                                                    \
    X("not tried yet", prior)                                                                      \
    X("on trial", trial)                                                                           \
    X("the only rendezvous that auto has up to 32 KiB", brief)                                     \
    X("fastest when tried", winner)                                                                \
    X("the sender did not stage it", unstaged)                                                     \
    X("both buffers are registered", registered)                                                   \
    X("the kernel does not copy to this peer", no_copies)                                          \
    X("the sender lets nothing be read", unexposed)                                                \
    X("chunk: refused by this peer before", no_puts)                                               \
    X("read: impossible with this peer before", no_gets)                                           \
    X("receiver: a userfaultfd may watch its buffer", paged)                                       \
    X("receiver: could not read", unread)                                                          \
    X("receiver: its buffer was refused", receiver)                                                \
    X("sender: could not write all, or its buffer was refused", sender)

typedef enum regx_why {
#define REGX_WHY_ENUM(text, name) REGX_WHY_##name,
    REGX_WHYS(REGX_WHY_ENUM)
#undef REGX_WHY_ENUM
        REGX_WHY_COUNT
} regx_why_t;

static inline bool regx_why_is_fallback(regx_why_t why)
{
    return why >= REGX_WHY_no_copies;
}

/* A way is a path and the reason for it: path * REGX_WHY_COUNT + why. */
#define REGX_WAYS (REGX_PATH_fallback * REGX_WHY_COUNT)

/* The messages of one kind of peer, counted as the sender, or, what is read as exposed, as the
 * receiver. By way and size, which is a power of two and all up to the next; what goes eagerly or in
 * fragments is all of the first size, so that a short message costs nothing. Some bytes of a message
 * may go by another path, where they count without the message. The report's messages_NAME and
 * bytes_NAME are sums of these. */
#define REGX_FLOW_SIZES 20u
#define REGX_FLOW_SECOND 8192ULL /* bytes; what is shorter is of the first size */

typedef struct regx_flow {
    bool threads; /* as of the counters */
    _Atomic uint64_t messages[REGX_WAYS][REGX_FLOW_SIZES];
    _Atomic uint64_t bytes[REGX_WAYS][REGX_FLOW_SIZES];
} regx_flow_t;

#define REGX_FLOWS 2u /* kinds of peers: of this node; of another */

/* The other counters: X(name, COUNT or LEVEL, help). A count only grows. A level is how much there
 * is now, or was at most. The report's key is the name. */
#define REGX_COUNTERS(X)                                                                           \
    X(regrants, COUNT,                                                                             \
      "transfers granted anew (grant=revocable) because the memory changed or a write failed")     \
    X(slots_high, LEVEL, "maximum number of bounce slots in use")                                  \
    X(pool_bytes, LEVEL, "bytes of bounce memory")                                                 \
    X(pool_pinned_bytes, LEVEL,                                                                    \
      "bytes of bounce memory that are locked; shared memory is locked page by page at first use") \
    X(puts, COUNT, "puts by the sender, one per slot or chunk")                                    \
    X(gets, COUNT, "gets by the receiver")                                                         \
    X(chunks_sender, COUNT, "pieces copied by the sender (together)")                              \
    X(chunks_receiver, COUNT, "pieces copied by the receiver (together)")                          \
    X(remap_pages, COUNT, "pages moved to users' buffers (remap)")                                 \
    X(remap_copied_bytes, COUNT,                                                                   \
      "bytes copied from landing pages to users' buffers: unaligned ends, and pages that could "   \
      "not be moved (remap)")                                                                      \
    X(onesided, COUNT, "puts, gets and atomic operations on windows of other processes")           \
    X(onesided_messages, COUNT,                                                                    \
      "one-sided operations sent to the target as a message, rather than done by the kernel "      \
      "(same node) or a device")                                                                   \
    X(registrations, COUNT, "registrations made")                                                  \
    X(registering_ns, COUNT, "nanoseconds that they took")                                         \
    X(deregistrations, COUNT, "deregistrations")                                                   \
    X(registered_bytes, LEVEL, "bytes registered at the moment")                                   \
    X(registered_high, LEVEL, "maximum number of bytes registered")                                \
    X(hits, COUNT, "cache look-ups that found a registration")                                     \
    X(misses, COUNT, "cache look-ups that had to register")                                        \
    X(uncached, COUNT, "registrations for a single use, which the cache does not keep")            \
    X(evictions, COUNT, "cached registrations evicted to make room")                               \
    X(invalidations, COUNT, "cached registrations invalidated by a change of memory")              \
    X(stale_prevented, COUNT,                                                                      \
      "cache look-ups that rejected a registration because its memory had changed or was "         \
      "changing")                                                                                  \
    X(inuse_changes, COUNT, "buffers unmapped or replaced while a transfer used them")             \
    X(drain_waits, COUNT, "calls to unmap memory that waited for transfers (inuse=drain)")         \
    X(prefetch_touched, COUNT,                                                                     \
      "transfers whose pages were touched by the process in advance (odp)")                        \
    X(verified, COUNT, "chunks and slots whose checksums were compared (verify)")                  \
    X(malformed, COUNT, "invalid messages from peers, which were refused")                         \
    X(bytes_shm, COUNT,                                                                            \
      "payload bytes sent or read within the node, by shared memory and kernel copies")            \
    X(stages_taken, COUNT, "messages that the receiver copied from the sender's staging buffer")   \
    X(uses_owned, COUNT,                                                                           \
      "uses of memory from MPI_Alloc_mem that found its registration, or made it")                 \
    X(pieces_owned, COUNT,                                                                         \
      "pieces copied in user space, to or from a peer's memory from MPI_Alloc_mem")                \
    X(bytes_pinned, COUNT, "payload bytes put to and got from registered memory over pinned")      \
    X(pinned_refused, COUNT,                                                                       \
      "pieces that peers asked for over pinned by a key of no registration")                       \
    X(bytes_verbs, COUNT, "payload bytes sent or read over verbs")

/* Named tallies whose keys are only known at run time: reasons of fallbacks, ports. */
#define REGX_REASONS_MAX 32
#define REGX_REASON_LENGTH 64

typedef struct regx_tally {
    _Atomic uint32_t state; /* of the reason: not there, being written, there */
    char reason[REGX_REASON_LENGTH];
    _Atomic uint64_t count;
} regx_tally_t;

typedef struct regx_counters {
#define REGX_COUNTER_FIELD(name, kind, help) _Atomic uint64_t name;
    REGX_COUNTERS(REGX_COUNTER_FIELD)
#undef REGX_COUNTER_FIELD
    regx_flow_t *flows[REGX_FLOWS]; /* NULL: none */
    regx_tally_t fallbacks[REGX_REASONS_MAX];
    regx_tally_t ports[REGX_REASONS_MAX]; /* payload bytes sent, by the port of an RDMA device */
    bool threads;                         /* several threads may count: set once at the start */
} regx_counters_t;

typedef enum { REGX_COUNT, REGX_LEVEL, REGX_MESSAGES, REGX_BYTES } regx_counter_kind_t;

/* A row of the table of counters: the report's key, and so on. */
typedef struct regx_counter {
    const char *name;
    const char *help;
    regx_counter_kind_t kind;
    size_t where; /* in regx_counters_t; of messages and bytes, their path */
} regx_counter_t;

/* The tables above as arrays; the last row of the counters has no name. */
extern const regx_counter_t regx_counter_table[];
extern const char *const regx_path_names[REGX_PATH_COUNT], *const regx_why_texts[REGX_WHY_COUNT];

uint64_t regx_counter_value(const regx_counters_t *counters, const regx_counter_t *counter);

/* Of one thread: a tenth of an interlocked add. */
static inline void regx_count_alone(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Adds n. */
static inline void regx_count(const regx_counters_t *counters, _Atomic uint64_t *counter,
                              uint64_t n)
{
    if (counters->threads) {
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
    } else {
        regx_count_alone(counter, n);
    }
}

/* Keeps the largest value seen. */
static inline void regx_count_high(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(counter, memory_order_relaxed);

    while (value > seen && !atomic_compare_exchange_weak_explicit(
                               counter, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* What a peer sent does not fit what it was granted or may ask for. */
static inline void regx_count_malformed(regx_counters_t *counters)
{
    regx_count(counters, &counters->malformed, 1);
}

/* The number of a size. */
static inline size_t regx_flow_size(regx_path_t path, uint64_t length)
{
    const size_t size = 63 - 12 - (size_t)__builtin_clzll(length | REGX_FLOW_SECOND / 2);

    if (path <= REGX_PATH_frag) {
        return 0;
    }
    return size < REGX_FLOW_SIZES ? size : REGX_FLOW_SIZES - 1;
}

/* So many messages (0 or 1) of that length, and so many bytes of them. */
static inline void regx_count_part(regx_flow_t *flow, regx_path_t path, regx_why_t why,
                                   uint64_t length, uint64_t messages, uint64_t bytes)
{
    const size_t way = path * REGX_WHY_COUNT + why, size = regx_flow_size(path, length);

    if (flow->threads) {
        atomic_fetch_add_explicit(&flow->messages[way][size], messages, memory_order_relaxed);
        atomic_fetch_add_explicit(&flow->bytes[way][size], bytes, memory_order_relaxed);
    } else {
        regx_count_alone(&flow->messages[way][size], messages);
        regx_count_alone(&flow->bytes[way][size], bytes);
    }
}

static inline void regx_count_message(regx_flow_t *flow, regx_path_t path, regx_why_t why,
                                      uint64_t length)
{
    regx_count_part(flow, path, why, length, 1, length);
}

/* The tally of that reason, made at its first use. The first REGX_REASONS_MAX - 1 reasons have one
 * each; all later ones share "other". Compares strings: not for every message. Any thread, of any
 * object. */
regx_tally_t *regx_tally_find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

/* Counts a reason once. Any thread. */
void regx_tally(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

#endif
