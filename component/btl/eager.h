/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Up to which length a message goes eagerly between processes of a node.
 *
 * An eager message is copied twice, once by each process. A longer one goes by rendezvous: an RTS,
 * then one copy, by the kernel or by both processes (rendezvous/exposed.c). From 4 to 32 KiB either
 * way may be two or three times as fast as the other. It depends on the processor, on what the
 * program does with its buffers, and on how many messages are under way. So it is found out on the
 * program's own messages, as rendezvous/auto.c does for longer ones: apart for those above 4,
 * 8 and 16 KiB. The sender decides: ob1 compares each message with btl_eager_limit, which
 * is set anew before each.
 *
 * Measure. An eager message has left before anything was copied by its receiver, so its own time
 * means nothing. A sample begins and ends with the first message after a call of progress, at least
 * eight messages apart; it is the time per byte between. A program that waits for an answer calls
 * progress, one that sends a burst does not: so a sample holds whole exchanges or whole bursts, with
 * what the program does between them. Where progress is never called a sample is of 128 messages.
 *
 * Trial. It tries the ways in turns, three each. The first messages of a turn are not counted: they
 * pay for where the other way has left the data. Of a burst all are, since a whole one that is not
 * counted costs as much as a turn. Before the first turn of all 16 messages go by rendezvous, for
 * which the receiver tries its paths. Of a way's samples the lower quartile counts, so that most
 * may be interrupted. A trial ends after one turn of each way if one takes 1.5 times as long, and
 * after two if it takes 1.125 times as long. To win, the other way must save a 16th, later a 32nd.
 *
 * Then no trial is made for 64 times as many messages as this one has lost, at most 4,096 after the
 * first. As long as the outcome stays the same it is 128, 256 and at last 512 times as many, but
 * never more than 2^20.
 *
 * A trial is given up if its messages do not go as they are to (64 in a turn), or if 512 of the
 * other sizes come in one turn. What cannot go by rendezvous whole (data that is not contiguous,
 * MPI_Bsend) is entered as eager: so then eager wins.
 *
 * Before the first trial 112 messages go eagerly, so that a short program has none. If a rendezvous
 * took 2.5 times as long for one size, the others' first trials come after 4,096.
 *
 * One limit serves all sizes. Messages that are to go eagerly take shorter ones with them, unless
 * none has come while 64 of the other sizes did.
 *
 * Regret. Compared with the better way, costs being as they were and one way taking at most three
 * times as long as the other (test_eager.c):
 *   - of messages in a ping-pong, or in bursts of up to 16, 10,000 take at most 4.5 % longer, and
 *     1,000 at most 33 %, or 15 % if the better way is eager;
 *   - in bursts of 64, 10,000 take at most 6.5 % longer, 1,000 at most 50 %, and 10,000 where
 *     progress is never called 8.5 %.
 *
 * Not thread-safe: for a job of one thread.
 */
#ifndef REGX_BTL_EAGER_H
#define REGX_BTL_EAGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGX_EAGER_MIN 4096u  /* bytes of data that always go eagerly */
#define REGX_EAGER_SIZES 3u   /* each twice the one before */
#define REGX_EAGER_SAMPLES 8u /* of a way, in a trial */
#define REGX_EAGER_HEADER 80u /* bytes of the limit that ob1 takes for its header, at most */
#define REGX_EAGER_MAX ((REGX_EAGER_MIN << REGX_EAGER_SIZES) + REGX_EAGER_HEADER)

typedef enum regx_eager_way {
    REGX_EAGER_SEND,
    REGX_EAGER_RENDEZVOUS,
    REGX_EAGER_WAYS
} regx_eager_way_t;

/* Messages of one size. */
typedef struct regx_eager_size {
    regx_eager_way_t winner;
    uint8_t trials;   /* that had an outcome, up to 255 */
    uint8_t repeated; /* the outcome was the same so many times, up to 3 */
    uint64_t wait;    /* messages until the next trial */
    uint32_t unseen;  /* messages of the other sizes since the last of this one */
    struct {
        uint8_t samples;
        uint32_t messages;                /* they are of */
        float sample[REGX_EAGER_SAMPLES]; /* picoseconds a byte, in ascending order */
    } of[REGX_EAGER_WAYS];
} regx_eager_size_t;

typedef struct regx_eager {
    bool tunes;
    size_t *limit;     /* Open MPI's: bytes, with its header */
    size_t configured; /* the parameter's value, the highest limit */
    regx_eager_size_t size[REGX_EAGER_SIZES];

    /* The trial, of one size at a time. NULL: none. */
    regx_eager_size_t *trial;
    unsigned turn;
    uint32_t first;    /* messages by rendezvous that are left before the first turn */
    uint32_t messages; /* of any size, since the trial began */
    /* The turn: */
    uint32_t skipped; /* messages that were not counted */
    uint32_t counted; /* messages that were */
    uint8_t samples;  /* that were taken */
    uint32_t strays;  /* messages of this size that went the other way */
    uint32_t others;  /* messages of the other sizes */
    bool measuring;   /* a sample is being taken: */
    int64_t began;
    uint64_t bytes;
    uint32_t passed;   /* messages */
    unsigned progress; /* as it was at the last message of this size */
} regx_eager_t;

/* limit: the module's, as configured. tunes: it may be changed. */
void regx_eager_init(regx_eager_t *eager, size_t *limit, bool tunes);

/* That way is the faster one of a size, as was measured elsewhere (costs.h): it begins as if a trial
 * had just ended. No message of any size has gone yet; else nothing is changed. */
void regx_eager_tell(regx_eager_t *eager, unsigned number, regx_eager_way_t winner);

/* A message of `length` bytes of data goes that way. Sets the limit for the next one.
 * node: to a process of the node, from which the kernel lets it read. The first message to any
 * other restores the limit for good: there a rendezvous costs a journey to the peer and back, and
 * the limit is the same for all peers. progress: a number that each call of progress changes. */
void regx_eager_note(regx_eager_t *eager, size_t length, regx_eager_way_t way, bool node,
                     unsigned progress);

/* Whether so many bytes, with the header, go by rendezvous only because the limit is lowered. */
static inline bool regx_eager_is_lowered(const regx_eager_t *eager, size_t length)
{
    return length > *eager->limit && length <= eager->configured;
}

#endif
