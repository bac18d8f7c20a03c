/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/btl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int component_register(void);
static int component_open(void);
static int component_close(void);
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads);

regx_component_t mca_btl_regx_component = {
    .super = {.btl_version = {MCA_BTL_DEFAULT_VERSION("regx"), .mca_open_component = component_open,
                              .mca_close_component = component_close,
                              .mca_register_component_params = component_register},
              .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
              .btl_init = component_init,
              .btl_progress = regx_progress}};

/* Open MPI's loader checks too little: a component built for another version crashes later. */
static bool version_matches(void)
{
    char line[160];

    if (strcmp(regx_compat_version(), REGX_BUILT_FOR_OPENMPI) == 0) {
        return true;
    }
    bool named;
    if (regx_params_asked(&named) && regx_compat_speaker()) {
        snprintf(line, sizeof(line),
                 "built for Open MPI %s, but this is Open MPI %s: not used; build it for this one",
                 REGX_BUILT_FOR_OPENMPI, regx_compat_version());
        regx_compat_say(line);
    }
    return false;
}

/* Refusing here would drop regx from the list before Open MPI looks for who is named in it, and end
 * the job: the refusal is open's. */
static int component_register(void)
{
    if (strcmp(regx_compat_version(), REGX_BUILT_FOR_OPENMPI) != 0) {
        return OPAL_SUCCESS;
    }
    regx_params_register(&mca_btl_regx_component.super.btl_version);
    mca_btl_base_param_register(&mca_btl_regx_component.super.btl_version, &regx_module.super);
    return OPAL_SUCCESS;
}

static int component_open(void)
{
    return version_matches() ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
}

/* Whoever names regx wants it to carry the job; another PML would leave it idle in silence. */
static void say_if_idle(void)
{
    const char *pml = regx_compat_pml();
    char line[160];
    bool named;

    if (regx_params_asked(&named) && named && pml[0] != '\0' && strcmp(pml, "ob1") != 0 &&
        regx_compat_rank() == 0) {
        snprintf(line, sizeof(line),
                 "named in btl, but pml \"%s\" carries this job; add --mca pml ob1", pml);
        regx_compat_say(line);
    }
}

static int component_close(void)
{
    say_if_idle();
    return OPAL_SUCCESS;
}

/* Open MPI's word on progress threads is left aside: regx starts none, and 4.1 says yes always. */
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads)
{
    mca_btl_base_module_t **modules;
    bool named;

    (void)progress_threads;
    *count = 0;
    if (!regx_params_asked(&named) || !regx_params_read(&regx_module) ||
        !regx_module_open(&regx_module, mpi_threads)) {
        return NULL;
    }
    modules = malloc(sizeof(*modules));
    if (modules == NULL) {
        regx_module_finalize(&regx_module.super);
        return NULL;
    }
    modules[0] = &regx_module.super;
    *count = 1;
    return modules;
}
