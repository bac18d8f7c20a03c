/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/mailbox.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/shm/segment.h"

/* Of a payload so much is fetched while Open MPI looks for the request that it belongs to. */
#define FETCHED 2048u
/* Frames of up to GAPPED_MAX bytes lie apart in the ring: before each a GAP_PART-th of it is left out.
 * A processor that reads one frame fetches ahead into what lies behind it. If that were the next
 * frame, which the poster is writing, its lines would go to and fro. The poster also takes the first
 * TAKEN bytes of the place of the next frame, which the poller had in the lap before.
 * Seen on an EPYC of Zen 4, cores far from one another, GB/s of a stream of 512 B, 1, 2 and 4 KiB: 0.9,
 * 1.2, 1.5 and 1.8 without a gap, 1.8, 2.5, 2.3 and 2.3 with it. */
#define GAPPED_MAX 4224u /* 4 KiB with its headers */
#define GAP_PART 256u
#define TAKEN 2048u
/* So many of the ring's bytes are brought in at once. */
#define BROUGHT_IN 32768u
/* How long the ring of payload is, and why it grows.
 *
 * Processors fetch ahead within some dozens of pages that they remember, and do not fetch a page ahead
 * that comes round again meanwhile. And cache lines that have left both cores' own caches come faster
 * from the cache that the cores share than from the other core. On an Intel Xeon 256 KiB instead of 128
 * raised the bandwidth of 2 KiB from 3.1 to 7.8 GB/s, and on an EPYC of Zen 3 1 MiB instead of 256 KiB
 * that of 16 KiB from 12.7 to 17.9. With 2 MiB it was as fast. */

/* Bytes of the ring in use at first. */
#define PART_MIN 32768u
/* They are doubled after so many laps of frames that do not lie apart. In a virtual machine (Zen 5) the
 * first access to a page costs either process 6 to 12 us, even if it is populated; a lap takes 0.2 us a
 * page near, 0.5 far. With 64 laps exchanges of 32 KiB took twice as long until the whole ring was in
 * use. Frames that lie apart are as fast in the part. */
#define LAPS 512u
/* Except on AMD's processors they are doubled sooner while fewer than so many bytes are in use, and
 * then laps of any frames count. On two cores of a Xeon a page costs 2.5 us, and there 2 to 32 KiB
 * take 0.83 to 0.88 of the time that they take in the first part. */
#define PART_SOON (256u << 10)
#define LAPS_SOON 128u
/* They are also doubled when a post finds no room, until so many frames of that length fit. */
#define BURST 64u

/* Some frames are written past the caches (base/copy.h): else each line that the poller has read in the
 * lap before must be taken away from it again. The ring need not grow for these.
 *
 * To a poller that is far these are frames of PAST_MIN bytes and more: on an EPYC of Zen 4 they take
 * 0.4 to 0.7 of the time by plain stores one way, and have 1.8 to 5.5 times the bandwidth (2 to 32 KiB;
 * those of 1 KiB are slower so).
 * The poster calls a poller far if a line that the poller wrote takes FAR ns to come. It times such a line
 * when it looks how much of a ring is free: of the ring of payload in one of TIMED laps, of the ring of lines
 * in one of TIMED_LINES. It does so in all laps of the former while the poller seems to be on this core, and
 * in all of the latter until the poller seems far. What comes in less
 * than HERE ns was in this core's cache, or its second thread has it. Near it is 50 to 60 ns, and one in
 * 400 more; far 130 to 170, but up to half of them 50 to 60. So a slow one counts four times as much as a
 * fast one, and one of TIMED_MOST alone does not make a poller far (but the first one of all does).
 *
 * To a near one they are frames that do not lie apart, while what is in use of the rings fits in a
 * second-level cache: lines that have left it for the shared one come faster without this. (Within it
 * 16 KiB take 2.6 us past the caches, and 3.5 by plain stores.) So both rings count, if about as much
 * comes from the other side: streams both ways would lose a third. Nor is it done where the ring may
 * grow beyond that cache, as on Zen 3, where it was not tried. */
#define PAST_MIN 2048u
#define FAR 110u
#define HERE 35u
#define TIMED 4u
#define TIMED_LINES 64u
#define TIMED_MOST 170u

_Static_assert(sizeof(regx_mailbox_line_t) == 64, "a line is one cache line");
_Static_assert(REGX_MAILBOX_PAYLOAD_MIN / 4 + 16384 + 2 * (REGX_MAILBOX_MAX + 2 * 64) <=
                   REGX_MAILBOX_PAYLOAD_MIN,
               "a frame has room in the shortest ring, with pages of 64 KiB, too");

/* Where in a ring, a power of two, a position of its stream lies. */
static uint64_t offset_in_ring(uint64_t position, uint32_t ring)
{
    return position & (ring - 1);
}

