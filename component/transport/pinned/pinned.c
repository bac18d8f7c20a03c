/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/pinned/pinned.h"

#include <stdlib.h>
#include <string.h>

#define MARK UINT64_C(0x313064656e6e6970) /* before shm's address: "pinned01" */

static const regx_param_t table[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_pinned_settings_t, "", type, field, __VA_ARGS__)
#include "transport/pinned/pinned_params.def"
    {.name = NULL}};

#if REGX_HAVE_PINNED

/* ---- frames: those of shared memory ---- */

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    regx_pinned_t *pinned = context;
    const regx_transport_events_t *events = &pinned->config.events;

    if (tag == REGX_TAG_OWN) {
        regx_pinned_take(pinned, sender, data, length);
    } else {
        events->deliver(events->context, sender, tag, data, length);
    }
}

static void broken(void *context, uint64_t peer, const char *what)
{
    const regx_pinned_t *pinned = context;

    pinned->config.events.broken(pinned->config.events.context, peer, what);
}

static bool pinned_reachable(regx_conn_t *conn)
{
    regx_conn_t *shm = regx_pinned_conn_of(conn)->shm;

    return shm->transport->ops->reachable(shm);
}

static regx_status_t pinned_send(regx_conn_t *conn, uint8_t tag, const void *header,
                                 size_t header_length, regx_pack_t pack, void *pack_context,
                                 size_t payload_length)
{
    regx_conn_t *shm = regx_pinned_conn_of(conn)->shm;

    return shm->transport->ops->send(shm, tag, header, header_length, pack, pack_context,
                                     payload_length);
}

static regx_status_t pinned_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy)
{
    regx_conn_t *shm = regx_pinned_conn_of(conn)->shm;

    return shm->transport->ops->send_zcopy(shm, zcopy);
}

/* Nothing is known of what comes behind a notice of this transport's own. */
static bool pinned_is_behind(const regx_transport_t *transport)
{
    const regx_pinned_t *pinned = regx_pinned_of(transport);

    return !pinned->delivering && pinned->shm->ops->node.is_behind(pinned->shm);
}

static size_t pinned_address(regx_transport_t *transport, void *buffer)
{
    const regx_pinned_t *pinned = regx_pinned_of(transport);
    const uint64_t mark = MARK;

    memcpy(buffer, &mark, sizeof(mark));
    return sizeof(mark) + pinned->shm->ops->address(pinned->shm, (char *)buffer + sizeof(mark));
}

/* The address of shared memory in a published one. NULL: it is not of this transport. */
static const void *address_within(const void *address, size_t *length)
{
    uint64_t mark = 0;

    memcpy(&mark, address, regx_min(sizeof(mark), *length));
    if (mark != MARK) {
        return NULL;
    }
    *length -= sizeof(mark);
    return (const char *)address + sizeof(mark);
}

static bool pinned_reaches(const regx_transport_t *transport, const void *address, size_t length,
                           bool same_node)
{
    const regx_pinned_t *pinned = regx_pinned_of(transport);
    const void *within = address_within(address, &length);

    return within != NULL && pinned->shm->ops->reaches(pinned->shm, within, length, same_node);
}

static regx_status_t pinned_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                    size_t length, regx_conn_t **conn)
{
    const void *within = address_within(address, &length);

    return within != NULL ? regx_pinned_connect(transport, peer, within, length, conn)
                          : REGX_INVALID;
}

static int pinned_progress(regx_transport_t *transport)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    int events = pinned->shm->ops->progress(pinned->shm);

    if (pinned->awaited > 0) {
        events += regx_pinned_serve(pinned);
    }
    if (atomic_load_explicit(&pinned->asked, memory_order_relaxed) > 0) {
        events += regx_pinned_ask(pinned);
    }
    return events;
}

/* ---- opening and closing ---- */

static void free_all(regx_pinned_t *pinned)
{
    regx_lock_fini(&pinned->lock);
    free(pinned->slots);
    free(pinned->free_slots);
    free(pinned);
}

static void pinned_close(regx_transport_t *transport)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);

    regx_pinned_drop_peers(pinned);
    pinned->shm->ops->close(pinned->shm);
    regx_uring_close(&pinned->uring);
    free_all(pinned);
}

