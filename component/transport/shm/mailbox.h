/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A mailbox: one-way, first-in first-out frames between two processes that map the same memory.
 *
 * One process posts, the other polls; neither takes a lock nor writes a cache line that the other
 * writes, so an 8-byte message costs the transfer of one line. A frame of up to
 * REGX_MAILBOX_INLINE bytes lies in its line; one of up to REGX_MAILBOX_SPAN goes on in the lines
 * that follow, without a gap, so that it is delivered where it lies; a longer one lies in a ring of
 * payload that the line points to; one that is sent without a copy stays in the poster's pool.
 *
 * Lines are counted from the beginning on: line n lies at n % LINES of the ring, and is full when its
 * head has the number of its lap through the ring, n / LINES + 1. So a line need not be cleared. The
 * lap and what describes the frame are one word, the head, written last and read once. A poster that
 * changes the word after it was read cannot mislead the poller.
 *
 *   freed, published │ freed, not published │      full      │      free      │ not known to be free
 *   ─────────────────┼──────────────────────┼────────────────┼────────────────┼──────────────▶ lines
 *             consumed.lines             in: next        out: line  consumed_lines + LINES
 *
 *   consumed_lines <= consumed.lines <= next <= line <= consumed_lines + LINES
 *     consumed_lines is what the poster has read of consumed.lines, which the poller publishes after
 *     each quarter of the ring. The poster reads it again when there seems to be no room.
 *   line < short_until <= consumed_lines + LINES
 *     The next line is free, and the one behind it does not seem to be full. The poster takes the
 *     short way, which looks at nothing else.
 *   line < spans_until
 *     A frame of several lines may have left bytes where a head is expected, and they may happen to be
 *     the number of this lap. The poster clears such a line before the poller looks at it (clear_behind
 *     in mailbox.c). The short way clears none, so it is closed: short_until is 0. (The post of such a
 *     frame need not close it: short_until is at most consumed_lines + LINES, so it ends before the lines
 *     in which that frame has left bytes come round again.)
 *
 * For the bytes of the ring of payload the same holds, but for the short way:
 *
 *   consumed_payload <= consumed.payload <= in: payload <= out: payload <= consumed_payload + ring
 *     The poller publishes after each quarter of what it has brought in of the ring.
 *
 * The ring of payload is longer than what is under way needs, since processors then fetch ahead
 * better (mailbox.c has the figures). But the first access to a page costs either side up
 * to 16 us in a virtual machine. So the poster begins with a part of the ring, and doubles it for
 * longer frames, for bursts, and after some laps. The rest of the ring it skips; the poller
 * need not know of that.
 *
 * The poster's calls are serialised by the caller (the connection's lock), the poller's because
 * only progress polls. The poller trusts nothing it reads: positions and lengths are checked
 * against the ring before a byte is touched.
 */
#ifndef REGX_TRANSPORT_MAILBOX_H
#define REGX_TRANSPORT_MAILBOX_H

#include "transport/shm/vm.h"

#define REGX_MAILBOX_LINES 256u
#define REGX_MAILBOX_QUARTER (REGX_MAILBOX_LINES / 4)
#define REGX_MAILBOX_INLINE 56u /* bytes of a frame in its first line */
#define REGX_MAILBOX_SPAN_LINES 8u
#define REGX_MAILBOX_SPAN (64 * REGX_MAILBOX_SPAN_LINES - 8) /* in so many lines */
#define REGX_MAILBOX_PAYLOAD_MAX (1u << 20)   /* bytes of the ring of payload: a power of two */
#define REGX_MAILBOX_PAYLOAD_MIN (128u << 10) /* where memory is short, or for many neighbours */
/* A frame and one line take less than 3/8 of the shortest ring (mailbox.c's post_payload). Long payload
 * keeps its place within its cache line (base/copy.h), and so may begin later in the first line. */
#define REGX_MAILBOX_MAX 32848u  /* an eager message of 32 KiB with its headers */
#define REGX_MAILBOX_ZCOPIES 32u /* frames of the poster's pool not yet returned */
#define REGX_MAILBOX_ANSWERS 4u  /* pieces that pinned asks for at once (pinned/pinned.h) */

typedef enum regx_frame_kind {
    REGX_FRAME_INLINE,      /* 0: what stands in a head above the tag is then the length alone */
    REGX_FRAME_PAYLOAD,     /* bytes 0-7 of the line: position in the payload stream */
    REGX_FRAME_ZCOPY,       /* stays in the poster's pool: a regx_mailbox_lent_t */
    REGX_FRAME_SHARED_COPY, /* asks for help with a get: bytes of the line (shared_copy.h) */
    REGX_FRAME_LAST         /* the poster posts nothing more */
} regx_frame_kind_t;