void regx_mailbox_out_init(regx_mailbox_out_t *out, regx_mailbox_memory_t *memory, uint32_t ring)
{
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);

    *out = (regx_mailbox_out_t){.memory = memory,
                                .ring = ring,
                                .part = PART_MIN,
                                .page = (uint32_t)regx_page_size(),
                                .cache = cache > 0 ? (uint32_t)cache : 0};
}

void regx_mailbox_in_init(regx_mailbox_in_t *in, regx_mailbox_memory_t *memory, uint32_t ring)
{
    memset(in, 0, sizeof(*in));
    in->memory = memory;
    in->ring = ring;
    regx_mailbox_free_until(in, 0);
}

bool regx_mailbox_is_far(const regx_mailbox_out_t *out)
{
    return out->distance >= FAR;
}

/* Whether the poller is known to read from other caches than this core's own. */
static inline bool reads_elsewhere(const regx_mailbox_out_t *out)
{
    return out->distance >= HERE;
}

/* Looks how far the poller has freed lines, or payload. timed: also notes how long the look took, if the
 * poller has freed something since; else the line may never have left this core. */
static void look_at_consumed(regx_mailbox_out_t *out, const _Atomic uint64_t *consumed,
                             uint64_t *known, bool timed)
{
    const uint64_t before = *known;
    int64_t first = 0, began = 0;

    timed = timed && regx_cpu_is_amd();
    if (timed) {
        first = regx_now_ns();
        began = regx_now_ns();
#if defined(__x86_64__)
        __builtin_ia32_lfence(); /* else the load may begin before the clock is read */
#endif
    }
    *known = atomic_load_explicit(consumed, memory_order_acquire);
    if (timed && *known != before) {
        const int64_t clock =
            began - first; /* how long it takes to read it, on some machines much */
        const int64_t line = regx_now_ns() - began - clock;
        const uint32_t took = line < 0 ? 0 : (uint32_t)regx_min((uint64_t)line, TIMED_MOST);

        /* A slow one counts four times as much as a fast one; what was in this core's cache, or its
         * second thread's, brings the poller slowly nearer. */
        if (took < HERE) {
            out->distance -= out->distance / 32;
        } else if (out->distance == 0) {
            out->distance = took;
        } else if (took > out->distance) {
            out->distance += (took - out->distance) / 4;
        } else {
            out->distance -= (out->distance - took) / 16;
        }
    }
}

bool regx_mailbox_has_room(regx_mailbox_out_t *out, uint32_t lines)
{
    /* In the first lap it looks sooner, to know how far the poller is. */
    const uint32_t sure = regx_mailbox_is_far(out) || out->line > REGX_MAILBOX_LINES
                              ? REGX_MAILBOX_LINES
                              : REGX_MAILBOX_LINES / 4;

    if (out->line + lines - out->consumed_lines <= sure) {
        return true;
    }
    look_at_consumed(out, &out->memory->consumed.lines, &out->consumed_lines,
                     !regx_mailbox_is_far(out) ||
                         out->line / REGX_MAILBOX_LINES % TIMED_LINES == 0);
    return out->line + lines - out->consumed_lines <= REGX_MAILBOX_LINES;
}

/* Whether a line that is not full may seem to be. */
static inline bool may_seem_full(const regx_mailbox_out_t *out, uint64_t line)
{
    return line < out->spans_until;
}

/* The line behind the next frame, at which the poller looks then, must not seem to be full. If it is
 * not free, a frame begins there, with the number of the lap before. */
static __attribute__((noinline)) void clear_behind(const regx_mailbox_out_t *out, uint64_t behind)
{
    _Atomic uint64_t *head = &out->memory->lines[behind % REGX_MAILBOX_LINES].head;
    const uint32_t lap = regx_mailbox_lap(behind);

    if ((uint32_t)atomic_load_explicit(head, memory_order_relaxed) == lap) {
        atomic_store_explicit(head, lap - 1, memory_order_relaxed);
    }
}

/* Whether so many lines are free for a frame, which may then be posted. */
static inline bool may_post(regx_mailbox_out_t *out, uint32_t lines)
{
    if (!regx_mailbox_has_room(out, lines)) {
        return false;
    }
    if (may_seem_full(out, out->line + lines)) {
        clear_behind(out, out->line + lines);
    }
    return true;
}

/* More of the ring is in use from now on, if there is more. */
static void grow(regx_mailbox_out_t *out)
{
    if (out->part < out->ring) {
        out->part *= 2;
    }
    out->laps = 0;
}

/* Whether a frame with so much payload is written past the caches, if that is not packed. */
static bool goes_past_caches(const regx_mailbox_out_t *out, size_t payload_length)
{
    if (regx_mailbox_is_far(out)) {
        return payload_length >= PAST_MIN;
    }
    return reads_elsewhere(out) && payload_length > GAPPED_MAX && out->ring <= out->cache &&
           (out->balance <= 0 || 2 * out->part <= out->cache);
}

