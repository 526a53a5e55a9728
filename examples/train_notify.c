/* train_notify.c - reports the state of the service to systemd, without its library: a
 * datagram to the socket that NOTIFY_SOCKET names, which may be abstract */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "train_service.h"

void tell_systemd(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@')
        || strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (*path == '@')
        address.sun_path[0] = '\0';
    const socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0
        || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
                  size)
               < 0)
        fprintf(stderr, "train_service: NOTIFY_SOCKET: %s\n", strerror(errno));
    if (fd >= 0)
        close(fd);
}
