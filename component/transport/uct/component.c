/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/uct/component.h"

#include <string.h>

uct_component_h regx_uct_component(const char *name)
{
    uct_component_h *components, found = NULL;
    unsigned count;

    if (uct_query_components(&components, &count) != UCS_OK) {
        return NULL;
    }
    for (unsigned i = 0; i < count && found == NULL; i++) {
        uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};

        if (uct_component_query(components[i], &attr) == UCS_OK && strcmp(attr.name, name) == 0) {
            found = components[i];
        }
    }
    uct_release_component_list(components); /* the list; what it pointed to is static */
    return found;
}

regx_status_t regx_uct_open_md(uct_component_h component, const char *name, uct_md_h *md)
{
    uct_md_config_t *config;
    ucs_status_t status;

    if (uct_md_config_read(component, NULL, NULL, &config) != UCS_OK) {
        return REGX_UNREACHABLE;
    }
    status = uct_md_open(component, name, config, md);
    uct_config_release(config);
    return status == UCS_OK ? REGX_OK : REGX_UNREACHABLE;
}
