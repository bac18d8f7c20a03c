/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/connect_queue.h"

enum { FREE, CLAIMED, READY };

regx_status_t regx_connect_queue_request(regx_connect_queue_t *queue,
                                         const regx_connect_request_t *request)
{
    for (int i = 0; i < REGX_CONNECT_QUEUE_ENTRIES; i++) {
        uint32_t expected = FREE;

        if (atomic_compare_exchange_strong(&queue->entries[i].state, &expected, CLAIMED)) {
            queue->entries[i].request = *request;
            atomic_store_explicit(&queue->entries[i].state, READY, memory_order_release);
            atomic_fetch_add_explicit(&queue->requests, 1, memory_order_release);
            return REGX_OK;
        }
    }
    return REGX_AGAIN;
}

regx_status_t regx_connect_queue_accept(regx_connect_queue_t *queue, uint64_t *accepted,
                                        regx_connect_request_t *request)
{
    if (!regx_connect_queue_has_request(queue, *accepted)) {
        return REGX_AGAIN;
    }
    for (int i = 0; i < REGX_CONNECT_QUEUE_ENTRIES; i++) {
        if (atomic_load_explicit(&queue->entries[i].state, memory_order_acquire) == READY) {
            *request = queue->entries[i].request;
            atomic_store_explicit(&queue->entries[i].state, FREE, memory_order_release);
            ++*accepted;
            return REGX_OK;
        }
    }
    return REGX_AGAIN;
}
