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
 * If the kernel refuses, or the sender's memory is gone, the message goes by slots, from its beginning.
 * If the receive buffer cannot be written it is left to the MPI library. That knows how long the buffer
 * is, and copies no further. It stores by the processor: where a page is missing, the program's handler
 * brings it in, or a signal ends the program.
 *
 * Over an RDMA device the message is read if both buffers are registered already, as a whole, and
 * both strategies expose; not if the receiver's path is bounce. That saves the CTS, and the device
 * does as much as for a write. A new buffer goes by CTS: it is registered chunk by chunk while the
 * first chunks are on the wire. The receive has its first chunk all the same, for the CTS that is sent
 * if the read fails.
 *
 * Where large messages go both ways at once they are written instead: a process that has exposed
 * buffers of its own answers with the CTS, and does not read. Measured on Soft-RoCE, both ways at
 * 1 MiB: 191 MB/s written, 147 read; why is not known. Up to 256 KiB reads are as fast, and take a
 * message less.
 *
 * The CTS is also the answer if the transport cannot begin now, or if a checksum is wanted and the
 * sender made none.
 */
#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "rendezvous/send.h"

/* Names the bytes to a peer. false: the peer cannot read them, or they would have to be registered first. */
static bool make_readable(regx_rndv_t *rndv, regx_conn_t *conn, const void *base, size_t length,
                          regx_exposure_t *wire, regx_rndv_exposure_t *exposure)
{
    const regx_transport_ops_t *ops = conn->transport->ops;
    const size_t from = rndv->config.strategy->stages_from; /* 0: it stages none */

    exposure->registered = exposure->staged = false;
    if (ops->node.expose != NULL && conn->single_copy && !conn->transport->forked) {
        ops->node.expose(conn->transport, base, length, &wire->key);
        exposure->staged = from > 0 && length >= from && ops->node.stage != NULL &&
                           ops->node.stage(conn, base, length, &wire->key);
        exposure->key = wire->key;
        atomic_fetch_add(&rndv->exposed, 1);
        return true;
    }
    if (!conn->transport->registers || ops->get == NULL ||
        atomic_load(&rndv->exposed) >= REGX_EXPOSED_MAX ||
        !regx_region_acquire_kept(rndv->registry, base, length, REGX_ACCESS_REMOTE_READ,
                                  &exposure->region)) {
        return false;
    }
    atomic_fetch_add(&rndv->exposed, 1);
    exposure->registered = true;
    wire->key = exposure->region.mr->key;
    wire->start = (uint64_t)((const char *)base - (const char *)exposure->region.mr->base);
    return true;
}

bool regx_rndv_expose(regx_rndv_t *rndv, const regx_peer_t *peer, const void *base, size_t length,
                      regx_rndv_exposure_t *exposure)
{
    regx_exposure_t wire = {.version = REGX_CONTROL_VERSION,
                            .path = REGX_EXPOSURE,
                            .has_checksum = rndv->config.verify,
                            .length = length};

    if (!rndv->config.may_expose) { /* of several ports none knows yet which part it will carry */
        return false;
    }
    if (!rndv->config.strategy->exposes ||
        !make_readable(rndv, peer->conn, base, length, &wire, exposure)) {
        regx_rndv_expect(rndv, peer, base, length);
        return false;
    }
    exposure->drain = regx_drain_hold(rndv->registry->drain, base, length);
    if (rndv->config.verify) {
        wire.checksum = regx_buffer_checksum(base, length);
    }
    memset(exposure->bytes, 0, sizeof(exposure->bytes));
    memcpy(exposure->bytes, &wire, sizeof(wire));
    /* Another core may read the bytes: see advertise_locked in get.c. */
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

/* ---- the receiver begins a read ---- */

static bool end_read(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status);
static void answer_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status);
static void got(regx_get_t *get, regx_status_t status);

#define BOTH_WAYS_MAX (256u * 1024u) /* what is longer is not read while this process sends, too */

/* Over a device: takes a use of the kept registration of the receive buffer (whole.region). false: the buffer is
 * not known, or long messages go both ways now. */
static bool take_kept(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const bool reads = recv->protocol->grants == REGX_GRANTS_RKEYS;

    if (!reads && recv->buffer.length > BOTH_WAYS_MAX && atomic_load(&rndv->exposed) > 0) {
        return false;
    }
    return rndv->config.strategy->exposes && recv->path != REGX_PATH_bounce &&
           regx_region_acquire_kept(rndv->registry, recv->buffer.base, recv->buffer.length,
                                    reads ? REGX_ACCESS_LOCAL_WRITE : REGX_ACCESS_REMOTE_WRITE,
                                    &recv->whole.region);
}

/* Returns the connection to read by, and makes the receive READING. NULL: it cannot be read now. */
static regx_conn_t *begin_read(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_lock(&rndv->lock);
    const regx_peer_t *peer = recv->phase == REGX_RECV_OPENED ? recv->peer : NULL; /* or gone */
    if (peer != NULL) {
        recv->phase = REGX_RECV_READING;
        recv->holds++;
    }
    regx_unlock(&rndv->lock);
    if (peer == NULL) {
        return NULL;
    }
    regx_conn_t *conn = peer->conn;
    const bool registers = conn->transport->registers && !conn->single_copy;
    const bool reads = !registers && recv->protocol->grants == REGX_GRANTS_RKEYS;

    recv->whole.registered = registers && take_kept(rndv, recv);
    if (recv->whole.registered || reads) {
        return conn;
    }
    end_read(rndv, recv, REGX_AGAIN);
    return NULL;
}

