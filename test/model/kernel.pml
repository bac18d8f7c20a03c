/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a look-up in the registration cache learns of changes that the kernel module tells of (backend `kernel`),
 * for the model checker Spin, in the manner of cache.pml: threads that transfer one buffer, threads that change
 * it, the module and the cache's progress.
 *
 * Proven: a look-up never answers with a region whose pages were changed between the start of its pinning and
 * the start of the look-up; and no deadlock. The change of a page table may be seen before the change is over.
 * Each change touches the buffer, and the ring is not lapped.
 */
#ifndef THREADS
#define THREADS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* transfers by each of them */
#endif
#ifndef CHANGERS
#define CHANGERS 1
#endif
#ifndef CHANGES
#define CHANGES 1 /* by each of them */
#endif

/* ---- regx_notify.c */
byte pages;                         /* which pages the buffer has: counts its changes */
byte watches;                       /* of the buffer */
byte told;
byte begun[CHANGERS], over[CHANGERS]; /* changes of each */

/* ---- kernel.c */
byte read;
bool copying;

/* ---- the log and the cache */
byte head, interest;
bool locked, alive;
byte applied, pinned;

byte finished;

/* kernel.c: copy */
inline copy()
{
    top = told;
#ifdef BREAK_READ_EARLY
    cursor = read;
    read = top;
#else
    cursor = read;
#endif
    do
    :: cursor == top -> break
    :: cursor < top ->
        atomic {
            if
            :: interest > 0 -> head++
            :: else
            fi;
            cursor++
        }
    od;
#ifndef BREAK_READ_EARLY
    read = top;
#endif
    atomic { top = 0; cursor = 0 }
}

/* kernel.c: valid. Where another thread copies, the look-up is refused, after some looks. */
#ifdef BREAK_NO_LOOK
#define VALID(otherwise) skip
#else
#define VALID(otherwise) \
    if \
    :: told == read \
    :: told != read -> \
        if \
        :: atomic { !copying -> copying = true }; copy(); copying = false \
        :: copying -> goto otherwise \
        fi \
    fi
#endif

inline lock()
{
    atomic { !locked -> locked = true }
}

/* regx_cache_catch_up_locked and, at once, the end of the region: deregistered, then UNWATCH. */
inline catch_up()
{
    top = head;
    if
    :: top != applied && alive -> alive = false; atomic { watches--; interest-- }
    :: else
    fi;
    applied = top;
    top = 0
}

proctype application()
{
    byte start, since, got, epoch, round, top, cursor, upto[CHANGERS];
    bit settled;

    do
    :: round == ROUNDS -> break
    :: round < ROUNDS ->
        round++;
        start = pages;

        /* cache.c: regx_cache_look_up */
        settled = 0;
        VALID(asked);
        settled = 1;
asked:  epoch = head;
        lock();
        if
        :: applied < epoch -> catch_up()
        :: else
        fi;
        if
        :: alive -> /* where it is not settled the buffer is registered for this use alone */
            assert(!settled || pinned >= start);
            locked = false;
            goto next
        :: else -> locked = false
        fi;

        /* miss.c: regx_cache_acquire; kernel.c: subscribe */
        interest++;
#ifdef BREAK_PIN_FIRST
        got = pages;
#endif
#ifndef BREAK_SINCE
        since = head;
#endif
        /* regx_notify.c: watch. Into the tree, and which changes are under way, under one lock. */
        atomic {
            watches++;
            upto[0] = begun[0];
#if CHANGERS > 1
            upto[1] = begun[1]
#endif
        };
#ifdef BREAK_SINCE
        atomic { !copying -> copying = true };
        copy();
        copying = false;
        since = head;
#endif
#ifndef BREAK_NO_WAIT
        over[0] >= upto[0];
#if CHANGERS > 1
        over[1] >= upto[1];
#endif
#endif
#ifndef BREAK_PIN_FIRST
        got = pages;
#endif
        /* miss.c: publish */
        VALID(refuse);
        lock();
        catch_up();
        atomic {
            if
#ifdef BREAK_INSERT
            :: !alive -> alive = true; pinned = got
#else
            :: !alive && head == since -> alive = true; pinned = got
#endif
            :: else -> watches--; interest--
            fi
        };
        locked = false;
        goto next;
refuse: atomic { watches--; interest-- };
next:
        start = 0;
        d_step {
            since = 0; got = 0; epoch = 0; settled = 0; upto[0] = 0;
#if CHANGERS > 1
            upto[1] = 0
#endif
        }
    od;
    finished++
}

/* The kernel. Told under the module's lock, then made, then over. */
proctype changer(byte me)
{
    byte done;

    do
    :: done == CHANGES -> break
    :: done < CHANGES ->
        done++;
        atomic {
            begun[me]++;
#ifndef BREAK_TOLD_LATE
            if :: watches > 0 -> told++ :: else fi
#endif
        };
        pages++;
        atomic {
#ifdef BREAK_TOLD_LATE
            if :: watches > 0 -> told++ :: else fi;
#endif
            over[me]++
        }
    od;
    finished++
}

/* cache.c: regx_cache_progress */
proctype progress()
{
    byte top, cursor;

    do
    :: atomic { told != read && !copying -> copying = true }; copy(); copying = false
    :: head != applied -> lock(); catch_up(); locked = false
    :: atomic { finished == THREADS + CHANGERS && head == applied && told == read && !locked -> break }
    od
}

init
{
    byte id;
    atomic {
        if /* the cache is empty, or holds the buffer */
        :: true
        :: alive = true; interest = 1; watches = 1
        fi;
        do
        :: id < THREADS -> run application(); id++
        :: else -> break
        od;
        id = 0;
        do
        :: id < CHANGERS -> run changer(id); id++
        :: else -> break
        od;
        run progress()
    }
}
