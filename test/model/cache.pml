/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The registration cache's protocol, for the model checker Spin: two threads of the application,
 * threads that change the address space, the notifier's reader and the cache's progress, in every
 * interleaving. test_model.py runs it, whole and with one rule of the protocol broken at a time
 * (-DBREAK_ and its name): then an assertion must fail, or the model would prove nothing.
 *
 * Each part says of which file in registration/ it is, and uses the names of its functions. Proven:
 *   - a look-up never answers with a region whose pages were changed between the start of its
 *     pinning and the start of the look-up;
 *   - nothing that is in use is deregistered, and nothing that is deregistered is used;
 *   - what is dead and no longer used is deregistered in the end, without another call;
 *   - no deadlock.
 *
 * What it is of: memory is sequentially consistent, except that a thread's count of uses reaches
 * others late (a store buffer; that is what membarrier is for). A range stands for pages; a slot of
 * the log's ring is written and read in one step (inval_log.pml is of that); a
 * region's record is taken when it is published, not before. Budget, index, access and failures are
 * not in it; eviction is, as something that may kill any region at any time.
 */

/* What tells of changes: HOOKS (the thread that changes logs it before the change), NOTIFIER
 * (userfaultfd events, and the query), both, or SCAN (NOTIFIER, and look-ups ask whether the range
 * is still watched). With both and NEVER there is no query, and all changes are made by libc. */
#ifdef SCAN
#define NOTIFIER
#endif

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
#ifndef EVICTIONS
#define EVICTIONS 0
#endif

#define THREADS 2
#define NONE 255
#define USES(t, r) ((t)*REGIONS + (r))

mtype = { FREE, ALIVE, DEAD };

#define NOWHERE 0
#define FRESH 1 /* dead, and may have users that no look at the counts shows */
#define RIPE 2  /* … whose counts show all users */
#define BUSY 3  /* … and had some */

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
short uses[THREADS * REGIONS]; /* each thread's own; outstanding uses are the sum */
short seen[THREADS * REGIONS]; /* … and what others are bound to see of it */
byte list[REGIONS]; /* in which the record is, if dead */
bool work;     /* something may be deregistered */
bool released; /* a use of something dead has ended */
byte retiring; /* who is inside retire: for the check at the end */
bool arming;   /* uffd_ranges.c's lock */

/* ---- what nobody in the code knows */
byte holders[REGIONS];   /* transfers that use the region */
byte acquiring[RANGES];  /* threads inside acquire */
byte inside[RANGES];     /* changes of which the application has not yet been told the end */
byte handed = NONE;      /* a use that another thread may release */
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
    :: state[id_] == ALIVE -> state[id_] = DEAD; list[id_] = FRESH; work = true
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

inline take_lock(me_)
{
    atomic { !locked -> locked = true; fence(me_) }
}

/* What a thread did before is seen by all: a locked instruction, or membarrier by somebody else. */
inline fence(thread)
{
    d_step {
        id = 0;
        do
        :: id < REGIONS -> seen[USES(thread, id)] = uses[USES(thread, id)]; id++
        :: else -> break
        od;
        id = 0
    }
}

/* ==== uffd_ranges.c: monitor->subscribe */

/* UFFDIO_REGISTER, which waits for the mmap lock. */
inline arm(range)
{
    atomic { !mapping -> armed[range] = true }
}

/* With SCAN, what is unwatched was perhaps watched before, has changed since, and nobody was told:
 * it is logged, then armed. */
inline look_over(range)
{
#ifdef SCAN
    watched = armed[range];
    if
#ifndef BREAK_REARM
    :: !watched -> log_change(range)
#endif
    :: else
    fi;
#endif
    skip
}

/* What is in the same mapping is armed along. But not, where unseen changes are looked for, what
 * was found watched: it may just have been replaced, and its regions would seem true again. (The
 * range itself is being acquired, so nobody replaces it.) */
inline arm_along(range)
{
#if defined(SCAN) && !defined(BREAK_ARM_ALWAYS)
    if
    :: watched
    :: else -> arm(range)
    fi
#else
    arm(range)
#endif
}

inline cover()
{
#ifdef NOTIFIER
    atomic { !arming -> arming = true }
    look_over(x);
#ifdef BREAK_SINCE
    arm(x);
    since = head;
#else
    since = head;
    arm(x);
#endif
#if RANGES > 1
    look_over(1 - x);
    arm_along(1 - x);
#endif
    watched = false;
    arming = false
#else
    since = head
#endif
}

/* ==== the application */

/* The checks of a look-up; each goes to `otherwise` if it fails. */
#define CHECK(condition, otherwise) if :: condition :: else -> goto otherwise fi

