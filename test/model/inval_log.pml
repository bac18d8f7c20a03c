/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ring of the log of changes (registration/monitor/inval_log.c), for the model checker Spin: writers that
 * log, a reader that reads any of what they logged, in every interleaving of their single loads and
 * stores. A writer may stop anywhere for as long as it likes. test_model.py runs it, whole and with
 * one rule broken at a time. Proven:
 *   - what is read as change n is what was logged as change n;
 *   - once its writer has returned, or the ring has gone past it, a change is not "later" any more;
 *   - nothing is lost before the ring has gone round.
 *
 * Memory is sequentially consistent. What the code's release and acquire are for is that certain
 * accesses keep their order: MARK, WHOLE_EARLY, READ_EARLY and LOOK_EARLY break that order.
 */
#ifndef RING
#define RING 1
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef CHANGES
#define CHANGES 2 /* by each of them */
#endif
#ifndef READS
#define READS 1
#endif

#define ALL (WRITERS * CHANGES)

mtype = { READ, LATER, LOST };

byte head, lost;
byte stamp[RING], start[RING], end[RING];

/* What the code does not know. */
bool returned[ALL]; /* the writer of that change */

/* A change is of a range that tells which it is; 0 was there before. */
#define RANGE(n) (n + 1)

inline write_range()
{
    start[at] = RANGE(n);
    end[at] = RANGE(n)
}

/* regx_inval_log_write; a compare-and-exchange that fails has loaded what is there. */
proctype writer()
{
    byte n, at, old, done;

    do
    :: done == CHANGES -> break
    :: done < CHANGES ->
        done++;
        atomic { n = head; head++; at = n % RING };
#ifdef BREAK_MARK
        write_range();
#endif
        old = stamp[at];
        do
#ifndef BREAK_OVERTAKEN
        :: old > 2 * n -> break
#endif
#ifndef BREAK_BUSY
        :: old <= 2 * n && old % 2 == 1 ->
#ifndef BREAK_LOSE
            old = lost;
            do
            :: old > n -> break
            :: old <= n ->
                atomic {
                    if
#ifdef BREAK_LOST_FALLS
                    :: true -> lost = n + 1
#else
                    :: lost == old -> lost = n + 1
#endif
                    :: else
                    fi;
                    old = lost
                }
            od;
#endif
            break
#endif
        :: else ->
            atomic {
                if
                :: stamp[at] == old -> stamp[at] = 2 * n + 1; old = 255
                :: else -> old = stamp[at]
                fi
            };
            if
            :: old == 255 ->
#ifdef BREAK_WHOLE_EARLY
                start[at] = RANGE(n);
                stamp[at] = 2 * n + 2;
                end[at] = RANGE(n);
#else
#ifndef BREAK_MARK
                write_range();
#endif
                stamp[at] = 2 * n + 2;
#endif
                break
            :: else
            fi
        od;
        atomic { returned[n] = true; n = 0; at = 0; old = 0 }
    od
}

/* regx_inval_log_read, of any change there is */
proctype reader()
{
    byte n, at, old, from, to, done;
    bool over;
    mtype result;

    do
    :: done == READS -> break
    :: done < READS ->
        done++;
        atomic {
            head > 0;
            n = 0;
            do
            :: n + 1 < head -> n++
            :: break
            od;
            at = n % RING;
            over = returned[n] || head - n > RING
        };
#ifdef BREAK_READ_EARLY
        from = start[at];
#endif
        old = stamp[at];
        if
        :: old == 2 * n + 2 ->
#ifdef BREAK_LOOK_EARLY
            old = stamp[at];
#endif
#ifndef BREAK_READ_EARLY
            from = start[at];
#endif
            to = end[at];
#ifndef BREAK_LOOK_EARLY
            old = stamp[at];
#endif
            if
            :: old == 2 * n + 2 -> result = READ
            :: else -> result = LOST
            fi
        :: old > 2 * n + 2 -> result = LOST
        :: else ->
            if
            :: lost > n -> result = LOST
#ifdef BREAK_PAST
            :: else -> result = LATER
#else
            :: else ->
                if
                :: head - n > RING -> result = LOST
                :: else -> result = LATER
                fi
#endif
            fi
        fi;
        assert(result != READ || (from == RANGE(n) && to == RANGE(n)));
        assert(result != LATER || !over);
        assert(result != LOST || head > RING);
        atomic { n = 0; at = 0; old = 0; from = 0; to = 0; over = false; result = 0 }
    od
}

init
{
    byte id;
    atomic {
        do
        :: id < WRITERS -> run writer(); id++
        :: else -> break
        od;
        run reader()
    }
}