void regx_rndv_recv_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv,
                        const uint8_t bytes[REGX_CTS_SIZE], regx_rndv_got_t done, void *context)
{
    regx_exposure_t exposure;
    regx_status_t status = REGX_DENIED;
    regx_conn_t *conn = NULL;

    recv->may_be_longer = true;
    recv->whole.done = done;
    recv->whole.context = context;
    if (!regx_exposure_unpack(bytes, &exposure) || exposure.length != recv->buffer.length) {
        regx_count_malformed(rndv->counters);
        answer_get(rndv, recv, REGX_INVALID);
        return;
    }
    if (!rndv->config.verify || exposure.has_checksum) {
        conn = begin_read(rndv, recv);
    }
    if (conn == NULL) {
        answer_get(rndv, recv, status);
        return;
    }
    recv->whole.rkey =
        (regx_control_t){.type = REGX_CONTROL_RKEY,
                         .bits = exposure.has_checksum != 0 ? REGX_CONTROL_CHECKSUM : 0,
                         .length = recv->buffer.length,
                         .checksum = exposure.checksum};
    recv->whole.get = (regx_get_t){
        .local = recv->buffer.base,
        .length = recv->buffer.length,
        .region = recv->whole.registered ? recv->whole.region.mr : NULL,
        .offset = exposure.start,
        .key = exposure.key,
        .staged = recv->path == REGX_PATH_staged,
        .assisted = recv->path == REGX_PATH_together,
        .may_overrun = true, /* ob1 does not tell whether the message is longer than the buffer */
        .done = got,
        .context = recv};
    status = conn->transport->ops->get(conn, &recv->whole.get);
    if (status == REGX_AGAIN && recv->whole.get.staged) { /* the sender has no place for it */
        recv->whole.get.staged = false;
        regx_recv_read_instead(recv);
        status = conn->transport->ops->get(conn, &recv->whole.get);
    }
    if (status == REGX_PENDING) { /* perhaps it has ended in another thread, and is closed */
        return;
    }
    if (status == REGX_INVALID) {
        regx_count_malformed(rndv->counters);
    }
    got(&recv->whole.get, status);
}

/* ---- it ends ---- */

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

/* Ends a read with that status, whether or not it was begun. If the message was not read the receive is
 * OPENED again: its CTS, or a new one, is to be sent. false: the peer is gone. */
static bool end_read(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status)
{
    if (recv->whole.registered) {
        regx_region_release(rndv->registry, &recv->whole.region);
    }
    regx_lock(&rndv->lock);
    assert(recv->holds > 0 && recv->phase != REGX_RECV_CLOSED); /* not before it has ended */
    recv->holds--;
    const bool open = recv->phase == REGX_RECV_READING;
    const bool refused =
        open && !recv->whole.registered && (status == REGX_DENIED || status == REGX_FAILED);
    if (open && status == REGX_OK) {
        recv->granted = recv->landed = recv->buffer.length;
    } else if (open) {
        recv->phase = REGX_RECV_OPENED;
    }
    if (refused) {
        recv->peer->no_gets |= status == REGX_DENIED;
    }
    if (refused && !recv->slots.only) {
        regx_recv_open_again_locked(rndv, recv, status == REGX_FAILED);
    } else if (open && status == REGX_FAILED) { /* the memory at either end may be gone */
        recv->buffer.suspect = true;
        recv->cts.bits |= REGX_CTS_SUSPECT;
    }
    regx_unlock(&rndv->lock);
    if (refused) {
        regx_fall_back(rndv, status == REGX_DENIED ? "receiver: reading from this peer refused"
                                                   : "receiver: reading from this peer failed");
    }
    return open;
}

/* The transport has ended the read, or could not begin it. */
static void got(regx_get_t *get, regx_status_t status)
{
    regx_rndv_recv_t *recv = get->context;
    regx_rndv_t *rndv = recv->rndv;
    /* What a device has read counts as `read`, whatever path its CTS would have had. */
    const bool registered = recv->whole.registered;
    const regx_path_t path = registered ? REGX_PATH_read
                             : get->staged
                                 ? REGX_PATH_staged /* or it was staged already (regx_shm_get) */
                                 : recv->path;
    const regx_why_t why = registered ? REGX_WHY_registered : recv->why;
    const bool unwritable = status == REGX_FAILED && !registered &&
                            !regx_buffer_is_writable(recv->buffer.base, recv->buffer.length);

    if (end_read(rndv, recv, unwritable ? REGX_AGAIN : status) && status == REGX_OK) {
        regx_recv_verify(rndv, recv, &recv->whole.rkey, path);
        regx_count(rndv->counters, &rndv->counters->gets, 1);
        regx_count_message(rndv->config.flow, path, why, recv->buffer.length);
    }
    if (unwritable) {
        leave_to_mpi(rndv, recv);
    }
    answer_get(rndv, recv, status == REGX_FAILED && !unwritable ? REGX_DENIED : status);
}

/* Answers the owner's get. If it was not read here, and is not left to the MPI library, its CTS is completed,
 * then shipped. An exception is a CTS that would grant slots. Its length is the message's, which may be longer than
 * the user's buffer, so there may be no memory at that end. The copy out of the slots would then end this process by
 * a signal, so the MPI library copies such a message, too. */
static void answer_get(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_status_t status)
{
    const bool ships_cts = status != REGX_OK && status != REGX_FAILED;

    if (ships_cts && (recv->path == REGX_PATH_bounce || recv->slots.only) &&
        !regx_fault_has_end(recv->buffer.base + recv->buffer.length)) {
        leave_to_mpi(rndv, recv);
        status = REGX_FAILED;
    } else if (ships_cts) {
        regx_lock(&rndv->lock);
        regx_recv_complete_cts_locked(rndv, recv);
        regx_unlock(&rndv->lock);
    }
    regx_recv_report(rndv, recv->peer);
    recv->whole.done(recv->whole.context, status);
}