#if defined(SCAN)
#define QUIET(otherwise) CHECK(changing == 0, otherwise); CHECK(armed[x], otherwise)
#elif defined(NOTIFIER) && !defined(NEVER) && !defined(BREAK_NO_QUERY)
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
    holders[r]++;
    acquiring[x]--
}

/* Of the caller's own count. Then, no later, the region's state: whoever marked it dead has either
 * seen this (membarrier), or is seen here. */
inline drop(id_)
{
    d_step {
        uses[USES(me, id_)]--;
#ifdef FENCE
        seen[USES(me, id_)]--
#endif
    }
}

inline count(id_)
{
    d_step {
        uses[USES(me, id_)]++;
#ifdef FENCE
        seen[USES(me, id_)]++
#endif
    }
}

inline look_after(id_)
{
    if
    :: state[id_] == DEAD ->
        /* a release store: who sees it sees the count */
        atomic { seen[USES(me, id_)] = uses[USES(me, id_)]; released = true; work = true }
    :: else
    fi
}

proctype application(byte me; byte rounds)
{
    byte x, r, start, since, got, number, epoch, id, round, top, cursor;
    bool touched, watched;

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
            count(r)                              /* own use count, then a compiler barrier */
        }
        CHECKS(back_out);                         /* valid, sequence, head == applied */
#ifdef BREAK_COVERS_FIRST
        CHECK(range_of[r] == x, back_out);
#endif
#ifndef BREAK_ALIVE
        CHECK(state[r] == ALIVE, back_out);
#endif
#ifdef BREAK_COVERS_FIRST
        atomic { use_it() }
#else
        atomic {
            if
            :: range_of[r] == x -> use_it()       /* it covers what is wanted: a hit */
            :: else -> goto back_out
            fi
        }
#endif
        goto transfer;

back_out:
        drop(r);
#ifndef BREAK_BACK_OUT
        look_after(r);
#endif

        /* regx_cache_acquire_slow, find_locked */
        take_lock(me);
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
            count(r);
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
            drop(r);              /* it is alive: only who has the lock kills */
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
        take_lock(me);

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
                count(r);
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
        /* released here, or by the other thread */
        if
        :: true
#ifdef PASS
        :: atomic { handed == NONE -> handed = r; r = NONE }
#endif
        fi;
release:
        if
        :: r != NONE ->
            atomic { holders[r]--; drop(r) }
#ifndef BREAK_RELEASE
            look_after(r)
#endif
        :: else
        fi;
#ifdef PASS
        if
        :: atomic { handed != NONE -> r = handed; handed = NONE }; goto release
        :: true
        fi;
#endif
        goto next;
once:
        interest[x]--;
once_unwatched:
        start = 0;
next:
        x = 0;
        r = 0
    od;
#ifdef PASS
    if
    :: atomic { handed != NONE -> r = handed; handed = NONE };
        atomic { holders[r]--; drop(r) }
        look_after(r);
        r = 0
    :: handed == NONE
    fi;
#endif
    finished++
}

/* ==== the kernel and the hooks: a thread that changes the address space */

