/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts, gets and atomic operations that an RDMA device makes, one request each, of which the target
 * knows nothing.
 *
 * A window is registered when it is offered, through the process's registry, and stays so until it
 * is withdrawn; its name holds the key. Where it cannot be registered it has no key, and the target
 * is asked. So it is of a window of whole pages, unless the device follows changes (odp): Open MPI
 * may attach other memory there and not say so.
 *
 * The window's pages are those that were there when it was offered: if the program replaces them
 * meanwhile (an error, as with any buffer in use), peers still write to the old ones, and the
 * registry reports it once it knows. What is withdrawn and offered again is registered as it is
 * then.
 *
 * Of atomic operations it makes those that add to 8 bytes, or compare and swap them, and only if
 * the target's device has them in order with its processor's: osc/rdma has the processor do some on
 * the same bytes, and so does the target where it is asked.
 *
 * Short ones are copied through memory of the transport's, so that nothing is registered for them.
 */
#ifndef REGX_ONESIDED_DEVICE_H
#define REGX_ONESIDED_DEVICE_H

#include "onesided/onesided.h"

/* Does it to a window of that name; window and address of the request are inside of it.
 * REGX_PENDING: done will be called, perhaps before this returns on another thread; REGX_AGAIN: as
 * ask, or the transport has no room; REGX_DENIED: no device does it, and the peer has to be
 * asked. */
regx_status_t regx_onesided_move(regx_onesided_t *onesided, regx_onesided_peer_t *peer,
                                 const regx_window_name_t *name, regx_onesided_request_t *request);

/* Has devices reach a window that is offered, as far as that is possible. The room's lock is not
 * held; nobody else knows the window yet, or any more. */
void regx_onesided_register(regx_onesided_t *onesided, regx_window_t *window);
void regx_onesided_unregister(regx_onesided_t *onesided, regx_window_t *window);

/* Leaves what the device has of the peer to the transport's disconnect. The lock is held. */
void regx_onesided_leave_moving_locked(regx_onesided_peer_t *peer);

#endif
