/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a look-up in the registration cache learns of changes of memory, for the model checker Spin: two
 * threads of the application, threads that change the address space, the notifier's reader and the
 * cache's progress, in every interleaving. test_model.py runs it, whole and with one rule of the
 * protocol broken at a time (-DBREAK_ and its name): then an assertion must fail, or the model would
 * prove nothing.
 *
 * Each part says of which file in registration/ it is, and uses the names of its functions. Proven:
 *   - a look-up never answers with a region whose pages were changed between the start of its
 *     pinning and the start of the look-up;
 *   - nothing that is deregistered is used;
 *   - no deadlock.
 *
 * Memory is sequentially consistent, and a count of uses is seen at once: how dead regions are retired
 * is tested by registration/storm, not here. A range stands for pages; a slot of the log's ring is
 * written and read in one step (inval_log.pml is of that). Budget, index, access, eviction and failures
 * are not in it.
 *
 * What tells of changes: HOOKS (the thread that changes logs it before the change), NOTIFIER
 * (userfaultfd events, and the query), or both. */

#ifndef ROUNDS
#define ROUNDS 2 /* transfers of the first thread */
#endif
#ifndef OTHERS
#define OTHERS 1 /* … and of the second */
#endif
#ifndef REGIONS
#define REGIONS 1 /* records of the cache's table */
#endif
#ifndef RANGES
#define RANGES 1 /* of the address space; threads use range 0, the last also range 1 */
#endif
#ifndef CHANGERS
#define CHANGERS 1 /* threads that change the address space */
#endif
#ifndef CHANGES
#define CHANGES 1 /* by each of them */
#endif
#ifndef RING
#define RING 2 /* changes that the log remembers */
#endif

#define THREADS 2

mtype = { FREE, ALIVE, DEAD };

/* ---- the kernel */
byte pages[RANGES];     /* which pages the range has: counts its changes */
bool mapping;           /* the mmap lock is held for writing: nothing can be armed */
bool armed[RANGES];     /* watched by userfaultfd */
byte changing;          /* mmap_changing, which the query reads */
bool posted[CHANGERS + 1]; /* an event that has not been read; its changer waits */
byte posted_range[CHANGERS + 1];

/* ---- the log: inval_log.c */
byte head;
bit sequence;
byte slot[RING]; /* number + 1 of the change that the slot holds */
byte slot_range[RING];
byte interest[RANGES];

/* ---- the cache: cache.c */
bool locked;
byte applied;
mtype state[REGIONS];
byte range_of[REGIONS];
byte pinned[REGIONS];     /* the pages that the device has */
bool registered[REGIONS];
byte uses[REGIONS];
bool arming; /* uffd.c's lock */

/* ---- what nobody in the code knows */
byte acquiring[RANGES];  /* threads inside acquire */
byte inside[RANGES];     /* changes of which the application has not yet been told the end */
byte finished;

/* ==== inval_log.c */

/* regx_inval_log_write. A slot may be written late: its number is taken first. */
inline log_change(range)
{
    if
    :: interest[range] == 0 /* concerns nobody */
    :: else ->
        atomic { number = head; head++ }
        atomic {
            if
            :: slot[number % RING] < number + 1 ->
                slot[number % RING] = number + 1;
                slot_range[number % RING] = range
            :: else /* overtaken: the ring has gone past it */
            fi;
            number = 0
        }
    fi
}

/* regx_inval_log_touched. What is still being written, or lost, counts as touched. */
inline look_for_touch(since_, range)
{
    d_step {
        touched = false;
        number = since_;
        do
        :: number < head ->
            if
            :: slot[number % RING] == number + 1 && slot_range[number % RING] != range
#ifdef BREAK_LAP
            :: slot[number % RING] > number + 1
#endif
            :: else -> touched = true
            fi;
            number++
        :: else -> break
        od;
        number = 0
    }
}

/* ==== retire.c, with the lock held */

inline kill(id_)
{
    if
    :: state[id_] == ALIVE -> state[id_] = DEAD
    :: else
    fi
}

/* Ends a region if the change at the cursor touched it. What was lost may have been anything: all
 * regions end. */
inline end_touched(id_)
{
    if
    :: slot[cursor % RING] == cursor + 1 && range_of[id_] != slot_range[cursor % RING]
#ifdef BREAK_LAP
    :: slot[cursor % RING] > cursor + 1
#endif
    :: else -> kill(id_)
    fi
}

/* regx_cache_catch_up_locked. Its work is bounded: it may stop at any change, with some of the
 * regions that this touched ended or none. Then that change stays the next one. */
