/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening and closing of shared memory, and the table of its operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "transport/shm/key.h"
#include "transport/shm/shm_internal.h"

static size_t whole_pages(size_t length)
{
    return regx_align_up(length, regx_page_size());
}

/* A smaller pool is better than none: halves what is asked for, down to what is of use. */
static regx_status_t open_main(regx_shm_t *shm)
{
    for (size_t size = shm->config.pool_size; size >= shm->config.pool_min; size /= 2) {
        size = whole_pages(size);
        if (regx_segment_domain_open(&shm->domain, &shm->config, shm->pool_offset + size,
                                     &shm->main) == REGX_OK) {
            shm->super.pool_size = size;
            return REGX_OK;
        }
    }
    return REGX_UNREACHABLE;
}

static regx_status_t shm_open(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_transport_t **transport)
{
    regx_shm_t *shm = calloc(1, sizeof(*shm));
    regx_vm_cookie_t cookie;

    if (shm == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    snprintf(error, error_size, "there is no shared memory for this process");
    shm->config = *config;
    shm->stage_offset = regx_shm_stage_offset();
    shm->pool_offset = shm->stage_offset + REGX_STAGE_BYTES;
    if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie) || open_main(shm) != REGX_OK) {
        free(shm);
        return REGX_UNREACHABLE;
    }
    shm->node = regx_shm_node();
    shm->queue = &regx_shm_main(shm)->queue;
    shm->queue->cookie = cookie;
    regx_assists_init(&shm->assists, regx_shm_main(shm)->cells);
    regx_stages_init(shm);
    regx_owned_init(&shm->owned, &regx_shm_main(shm)->owned, &shm->config);
    regx_lock_init(&shm->lock, config->threads);
    shm->super.ops = &regx_shm_ops;
    shm->super.pool_memory = shm->main.base + shm->pool_offset;
    shm->super.max_frame = REGX_SHM_MAX_FRAME;
    shm->super.wires = shm->domain.name;
    *transport = &shm->super;
    return REGX_OK;
}

static void shm_close(regx_transport_t *transport)
{
    regx_shm_t *shm = regx_shm_of(transport);

    for (size_t i = 0; i < shm->inbound_count; i++) {
        regx_shm_drop_inbound(shm->inbound[i]);
    }
    /* Only now: who sees it may use the mailboxes again that were read here. */
    atomic_store_explicit(&shm->queue->closed, 1, memory_order_release);
    free(shm->inbound);
    regx_shm_finish_disconnecting(shm);
    regx_boxes_free(&shm->boxes);
    regx_owned_fini(&shm->owned);
    regx_segment_free(&shm->main);
    regx_lock_fini(&shm->lock);
    free(shm);
}

static size_t shm_address(regx_transport_t *transport, void *buffer)
{
    const regx_shm_t *shm = regx_shm_of(transport);
    const regx_shm_address_t address = {.main = shm->main.name,
                                        .pool_offset = shm->pool_offset,
                                        .pool_size = shm->super.pool_size,
                                        .cookie_address = (uintptr_t)&shm->queue->cookie,
                                        .cookie = shm->queue->cookie,
                                        .pid = getpid(),
                                        .node = shm->node};

    memcpy(buffer, &address, sizeof(address));
    return sizeof(address);
}

static void *shm_allocate(regx_transport_t *transport, size_t length)
{
    return regx_owned_allocate(&regx_shm_of(transport)->owned, length);
}

static void shm_release(regx_transport_t *transport, void *memory)
{
    regx_owned_free(&regx_shm_of(transport)->owned, memory);
}

static regx_status_t shm_reg(regx_transport_t *transport, void *base, size_t length,
                             unsigned access, regx_mr_t *mr)
{
    (void)transport;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access};
    regx_shm_expose(base, length, &mr->key);
    return REGX_OK;
}

static void shm_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport;
    (void)mr;
}

const regx_transport_ops_t regx_shm_ops = {.abi = REGX_TRANSPORT_ABI,
                                           .name = "shm",
                                           .open = shm_open,
                                           .close = shm_close,
                                           .address = shm_address,
                                           .reaches = regx_shm_reaches,
                                           .connect = regx_shm_connect,
                                           .disconnect = regx_shm_disconnect,
                                           .warm = regx_shm_warm,
                                           .reachable = regx_shm_reachable,
                                           .send = regx_shm_send,
                                           .send_zcopy = regx_shm_send_zcopy,
                                           .put = regx_shm_put,
                                           .get = regx_shm_get,
                                           .expose = regx_shm_expose,
                                           .stage = regx_shm_stage,
                                           .unstage = regx_shm_unstage,
                                           .allocate = shm_allocate,
                                           .release = shm_release,
                                           .copies = true,
                                           .copy = regx_shm_copy,
                                           .reg = shm_reg,
                                           .dereg = shm_dereg,
                                           .progress = regx_shm_progress};

const regx_catalog_entry_t regx_shm_entry = {.word = {.word = "shm", .former = "uct"},
                                             .ops = &regx_shm_ops};