static regx_pinned_t *device_new(const regx_transport_config_t *config,
                                 const regx_pinned_settings_t *settings)
{
    regx_pinned_t *pinned = calloc(1, sizeof(*pinned));

    if (pinned == NULL) {
        return NULL;
    }
    pinned->config = *config;
    pinned->super = (regx_transport_t){.ops = &regx_pinned_ops,
                                       .wires = "pinned",
                                       .registers = true,
                                       .mr_count = settings->pinned_slots,
                                       .mr_bytes = REGX_URING_PIN_MAX};
    pinned->slots = calloc(settings->pinned_slots, sizeof(pinned->slots[0]));
    pinned->free_slots = calloc(settings->pinned_slots, sizeof(pinned->free_slots[0]));
    regx_lock_init(&pinned->lock, true);
    regx_list_init(&pinned->asking);
    regx_list_init(&pinned->conns);
    if (pinned->slots == NULL || pinned->free_slots == NULL) {
        free_all(pinned);
        return NULL;
    }
    while (pinned->free_count < settings->pinned_slots) { /* slot 0 is taken first */
        pinned->free_slots[pinned->free_count] = settings->pinned_slots - 1 - pinned->free_count;
        pinned->free_count++;
    }
    return pinned;
}

static regx_status_t open_transport(const regx_transport_config_t *config, regx_error_t error,
                                    regx_transport_t **transport)
{
    static const regx_pinned_settings_t defaults = {.pinned_slots = 4096};
    const regx_pinned_settings_t *settings =
        config->settings != NULL ? config->settings : &defaults;
    regx_transport_config_t shm = *config;
    regx_pin_cost_t cost;

    if (!regx_pin_cost_read(settings->pin_cost, &cost, error)) {
        return REGX_INVALID;
    }
    regx_pinned_t *pinned = device_new(config, settings);
    if (pinned == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    pinned->cost = cost;
    if (cost.call != 0 || cost.page != 0) {
        snprintf(pinned->wires, sizeof(pinned->wires),
                 "pinned, %u ns a registration and %u ns a page", cost.call, cost.page);
        pinned->super.wires = pinned->wires;
    }
    shm.settings = NULL;
    shm.events = (regx_transport_events_t){.context = pinned, .deliver = deliver, .broken = broken};
    regx_status_t status = regx_uring_open(&pinned->uring, (uint32_t)pinned->super.mr_count, error);
    if (status == REGX_OK) {
        status = regx_shm_ops.open(&shm, error, &pinned->shm);
        if (status != REGX_OK) {
            regx_uring_close(&pinned->uring);
        }
    }
    if (status != REGX_OK) {
        free_all(pinned);
        return status;
    }
    pinned->super.pool_memory = pinned->shm->pool_memory;
    pinned->super.pool_size = pinned->shm->pool_size;
    pinned->super.max_frame = pinned->shm->max_frame;
    pinned->super.max_zcopy = pinned->shm->max_zcopy;
    *transport = &pinned->super;
    return REGX_OK;
}

const regx_transport_ops_t regx_pinned_ops = {.abi = REGX_TRANSPORT_ABI,
                                              .name = "pinned",
                                              .open = open_transport,
                                              .close = pinned_close,
                                              .address = pinned_address,
                                              .reaches = pinned_reaches,
                                              .connect = pinned_connect,
                                              .disconnect = regx_pinned_disconnect,
                                              .reachable = pinned_reachable,
                                              .send = pinned_send,
                                              .send_zcopy = pinned_send_zcopy,
                                              .put = regx_pinned_put,
                                              .get = regx_pinned_get,
                                              .node = {.is_behind = pinned_is_behind},
                                              .reg = regx_pinned_reg,
                                              .dereg = regx_pinned_dereg,
                                              .progress = pinned_progress};

#endif

const regx_catalog_entry_t regx_pinned_entry = {
    .word = {.word = "pinned", .absent = !REGX_HAVE_PINNED},
    .params = table,
#if REGX_HAVE_PINNED
    .ops = &regx_pinned_ops
#endif
};
