/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A whole message, read from what its sender exposed with the RTS (ob1's RGET). Then there are two
 * messages in all, RTS and FIN.
 *
 * On a node, where the kernel copies between two processes, nothing needs to be registered, so it
 * can always be done. By the paths read and together the message is read so. By staged the receiver
 * takes it from where the sender copies it (transport/shm/cico.c), if the sender's strategy offers
 * that (auto, staged) and it had room; else it is read. By these three paths no message waits for a
 * sender that is outside MPI. Every other path answers with its CTS, as if nothing had been exposed.
 * If it cannot be read, the message goes by slots, from its beginning. Where the sender exposes nothing (it
 * has another strategy, or ob1 divides messages among several ports), these three paths are answered as
 * pipeline is.
 * If the receive buffer cannot be written it is left to the MPI library. That knows how long the buffer
 * is, and copies no further. It stores by the processor: where a page is missing, the program's handler
 * brings it in, or a signal ends the program.
 *
 * Over an RDMA device the path read registers both buffers whole. By auto the message is read if both
 * are registered already, which saves the CTS, and the device does as much as for a write; not if the
 * receiver's path is bounce. A new buffer goes by CTS: it is registered chunk by chunk while the first
 * chunks are on the wire. The receive has its first chunk all the same, for the CTS that is sent if the
 * read fails.
 *
 * Where large messages go both ways at once they are written instead: a process that has exposed
 * buffers of its own answers with the CTS, and does not read. Measured on Soft-RoCE, both ways at
 * 1 MiB: 191 MB/s written, 147 read; why is not known. Up to 256 KiB reads are as fast, and take a
 * message less.
 *
 * The CTS is also the answer if the transport has no room now, or if a checksum is wanted and the
 * sender made none.
 *
 * The phases of a receive that is read (recv.h), and what its owner is answered:
 *
 *   OPENED ──regx_rndv_recv_get──▶ READING ──the get has ended, or none was begun: got──┐
 *                                                                                       ▼
 *     READING, REGX_OK      all bytes are there
 *     OPENED, REGX_FAILED   it is left to the MPI library: the buffer cannot be written, or has no memory
 *                           at the message's end
 *     OPENED, its CTS       no get was begun, or that of a device has failed
 *     OPENED, a new CTS     by slots: it was to be read, and was not
 *     LOST, any of these    the peer has gone meanwhile; nothing more is granted
 */
#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "rendezvous/send.h"

/* ---- the sender exposes its buffer, until the MPI's FIN ---- */

/* Over a device: the registration of a whole buffer, by `read` a new one if none is kept. */
static regx_status_t acquire(regx_rndv_t *rndv, regx_end_t end, const void *base, size_t length,
                             unsigned access, regx_region_t *region)
{
    const regx_strategy_t *strategy = rndv->config.strategy;

    if (!strategy->reads || strategy->copies) {
        return regx_region_acquire_kept(rndv->registry, base, length, access, region) ? REGX_OK
                                                                                      : REGX_AGAIN;
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)base, length, access, region);
    if (status != REGX_OK) {
        regx_buffer_refused(rndv, end, status, region, base, length);
    }
    return status;
}

bool regx_rndv_expose(regx_rndv_t *rndv, const regx_peer_t *peer, const void *base, size_t length,
                      regx_rndv_exposure_t *exposure)
{
    regx_conn_t *conn = peer->conn;
    const regx_transport_ops_t *ops = conn->transport->ops;
    const bool exposes = rndv->config.strategy->exposes;
    const size_t stages_from = rndv->config.strategy->stages_from; /* 0: it stages none */
    regx_exposure_t wire = {.version = REGX_CONTROL_VERSION,
                            .path = REGX_EXPOSURE,
                            .has_checksum = rndv->config.verify,
                            .length = length};

    if (!rndv->config.may_expose) { /* of several ports none knows yet which part it will carry */
        return false;
    }
    exposure->registered = false;
    exposure->staged = false;
    if (exposes && ops->node.expose != NULL && conn->single_copy && !conn->transport->forked) {
        ops->node.expose(conn->transport, base, length, &wire.key);
        exposure->staged = stages_from > 0 && length >= stages_from && ops->node.stage != NULL &&
                           ops->node.stage(conn, base, length, &wire.key);
        exposure->key = wire.key;
    } else if (exposes && conn->transport->registers && ops->get != NULL &&
               atomic_load(&rndv->exposed) < REGX_EXPOSED_MAX &&
               acquire(rndv, REGX_SENDER, base, length, REGX_ACCESS_REMOTE_READ,
                       &exposure->region) == REGX_OK) {
        exposure->registered = true;
        wire.key = exposure->region.mr->key;
        wire.start = (uint64_t)((const char *)base - (const char *)exposure->region.mr->base);
    } else { /* the peer cannot read it, or it would have to be registered first */
        regx_rndv_expect(rndv, peer, base, length);
        return false;
    }
    atomic_fetch_add(&rndv->exposed, 1);
    exposure->drain = regx_drain_hold(rndv->registry->drain, base, length);
    if (rndv->config.verify) {
        wire.checksum = regx_buffer_checksum(base, length);
    }
    memset(exposure->bytes, 0, sizeof(exposure->bytes));
    memcpy(exposure->bytes, &wire, sizeof(wire));
    /* Another core may read the bytes. Also what the program stored past the caches (movnt) must be visible
     * before the message. A fence by itself, which the thread sanitizer takes. */
    regx_fence_stores();
    return true;
}

