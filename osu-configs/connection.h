// SPDX-License-Identifier: BSD-3-Clause
//
// How a rank reaches compare, and waits for its line: of the companion, and of what is preloaded into OSU's.
#ifndef REGX_CONNECTION_H
#define REGX_CONNECTION_H

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

// Returns the socket, or -1. address: unix:PATH or tcp:HOST:PORT.
static inline int connected(const char *address)
{
    int to = -1;
    if (strncmp(address, "unix:", 5) == 0) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        snprintf(name.sun_path, sizeof name.sun_path, "%.107s", address + 5);
        if (connect(to, (struct sockaddr *)&name, sizeof name) != 0)
            return -1;
    } else {
        char host[256], port[16];
        struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
        if (sscanf(address, "tcp:%255[^:]:%15s", host, port) != 2 ||
            getaddrinfo(host, port, &hints, &found) != 0)
            return -1;
        to = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(to, found->ai_addr, found->ai_addrlen) != 0)
            return -1;
        freeaddrinfo(found);
    }
    return to;
}

// The next line; false: there is none.
static inline bool next_line(int from, char *line, size_t room)
{
    size_t length = 0;
    while (length + 1 < room && recv(from, line + length, 1, 0) == 1 && line[length] != '\n')
        length++;
    bool whole = length + 1 < room && line[length] == '\n';
    line[length] = 0;
    return whole;
}

// Whether it could be said.
static inline bool say(int to, const char *text)
{
    return send(to, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

#endif