typedef struct regx_mailbox_line {
    /* From the lowest bit on: 32 of the lap, 8 of the tag, 16 of the length, 8 of the kind. Or any bytes of
     * a frame that began before. */
    _Atomic uint64_t head;
    uint8_t data[REGX_MAILBOX_INLINE];
} regx_mailbox_line_t;

/* The shared memory; zero when new, but for the payload. */
typedef struct regx_mailbox_memory {
    struct {
        _Alignas(64) _Atomic uint64_t lines; /* how many lines the poller has freed */
        _Atomic uint64_t payload;            /* up to where it has freed the payload stream */
    } consumed;
    _Alignas(64) _Atomic uint32_t left; /* 1: its poller has left, so the owner may use it again */
    _Atomic uint32_t accepted; /* 1: its poller has mapped it: frames outlive their poster */
    regx_vm_cookie_t owner;    /* proves to the poller whose memory it has mapped */
    _Alignas(64) _Atomic uint32_t returned[REGX_MAILBOX_ZCOPIES]; /* by token: last use returned */
    _Alignas(64) _Atomic uint64_t answers[REGX_MAILBOX_ANSWERS];  /* the poller's, over pinned */
    /* A frame that begins near the ring's end goes on behind it. */
    _Alignas(64) regx_mailbox_line_t lines[REGX_MAILBOX_LINES + REGX_MAILBOX_SPAN_LINES - 1];
    uint8_t payload[]; /* as many bytes as both sides are told when they begin */
} regx_mailbox_memory_t;

/* Bytes of a mailbox with such a ring of payload. */
static inline size_t regx_mailbox_size(uint32_t ring)
{
    return sizeof(regx_mailbox_memory_t) + ring;
}

/* Whether a ring of payload may be that long. */
static inline bool regx_mailbox_ring_is_valid(uint32_t ring)
{
    return ring >= REGX_MAILBOX_PAYLOAD_MIN && ring <= REGX_MAILBOX_PAYLOAD_MAX &&
           (ring & (ring - 1)) == 0;
}

typedef struct regx_mailbox_out { /* the poster's private state */
    regx_mailbox_memory_t *memory;
    uint32_t ring;           /* bytes of payload */
    uint32_t part;           /* of them in use */
    uint32_t laps;           /* since it was doubled */
    uint32_t page;           /* bytes of one */
    uint64_t line;           /* next to fill */
    uint64_t payload;        /* next byte of the payload stream */
    uint64_t consumed_lines; /* this and the next three are bounds: see above */
    uint64_t consumed_payload;
    uint64_t spans_until;
    uint64_t short_until;
    size_t brought_in; /* of the ring's pages */
    uint32_t distance; /* ns until a line that the poller has written is here; 0: not known */
    uint32_t cache;    /* bytes of the core's second-level cache; 0: not known */
    uint32_t received; /* frames from all neighbours, at the last post that regx_mailbox_note saw */
    int64_t balance;   /* above 0: lately more than half as many frames have come as were posted */
    /* Posts follow on one another, so the poller is behind (regx_mailbox_note decides; a post without
     * one leaves this as it is). Only then are the next frames' lines taken away from the poller: in a
     * ping-pong that would hold up the frame just posted. Seen on an EPYC of Zen 5, cores far from one
     * another: 8 bytes one way in 0.38 us, not 0.44. */
    bool streams;
} regx_mailbox_out_t;

typedef struct regx_mailbox_in { /* the poller's private state */
    regx_mailbox_memory_t *memory;
    const regx_mailbox_line_t *next; /* to read */
    uint32_t ring;                   /* bytes of payload */
    uint32_t lap;                    /* its number when it is full */
    uint64_t publish_at;             /* a multiple of the quarter: when so many lines are freed, */
                                     /* consumed.lines is published */
    const regx_mailbox_line_t *publish_line; /* the line of that count */
    uint64_t payload;                        /* freed up to here, perhaps not yet published */
    uint64_t published_payload;
    size_t brought_in; /* of the ring's pages */
} regx_mailbox_in_t;

/* Where a frame lies that is sent without a copy. */
typedef struct regx_mailbox_lent {
    uint64_t offset; /* in the poster's pool */
    uint32_t length;
    uint32_t token; /* by which it is returned: one that is not under way */
    uint32_t use;   /* of the token; differs from the last */
} regx_mailbox_lent_t;

typedef struct regx_frame {
    regx_frame_kind_t kind;
    uint8_t tag;
    uint32_t length;          /* not ZCOPY */
    uint32_t lines;           /* that it takes */
    const void *data;         /* not ZCOPY: in the ring, until regx_mailbox_pop */
    uint64_t offset;          /* PAYLOAD: in the payload stream */
    regx_mailbox_lent_t lent; /* ZCOPY */
} regx_frame_t;

