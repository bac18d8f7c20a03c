/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send side of grants that may be revoked: it returns to the offset that REVOKE names, and ends
 * at ARRIVED. See revoke.h.
 */
#include "base/util.h"
#include "rendezvous/proof.h"
#include "rendezvous/revoke.h"

/* Compares the receiver's checksum with that of the send buffer. REGX_FAILED: they differ. */
static regx_status_t compare(regx_rndv_t *rndv, void *object)
{
    const regx_rndv_send_t *send = object;
    uint64_t sum, gap;

    (void)rndv;
    switch (regx_prove(send->base + send->resume, send->length - send->resume, &sum, &gap)) {
    case REGX_PROOF_MADE:
        return sum == send->proof ? REGX_OK : REGX_FAILED;
    case REGX_PROOF_UNREADABLE: /* of what is gone nothing can be sent again */
        return REGX_OK;
    default:
        return REGX_FAILED;
    }
}

static regx_status_t compared_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                     regx_status_t status)
{
    (void)rndv, (void)object;
    send->in_flight--;
    send->agreement = status == REGX_OK ? REGX_AGREEMENT_THERE : REGX_AGREEMENT_REVOKED;
    return REGX_OK;
}

static const regx_work_ops_t compare_ops = {.act = compare, .acted_locked = compared_locked};

bool regx_revoke_send_control_locked(regx_rndv_send_t *send, const regx_control_t *control,
                                     regx_send_work_t *work)
{
    const bool revokes = control->type == REGX_CONTROL_REVOKE;

    if ((!revokes && control->type != REGX_CONTROL_ARRIVED) ||
        send->agreement != REGX_AGREEMENT_DUE ||
        ((revokes || control->has_checksum) && control->offset >= send->length)) {
        return false;
    }
    if (send->status != REGX_OK) { /* it ends anyway */
        return true;
    }
    send->resume = control->offset;
    if (revokes) {
        send->agreement = REGX_AGREEMENT_REVOKED;
    } else if (!control->has_checksum) {
        send->agreement = REGX_AGREEMENT_THERE;
    } else {
        send->agreement = REGX_AGREEMENT_PROVING;
        send->proof = control->checksum;
        send->in_flight++; /* it does not end meanwhile */
        *work = (regx_send_work_t){&compare_ops, send};
    }
    return true;
}

regx_status_t regx_revoke_answer_locked(regx_rndv_t *rndv, regx_rndv_send_t *send)
{
    regx_control_t revoked = regx_send_message(send, REGX_CONTROL_REVOKED);

    if (send->in_flight > 0) {
        return REGX_PENDING;
    }
    if (send->resume > send->sent) { /* nobody can have agreed on what was not sent */
        regx_malformed(rndv);
        regx_send_fail_locked(send, REGX_FAILED);
        return REGX_PENDING;
    }
    revoked.offset = send->resume;
    const regx_status_t status = regx_channel_send(send->peer, &revoked);
    if (status != REGX_OK) {
        return status;
    }
    send->agreement = REGX_AGREEMENT_DUE;
    send->sent = send->granted = send->resume;
    send->rewound = 0;
    send->sent_slots = regx_min(send->sent_slots, send->resume);
    return REGX_PENDING;
}
