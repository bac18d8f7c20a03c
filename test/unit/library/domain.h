/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the library: domains over a device in memory, and uses of memory.
 */
#pragma once

#include "../unit.h"

#include "library/regx/registration.h"

enum { PAGE = 4096, LENGTH = 16 * PAGE };
enum { TO_SEND = 0, TO_RECEIVE = IBV_ACCESS_LOCAL_WRITE };
enum { FOR_PEERS = TO_RECEIVE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* The device's, as long as a test runs. */
extern struct ibv_pd *pd;
extern char refusal[256]; /* of the last open */

/* Fails the test if it cannot be opened; skips it where a notifier is asked for that cannot be. */
regx_domain_t *domain_open(const char *backend);
/* A test of a domain that is opened so. */
#define DOMAIN_TEST(name, backend)                                                                 \
    UNIT_TEST_WITH(name, NULL, regx_domain_t *, domain, domain_open(backend),                      \
                   regx_domain_close(domain))
/* The error number of what cannot be opened with that backend. */
int domain_refused(const char *backend);

/* Acquires and checks that what the use names is registered for that. */
void domain_acquire(regx_domain_t *domain, void *base, size_t length, int access, regx_use_t *use);
/* Acquires and releases; returns the key. */
uint32_t domain_use(regx_domain_t *domain, void *base, size_t length, int access);
bool domain_is_registered(uint32_t key, const void *base, size_t length, int access);
regx_statistics_t domain_statistics(regx_domain_t *domain);
/* How often that was a reason; 0: it is none. */
uint64_t domain_fell_back(regx_domain_t *domain, const char *reason);

/* Private memory, written. */
char *domain_map(size_t length);