/* The ring's pages up to `end`, in the ring, are there. */
static void bring_in(const regx_mailbox_memory_t *memory, uint64_t end, size_t *brought_in,
                     int advice)
{
    if (end > *brought_in) {
        regx_shm_bring_in(memory->payload, regx_align_up(end, BROUGHT_IN), brought_in, advice);
    }
}

/* Posts a frame in the ring of payload. REGX_AGAIN: that has no room. */
static regx_status_t post_payload(regx_mailbox_out_t *out, uint8_t tag, const void *header,
                                  size_t header_length, regx_pack_t pack, void *payload,
                                  size_t payload_length)
{
    const size_t length = header_length + payload_length;
    const void *plain = pack == NULL ? payload : NULL;
    const size_t skew = payload_length > REGX_COPY_PIECE ? regx_copy_skew(plain, header_length) : 0;
    const size_t gap = length <= GAPPED_MAX ? out->ring / GAP_PART : 0;
    const bool past = pack == NULL && goes_past_caches(out, payload_length);
    const size_t taken = gap + skew + length; /* contiguous bytes */
    uint64_t skip;                            /* the end of the ring, where that does not fit */

    /* Until frames of that length always have room once the poller has taken all. It reports what is free
     * by quarters of what it has brought in, which ends with a page; and up to a frame is skipped at the
     * end. */
    while (out->part < out->ring &&
           (out->part + out->page) / 4 + 2 * regx_align_up(taken, 64) > out->part) {
        grow(out);
    }
    for (;; grow(out)) {
        const uint64_t from = offset_in_ring(out->payload, out->ring);

        skip = from + taken > out->part ? out->ring - from : 0;
        const uint64_t end = out->payload + skip + regx_align_up(taken, 64);
        if (end - out->consumed_payload > out->ring) {
            look_at_consumed(out, &out->memory->consumed.payload, &out->consumed_payload,
                             !reads_elsewhere(out) || out->payload / out->ring % TIMED == 0);
        }
        if (end - out->consumed_payload <= out->ring) { /* nothing is written over */
            break;
        }
        if (out->part == out->ring || out->part >= BURST * taken) {
            return REGX_AGAIN;
        }
    }
    const bool soon = !regx_cpu_is_amd() && out->part < PART_SOON;
    if (skip > 0 && (gap == 0 || soon) && !past && ++out->laps >= (soon ? LAPS_SOON : LAPS)) {
        grow(out);
    }
    const uint64_t position = out->payload + skip + gap + skew;
    const uint64_t at = offset_in_ring(position, out->ring);
    bring_in(out->memory, at + length, &out->brought_in, MADV_POPULATE_WRITE);
    regx_copy_frame(out->memory->payload + at, header, header_length, pack, payload,
                    past ? 0 : payload_length);
    if (past) {
        regx_copy_past_caches(out->memory->payload + at + header_length, payload, payload_length);
    }
    regx_mailbox_line_t *const line = regx_mailbox_next_line(out);
    memcpy(line->data, &position, sizeof(position));
    out->payload = regx_align_up(position + length, 64);
    regx_mailbox_show_line(out, line, tag, (uint32_t)length, REGX_FRAME_PAYLOAD);
    for (size_t ahead = 0; gap > 0 && !past && ahead < TAKEN && ahead < length; ahead += 64) {
        regx_copy_take(out->memory->payload +
                       offset_in_ring(out->payload + gap + ahead, out->ring));
    }
    return REGX_OK;
}

regx_status_t regx_mailbox_post(regx_mailbox_out_t *out, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *payload,
                                size_t payload_length)
{
    const size_t length = header_length + payload_length;
    const uint32_t lines = length <= REGX_MAILBOX_SPAN ? regx_mailbox_lines_of(length) : 1;
    regx_mailbox_line_t *const line = regx_mailbox_next_line(out);

    if (length > REGX_MAILBOX_MAX) {
        return REGX_INVALID;
    }
    if (!may_post(out, lines)) {
        return REGX_AGAIN;
    }
    if (length > REGX_MAILBOX_SPAN) {
        return post_payload(out, tag, header, header_length, pack, payload, payload_length);
    }
    regx_copy_frame(line->data, header, header_length, pack, payload, payload_length);
    if (lines == 1) {
        regx_mailbox_show_line(out, line, tag, (uint32_t)length, REGX_FRAME_INLINE);
        out->short_until =
            may_seem_full(out, out->line) ? 0 : out->consumed_lines + REGX_MAILBOX_LINES;
        return REGX_OK;
    }
    /* It goes on in the lines behind the next one. */
    regx_mailbox_show(out, line, tag, (uint32_t)length, REGX_FRAME_INLINE);
    out->line += lines - 1;
    out->spans_until = out->line + REGX_MAILBOX_LINES;
    /* The next two frames may be as long. */
    for (uint32_t i = 0; out->streams && i < 2 * lines; i++) {
        regx_copy_take(&out->memory->lines[(out->line + i) % REGX_MAILBOX_LINES]);
    }
    return REGX_OK;
}

