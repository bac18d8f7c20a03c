/* SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun -n 2 table_messages libc|raw: the rows of the table again, seen by messages of MPI. Rank 0 has
 * the memory and changes it; with rank 1 it exchanges messages from there and to there. Prints a line
 * for each row and direction, as `table` does: the cell is fresh, stale or n/a. Rows are left out
 * whose memory would be malloc's or could not be unmapped again: here all share a process.
 */
#include <mpi.h>
#include <stdio.h>

#include "../stamp.h"
#include "table.h"

enum { LARGEST = 2 << 20, TAG = 3, SEND = 0, RECEIVE = 1 };

static uint8_t scratch[LARGEST]; /* rank 1's */
static uint64_t stamp;

static uint64_t sum_of(const uint8_t *memory, size_t length)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < length; i++) {
        sum = sum * UINT64_C(0x100000001b3) + memory[i] + 1;
    }
    return sum;
}

/* ---- rank 1: does what it is told, until there is nothing more ---- */

/* Of a message: bytes, the direction as seen by rank 0, and the content that rank 1 sends. */
typedef struct order {
    uint64_t length, direction, stamp;
} order_t;

static void serve(void)
{
    order_t order;

    for (;;) {
        MPI_Recv(&order, sizeof(order), MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (order.length == 0) {
            return;
        }
        if (order.direction == SEND) {
            MPI_Recv(scratch, (int)order.length, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            const uint64_t sum = sum_of(scratch, order.length);
            MPI_Send(&sum, sizeof(sum), MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        } else {
            stamp_fill(scratch, order.length, order.stamp, 0);
            MPI_Send(scratch, (int)order.length, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

/* ---- rank 0 ---- */

/* Whether what was sent from there, or received to there, is what is there. */
static bool is_right(uint64_t direction, uint8_t *memory, size_t length)
{
    const order_t order = {.length = length, .direction = direction, .stamp = stamp + 1};
    uint64_t sum;

    stamp++;
    MPI_Send(&order, sizeof(order), MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    if (direction == SEND) {
        MPI_Send(memory, (int)length, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(&sum, sizeof(sum), MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return sum == sum_of(memory, length);
    }
    MPI_Recv(memory, (int)length, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return stamp_check(memory, length, order.stamp, 0) == length;
}

/* In use twice, changed, and in use again: as it is then, if that is known, and as it was written. */
static const char *play(by_t by, uint64_t direction, const row_t *row)
{
    place_t place;
    bool right = true;

    if (!place_open(&place, row, by)) {
        return "n/a";
    }
    for (unsigned i = 0; i < 2; i++) {
        stamp_fill(place.target, place.length, ++stamp, 0);
        if (!is_right(direction, place.target, place.length)) {
            return "broken\twrong before anything changed";
        }
    }
    memset(place.target, 0x77, place.length); /* not zero, see is_empty() */
    const bool there = row_change(row, &place);
    if (there && (row->take == NULL || row->take(&place))) {
        right = row->undefined || is_right(direction, place.target, place.length);
        stamp_fill(place.target, place.length, ++stamp, 0);
        right = is_right(direction, place.target, place.length) && right;
    }
    place_close(&place, row);
    return !there ? "n/a" : right ? "fresh" : "stale";
}

int main(int argc, char **argv)
{
    static const char *const directions[] = {"send", "receive"};
    const order_t last = {0};
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        serve();
    }
    for (size_t i = 0; rank == 0 && i < row_count; i++) {
        const row_t *row = &rows[i];

        for (uint64_t direction = SEND; direction <= RECEIVE; direction++) {
            if (row->shape < BREAK && !row->libc_only && strncmp(row->name, "mseal", 5) != 0) {
                printf("%s\t%s\t%s\n", row->name, directions[direction],
                       play(strcmp(argv[1], "raw") == 0 ? BY_SYSCALL : BY_LIBC, direction, row));
                fflush(stdout);
            }
        }
    }
    if (rank == 0) {
        MPI_Send(&last, sizeof(last), MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