/* Whether the poller is known to share no cache with this core. On processors on which writing past the
 * caches was not tried (regx_cpu_is_amd) it is never known. */
bool regx_mailbox_is_far(const regx_mailbox_out_t *out);

/* How many lines a frame of at most REGX_MAILBOX_SPAN bytes takes. */
static inline uint32_t regx_mailbox_lines_of(size_t length)
{
    return (uint32_t)((length + offsetof(regx_mailbox_line_t, data) + 63) / 64);
}

void regx_mailbox_out_init(regx_mailbox_out_t *out, regx_mailbox_memory_t *memory, uint32_t ring);
void regx_mailbox_in_init(regx_mailbox_in_t *in, regx_mailbox_memory_t *memory, uint32_t ring);

/* Whether so many lines are free now: a post of at most REGX_MAILBOX_INLINE bytes takes one. */
bool regx_mailbox_has_room(regx_mailbox_out_t *out, uint32_t lines);

/* The number in a line's head when it is full. `line`: its count. */
static inline uint32_t regx_mailbox_lap(uint64_t line)
{
    return (uint32_t)(line / REGX_MAILBOX_LINES) + 1;
}

/* The line that the next post fills. */
static inline regx_mailbox_line_t *regx_mailbox_next_line(const regx_mailbox_out_t *out)
{
    return &out->memory->lines[out->line % REGX_MAILBOX_LINES];
}

/* How many lines ahead of the one just filled the poster of a stream takes a line for itself, and
 * how many ahead a poller that is behind fetches one. Seen on an Intel Xeon with 8 bytes, all in one
 * direction and in both: with neither 92 and 110 MB/s, with the first 90 and 136, with both 112 and
 * 159; 3 and 4 ahead were better one way and worse both ways. */
#define REGX_MAILBOX_AHEAD 2u

/* Shows the poller a frame that begins in `line`, the next one, which is filled. */
static inline void regx_mailbox_show(regx_mailbox_out_t *out, regx_mailbox_line_t *line,
                                     uint8_t tag, uint32_t length, regx_frame_kind_t kind)
{
    const uint64_t frame = tag | length << 8 | (uint32_t)kind << 24;

    atomic_store_explicit(&line->head, regx_mailbox_lap(out->line) | frame << 32,
                          memory_order_release);
    out->line++;
}

/* The same of a frame that has this line alone. In a stream it also takes to this core the line that is
 * to be filled some frames later. */
static inline void regx_mailbox_show_line(regx_mailbox_out_t *out, regx_mailbox_line_t *line,
                                          uint8_t tag, uint32_t length, regx_frame_kind_t kind)
{
    regx_mailbox_show(out, line, tag, length, kind);
    if (out->streams) {
        regx_copy_take(
            &out->memory->lines[(out->line - 1 + REGX_MAILBOX_AHEAD) % REGX_MAILBOX_LINES]);
    }
}

/* Whether a frame of so many plain bytes may go the short way: it fits a line, and the way is open. */
static inline bool regx_mailbox_is_short(const regx_mailbox_out_t *out, size_t length)
{
    return length <= REGX_MAILBOX_INLINE && out->line < out->short_until;
}

/* Before a post: so many frames have come from all neighbours. It is a stream unless exactly one has
 * since the last post, as in a ping-pong or an exchange. (That is one counter: where several send, a
 * ping-pong is taken for a stream.) */
static inline void regx_mailbox_note(regx_mailbox_out_t *out, uint32_t received)
{
    out->streams = received - out->received != 1;
}

/* The post was made: it counts in the balance, of which each time a 256th part is forgotten. Short frames
 * do not count: the balance is about the ring of payload, which they do not use. */
static inline void regx_mailbox_noted(regx_mailbox_out_t *out, uint32_t received)
{
    out->balance += 2 * (int64_t)(received - out->received) - 1 - out->balance / 256;
    out->received = received;
}

/* Notes and posts a frame that regx_mailbox_is_short, as send_any does by the longer way (shm_post.c): the
 * shortest way from MPI to the peer. It calls nothing, so that little need be saved. */
static inline void regx_mailbox_post_short(regx_mailbox_out_t *out, uint32_t received, uint8_t tag,
                                           const void *header, size_t header_length,
                                           const void *payload, size_t payload_length)
{
    regx_mailbox_line_t *const line = regx_mailbox_next_line(out);

    regx_mailbox_note(out, received);
    out->received = received;
    regx_copy_short(line->data, header, header_length);
    regx_copy_short(line->data + header_length, payload, payload_length);
    regx_mailbox_show_line(out, line, tag, (uint32_t)(header_length + payload_length),
                           REGX_FRAME_INLINE);
}

