/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "registration/monitor/uffd.h"

/* linux/fs.h of Linux 6.11; older headers lack it. */
#ifndef PROCMAP_QUERY
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define PROCMAP_QUERY_VMA_SHARED 0x08
#define PROCMAP_QUERY_COVERING_OR_NEXT_VMA 0x10
#endif

/* The name of anonymous hugetlb memory, which has a file behind it that no one else can open. */
static const char anonymous_huge[] = "/anon_hugepage (deleted)";

static regx_vma_kind_t kind_of(bool shared, uint64_t inode, const char *name)
{
    if (shared) {
        return REGX_VMA_SHARED;
    }
    if (inode == 0) {
        return REGX_VMA_PRIVATE;
    }
    return strcmp(name, anonymous_huge) == 0 ? REGX_VMA_HUGE : REGX_VMA_FILE;
}

/* The mapping at that address, else the next above. 0, ENOENT: none, or another errno. */
static int ask(int fd, uintptr_t address, regx_vma_t *mapping)
{
    struct procmap_query query = {.size = sizeof(query),
                                  .query_flags = PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
                                  .query_addr = address};
    char name[sizeof(anonymous_huge)] = "";

    if (ioctl(fd, PROCMAP_QUERY, &query) != 0) {
        return errno;
    }
    const bool shared = (query.vma_flags & PROCMAP_QUERY_VMA_SHARED) != 0;
    const uint64_t inode = query.inode;
    *mapping = (regx_vma_t){.start = query.vma_start,
                            .end = query.vma_end,
                            .offset = query.vma_offset,
                            .device = makedev(query.dev_major, query.dev_minor),
                            .inode = inode};
    if (!shared && inode != 0 && query.vma_page_size != regx_page_size()) {
        /* A longer name than ours is refused: it is another. */
        query.vma_name_addr = (uintptr_t)name;
        query.vma_name_size = sizeof(name);
        if (ioctl(fd, PROCMAP_QUERY, &query) != 0 || query.vma_start != mapping->start) {
            name[0] = '\0';
        }
    }
    mapping->kind = kind_of(shared, inode, name);
    return 0;
}

/* 7f0000000000-7f0000001000 rw-p 00000000 08:01 1234   /name */
static bool parse(const char *line, regx_vma_t *mapping)
{
    char *at;

    mapping->start = strtoul(line, &at, 16);
    if (*at != '-') {
        return false;
    }
    mapping->end = strtoul(at + 1, &at, 16);
    if (strlen(at) < 6 || at[0] != ' ') {
        return false;
    }
    const bool shared = at[4] == 's';
    mapping->offset = strtoul(at + 6, &at, 16);
    const unsigned major = (unsigned)strtoul(at, &at, 16);
    if (*at != ':') {
        return false;
    }
    mapping->device = makedev(major, (unsigned)strtoul(at + 1, &at, 16));
    mapping->inode = strtoul(at, &at, 10);
    mapping->kind = kind_of(shared, mapping->inode, at + strspn(at, " "));
    return true;
}

static void read_each(int fd, uintptr_t start, uintptr_t end,
                      bool (*each)(void *context, const regx_vma_t *mapping), void *context)
{
    char line[8192]; /* more than the longest path */
    regx_vma_t mapping;
    size_t have = 0;
    ssize_t got;

    if (lseek(fd, 0, SEEK_SET) != 0) {
        return;
    }
    while ((got = read(fd, line + have, sizeof(line) - 1 - have)) > 0) {
        char *next = line;
        char *newline;

        have += (size_t)got;
        line[have] = '\0';
        while ((newline = strchr(next, '\n')) != NULL) {
            *newline = '\0';
            if (parse(next, &mapping) && mapping.end > start &&
                (mapping.start >= end || !each(context, &mapping))) {
                return;
            }
            next = newline + 1;
        }
        have -= (size_t)(next - line);
        memmove(line, next, have);
    }
}

int regx_maps_open(regx_maps_t *maps)
{
    regx_vma_t mapping;
    const int fd = regx_descriptor_move(open(REGX_PROC "maps", O_RDONLY | O_CLOEXEC));

    if (fd < 0) {
        return errno;
    }
    maps->file = regx_file_of(fd);
    maps->query = ask(fd, (uintptr_t)&mapping, &mapping) == 0;
    return 0;
}

bool regx_maps_ask(const regx_maps_t *maps, uintptr_t address, regx_vma_t *mapping)
{
    return maps->query && ask(maps->file.fd, address, mapping) == 0;
}

void regx_maps_each(regx_maps_t *maps, uintptr_t start, uintptr_t end,
                    bool (*each)(void *context, const regx_vma_t *mapping), void *context)
{
    regx_vma_t mapping;

    if (!regx_file_is_ours(&maps->file)) {
        return;
    }
    if (!maps->query) {
        read_each(maps->file.fd, start, end, each, context);
        return;
    }
    while (start < end && ask(maps->file.fd, start, &mapping) == 0 && mapping.start < end &&
           each(context, &mapping)) {
        start = mapping.end;
    }
}
