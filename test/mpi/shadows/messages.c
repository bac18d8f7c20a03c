/* SPDX-License-Identifier: BSD-3-Clause */
#include "shadow.h"

enum { MOST_MESSAGES = 3 };

struct message any_message(int sender, int from, int to)
{
    const int receiver = any_rank_but(sender);
    const size_t there = model_of(receiver, to)->size, here = model_of(sender, from)->size;
    const size_t length = any_length(here < there ? here : there);

    return (struct message){any_part(sender, from, length), any_part(receiver, to, length), length};
}

void start(const struct message *message, int tag, MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    if (message->from.rank == rank) {
        MPI_Isend(memory_of(message->from), (int)message->length, MPI_BYTE, message->to.rank, tag,
                  MPI_COMM_WORLD, request);
    } else if (message->to.rank == rank) {
        MPI_Irecv(memory_of(message->to), (int)message->length, MPI_BYTE, message->from.rank, tag,
                  MPI_COMM_WORLD, request);
    }
}

/* Several at once, no two of them from or to the same buffer. */
void send_messages(void)
{
    struct message messages[MOST_MESSAGES];
    MPI_Request requests[MOST_MESSAGES];
    const int count = 1 + (int)below(MOST_MESSAGES), first = (int)below(BUFFERS);

    for (int n = 0; n < count; n++) {
        messages[n] =
            any_message(any_rank(), (first + 2 * n) % BUFFERS, (first + 2 * n + 1) % BUFFERS);
        if (below(4) > 0) {
            renew_bytes(messages[n].from, messages[n].length);
        }
    }
    for (int n = 0; n < count; n++) {
        start(&messages[n], n, &requests[n]);
        copy(messages[n].to, messages[n].from, messages[n].length);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int n = 0; n < count; n++) {
        check(messages[n].to, messages[n].length, "received");
    }
}
