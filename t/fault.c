/* fault.c - a disk that fails at a chosen call, or a process that dies there: preloaded
 * into the command by saving.t
 *
 * FAULT=17:EIO makes the 17th call on a checkpoint's files and folders fail,
 * FAULT=17:KILL kills the process there; which call it was goes to standard error.  Calls
 * on other files, sockets and events do not count, so that a number means the same each
 * time.  FAULT=saved:STOP stops the process once its first checkpoint is in place. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

static atomic_int calls;

/* The called function: the C library has it under the same name. */
#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

static void strike(const char *call, const char *path, const char *how)
{
    char text[PATH_MAX + 64];
    /* The progress line has no end. */
    int length = snprintf(text, sizeof text, "\nfault: %s %s\n", call, path);
    REAL(ssize_t, write, int, const void *, size_t);
    real(2, text, (size_t)length);
    if (!strcmp(how, "KILL"))
        kill(getpid(), SIGKILL);
    errno = !strcmp(how, "ENOSPC") ? ENOSPC : EIO;
}

static int strikes(const char *call, const char *path)
{
    const char *fault = getenv("FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
    if (!colon || !strstr(path, "/checkpoints"))
        return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != atoi(fault))
        return 0;
    strike(call, path, colon + 1);
    return 1;
}

static int strikes_at(const char *call, int fd, const char *name)
{
    char link[32], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = *name == '/' || fd < 0
                         ? 0
                         : readlink(link, path, sizeof path - NAME_MAX - 2);
    if (length < 0)
        length = 0;
    snprintf(path + length, sizeof path - (size_t)length, "%s%s", *name ? "/" : "", name);
    return strikes(call, path);
}

SHOWN int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    REAL(int, open, const char *, int, ...);
    return strikes("open", path) ? -1 : real(path, flags, mode);
}

SHOWN int openat(int folder, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    REAL(int, openat, int, const char *, int, ...);
    return strikes_at("openat", folder, name) ? -1 : real(folder, name, flags, mode);
}

SHOWN ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, write, int, const void *, size_t);
    return strikes_at("write", fd, "") ? -1 : real(fd, data, size);
}

SHOWN int fsync(int fd)
{
    REAL(int, fsync, int);
    return strikes_at("fsync", fd, "") ? -1 : real(fd);
}

SHOWN int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    return strikes("mkdir", path) ? -1 : real(path, mode);
}

static void stop_when_saved(const char *path)
{
    const char *fault = getenv("FAULT");
    if (fault && !strcmp(fault, "saved:STOP") && strstr(path, "/checkpoints/epoch="))
        kill(getpid(), SIGSTOP);
}

SHOWN int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    int code = strikes("rename", to) ? -1 : real(from, to);
    if (code == 0)
        stop_when_saved(to);
    return code;
}

SHOWN int renameat(int a, const char *from, int b, const char *to)
{
    REAL(int, renameat, int, const char *, int, const char *);
    return strikes_at("renameat", b, to) ? -1 : real(a, from, b, to);
}

SHOWN int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    return strikes("renameat2", to) ? -1 : real(a, from, b, to, flags);
}

SHOWN int link(const char *from, const char *to)
{
    REAL(int, link, const char *, const char *);
    return strikes("link", to) ? -1 : real(from, to);
}

SHOWN int unlink(const char *path)
{
    REAL(int, unlink, const char *);
    return strikes("unlink", path) ? -1 : real(path);
}

SHOWN int rmdir(const char *path)
{
    REAL(int, rmdir, const char *);
    return strikes("rmdir", path) ? -1 : real(path);
}
