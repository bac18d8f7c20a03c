/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The structures of btl/ by name, for headers that need no more of them.
 */
#ifndef REGX_BTL_TYPES_H
#define REGX_BTL_TYPES_H

typedef struct regx_component regx_component_t;         /* component.h */
typedef struct regx_module regx_module_t;               /* module.h */
typedef struct mca_btl_base_endpoint_t regx_endpoint_t; /* endpoint.h; Open MPI's name for it */
typedef struct regx_fragment regx_fragment_t;           /* fragment.h */

#endif