proctype changer(byte me)
{
    byte x, number, done;
    bool libc;

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
#ifdef NEVER
        :: /* By libc. The application does not use the buffer while the call changes it. */
            atomic { acquiring[x] == 0 -> inside[x]++ };
            log_change(x);
            libc = true
#else
        :: true
#ifdef HOOKS
        :: /* By libc: both tell. */
            log_change(x)
#endif
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
#ifdef SCAN
        :: /* SHM_REMAP: no event. The application does not use the buffer. */
            atomic { !mapping && acquiring[x] == 0 -> pages[x]++; armed[x] = false }
            goto next
#endif
        fi;
        /* munmap, MAP_FIXED, mremap: the pages go, then the event. The address is free again before
         * that, so nothing keeps another thread from using it. */
        if
        :: atomic { !mapping && armed[x] -> mapping = true; changing++ };
            d_step { pages[x]++; armed[x] = false; mapping = false; inside[x] = inside[x] - libc };
            atomic { posted[me] = true; posted_range[me] = x };
            atomic { !posted[me] -> posted_range[me] = 0 }; /* the reader's read releases it */
            changing--                                      /* the change is acknowledged */
        :: atomic { !mapping && !armed[x] -> pages[x]++; inside[x] = inside[x] - libc }
        fi;
        libc = false;
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

/* ==== retire.c: what is dead and no longer used is deregistered */

/* For the models in which counts of uses are seen at once. */
inline retire_at_once()
{
    atomic {
        work ->
        work = false;
        r = 0;
        do
        :: r < REGIONS ->
            if
            :: state[r] == DEAD && uses[USES(0, r)] + uses[USES(1, r)] == 0 ->
                assert(holders[r] == 0);
                registered[r] = false;
                pinned[r] = 0;
                interest[range_of[r]]--;
                range_of[r] = 0;
                list[r] = NOWHERE;
                state[r] = FREE
            :: else
            fi;
            r++
        :: else -> break
        od;
        r = 0
    }
}

/* From one list into another, with the lock held. */
inline move(from, to)
{
    r = 0;
    do
    :: r < REGIONS ->
        if
        :: list[r] == from -> list[r] = to
        :: else
        fi;
        r++
    :: else -> break
    od;
    r = 0
}

/* From the list into this thread's batch. */
inline take(from)
{
    r = 0;
    do
    :: r < REGIONS ->
        if
        :: list[r] == from -> list[r] = NOWHERE; batch = batch | (1 << r)
        :: else
        fi;
        r++
    :: else -> break
    od;
    r = 0
}

inline barrier()
{
#ifndef BREAK_MEMBARRIER
    atomic { fence(0); fence(1) }
#endif
    skip
}

/* regx_cache_retire, with the flag taken down */
inline retire()
{
    /* ripen: what is dead by now, one barrier for all of it */
#ifdef BREAK_BATCH
    barrier();
#endif
    atomic { !locked -> take(FRESH) };
#ifndef BREAK_BATCH
    barrier();
#endif
    atomic {
        !locked ->
        r = 0;
        do
        :: r < REGIONS ->
            if
            :: batch & (1 << r) -> list[r] = RIPE
            :: else
            fi;
            r++
        :: else -> break
        od;
        batch = 0;
        if
        :: released -> move(BUSY, RIPE)
        :: else
        fi;
#ifndef BREAK_FLAG_AFTER
        released = false
#endif
    };
#ifdef BREAK_FLAG_AFTER
    released = false;
#endif
    /* pick_unused */
    atomic { !locked -> locked = true; take(RIPE) };
    do
    :: r < REGIONS && (batch & (1 << r)) ->
        /* each thread's count as it is, or as it was at its last barrier */
        if
        :: sum = uses[USES(0, r)]
        :: sum = seen[USES(0, r)]
        fi;
        if
        :: sum = sum + uses[USES(1, r)]
        :: sum = sum + seen[USES(1, r)]
        fi;
        if
        :: sum == 0
        :: else -> atomic { list[r] = BUSY; batch = batch & ~(1 << r) }
        fi;
        atomic { sum = 0; r++ }
    :: r < REGIONS && !(batch & (1 << r)) -> r++
    :: r == REGIONS -> break
    od;
    atomic { r = 0; locked = false };
    /* the device deregisters, no lock held */
    do
    :: r < REGIONS && (batch & (1 << r)) ->
        atomic {
            assert(holders[r] == 0);
            registered[r] = false;
            pinned[r] = 0;
            interest[range_of[r]]--
        };
        r++
    :: r < REGIONS && !(batch & (1 << r)) -> r++
    :: r == REGIONS -> break
    od;
    atomic {
        !locked ->
        r = 0;
        do
        :: r < REGIONS ->
            if
            :: batch & (1 << r) -> range_of[r] = 0; state[r] = FREE
            :: else
            fi;
            r++
        :: else -> break
        od;
        r = 0;
        batch = 0;
#ifdef BREAK_FLAG_LATE
        work = false;
#endif
        retiring--
    }
}

/* ==== cache.c: regx_cache_progress, by one thread or two */

proctype progress(byte evictions)
{
    byte id, r, batch, top, cursor;
    short sum;

    do
    :: head != applied ->
        atomic { !locked -> locked = true };
        catch_up();
        locked = false
    :: atomic {
            /* evict.c gives up any region that seems unused; why, does not matter here */
            evictions > 0 && !locked ->
            evictions--;
            if
            :: r = 0
#if REGIONS > 1
            :: r = 1
#endif
            fi;
            kill(r);
            r = 0
        }
#if defined(RETIRE_AT_ONCE)
    :: retire_at_once()
#elif defined(BREAK_FLAG_LATE)
    :: atomic { work -> retiring++ };
        retire()
#else
    :: atomic { work -> work = false; retiring++ };
        retire()
#endif
    :: atomic {
            finished == THREADS + CHANGERS && head == applied && !locked && !work &&
                retiring == 0 ->
            /* All is done: nothing dead is left. */
            r = 0;
            do
            :: r < REGIONS -> assert(state[r] != DEAD); r++
            :: r == REGIONS -> break
            od
        };
        break
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
        run progress(EVICTIONS);
#ifdef RETIRERS
        run progress(0)
#endif
    }
}