inline catch_up()
{
    atomic { top = head; cursor = applied };
#ifdef BREAK_APPLY_ORDER
    applied = top;
#endif
    do
    :: cursor == top -> break
    :: cursor != top && slot[cursor % RING] < cursor + 1 -> break /* still being written */
    :: cursor != top && slot[cursor % RING] >= cursor + 1 ->
        d_step {
            id = 0;
            do
            :: id < REGIONS -> end_touched(id); id++
            :: else -> break
            od;
            if
            :: slot[cursor % RING] == cursor + 1 -> cursor++
            :: else -> cursor = top
            fi;
            id = 0
        }
    :: cursor != top && slot[cursor % RING] >= cursor + 1 ->
        atomic {
#if REGIONS > 1
            if
            :: true
            :: true -> end_touched(0)
            :: true -> end_touched(1)
            fi;
#endif
#ifdef BREAK_PART
            cursor++;
#endif
            break
        }
    od;
    atomic {
#ifndef BREAK_APPLY_ORDER
        applied = cursor;
#endif
        top = 0;
        cursor = 0
    }
}

inline take_lock()
{
    atomic { !locked -> locked = true }
}

/* ==== uffd.c: monitor->subscribe */

/* UFFDIO_REGISTER, which waits for the mmap lock. */
inline arm(range)
{
    atomic { !mapping -> armed[range] = true }
}

inline cover()
{
#ifdef NOTIFIER
    atomic { !arming -> arming = true }
#ifdef BREAK_SINCE
    arm(x);
    since = head;
#else
    since = head;
    arm(x);
#endif
#if RANGES > 1
    arm(1 - x); /* what is in the same mapping is armed along */
#endif
    arming = false
#else
    since = head
#endif
}

/* ==== the application */

/* The checks of a look-up; each goes to `otherwise` if it fails. */
#define CHECK(condition, otherwise) if :: condition :: else -> goto otherwise fi

#if defined(NOTIFIER) && !defined(BREAK_NO_QUERY)
#define QUIET(otherwise) CHECK(changing == 0, otherwise)
#else
#define QUIET(otherwise) skip
#endif

#if defined(NOTIFIER) && !defined(BREAK_NO_SEQUENCE)
#define LOGGED(otherwise) CHECK(sequence == 0, otherwise)
#else
#define LOGGED(otherwise) skip
#endif

#define EPOCH(otherwise) \
    epoch = head; \
    if :: epoch == applied -> epoch = 0 :: else -> epoch = 0; goto otherwise fi

#ifdef BREAK_QUERY_LATE
#define CHECKS(otherwise) LOGGED(otherwise); EPOCH(otherwise); QUIET(otherwise)
#else
#define CHECKS(otherwise) QUIET(otherwise); LOGGED(otherwise); EPOCH(otherwise)
#endif

/* The look-up answers with this region: the property. */
inline use_it()
{
    assert(registered[r]);
    assert(range_of[r] == x);
    assert(pinned[r] >= start);
    acquiring[x]--
}

proctype application(byte me; byte rounds)
{
    byte x, r, start, since, got, number, epoch, id, round, top, cursor;
    bool touched;

    do
    :: round == rounds -> break
    :: round < rounds ->
        round++;

        /* A buffer that the application owns: it is not inside a call that changes it, or (an
         * unmap of which it has the address back early) that call has already taken the pages. */
        if
        :: x = 0
#if RANGES > 1
        :: me == 1 || OTHERS == 0 -> x = 1
#endif
        fi;
        atomic { inside[x] == 0 -> acquiring[x]++; start = pages[x] }

        /* acquire, fast: the front table names a region, any region; it is but a hint */
        atomic {
            if
            :: r = 0
#if REGIONS > 1
            :: r = 1
#endif
            fi;
            uses[r]++                             /* own use count, then a compiler barrier */
        }
        CHECKS(back_out);                         /* valid, sequence, head == applied */
#ifndef BREAK_ALIVE
        CHECK(state[r] == ALIVE, back_out);
#endif
        atomic {
            if
            :: range_of[r] == x -> use_it()       /* it covers what is wanted: a hit */
            :: else -> goto back_out
            fi
        }
        goto transfer;

back_out:
        uses[r]--;

        /* regx_cache_acquire_slow, find_locked */
        take_lock();
        catch_up();
        atomic {
            r = 0;
            do
            :: r < REGIONS && !(state[r] == ALIVE && range_of[r] == x) -> r++
            :: else -> break
            od
        }
        if
        :: r < REGIONS ->
            uses[r]++;
            QUIET(take_back);
            LOGGED(take_back);
            /* not all that changed need have ended: this one is looked for */
            look_for_touch(applied, x);
#ifdef BREAK_PENDING
            touched = false;
#endif
            atomic {
                if
                :: touched -> touched = false; goto take_back
                :: else -> use_it(); locked = false
                fi
            };
            goto transfer;
take_back:
            uses[r]--;            /* it is alive: only who has the lock kills */
            atomic { acquiring[x]--; locked = false };
            goto once_unwatched   /* it may be true the next time */
        :: else -> locked = false
        fi;

        /* register_admitted, register_kept */
#ifdef BREAK_INTEREST
        cover();
        interest[x]++;
#else
        interest[x]++;
        cover();
#endif
        got = pages[x];           /* the device pins, no lock held */
        take_lock();

        /* publish_locked. It also asks query and sequence; what is proven here holds without. */
        catch_up();
        look_for_touch(since, x);
#ifdef BREAK_INSERT
        touched = false;
#endif
        atomic {
            since = 0;
            r = 0;
            do /* the same, made by another meanwhile? */
            :: r < REGIONS && !(state[r] == ALIVE && range_of[r] == x) -> r++
            :: else -> break
            od;
            if
            :: touched || r < REGIONS -> r = REGIONS
            :: else ->
                r = 0;
                do
                :: r < REGIONS && state[r] != FREE -> r++
                :: else -> break
                od
            fi;
            touched = false;
            if
            :: r < REGIONS ->
                range_of[r] = x;
                pinned[r] = got;
                registered[r] = true;
                uses[r]++;
                state[r] = ALIVE;
                use_it();
                got = 0;
                locked = false
            :: else ->
                /* for this use alone: pinned after the look-up began, so it cannot be stale */
                acquiring[x]--;
                got = 0;
                locked = false;
                goto once
            fi
        }

transfer:
        start = 0;
        uses[r]--;
        goto next;
once:
        interest[x]--;
once_unwatched:
        start = 0;
next:
        x = 0;
        r = 0
    od;
    finished++
}

