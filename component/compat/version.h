/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What compat.c asks of the file of a version.
 */
#ifndef REGX_COMPAT_VERSION_H
#define REGX_COMPAT_VERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "opal_config.h"

#include "opal/mca/mca.h"

/* The ranks of this job on this node, as in "1,3,5"; the caller frees them. false: nobody knows,
 * and there may be nothing to free. */
bool regx_version_local_peers(char **peers);

/* Publishes a key for all processes, with nothing behind it. At most 511 characters. */
bool regx_version_publish_key(const char *key);

/* Whether that process of this job published that key. Waits until it has published something for
 * `component`, which each process that uses the component does, or for some seconds. */
bool regx_version_key_published(const mca_base_component_t *component, uint32_t rank,
                                const char *key);

#endif
