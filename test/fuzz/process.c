/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

process_t *process;

/* ---- the wire ---- */

static regx_status_t wire_send(regx_conn_t *conn, uint8_t tag, const void *header,
                               size_t header_length, regx_pack_t pack, void *payload,
                               size_t payload_length)
{
    fuzz_check(tag == REGX_TAG_CONTROL && pack == NULL && payload_length == 0);
    if (process->sends == REGX_OK) {
        fuzz_check(regx_control_unpack(header, header_length, &process->said));
    }
    return process->sends;
}

/* Reads what is to be written: the sanitizer looks at it. */
static void carry(const regx_put_t *put)
{
    uint8_t *copy = malloc(put->length > 0 ? put->length : 1);

    fuzz_check(copy != NULL);
    memcpy(copy, put->local, put->length);
    free(copy);
}

static regx_status_t wire_put(regx_conn_t *conn, regx_put_t *put)
{
    fuzz_check(put->notice_length <= REGX_NOTICE_MAX);
    if (process->puts == REGX_PENDING && process->put_count < PENDING) {
        process->put[process->put_count++] = put;
        return REGX_PENDING;
    }
    if (process->puts == REGX_OK) {
        carry(put);
    }
    return process->puts == REGX_PENDING ? REGX_AGAIN : process->puts;
}

static regx_status_t wire_get(regx_conn_t *conn, regx_get_t *get)
{
    if (process->gets == REGX_OK && process->get_count < PENDING) {
        process->get[process->get_count++] = get;
        return REGX_PENDING;
    }
    return process->gets == REGX_OK ? REGX_AGAIN : process->gets;
}

static void wire_expose(regx_transport_t *transport, const void *base, size_t length,
                        regx_key_t *key)
{
    memset(key, 0, sizeof(*key));
}

/* What the peer may write it writes at once: of landing pages none is moved where nothing is
 * written. */
static regx_status_t wire_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    if (process->registers != REGX_OK) {
        return process->registers;
    }
    if ((access & REGX_ACCESS_REMOTE_WRITE) != 0) {
        memset(base, 0x5a, length);
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access};
    process->registered++;
    return REGX_OK;
}

static void wire_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    fuzz_check(process->registered > 0);
    process->registered--;
}

static bool wire_has_next(const regx_transport_t *transport)
{
    return process->heard % 2 == 0;
}

const regx_transport_ops_t process_wire = {
    .abi = REGX_TRANSPORT_ABI,
    .name = "fuzz",
    .send = wire_send,
    .put = wire_put,
    .get = wire_get,
    .node = {.has_next = wire_has_next, .expose = wire_expose},
    .reg = wire_reg,
    .dereg = wire_dereg};

void process_end_put(unsigned i, regx_status_t status)
{
    regx_put_t *put = process->put[i];

    process->put[i] = process->put[--process->put_count];
    if (status == REGX_OK) {
        carry(put);
    }
    put->done(put, status);
}

void process_end_get(unsigned i, regx_status_t status)
{
    regx_get_t *get = process->get[i];

    process->get[i] = process->get[--process->get_count];
    if (status == REGX_OK) {
        memset(get->local, 0x5a, get->length);
    }
    get->done(get, status);
}

/* ---- messages, by what control.h says of each type, in numbers of its own ---- */

bool process_is_well_formed(const regx_control_t *control, size_t size)
{
    const unsigned bits = control->bits, count = control->slot_count;

    switch (control->type) {
    case REGX_CONTROL_READY:
    case REGX_CONTROL_DIFFERS:
        return size == 40 && bits == 0 && count == 0;
    case REGX_CONTROL_NACK:
        return size == 40 && (bits & ~6u) == 0 && count == 0;
    case REGX_CONTROL_ATP_SLOT:
    case REGX_CONTROL_ATP_CHUNK:
        return bits <= 1 && size == 40 + 8 * bits && count == 0;
    case REGX_CONTROL_CTS_SLOTS:
        return bits == 0 && count >= 1 && count <= 4 && size == 24 + 8 * count;
    case REGX_CONTROL_CTS_CHUNK:
        return size == 80 && bits == 0 && count == 0;
    case REGX_CONTROL_REVOKE:
    case REGX_CONTROL_RESUME:
        return size == 24 && bits == 0 && count == 0;
    case REGX_CONTROL_ARRIVED:
        return bits <= 1 && size == 24 + 24 * bits && count == 0;
    default:
        return false;
    }
}
