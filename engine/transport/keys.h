/* keys.h - the secrets of a job, which admit peers to its processes beyond this machine
 *
 * They are in a file that only its owner can read and that every process of the job
 * reads; they are never on a command line or in the environment.  Every process that has
 * the file belongs to the job: there are no further roles. */
#ifndef PL_TRANSPORT_KEYS_H
#define PL_TRANSPORT_KEYS_H

#include "base/limits.h"
#include "paceline.h"

#define PL_KEY_TEXT 41                                      /* in Z85, with its end */

typedef struct pl_keys {
    /* CURVE: of the binding side, and of the connecting side. */
    char server_public[PL_KEY_TEXT], server_secret[PL_KEY_TEXT];
    char client_public[PL_KEY_TEXT], client_secret[PL_KEY_TEXT];
    unsigned char root[PL_KEY_BYTES];                 /* random; other keys are derived */
} pl_keys_t;

/* The keys in a file.  PL_ENOTFOUND: no such file; PL_EINVAL: it belongs to another user,
 * or other users may read or write it; PL_EFORMAT: not a key file. */
int pl_keys_read(const char *path, pl_keys_t *keys, pl_error_t *err);

/* Writes new keys to a new file, completely or not at all, with mode 0600.  PL_EEXIST:
 * the file exists. */
int pl_keys_make(const char *path, pl_keys_t *keys, pl_error_t *err);

/* Reads the file, or creates it if it is missing; processes that do so at the same time
 * get the same keys. */
int pl_keys_open(const char *path, pl_keys_t *keys, pl_error_t *err);

/* The encryption key of the collective of a run's incarnation: the same in all processes
 * of the job, and different in each incarnation.  PL_EUNSUPPORTED: built without
 * libsodium. */
int pl_keys_collective(const pl_keys_t *keys, uint64_t run, uint32_t incarnation,
                       unsigned char key[PL_KEY_BYTES], pl_error_t *err);

/* Overwrites them. */
void pl_keys_forget(pl_keys_t *keys);

/* ---- Admission (ZAP): zap.c ----
 *
 * ZeroMQ asks an authenticator in the same process about each connection (ZAP, RFC 27);
 * without one it would take any key.  There is one for the process, on a thread of its
 * own, while a domain is open. */

#define PL_ZAP_DOMAIN 32

/* Opens a domain and returns its name: peers that connect in it must have the client key
 * of these keys.  Called before the socket of that domain is bound. */
int pl_zap_open(const pl_keys_t *keys, char domain[PL_ZAP_DOMAIN], pl_error_t *err);
/* Called after that socket was closed. */
void pl_zap_close(const char *domain);

#endif