/* ==== the kernel and the hooks: a thread that changes the address space */

proctype changer(byte me)
{
    byte x, number, done;

    do
    :: done == CHANGES -> break
    :: done < CHANGES ->
        done++;
        if
        :: x = 0
#if RANGES > 1
        :: x = 1
#endif
        fi;
#ifdef NOTIFIER
        if
        :: true
#ifdef HOOKS
        :: /* By libc: both tell. */
            log_change(x)
#endif
#ifdef MADVISE
        :: /* madvise: the event, then the pages go. The application does not use the buffer. */
            atomic { acquiring[x] == 0 -> inside[x]++ };
            if
            :: atomic { !mapping && armed[x] -> changing++ };
                d_step { posted[me] = true; posted_range[me] = x };
                atomic { !posted[me] -> posted_range[me] = 0 };
                changing--
            :: !armed[x]
            fi;
            d_step { pages[x]++; inside[x]-- }
            goto next
#endif
        fi;
        /* munmap, MAP_FIXED, mremap: the pages go, then the event. The address is free again before
         * that, so nothing keeps another thread from using it. */
        if
        :: atomic { !mapping && armed[x] -> mapping = true; changing++ };
            d_step { pages[x]++; armed[x] = false; mapping = false; };
            atomic { posted[me] = true; posted_range[me] = x };
            atomic { !posted[me] -> posted_range[me] = 0 }; /* the reader's read releases it */
            changing--                                      /* the change is acknowledged */
        :: atomic { !mapping && !armed[x] -> pages[x]++ }
        fi;
next:
#else
        /* The hook logs, then the call is made. The application does not use the buffer. */
        atomic { acquiring[x] == 0 -> inside[x]++ };
        log_change(x);
        d_step { pages[x]++; inside[x]-- }
#endif
        x = 0
    od;
    finished++
}

/* ==== notifier.c: the reader */

#ifdef NOTIFIER
proctype reader()
{
    byte x, which, number;

end_idle:
    do
    ::  if /* poll */
        :: posted[0] -> which = 0
#if CHANGERS > 1
        :: posted[1] -> which = 1
#endif
        fi;
        sequence = 1;
        d_step { x = posted_range[which]; posted[which] = false } /* read: the changer goes on */
#ifdef BREAK_EVEN_EARLY
        sequence = 0;
        log_change(x);
#else
        log_change(x);
        sequence = 0;
#endif
        d_step { x = 0; which = 0 }
    od
}
#endif

/* ==== cache.c: regx_cache_progress */

/* What is dead and no longer used is deregistered. */
inline retire()
{
    atomic {
        r = 0;
        do
        :: r < REGIONS ->
            if
            :: state[r] == DEAD && uses[r] == 0 ->
                registered[r] = false;
                pinned[r] = 0;
                interest[range_of[r]]--;
                range_of[r] = 0;
                state[r] = FREE
            :: else
            fi;
            r++
        :: else -> break
        od;
        r = 0
    }
}

proctype progress()
{
    byte id, r, top, cursor;

    do
    :: head != applied ->
        atomic { !locked -> locked = true };
        catch_up();
        locked = false;
        retire()
    :: atomic { finished == THREADS + CHANGERS && head == applied && !locked -> break }
    od
}

init
{
    byte id;
    atomic {
        id = 0;
        do
        :: id < REGIONS -> state[id] = FREE; id++
        :: else -> break
        od;
        /* Either the cache is empty, or it holds range 0, watched, as it is. */
        if
        :: true
        :: state[0] = ALIVE;
            registered[0] = true;
            interest[0] = 1;
            armed[0] = true
        fi;
        id = 0;
        run application(0, ROUNDS);
        run application(1, OTHERS);
        do
        :: id < CHANGERS -> run changer(id); id++
        :: else -> break
        od;
        id = 0;
#ifdef NOTIFIER
        run reader();
#endif
        run progress()
    }
}