/* Posts header and payload, as transport.h's send has them, as one frame. REGX_AGAIN: no room,
 * nothing happened. REGX_INVALID: longer than REGX_MAILBOX_MAX. */
regx_status_t regx_mailbox_post(regx_mailbox_out_t *out, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *payload,
                                size_t payload_length);

/* Posts a frame whose line says all: REGX_FRAME_SHARED_COPY, REGX_FRAME_ZCOPY (regx_mailbox_lent_t)
 * or, without bytes, REGX_FRAME_LAST. At most REGX_MAILBOX_INLINE bytes. REGX_AGAIN: no room. */
regx_status_t regx_mailbox_post_line(regx_mailbox_out_t *out, regx_frame_kind_t kind, uint8_t tag,
                                     const void *data, uint32_t length);

/* Whether a line is there to be peeked at: the poller's idle loop, kept to a few instructions. */
static inline bool regx_mailbox_has(const regx_mailbox_in_t *in)
{
    return (uint32_t)atomic_load_explicit(&in->next->head, memory_order_acquire) == in->lap;
}

/* The count of the next line to read. */
static inline uint64_t regx_mailbox_line(const regx_mailbox_in_t *in)
{
    return in->publish_at - (uint64_t)(in->publish_line - in->next);
}

/* Whether a frame is there behind the next one, if that one takes one line. A hint: nothing of that
 * frame may be read after it. */
static inline bool regx_mailbox_has_second(const regx_mailbox_in_t *in)
{
    const uint64_t second = regx_mailbox_line(in) + 1;
    const regx_mailbox_line_t *line = &in->memory->lines[second % REGX_MAILBOX_LINES];

    return (uint32_t)atomic_load_explicit(&line->head, memory_order_relaxed) ==
           regx_mailbox_lap(second);
}

/* Begins to fetch the line so many behind this one: it travels while a frame is handled,
 * perhaps for microseconds. 1, or REGX_MAILBOX_AHEAD where several frames were there, so that the
 * poster has filled more: else that would have to fetch it back. */
static inline void regx_mailbox_fetch_ahead(const regx_mailbox_line_t *line, size_t lines)
{
    __builtin_prefetch(line + lines);
}

/* Looks at the next frame. REGX_OK: `frame` describes it, regx_mailbox_pop ends it. REGX_AGAIN:
 * none. REGX_INVALID: the line is malformed; the caller leaves it behind
 * by regx_mailbox_free_until. */
regx_status_t regx_mailbox_peek(regx_mailbox_in_t *in, regx_frame_t *frame);
void regx_mailbox_pop(regx_mailbox_in_t *in, const regx_frame_t *frame);
/* Gives a zero-copy frame's memory back to the poster. */
static inline void regx_mailbox_return(const regx_mailbox_in_t *in, const regx_mailbox_lent_t *lent)
{
    atomic_store_explicit(&in->memory->returned[lent->token], lent->use, memory_order_release);
}

/* Peek and pop of frames that lie in one line each, the shortest way to MPI: `line` is in->next, which
 * the caller of several keeps. false: there is none, or it is of another kind; regx_mailbox_peek looks
 * at that. Of `frame`, tag, length and data are set; regx_mailbox_pop_short ends it. */
static inline bool regx_mailbox_peek_short(const regx_mailbox_in_t *in,
                                           const regx_mailbox_line_t *line, regx_frame_t *frame)
{
    const uint64_t head = atomic_load_explicit(&line->head, memory_order_acquire);
    const uint32_t length = (uint32_t)(head >> 40); /* and the kind, which is 0 */

    if ((uint32_t)head != in->lap || length > REGX_MAILBOX_INLINE) {
        return false;
    }
    frame->tag = (uint8_t)(head >> 32);
    frame->length = length;
    frame->data = line->data;
    return true;
}

/* Frees all lines before that one, which begins a frame; publishes that at each quarter of the ring. */
void regx_mailbox_free_until(regx_mailbox_in_t *in, uint64_t line);

/* Up to where so many frames may be peeked at and popped in a row. Then, or before, the row is ended. */
static inline const regx_mailbox_line_t *regx_mailbox_row_end(const regx_mailbox_in_t *in,
                                                              size_t most)
{
    return in->next + regx_min(most, (size_t)(in->publish_line - in->next));
}

static inline void regx_mailbox_pop_short(regx_mailbox_in_t *in, const regx_mailbox_line_t *line)
{
    in->next = line + 1;
}

static inline void regx_mailbox_end_row(regx_mailbox_in_t *in)
{
    if (in->next == in->publish_line) { /* the ring may end here */
        regx_mailbox_free_until(in, regx_mailbox_line(in));
    }
}

#endif
