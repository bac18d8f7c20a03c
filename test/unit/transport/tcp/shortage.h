/* SPDX-License-Identifier: BSD-3-Clause
 *
 * No descriptor is left, or no memory in the kernel, until the test ends. Whoever links this wraps
 * epoll_ctl.
 */
#ifndef REGX_TEST_TCP_SHORTAGE_H
#define REGX_TEST_TCP_SHORTAGE_H

#include "ends.h"

/* Setup and teardown of each test. */
int keep_limit(void **state);
int restore_limit(void **state);

/* Until one is given back. */
void take_all_descriptors(void);
void give_one_back(void);
/* Nor is one that is closed to be had again. */
void allow_no_descriptor(void);
/* Until the test ends, or this. */
void allow_descriptors(void);

/* There can be no more descriptors in that one's epoll: this errno says so. */
void starve(const end_t *end, int error);
void feed(void);

#endif
