/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A pinned device without a peer (component/transport/pinned): its regions, and its transfers between
 * them and a file in memory, of which this program is the other end.
 */
#include "oracle.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/pinned/pinned.h"

enum { STAGE = REGX_PINNED_PIECE_MAX }; /* bytes of the file */
enum { SLOTS = 16384 };                 /* registrations at once: the kernel's limit */

struct oracle {
    regx_transport_t transport; /* first */
    regx_transport_t *device;
    regx_counters_t counters;
    pthread_mutex_t lock; /* of the file */
    regx_file_t file;
    char *stage; /* the file's content */
    _Atomic unsigned registered;
};

_Noreturn static void give_up(const char *what, int error)
{
    fprintf(stderr, "oracle: %s: %s\n", what, strerror(error));
    abort();
}

/* ---- the memory domain ---- */

static regx_status_t reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr)
{
    oracle_t *oracle = (oracle_t *)transport;
    const regx_status_t status = regx_pinned_reg(oracle->device, base, length, access, mr);

    atomic_fetch_add(&oracle->registered, status == REGX_OK);
    return status;
}

static void dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    oracle_t *oracle = (oracle_t *)transport;
    const regx_pinned_slot_t *slot = mr->handle;

    if (slot->length == 0) {
        give_up("deregistered twice", 0);
    }
    regx_pinned_dereg(oracle->device, mr);
    atomic_fetch_sub(&oracle->registered, 1);
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
}

static const regx_transport_ops_t ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "oracle", .reg = reg, .dereg = dereg};

regx_transport_t *oracle_transport(oracle_t *oracle)
{
    return &oracle->transport;
}

unsigned oracle_registered(const oracle_t *oracle)
{
    return atomic_load(&oracle->registered);
}

/* ---- opening and closing ---- */

static void no_frame(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    give_up("a frame has come", 0);
}

static void no_peer(void *context, uint64_t peer, bool ended, const char *what)
{
    give_up(what, 0);
}

oracle_t *oracle_open(regx_error_t why)
{
    const regx_pinned_settings_t settings = {.slots = SLOTS};
    oracle_t *oracle = calloc(1, sizeof(*oracle));

    if (oracle == NULL) {
        give_up("memory", ENOMEM);
    }
    const regx_transport_config_t config = {
        .self = 1,
        .pool_size = regx_page_size(),
        .pool_min = regx_page_size(),
        .settings = &settings,
        .threads = true,
        .counters = &oracle->counters,
        .events = {.context = oracle, .deliver = no_frame, .broken = no_peer}};
    if (regx_pinned_ops.open(&config, why, &oracle->device) != REGX_OK) {
        free(oracle);
        return NULL;
    }
    oracle->transport.ops = &ops;
    oracle->transport.registers = true;
    oracle->file = regx_file_of(memfd_create("oracle", MFD_CLOEXEC));
    if (oracle->file.fd < 0 || ftruncate(oracle->file.fd, STAGE) != 0) {
        give_up("a memory file", errno);
    }
    oracle->stage = mmap(NULL, STAGE, PROT_READ | PROT_WRITE, MAP_SHARED, oracle->file.fd, 0);
    if (oracle->stage == MAP_FAILED) {
        give_up("memory", ENOMEM);
    }
    pthread_mutex_init(&oracle->lock, NULL);
    return oracle;
}

void oracle_close(oracle_t *oracle)
{
    if (oracle_registered(oracle) != 0) {
        fprintf(stderr, "oracle: %u registrations are left\n", oracle_registered(oracle));
        abort();
    }
    regx_pinned_ops.close(oracle->device);
    munmap(oracle->stage, STAGE);
    regx_file_close(&oracle->file);
    pthread_mutex_destroy(&oracle->lock);
    free(oracle);
}

/* ---- transfers ---- */

/* Between the file and that part of the region. The lock is held. */
static void move(oracle_t *oracle, const regx_mr_t *mr, const void *address, size_t length,
                 bool send)
{
    const uint64_t offset = (uintptr_t)address - (uintptr_t)mr->base;
    regx_pinned_key_t key;

    memcpy(&key, mr->key.bytes, sizeof(key));
    const regx_status_t status = regx_pinned_copy(regx_pinned_of(oracle->device), send, &key,
                                                  offset, (uint32_t)length, 0, &oracle->file, 0);
    if (status != REGX_OK) {
        give_up(status == REGX_DENIED ? "a transfer outside its registration"
                : send                ? "sending"
                                      : "receiving",
                0);
    }
}

void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to)
{
    pthread_mutex_lock(&oracle->lock);
    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = regx_min(length - at, (size_t)STAGE);

        move(oracle, mr, (const char *)from + at, part, true);
        memcpy((char *)to + at, oracle->stage, part);
    }
    pthread_mutex_unlock(&oracle->lock);
}

void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data)
{
    pthread_mutex_lock(&oracle->lock);
    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = regx_min(length - at, (size_t)STAGE);

        memcpy(oracle->stage, (const char *)data + at, part);
        move(oracle, mr, (char *)to + at, part, false);
    }
    pthread_mutex_unlock(&oracle->lock);
}
