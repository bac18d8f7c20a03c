/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a call between regx's rooms may answer. Each function's comment lists which of these it
 * uses; nothing else crosses a room's border as a result.
 */
#ifndef REGX_BASE_STATUS_H
#define REGX_BASE_STATUS_H

typedef enum regx_status {
    REGX_OK = 0,
    REGX_PENDING,     /* accepted; the completion callback tells the end */
    REGX_AGAIN,       /* not accepted for lack of room; nothing happened; try again from progress */
    REGX_UNREACHABLE, /* this peer cannot be reached this way */
    REGX_DENIED,      /* the kernel or the device refuses this operation */
    REGX_NO_MEMORY,   /* memory, locked memory or table space ran out */
    REGX_INVALID,     /* an argument or a message from a peer is malformed */
    REGX_FAILED       /* the operation was started and failed */
} regx_status_t;

#endif