void regx_rndv_unexpose(regx_rndv_t *rndv, regx_rndv_exposure_t *exposure)
{
    if (exposure->registered) {
        regx_region_release(rndv->registry, &exposure->region);
    }
    atomic_fetch_sub(&rndv->exposed, 1);
    if (exposure->staged) {
        rndv->registry->transport->ops->node.unstage(rndv->registry->transport, &exposure->key);
    }
    regx_drain_let_go(rndv->registry->drain, exposure->drain);
}

/* ---- the receiver reads it ---- */

#define BOTH_WAYS_MAX (256u * 1024u) /* what is longer is not read while this process sends, too */

static void got(regx_get_t *get, regx_status_t status);

/* Over a device: takes a use of a registration of the receive buffer (whole.region), for the get.
 * REGX_AGAIN: the buffer is not known, or cannot be registered, or long messages go both ways now;
 * REGX_FAILED: perhaps a part of it is not there. */
static regx_status_t take_region(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const bool reads = rndv->paths[recv->path]->reads;

    if (!reads && recv->buffer.length > BOTH_WAYS_MAX && atomic_load(&rndv->exposed) > 0) {
        return REGX_AGAIN;
    }
    if (!rndv->config.strategy->exposes || recv->path == REGX_PATH_bounce) {
        return REGX_AGAIN;
    }
    const regx_status_t status =
        acquire(rndv, REGX_RECEIVER, recv->buffer.base, recv->buffer.length,
                reads ? REGX_ACCESS_LOCAL_WRITE : REGX_ACCESS_REMOTE_WRITE, &recv->whole.region);
    if (status == REGX_OK) {
        recv->whole.get.region = recv->whole.region.mr;
    } else if (reads) {
        recv->why = REGX_WHY_receiver;
        recv->peer->no_gets |= status == REGX_INVALID;
    }
    return status == REGX_DENIED ? REGX_FAILED : status == REGX_OK ? REGX_OK : REGX_AGAIN;
}

/* Whether there is memory at the end of the message. ob1 has the whole message read, also where that is longer
 * than the user's buffer, and does not tell; a store behind the last mapping would end the process. The kernel
 * is asked once for each end, as long as that is remembered: programs use their buffers again. */
static bool has_end(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const uintptr_t end = (uintptr_t)recv->buffer.base + recv->buffer.length;
    _Atomic uintptr_t *known = &rndv->ends[end / 64 % REGX_RNDV_KNOWN];

    if (atomic_load_explicit(known, memory_order_relaxed) == end) {
        return true;
    }
    if (!regx_fault_has_end((const char *)end)) {
        return false;
    }
    atomic_store_explicit(known, end, memory_order_relaxed);
    return true;
}

void regx_rndv_recv_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                        const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_got_t done, void *context)
{
    regx_exposure_t exposure;
    regx_status_t status = REGX_AGAIN; /* it is not read */

    recv->may_be_longer = true;
    recv->whole.done = done;
    recv->whole.context = context;
    recv->whole.get = (regx_get_t){.local = recv->buffer.base,
                                   .length = recv->buffer.length,
                                   .staged = recv->path == REGX_PATH_staged,
                                   .assisted = recv->path == REGX_PATH_together,
                                   .done = got,
                                   .context = recv};
    regx_lock(&rndv->lock);
    const regx_peer_t *peer = recv->phase == REGX_RECV_OPENED ? recv->peer : NULL; /* or gone */
    if (peer != NULL) {
        recv->phase = REGX_RECV_READING;
    }
    recv->holds++;
    regx_unlock(&rndv->lock);
    if (!regx_exposure_unpack(bytes, &exposure) || exposure.length != recv->buffer.length) {
        status = REGX_INVALID;
    } else if (peer != NULL && !has_end(rndv, recv)) {
        status = REGX_FAILED;
    } else if (peer != NULL && (!rndv->config.verify || exposure.has_checksum)) {
        regx_conn_t *conn = peer->conn;
        const bool registers = conn->transport->registers && !conn->single_copy;

        recv->whole.get.offset = exposure.start;
        recv->whole.get.key = exposure.key;
        recv->whole.has_checksum = exposure.has_checksum;
        recv->whole.checksum = exposure.checksum;
        if (registers) {
            status = take_region(rndv, recv);
        } else if (rndv->paths[recv->path]->reads) {
            status = REGX_OK;
        }
        if (status == REGX_OK) {
            status = conn->transport->ops->get(conn, &recv->whole.get);
            if (status == REGX_AGAIN && recv->whole.get.staged) {
                recv->whole.get.staged = false; /* the sender has no place for it */
                recv->path = REGX_PATH_read;
                recv->why = REGX_WHY_unstaged;
                status = conn->transport->ops->get(conn, &recv->whole.get);
            }
        }
    }
    if (status == REGX_PENDING) { /* perhaps it has ended in another thread, and is closed */
        return;
    }
    if (status == REGX_INVALID) {
        regx_count_malformed(rndv->counters);
    }
    got(&recv->whole.get, status);
}

