/* tcp_cipher.h - what goes over wires is sealed under the key of the job: libsodium's
 * secretstream
 *
 * Each side gives a random number of 32 bytes; a key for each direction is the keyed hash
 * (BLAKE2b under the key of the job) of both, the sender's first.  So a recording of an
 * earlier connection opens nothing, and who does not have the key cannot send one frame
 * that is taken.  Frames are sealed in order: one that is changed, left out, repeated or
 * turned back to its sender does not open. */
#ifndef PL_COLLECTIVES_TCP_CIPHER_H
#define PL_COLLECTIVES_TCP_CIPHER_H

#include <stdbool.h>
#include <stddef.h>

#include "paceline.h"

enum { CIPHER_NONCE = 32, CIPHER_HEADER = 24, CIPHER_MORE = 17 };

typedef struct tcp_cipher tcp_cipher_t;

/* NULL: PL_EUNSUPPORTED in a build without libsodium, PL_ENOMEM. */
tcp_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err);
void cipher_free(tcp_cipher_t *c);

/* Own number; then, with theirs, the header to send; then theirs is heard. */
void cipher_nonce(const tcp_cipher_t *c, unsigned char nonce[CIPHER_NONCE]);
bool cipher_agree(tcp_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER]);
bool cipher_hear(tcp_cipher_t *c, const unsigned char header[CIPHER_HEADER]);

/* sealed[bytes + CIPHER_MORE] */
void cipher_seal(tcp_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes);
bool cipher_open(tcp_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes);

#endif
