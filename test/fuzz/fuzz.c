/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <stdio.h>

/* libFuzzer calls these by name. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool tell;

/* With REGX_FUZZ_SEEDS=FOLDER the program writes its seeds there and ends. With REGX_FUZZ_TELL it
 * says of each input whether something of it was accepted. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("REGX_FUZZ_SEEDS");
    uint8_t seed[FUZZ_SEED_MAX];
    size_t size;

    tell = getenv("REGX_FUZZ_TELL") != NULL;
    if (folder == NULL) {
        return 0;
    }
    for (unsigned i = 0; (size = fuzz_seed(i, seed)) > 0; i++) {
        char name[1024];

        snprintf(name, sizeof(name), "%s/seed%02u", folder, i);
        FILE *file = fopen(name, "wb");
        if (file == NULL || fwrite(seed, 1, size, file) != size || fclose(file) != 0) {
            perror(name);
            exit(1);
        }
    }
    exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool accepted = fuzz_one(data, size);

    if (tell) {
        printf("%s\n", accepted ? "accepted" : "refused");
    }
    return 0;
}

uint8_t *fuzz_take(fuzz_input_t *input, size_t *length)
{
    *length = *length < input->left ? *length : input->left;
    uint8_t *bytes = malloc(*length > 0 ? *length : 1);

    if (bytes == NULL) {
        abort();
    }
    memcpy(bytes, input->at, *length);
    input->at += *length;
    input->left -= *length;
    return bytes;
}

uint64_t fuzz_number(fuzz_input_t *input, size_t size)
{
    uint64_t value = 0;

    for (size_t i = 0; i < size && input->left > 0; i++, input->at++, input->left--) {
        value |= (uint64_t)*input->at << (8 * i);
    }
    return value;
}
