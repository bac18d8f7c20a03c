/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A whole message, read from what its sender exposed before the RTS (ob1's RGET). Where the kernel
 * copies between two processes of a node nothing needs to be registered, so the RTS can carry all
 * that the receiver has to know. Then there are two messages in all, RTS and FIN.
 *
 * The receiver's strategy decides. The paths read and together are read so. Every other path
 * answers with its CTS, exactly as if nothing had been exposed, and so do those if the transport
 * cannot begin now, or if a checksum is wanted and the sender made none. If the kernel refuses, or
 * the memory at either end is gone, the message goes by slots, from its beginning.
 */
#include <assert.h>

#include "rendezvous/checksum.h"
#include "rendezvous/proto.h"
#include "rendezvous/strategy.h"

bool regx_rndv_expose(const regx_rndv_t *rndv, const regx_peer_t *peer, const void *base,
                      size_t length, uint8_t handle[REGX_CTS_SIZE])
{
    const regx_transport_ops_t *ops = peer->conn->transport->ops;
    regx_exposure_t exposure = {.length = length, .has_checksum = rndv->config.verify};

    if (!rndv->config.strategy->exposes || ops->expose == NULL || !peer->conn->single_copy) {
        return false;
    }
    if (exposure.has_checksum) {
        exposure.checksum = regx_checksum(base, length);
    }
    ops->expose(base, length, &exposure.key);
    regx_exposure_pack(&exposure, handle);
    /* Another core may read the bytes: see send_rkey in get.c. */
    __sync_synchronize();
    return true;
}

/* Whether it may be read now. From then on it is READING, and held. */
static bool begin(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_lock(&rndv->lock);
    const bool begins = regx_path_reads(recv->path) && recv->phase == REGX_RECV_OPENED;
    if (begins) {
        recv->phase = REGX_RECV_READING;
        recv->holds++;
    }
    regx_unlock(&rndv->lock);
    return begins;
}

static void refused(regx_rndv_t *rndv, const regx_rndv_recv_t *recv, regx_status_t status)
{
    if (status == REGX_DENIED) {
        atomic_store(&recv->peer->no_gets, true);
        regx_fall_back(rndv, "receiver: reading from this peer refused");
    } else {
        regx_fall_back(rndv, "receiver: reading from this peer failed");
    }
}

/* The transport did not accept it: by CTS. */
static void not_begun(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status)
{
    if (status == REGX_INVALID) {
        regx_malformed(rndv);
    } else if (status == REGX_DENIED) {
        refused(rndv, recv, status);
    }
    regx_lock(&rndv->lock);
    recv->holds--;
    if (status == REGX_DENIED) {
        regx_recv_open_again_locked(rndv, recv, false);
    } else {
        recv->phase = REGX_RECV_OPENED;
    }
    regx_unlock(&rndv->lock);
}

/* Compares and tells. The receive is held. */
static void verify(const regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_control_t *rkey = &recv->whole.rkey;
    char what[192];

    if (!regx_recv_verify(rndv, recv, rkey)) {
        regx_recv_describe_mismatch(recv, rkey, what, sizeof(what));
        rndv->config.mismatch(rndv->config.context, recv->peer, what);
    }
}

/* What has ended is entered into the books. false: it was closed meanwhile. */
static bool enter_locked(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status)
{
    const bool open = recv->phase == REGX_RECV_READING;

    assert(recv->holds > 0);
    recv->holds--;
    if (open && status == REGX_OK) {
        recv->granted = recv->landed = recv->length;
    } else if (open) {
        regx_recv_open_again_locked(rndv, recv, status == REGX_FAILED);
    }
    const bool closed = recv->phase == REGX_RECV_CLOSED;
    regx_recv_free_locked(rndv, recv);
    return !closed;
}

static void got(regx_get_t *get, regx_status_t status)
{
    regx_rndv_recv_t *recv = get->context;
    regx_rndv_t *rndv = recv->whole.rndv;
    const regx_rndv_got_t done = recv->whole.done;
    void *context = recv->whole.context;

    regx_lock(&rndv->lock);
    const bool open = recv->phase == REGX_RECV_READING;
    regx_unlock(&rndv->lock);
    if (open && status == REGX_OK) {
        verify(rndv, recv);
        regx_count(rndv->counters, &rndv->counters->gets, 1);
        regx_count_message(rndv->counters, recv->path, recv->length);
    } else if (open) {
        refused(rndv, recv, status);
    }
    regx_lock(&rndv->lock);
    const bool tell = enter_locked(rndv, recv, status);
    regx_unlock(&rndv->lock);
    if (tell) {
        done(context, status);
    }
}

void regx_rndv_recv_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                        const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_got_t done, void *context)
{
    regx_conn_t *conn = recv->peer->conn;
    regx_exposure_t exposure;

    if (!regx_exposure_unpack(bytes, &exposure) || exposure.length != recv->length) {
        regx_malformed(rndv);
        done(context, REGX_INVALID);
        return;
    }
    if ((rndv->config.verify && !exposure.has_checksum) || !begin(rndv, recv)) {
        done(context, REGX_DENIED);
        return;
    }
    recv->whole.rndv = rndv;
    recv->whole.done = done;
    recv->whole.context = context;
    recv->whole.rkey = (regx_control_t){.type = REGX_CONTROL_RKEY,
                                        .length = recv->length,
                                        .has_checksum = exposure.has_checksum,
                                        .checksum = exposure.checksum};
    recv->whole.get = (regx_get_t){.local = recv->base,
                                   .length = recv->length,
                                   .key = exposure.key,
                                   .assisted = recv->path == REGX_PATH_together,
                                   .done = got,
                                   .context = recv};
    const regx_status_t status = conn->transport->ops->get(conn, &recv->whole.get);
    if (status != REGX_PENDING) {
        not_begun(rndv, recv, status);
        done(context, status);
    }
}
