/* tcp_greet.c - the greeting on a new connection between two ranks
 *
 * Both say hello with two random numbers from the table of addresses, the other's and
 * their own; on links beyond one machine all that, and what follows, is sealed under the
 * key of the job (tcp_cipher.h), so that nothing is read of who does not have it. */
#include <string.h>

#include "strategies/collectives/tcp.h"

enum { PREAMBLE = 8 + CIPHER_NONCE };

static const char magic[8] = {'p', 'l', 'c', 't', 'c', 'p', '0', '1'};

typedef struct hello {
    uint32_t rank, size;
    unsigned char from[TCP_TOKEN], to[TCP_TOKEN];
} hello_t;

bool tcp_preamble_send(tcp_link_t *link)
{
    unsigned char preamble[PREAMBLE] = {0};
    memcpy(preamble, magic, sizeof magic);
    if (link->cipher)
        cipher_nonce(link->cipher, preamble + sizeof magic);
    link->stage = TCP_PREAMBLE;
    return tcp_link_send_raw(link, preamble, sizeof preamble);
}

static bool hello_send(const tcp_t *t, tcp_link_t *link, int to)
{
    const tcp_frame_t head = {.kind = TCP_HELLO, .length = sizeof(hello_t)};
    hello_t hello = {.rank = (uint32_t)t->rank, .size = (uint32_t)t->size};
    memcpy(hello.from, t->token, TCP_TOKEN);
    memcpy(hello.to, t->peer[to].token, TCP_TOKEN);
    return tcp_link_put(link, &head, &hello, false) == 1;
}

/* The side that connects knows whom it greets, and greets first. */
static tcp_greeting_t greeting_begin(const tcp_t *t, tcp_link_t *link)
{
    link->stage = TCP_GREETING;
    return !link->connects || hello_send(t, link, (int)(link->tag - FROM_LOOK))
               ? TCP_GREETING_DONE
               : TCP_GREETING_BAD;
}

static tcp_greeting_t preamble_hear(const tcp_t *t, tcp_link_t *link)
{
    unsigned char header[CIPHER_HEADER];
    int code = tcp_link_read_raw(link, PREAMBLE);
    if (code <= 0)
        return code < 0 ? TCP_GREETING_BAD : TCP_GREETING_WAITS;
    if (memcmp(link->raw, magic, sizeof magic) != 0)
        return TCP_GREETING_BAD;
    if (!link->cipher)
        return greeting_begin(t, link);
    link->stage = TCP_HEADER;
    return cipher_agree(link->cipher, link->raw + sizeof magic, header)
                   && tcp_link_send_raw(link, header, sizeof header)
               ? TCP_GREETING_DONE
               : TCP_GREETING_BAD;
}

static tcp_greeting_t header_hear(const tcp_t *t, tcp_link_t *link)
{
    int code = tcp_link_read_raw(link, CIPHER_HEADER);
    if (code <= 0)
        return code < 0 ? TCP_GREETING_BAD : TCP_GREETING_WAITS;
    return cipher_hear(link->cipher, link->raw) ? greeting_begin(t, link)
                                                : TCP_GREETING_BAD;
}

/* Not met yet, or it calls again. */
static bool is_newest(const tcp_peer_t *peer, const tcp_link_t *link)
{
    return !peer->link
           || (!peer->entered && !link->connects && link->since >= peer->link->since);
}

/* Whether it is one of the others that knows both. */
static bool hello_is_good(const tcp_t *t, const tcp_link_t *link, const hello_t *hello)
{
    if (hello->size != (uint32_t)t->size || hello->rank >= hello->size
        || hello->rank == (uint32_t)t->rank)
        return false;
    const tcp_peer_t *peer = &t->peer[hello->rank];
    const bool lower = hello->rank < (uint32_t)t->rank;
    return is_newest(peer, link) && lower == link->connects
           && (!lower || hello->rank == link->tag - FROM_LOOK)
           && !memcmp(hello->to, t->token, TCP_TOKEN)
           && !memcmp(hello->from, peer->token, TCP_TOKEN);
}

static tcp_greeting_t hello_hear(const tcp_t *t, tcp_link_t *link, int *rank)
{
    hello_t hello;
    int code = tcp_link_head(link);
    if (code > 0 && (link->head.kind != TCP_HELLO || link->head.length != sizeof hello))
        return TCP_GREETING_BAD;
    if (code > 0)
        code = tcp_link_body(link, link->raw);
    if (code <= 0)
        return code < 0 ? TCP_GREETING_BAD : TCP_GREETING_WAITS;
    memcpy(&hello, link->raw, sizeof hello);
    if (!hello_is_good(t, link, &hello)
        || (!link->connects && !hello_send(t, link, (int)hello.rank)))
        return TCP_GREETING_BAD;
    *rank = (int)hello.rank;
    return TCP_GREETING_DONE;
}

tcp_greeting_t tcp_greet(const tcp_t *t, tcp_link_t *link, int *rank)
{
    tcp_greeting_t is = TCP_GREETING_DONE;
    *rank = -1;
    while (is == TCP_GREETING_DONE && *rank < 0)
        is = link->stage == TCP_PREAMBLE ? preamble_hear(t, link)
             : link->stage == TCP_HEADER ? header_hear(t, link)
                                         : hello_hear(t, link, rank);
    return is;
}
