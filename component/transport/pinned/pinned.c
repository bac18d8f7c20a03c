/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/pinned/pinned.h"

#include <stdlib.h>

#define VARIANT UINT64_C(0x343064656e6e6970) /* "pinned04" */
#define SLOTS 4096u /* regions at once; what finds no room goes by bounce */

static const regx_param_t table[] = {REGX_PARAM_ROW(regx_pinned_settings_t, "", TEXT, pin_cost, 3),
                                     {.name = NULL}};

#if REGX_HAVE_PINNED

static void pinned_deliver(void *context, uint64_t sender, uint8_t tag, const void *data,
                           size_t length)
{
    regx_pinned_t *pinned = context;
    const regx_transport_events_t *events = &pinned->events;

    if (tag == REGX_TAG_OWN) {
        regx_pinned_take(pinned, sender, data, length);
    } else {
        events->deliver(events->context, sender, tag, data, length);
    }
}

static void pinned_broken(void *context, uint64_t peer, bool ended, const char *what)
{
    const regx_pinned_t *pinned = context;

    pinned->events.broken(pinned->events.context, peer, ended, what);
}

/* Nothing is known of what comes behind a notice of this transport's own. */
static bool pinned_has_next(const regx_transport_t *transport)
{
    return !regx_pinned_of(transport)->delivering && regx_shm_has_next(transport);
}

static int pinned_progress(regx_transport_t *transport)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    int events = regx_shm_progress(transport);

    if (atomic_load_explicit(&pinned->asked, memory_order_relaxed) > 0) {
        events += regx_pinned_ask(pinned);
    }
    return events;
}

/* ---- opening and closing ---- */

static void free_device(regx_pinned_t *pinned)
{
    regx_uring_close(&pinned->uring);
    regx_handle_table_fini(&pinned->names);
    regx_lock_fini(&pinned->lock);
    free(pinned);
}

static void pinned_close(regx_transport_t *transport)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);

    regx_shm_ops.close(transport);
    free_device(pinned);
}

static regx_status_t open_pinned(const regx_transport_config_t *config, regx_error_t error,
                                 regx_transport_t **transport)
{
    static const regx_pinned_settings_t defaults;
    const regx_pinned_settings_t *settings =
        config->settings != NULL ? config->settings : &defaults;
    const uint32_t slots = settings->slots > 0 ? settings->slots : SLOTS;
    regx_pinned_t *pinned = calloc(1, sizeof(*pinned) + slots * sizeof(pinned->slots[0]));
    regx_transport_config_t shm_config = *config;
    regx_status_t status = REGX_INVALID;

    if (pinned == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    regx_handle_table_init(&pinned->names);
    regx_lock_init(&pinned->lock, true);
    regx_list_init(&pinned->asking);
    pinned->events = config->events;
    shm_config.settings = NULL;
    shm_config.events = (regx_transport_events_t){
        .context = pinned, .deliver = pinned_deliver, .broken = pinned_broken};
    if (regx_pin_cost_read(settings->pin_cost, &pinned->cost, error)) {
        status = regx_uring_open(&pinned->uring, slots, error);
    }
    if (status == REGX_OK) {
        status = regx_shm_ops.open(&shm_config, error, transport);
    }
    if (status != REGX_OK) {
        free_device(pinned);
        return status;
    }
    regx_shm_t *shm = regx_shm_of(*transport);
    const regx_pin_cost_t cost = pinned->cost;
    pinned->shm = shm;
    shm->pinned = pinned;
    shm->address.variant = VARIANT;
    shm->super.ops = &regx_pinned_ops;
    shm->super.registers = true;
    shm->super.mr_count = slots;
    shm->super.mr_bytes = REGX_URING_PIN_MAX;
    shm->super.wires = cost.call != 0 || cost.page != 0 ? pinned->wires : "pinned";
    snprintf(pinned->wires, sizeof(pinned->wires), "pinned, %u ns a registration and %u ns a page",
             cost.call, cost.page);
    return REGX_OK;
}

/* But for regions, puts and gets, and what the kernel copies, they are those of shared memory. */
const regx_transport_ops_t regx_pinned_ops = {.abi = REGX_TRANSPORT_ABI,
                                              .name = "pinned",
                                              .open = open_pinned,
                                              .close = pinned_close,
                                              .address = regx_shm_address,
                                              .reaches = regx_shm_reaches,
                                              .connect = regx_pinned_connect,
                                              .disconnect = regx_pinned_disconnect,
                                              .reachable = regx_shm_reachable,
                                              .send = regx_shm_send,
                                              .send_zcopy = regx_shm_send_zcopy,
                                              .put = regx_pinned_put,
                                              .get = regx_pinned_get,
                                              .node = {.has_next = pinned_has_next,
                                                       .allocate = regx_shm_allocate,
                                                       .release = regx_shm_release},
                                              .reg = regx_pinned_reg,
                                              .dereg = regx_pinned_dereg,
                                              .look = regx_shm_look,
                                              .progress = pinned_progress};

#endif

const regx_catalog_entry_t regx_pinned_entry = {.params = table,
#if REGX_HAVE_PINNED
                                                .ops = &regx_pinned_ops
#endif
};
