/* tcp_cipher.c - what goes over wires is sealed under the key of the job: libsodium's
 * secretstream */
#include "strategies/collectives/tcp_cipher.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "config.h"
#include "strategies/collectives/collective.h"

#ifdef HAVE_SODIUM
#include <sodium.h>

_Static_assert(CIPHER_HEADER == crypto_secretstream_xchacha20poly1305_HEADERBYTES
                   && CIPHER_MORE == crypto_secretstream_xchacha20poly1305_ABYTES
                   && PL_KEY_BYTES == crypto_generichash_KEYBYTES
                   && crypto_generichash_BYTES
                          == crypto_secretstream_xchacha20poly1305_KEYBYTES,
               "sizes of libsodium");

struct tcp_cipher {
    unsigned char key[PL_KEY_BYTES], nonce[CIPHER_NONCE];
    crypto_secretstream_xchacha20poly1305_state out, in;
    unsigned char in_key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
};

tcp_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err)
{
    tcp_cipher_t *c = sodium_init() < 0 ? NULL : pl_alloc(sizeof *c);
    if (!c) {
        pl_no_memory(err);
        return NULL;
    }
    memcpy(c->key, key, sizeof c->key);
    randombytes_buf(c->nonce, sizeof c->nonce);
    return c;
}

void cipher_free(tcp_cipher_t *c)
{
    if (c)
        sodium_memzero(c, sizeof *c);
    pl_free(c);
}

void cipher_nonce(const tcp_cipher_t *c, unsigned char nonce[CIPHER_NONCE])
{
    memcpy(nonce, c->nonce, CIPHER_NONCE);
}

static void direction_key(const tcp_cipher_t *c, const unsigned char *from,
                          const unsigned char *to, unsigned char *key)
{
    static const unsigned char what[] = "paceline collective tcp 1";
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, c->key, sizeof c->key, crypto_generichash_BYTES);
    crypto_generichash_update(&hash, what, sizeof what);
    crypto_generichash_update(&hash, from, CIPHER_NONCE);
    crypto_generichash_update(&hash, to, CIPHER_NONCE);
    crypto_generichash_final(&hash, key, crypto_generichash_BYTES);
    sodium_memzero(&hash, sizeof hash);
}

bool cipher_agree(tcp_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER])
{
    unsigned char key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    if (!memcmp(c->nonce, theirs, CIPHER_NONCE))
        return false;                                       /* a mirror */
    direction_key(c, c->nonce, theirs, key);
    crypto_secretstream_xchacha20poly1305_init_push(&c->out, header, key);
    direction_key(c, theirs, c->nonce, c->in_key);
    sodium_memzero(key, sizeof key);
    return true;
}

bool cipher_hear(tcp_cipher_t *c, const unsigned char header[CIPHER_HEADER])
{
    int code = crypto_secretstream_xchacha20poly1305_init_pull(&c->in, header, c->in_key);
    sodium_memzero(c->in_key, sizeof c->in_key);
    return code == 0;
}

void cipher_seal(tcp_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes)
{
    crypto_secretstream_xchacha20poly1305_push(&c->out, sealed, NULL, open, bytes, NULL,
                                               0, 0);
}

bool cipher_open(tcp_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes)
{
    return crypto_secretstream_xchacha20poly1305_pull(&c->in, open, NULL, NULL, sealed,
                                                      bytes + CIPHER_MORE, NULL, 0)
           == 0;
}

#else

tcp_cipher_t *cipher_new(const unsigned char *key, pl_error_t *err)
{
    (void)key;
    pl_fail(err, PL_EUNSUPPORTED,
            "this build cannot encrypt: for ranks on several machines build with "
            "libsodium (apt-get install libsodium-dev)");
    return NULL;
}

void cipher_free(tcp_cipher_t *c)
{
    (void)c;
}

void cipher_nonce(const tcp_cipher_t *c, unsigned char nonce[CIPHER_NONCE])
{
    (void)c, (void)nonce;
}

bool cipher_agree(tcp_cipher_t *c, const unsigned char theirs[CIPHER_NONCE],
                  unsigned char header[CIPHER_HEADER])
{
    (void)c, (void)theirs, (void)header;
    return false;
}

bool cipher_hear(tcp_cipher_t *c, const unsigned char header[CIPHER_HEADER])
{
    (void)c, (void)header;
    return false;
}

void cipher_seal(tcp_cipher_t *c, unsigned char *sealed, const void *open, size_t bytes)
{
    (void)c, (void)sealed, (void)open, (void)bytes;
}

bool cipher_open(tcp_cipher_t *c, void *open, const unsigned char *sealed, size_t bytes)
{
    (void)c, (void)open, (void)sealed, (void)bytes;
    return false;
}

#endif
