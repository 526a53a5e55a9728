/* keys.c - the secrets of a job, which admit peers to its processes beyond this machine
 *
 * The keys are ZeroMQ's CURVE pairs and random bytes; this file has no cryptography of
 * its own.  A file appears complete under its name or not at all, so processes that start
 * at the same time on a shared file system get the same keys. */
#include "transport/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/error.h"
#include "config.h"
#ifdef HAVE_SODIUM
#include <sodium.h>
#endif

enum { FILE_MAX = 1024, FILE_PATH = 4096 };

/* ---- their text ---- */

static const char title[] = "paceline job key 1";

/* Whether a pair belongs together. */
static bool is_pair(const char *public, const char *secret)
{
    char derived[PL_KEY_TEXT];
    uint8_t bytes[PL_KEY_BYTES];
    return strlen(public) == PL_KEY_TEXT - 1 && strlen(secret) == PL_KEY_TEXT - 1
           && zmq_z85_decode(bytes, secret) && zmq_curve_public(derived, secret) == 0
           && !strcmp(derived, public);
}

static bool keys_scan(const char *text, pl_keys_t *keys)
{
    char root[PL_KEY_TEXT];
    int end = 0;
    size_t length = sizeof title - 1;
    bool is_whole =
        !strncmp(text, title, length)
        && sscanf(text + length, " server %40s %40s client %40s %40s root %40s %n",
                  keys->server_public, keys->server_secret, keys->client_public,
                  keys->client_secret, root, &end)
               == 5
        && end && !text[length + (size_t)end] && strlen(root) == PL_KEY_TEXT - 1
        && zmq_z85_decode(keys->root, root);
    explicit_bzero(root, sizeof root);
    return is_whole && is_pair(keys->server_public, keys->server_secret)
           && is_pair(keys->client_public, keys->client_secret);
}

/* ---- reading ---- */

int pl_keys_read(const char *path, pl_keys_t *keys, pl_error_t *err)
{
    char text[FILE_MAX + 1] = "";
    pl_keys_t scanned;
    struct stat file;
    int code = PL_OK, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "job key %s: %s",
                       path, strerror(errno));
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        code = pl_fail(err, PL_EINVAL, "job key %s: not a regular file", path);
    else if (file.st_uid != geteuid() && file.st_uid != 0)
        code = pl_fail(err, PL_EINVAL, "job key %s belongs to another user", path);
    else if (file.st_mode & 077)
        code = pl_fail(
            err, PL_EINVAL,
            "job key %s: other users may read or write it: chmod 600, and create a new "
            "key if they could have read it",
            path);
    else if (read(fd, text, FILE_MAX) < 0)
        code = pl_fail(err, PL_EIO, "job key %s: %s", path, strerror(errno));
    else if (!keys_scan(text, &scanned))
        code = pl_fail(err, PL_EFORMAT, "job key %s: not a key file, or damaged", path);
    else
        *keys = scanned;
    explicit_bzero(text, sizeof text);
    explicit_bzero(&scanned, sizeof scanned);
    close(fd);
    return code;
}

/* ---- making ---- */

static int keys_write(int fd, const pl_keys_t *keys)
{
    char text[FILE_MAX], root[PL_KEY_TEXT];
    zmq_z85_encode(root, keys->root, PL_KEY_BYTES);
    const int length = snprintf(text, sizeof text,
                                "%s\nserver %s %s\nclient %s %s\nroot %s\n", title,
                                keys->server_public, keys->server_secret,
                                keys->client_public, keys->client_secret, root);
    bool is_written = write(fd, text, (size_t)length) == length && fsync(fd) == 0;
    explicit_bzero(root, sizeof root);
    explicit_bzero(text, sizeof text);
    return is_written ? 0 : errno ? errno : EIO;
}

int pl_keys_make(const char *path, pl_keys_t *keys, pl_error_t *err)
{
    char aside[FILE_PATH];
    pl_keys_t drawn;
    if (strlen(path) + 8 > sizeof aside)
        return pl_fail(err, PL_EINVAL, "job key: the path is too long");
    if (zmq_curve_keypair(drawn.server_public, drawn.server_secret) != 0
        || zmq_curve_keypair(drawn.client_public, drawn.client_secret) != 0)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "cannot create keys: ZeroMQ was built without CURVE");
    if (getrandom(drawn.root, PL_KEY_BYTES, 0) != PL_KEY_BYTES)
        return pl_fail(err, PL_EIO, "cannot read random numbers: %s", strerror(errno));
    snprintf(aside, sizeof aside, "%s.XXXXXX", path);
    int fd = mkostemp(aside, O_CLOEXEC);                    /* with mode 0600 */
    int failed = fd < 0 ? errno : keys_write(fd, &drawn);
    if (!failed && link(aside, path) != 0)
        failed = errno;
    if (fd >= 0) {
        close(fd);
        unlink(aside);
    }
    if (!failed)
        *keys = drawn;
    explicit_bzero(&drawn, sizeof drawn);
    return !failed ? PL_OK
                   : pl_fail(err, failed == EEXIST ? PL_EEXIST : PL_EIO,
                             "cannot create job key %s: %s", path, strerror(failed));
}

int pl_keys_open(const char *path, pl_keys_t *keys, pl_error_t *err)
{
    int code = pl_keys_read(path, keys, err);
    if (code == PL_ENOTFOUND)
        code = pl_keys_make(path, keys, err);
    return code == PL_EEXIST ? pl_keys_read(path, keys, err) : code;
}

/* ---- using ---- */

int pl_keys_collective(const pl_keys_t *keys, uint64_t run, uint32_t incarnation,
                       unsigned char key[PL_KEY_BYTES], pl_error_t *err)
{
#ifdef HAVE_SODIUM
    unsigned char about[32] = "paceline collective";
    memcpy(about + 20, &run, sizeof run);
    memcpy(about + 28, &incarnation, sizeof incarnation);
    if (sodium_init() >= 0
        && crypto_generichash(key, PL_KEY_BYTES, about, sizeof about, keys->root,
                              PL_KEY_BYTES)
               == 0)
        return PL_OK;
    return pl_fail(err, PL_EBUG, "cannot derive a key for the collective");
#else
    (void)keys, (void)run, (void)incarnation, (void)key;
    return pl_fail(
        err, PL_EUNSUPPORTED,
        "a collective across machines is encrypted, and this library was built "
        "without libsodium: apt-get install libsodium-dev");
#endif
}

void pl_keys_forget(pl_keys_t *keys)
{
    explicit_bzero(keys, sizeof *keys);
}