/* The MPI library copies the message, because a part of the buffer cannot be written, or because the message is
 * longer than the buffer. */
static void leave_to_mpi(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_control_t all = {.length = recv->buffer.length};
    char text[REGX_BUFFER_LACKS];

    regx_fall_back(rndv, "receiver: its buffer cannot be written, or is shorter");
    if (!regx_fault_is_handled(SIGSEGV) && !regx_fault_is_handled(SIGBUS) &&
        !regx_rndv_is_paged(rndv, recv->buffer.base, all.length)) {
        const char *lacks = regx_buffer_lacks(recv->buffer.base, all.length, true, text);

        regx_lock(&rndv->lock);
        regx_recv_note_lost_locked(rndv, recv, &all, lacks);
        regx_unlock(&rndv->lock);
    }
}

/* The transport has ended the read, or it did not begin: the owner gets its answer. */
static void got(regx_get_t *get, regx_status_t status)
{
    regx_rndv_recv_t *recv = get->context;
    regx_rndv_t *rndv = recv->rndv;
    const bool registered = get->region != NULL;
    const bool unwritable = status == REGX_FAILED && !registered &&
                            !regx_buffer_is_writable(recv->buffer.base, recv->buffer.length);

    if (registered) {
        regx_region_release(rndv->registry, &recv->whole.region);
    }
    regx_lock(&rndv->lock);
    assert(recv->holds > 0 && recv->phase != REGX_RECV_CLOSED); /* not before it has ended */
    recv->holds--;
    const bool open = recv->phase == REGX_RECV_READING; /* else the peer is gone */
    const bool refused =
        open && !registered && !unwritable && (status == REGX_DENIED || status == REGX_FAILED);
    if (open && status == REGX_OK) {
        recv->granted = recv->buffer.length;
        recv->landed = recv->buffer.length;
    } else if (open) {
        recv->phase = REGX_RECV_OPENED;
        if (refused && status == REGX_DENIED) {
            recv->peer->no_gets = true;
        }
        if (refused && !recv->slots.only) {
            regx_recv_open_again_locked(rndv, recv, status == REGX_FAILED);
        } else if (status == REGX_FAILED && !unwritable) {
            recv->buffer.suspect = true; /* the memory at either end may be gone */
            recv->cts.bits |= REGX_CTS_SUSPECT;
        }
    }
    regx_unlock(&rndv->lock);
    if (refused) {
        regx_fall_back(rndv, status == REGX_DENIED ? "receiver: reading from this peer refused"
                                                   : "receiver: reading from this peer failed");
    }
    if (open && status == REGX_OK) {
        regx_path_t path = recv->path;
        regx_why_t why = recv->why;

        if (registered && !rndv->paths[path]->reads) { /* whatever path its CTS would have had */
            path = REGX_PATH_read;
            why = REGX_WHY_registered;
        } else if (get->staged) { /* perhaps it was staged already (regx_shm_get) */
            path = REGX_PATH_staged;
        }
        if (recv->whole.has_checksum) {
            const regx_control_t all = {.bits = REGX_CONTROL_CHECKSUM,
                                        .length = recv->buffer.length,
                                        .checksum = recv->whole.checksum};

            regx_recv_verify(rndv, recv, &all, path);
        }
        regx_count(rndv->counters, &rndv->counters->gets, 1);
        regx_count_message(rndv->config.flow, path, why, recv->buffer.length);
    }
    if (unwritable) {
        leave_to_mpi(rndv, recv);
        status = REGX_FAILED;
    } else if (status != REGX_OK) {
        regx_lock(&rndv->lock);
        regx_recv_complete_cts_locked(rndv, recv);
        regx_unlock(&rndv->lock);
        status = status == REGX_FAILED ? REGX_DENIED : status;
    }
    regx_recv_report(rndv, recv->peer);
    recv->whole.done(recv->whole.context, status);
}

/* ---- the strategies ---- */

const regx_strategy_t regx_strategy_read = {
    .path = REGX_PATH_read, .protocol = &regx_protocol_bounce, .reads = true, .exposes = true};

/* What is not staged is read. */
const regx_strategy_t regx_strategy_staged = {.path = REGX_PATH_staged,
                                              .protocol = &regx_protocol_bounce,
                                              .reads = true,
                                              .exposes = true,
                                              .stages_from = 1,
                                              .copies = true};

const regx_strategy_t regx_strategy_together = {.path = REGX_PATH_together,
                                                .protocol = &regx_protocol_bounce,
                                                .reads = true,
                                                .exposes = true,
                                                .sender_writes = true,
                                                .copies = true};
