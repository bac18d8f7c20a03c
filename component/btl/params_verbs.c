/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters of btl_regx_transport verbs. They are checked whatever the transport is; what the
 * port can do of them only its transport knows.
 */
#include "btl/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_auto(regx_param_t param)
{
    const char *text = regx_param_text(param);

    return text != NULL && strcmp(text, "auto") == 0;
}

static bool read_small(regx_param_t param, uint64_t least, uint64_t most, uint8_t *value)
{
    const regx_option_range_t range = {.least = least, .most = most, .step = 1};
    uint64_t number;

    if (!regx_param_number(param, &range, &number)) {
        return false;
    }
    *value = (uint8_t)number;
    return true;
}

static bool read_gid_index(regx_verbs_settings_t *verbs)
{
    const regx_option_range_t range = {.least = 0, .most = 255, .step = 1, .words = "auto"};
    uint64_t index;

    verbs->gid_index = -1;
    if (is_auto(REGX_PARAM_VERBS_GID_INDEX)) {
        return true;
    }
    if (!regx_param_number(REGX_PARAM_VERBS_GID_INDEX, &range, &index)) {
        return false;
    }
    verbs->gid_index = (int)index;
    return true;
}

/* Partition keys are written in hexadecimal by everybody who hands them out. */
static bool read_pkey(regx_verbs_settings_t *verbs)
{
    const char *text = regx_param_text(REGX_PARAM_VERBS_PKEY);
    char error[REGX_OPTION_ERROR];
    char *end;

    verbs->pkey = 0;
    if (is_auto(REGX_PARAM_VERBS_PKEY)) {
        return true;
    }
    errno = 0;
    const unsigned long key = text != NULL && text[0] != '-' ? strtoul(text, &end, 0) : 0;
    if (key == 0 || key > 0xffff || errno != 0 || *end != '\0') {
        regx_option_refuse(REGX_PREFIX "verbs_pkey", text != NULL ? text : "",
                           "auto, 0x0001 to 0xffff", error);
        return regx_param_refuse(error);
    }
    verbs->pkey = (uint16_t)key;
    return true;
}

static bool read_mtu(regx_verbs_settings_t *verbs)
{
    static const char *const words[] = {"auto", "256", "512", "1024", "2048", "4096"};
    static const uint16_t sizes[] = {0, 256, 512, 1024, 2048, 4096};
    unsigned which;

    if (!regx_param_word(REGX_PARAM_VERBS_MTU, words, 6, &which)) {
        return false;
    }
    verbs->mtu = sizes[which];
    return true;
}

bool regx_params_read_verbs(regx_verbs_settings_t *verbs)
{
    return read_gid_index(verbs) && read_pkey(verbs) &&
           read_small(REGX_PARAM_VERBS_SERVICE_LEVEL, 0, 15, &verbs->service_level) &&
           read_small(REGX_PARAM_VERBS_TRAFFIC_CLASS, 0, 255, &verbs->traffic_class) &&
           read_small(REGX_PARAM_VERBS_TIMEOUT, 1, 31, &verbs->timeout) &&
           read_small(REGX_PARAM_VERBS_RETRY_COUNT, 0, 7, &verbs->retry_count) &&
           read_small(REGX_PARAM_VERBS_RNR_RETRY, 0, 7, &verbs->rnr_retry) && read_mtu(verbs);
}
