/* token.c - the secret in the address of the page: who has it may look and command
 *
 * A run makes a new one and forgets it.  What is asked again and again by something that
 * has been told once, such as Prometheus, needs one that stays: in a file, which only its
 * owner can read.  It never stands on a command line or in the environment. */
#include "telemetry/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { RANDOM_BYTES = 16, MIN = 16 };

static int token_draw(char token[static PL_TOKEN_TEXT], pl_error_t *err)
{
    unsigned char bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return pl_fail(err, PL_EIO, "no random numbers: %s", strerror(errno));
    for (int k = 0; k < RANDOM_BYTES; k++)
        sprintf(token + 2 * k, "%02x", bytes[k]);
    return PL_OK;
}

static int owner_check(int fd, const char *path, pl_error_t *err)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return pl_fail(err, PL_EINVAL, "dashboard token %s: it is not a regular file",
                       path);
    if ((file.st_uid != geteuid() && file.st_uid != 0) || file.st_mode & 077)
        return pl_fail(
            err, PL_EINVAL,
            "dashboard token %s: the file belongs to another user, or others may read "
            "or write it: set mode 600, and replace the token if others could read it",
            path);
    return PL_OK;
}

/* Characters that need no escape in a URL. */
static bool is_token(const char *text)
{
    const size_t length = strlen(text);
    return length >= MIN && length < PL_TOKEN_TEXT
           && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                           "0123456789-._~")
                  == length;
}

static int token_load(int fd, const char *path, char token[static PL_TOKEN_TEXT],
                      pl_error_t *err)
{
    char text[PL_TOKEN_TEXT + 1] = "";
    if (owner_check(fd, path, err) != PL_OK)
        return PL_EINVAL;
    const ssize_t size = read(fd, text, sizeof text - 1);
    if (size < 0)
        return pl_fail(err, PL_EIO, "dashboard token %s: %s", path, strerror(errno));
    text[strcspn(text, "\r\n")] = '\0';
    if (!is_token(text))
        return pl_fail(
            err, PL_EFORMAT,
            "dashboard token %s: the file must hold one line of %d to %d letters, "
            "digits and -._~",
            path, MIN, PL_TOKEN_TEXT - 1);
    memcpy(token, text, PL_TOKEN_TEXT);
    return PL_OK;
}

/* As a whole or not at all: of two who make it at once one finds the other's. */
static int token_keep(const char *path, char *fresh, pl_error_t *err)
{
    char drawn[PL_TOKEN_TEXT + 1];
    if (token_draw(drawn, err) != PL_OK)
        return PL_EIO;
    strcat(drawn, "\n");
    const size_t length = strlen(drawn);
    const int fd = mkostemp(fresh, O_CLOEXEC);
    bool is_kept = fd >= 0 && write(fd, drawn, length) == (ssize_t)length;
    if (fd >= 0)
        is_kept = close(fd) == 0 && is_kept;
    is_kept = is_kept && (link(fresh, path) == 0 || errno == EEXIST);
    const int failed = errno;
    if (fd >= 0)
        unlink(fresh);
    return is_kept ? PL_OK
                   : pl_fail(err, PL_EIO, "cannot make dashboard token %s: %s", path,
                             strerror(failed));
}

static int token_make(const char *path, pl_error_t *err)
{
    char *fresh = pl_text("%s.XXXXXX", path);
    const int code = fresh ? token_keep(path, fresh, err) : pl_no_memory(err);
    pl_text_free(fresh);
    return code;
}

int pl_token_open(char token[static PL_TOKEN_TEXT], pl_error_t *err)
{
    const char *path = getenv("PACELINE_DASHBOARD_TOKEN_FILE");
    if (!path || !*path)
        return token_draw(token, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        const int code = token_make(path, err);
        if (code != PL_OK)
            return code;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd < 0)
        return pl_fail(err, PL_EIO, "dashboard token %s: %s", path, strerror(errno));
    const int code = token_load(fd, path, token, err);
    close(fd);
    return code;
}

bool pl_token_is(const char *token, const char *given, size_t length)
{
    volatile unsigned char differs = 0;
    if (length != strlen(token))
        return false;
    for (size_t k = 0; k < length; k++)
        differs |= (unsigned char)(token[k] ^ given[k]);
    return !differs;
}
