/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Truncation: a message longer than the receive must end in MPI_ERR_TRUNCATE, and the next message
 * must be right.
 *
 *     truncate [--closed] [--owned] [--denied] SENT RECEIVED...
 *
 * (pairs.) ob1 has a BTL that gets (and tcp) write the whole message, so memory of the message's length
 * lies behind the receive; with --closed nothing that may be written does, and RECEIVED is a multiple of the
 * page; with --owned what is sent lies in
 * memory of MPI_Alloc_mem; with --denied the kernel does not write for the sender. Beyond the message
 * nothing may be written. Two ranks; each pair runs with the receive posted early and late.
 */
#include "../deny.h"
#include "mapping.h"

enum { GUARD = 8192, PLACE = 1 << 24, TAG = 5, TAG_POSTED = 6 };

static uint64_t seed = 77;
static bool closed, owned;

static void send_one(int number, size_t sent)
{
    unsigned char *buffer = owned ? NULL : check_memory(sent);
    if (owned) {
        MPI_Alloc_mem((MPI_Aint)sent, MPI_INFO_NULL, &buffer);
    }
    stamp_fill(buffer, sent, stamp_key(seed, (uint64_t)number, 0, 0), 0);
    MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG_POSTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(buffer, (int)sent, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    check_stamp(buffer, sent, stamp_key(seed, (uint64_t)number, 0, 0), 0, "send buffer");
    if (owned) {
        MPI_Free_mem(buffer);
    } else {
        free(buffer);
    }
}

static void receive_one(int number, size_t sent, size_t received, int late)
{
    size_t memory = sent + GUARD, behind = closed ? 0 : GUARD;
    uint64_t background = stamp_key(~seed, (uint64_t)number, 1, 0);
    uint64_t key = stamp_key(seed, (uint64_t)number, 0, 0);
    static unsigned char *place;
    if (closed && place == NULL) {
        place = mapping_make(NULL, PLACE, false);
    }
    unsigned char *buffer = closed ? place : check_memory(memory);
    MPI_Request request;
    MPI_Status status;
    int class = MPI_SUCCESS, error;

    if (!closed) {
        stamp_fill(buffer, memory, background, 0);
    } else if (mprotect(buffer, PLACE, PROT_READ | PROT_WRITE) != 0 ||
               (sent > received && mprotect(buffer + received, PLACE - received, PROT_NONE) != 0)) {
        check_fail("mprotect: %s", strerror(errno));
    }
    if (late) {
        MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_POSTED, MPI_COMM_WORLD);
        MPI_Probe(0, TAG, MPI_COMM_WORLD, &status);
        error = MPI_Recv(buffer, (int)received, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status);
    } else {
        MPI_Irecv(buffer, (int)received, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_POSTED, MPI_COMM_WORLD);
        error = MPI_Wait(&request, &status);
    }
    if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &class);
    }
    if (class != (sent > received ? MPI_ERR_TRUNCATE : MPI_SUCCESS)) {
        check_fail("%zu bytes sent to %zu gave error class %d", sent, received, class);
    }
    check_stamp(buffer, sent < received ? sent : received, key, 0, "received part");
    check_stamp(buffer + sent, behind, background, sent, "behind the message");
    if (!closed) {
        free(buffer);
    }
}

int main(int argc, char **argv)
{
    int number = 0;
    const int rank = check_begin(&argc, &argv, 3);
    closed = check_option(&argc, argv, "--closed", 1) != NULL;
    owned = check_option(&argc, argv, "--owned", 1) != NULL;
    bool denied = check_option(&argc, argv, "--denied", 1) != NULL;
    check_that(!denied || rank > 0 || process_deny(SYS_process_vm_writev, EPERM), "no filter");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int late = 0; late < 2; late++) {
        for (int n = 1; n + 1 < argc; n += 2) {
            size_t sent = strtoul(argv[n], NULL, 0), received = strtoul(argv[n + 1], NULL, 0);
            /* once as asked, then one that fits: the channel still works */
            for (int fits = 0; fits < 2; fits++, number++) {
                size_t length = fits > 0 && closed ? received : sent;
                if (rank == 0) {
                    send_one(number, length);
                } else if (rank == 1) {
                    receive_one(number, length, fits ? length : received, late);
                }
            }
        }
    }
    return check_end();
}
