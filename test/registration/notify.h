/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of the program notify share: notify.c opens the device and has the command,
 * notify_rows.c the ways to change memory, notify_check.c what the device must hold.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel/regx_notify.h"

#define RW (PROT_READ | PROT_WRITE)

/* ---- notify.c ---- */

extern size_t page;
extern int device;
extern const struct regx_notify_page *told;

_Noreturn void fail(const char *what);
#define MUST(condition) ((condition) ? (void)0 : fail(#condition))

void open_device(void);
static inline uint64_t count(void)
{
    return __atomic_load_n(&told->told, __ATOMIC_ACQUIRE);
}
/* 0 or the errno. */
int ask(int file, unsigned long what, uintptr_t start, uintptr_t end);
int watch(const void *base, size_t length);
int unwatch(const void *base, size_t length);
int agree(int file, uint32_t version, uint32_t size);
/* Whether a change from number `since` on was of it. */
bool was_told(uint64_t since, const void *base, size_t length);

/* ---- notify_rows.c ---- */

int try_rows(void);

/* ---- notify_check.c ---- */

int check(const char *self);
int after_exec(const char *file);
