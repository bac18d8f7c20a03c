/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set, of all rooms. Plain C, without Open MPI's headers: mca-params/describe.c
 * reads the tables, too.
 */
#ifndef REGX_BTL_SETTINGS_H
#define REGX_BTL_SETTINGS_H

#include "pool/params.h"
#include "registration/registration.h"
#include "rendezvous/params.h"
#include "transport/catalog.h"

typedef enum { REGX_ENABLE_AUTO, REGX_ENABLE_NEVER, REGX_ENABLE_ALWAYS } regx_enable_t;
typedef char regx_report_name_t[1024]; /* "": none */

typedef struct regx_component_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "btl/params.def"
#undef REGX_PARAM
} regx_component_settings_t;

typedef struct regx_settings {
    regx_component_settings_t component;
    regx_rndv_settings_t rendezvous;
    regx_pool_settings_t pool;
    regx_registration_settings_t registration;
    regx_transports_settings_t transports;
} regx_settings_t;

/* A room's parameters, and where its settings lie in regx_settings_t. */
typedef struct regx_settings_room {
    const regx_param_table_t *table;
    size_t offset;
} regx_settings_room_t;

/* All rooms and transports, in the order of the documentation. false: there are no more. */
bool regx_settings_room(unsigned index, regx_settings_room_t *room);

#endif