regx_status_t regx_mailbox_post_line(regx_mailbox_out_t *out, regx_frame_kind_t kind, uint8_t tag,
                                     const void *data, uint32_t length)
{
    regx_mailbox_line_t *const line = regx_mailbox_next_line(out);

    if (!may_post(out, 1)) {
        return REGX_AGAIN;
    }
    if (length > 0) {
        memcpy(line->data, data, length);
    }
    regx_mailbox_show_line(out, line, tag, length, kind);
    return REGX_OK;
}

regx_status_t regx_mailbox_peek(regx_mailbox_in_t *in, regx_frame_t *frame)
{
    const regx_mailbox_line_t *line = in->next;
    const uint64_t head = atomic_load_explicit(&line->head, memory_order_acquire);
    uint64_t at;

    if ((uint32_t)head != in->lap) {
        return REGX_AGAIN;
    }
    regx_mailbox_fetch_ahead(line, 1);
    frame->tag = (uint8_t)(head >> 32);
    frame->length = (uint16_t)(head >> 40);
    frame->kind = (regx_frame_kind_t)(head >> 56);
    frame->lines = 1;
    switch (frame->kind) {
    case REGX_FRAME_INLINE:
        frame->data = line->data;
        if (frame->length > REGX_MAILBOX_SPAN) {
            return REGX_INVALID;
        }
        frame->lines = regx_mailbox_lines_of(frame->length);
        /* Begins to fetch the lines in which it goes on. On AMD's processors, so that this core is then
         * the only one to have them: the poster, which writes them in the next lap, takes them sooner
         * from one core than from two that share them. */
        for (uint32_t i = 1; i < frame->lines; i++) {
            if (regx_cpu_is_amd()) {
                regx_copy_take(line + i);
            } else {
                __builtin_prefetch(line + i);
            }
        }
        return REGX_OK;
    case REGX_FRAME_SHARED_COPY:
        frame->data = line->data;
        return frame->length <= REGX_MAILBOX_INLINE ? REGX_OK : REGX_INVALID;
    case REGX_FRAME_PAYLOAD:
        memcpy(&frame->offset, line->data, sizeof(frame->offset));
        at = offset_in_ring(frame->offset, in->ring);
        if (frame->length > REGX_MAILBOX_MAX || frame->offset - in->payload > in->ring ||
            at + frame->length > in->ring) {
            return REGX_INVALID;
        }
        bring_in(in->memory, at + frame->length, &in->brought_in, MADV_POPULATE_READ);
        frame->data = in->memory->payload + at;
        for (size_t ahead = 0; ahead < frame->length && ahead < FETCHED; ahead += 64) {
            __builtin_prefetch(in->memory->payload + at + ahead);
        }
        return REGX_OK;
    case REGX_FRAME_ZCOPY:
        memcpy(&frame->lent, line->data, sizeof(frame->lent));
        return frame->lent.token < REGX_MAILBOX_ZCOPIES ? REGX_OK : REGX_INVALID;
    case REGX_FRAME_LAST:
        return REGX_OK;
    default:
        return REGX_INVALID;
    }
}

void regx_mailbox_free_until(regx_mailbox_in_t *in, uint64_t line)
{
    const uint64_t publish_at = line - line % REGX_MAILBOX_QUARTER + REGX_MAILBOX_QUARTER;

    in->next = &in->memory->lines[line % REGX_MAILBOX_LINES];
    in->lap = regx_mailbox_lap(line);
    in->publish_line = in->next + (publish_at - line);
    if (publish_at != in->publish_at) {
        in->publish_at = publish_at;
        atomic_store_explicit(&in->memory->consumed.lines, line, memory_order_release);
    }
}

void regx_mailbox_pop(regx_mailbox_in_t *in, const regx_frame_t *frame)
{
    if (frame->kind == REGX_FRAME_PAYLOAD) {
        in->payload = regx_align_up(frame->offset + frame->length, 64);
        /* A quarter of what is in use. What is brought in ends with a page, perhaps behind the ring. */
        if (in->payload - in->published_payload >= regx_min(in->brought_in, in->ring) / 4) {
            in->published_payload = in->payload;
            atomic_store_explicit(&in->memory->consumed.payload, in->payload, memory_order_release);
        }
    }
    regx_mailbox_free_until(in, regx_mailbox_line(in) + frame->lines);
}
