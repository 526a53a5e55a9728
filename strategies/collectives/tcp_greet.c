/* tcp_greet.c - the greeting on a new connection between two ranks
 *
 * Both sides say hello with two random numbers from the table of addresses: the
 * other's and their own. On connections beyond one machine everything after the
 * preamble is sealed under the key of the job (tcp.h), so that nothing of a
 * sender without the key is read. */
#include <string.h>

#include "strategies/collectives/tcp.h"

enum { PREAMBLE = 8 + CIPHER_NONCE };

static const char magic[8] = {'p', 'l', 'c', 't', 'c', 'p', '0', '1'};

typedef struct hello {
    uint32_t rank, size;
    unsigned char from[TCP_TOKEN], to[TCP_TOKEN];
} hello_t;

bool tcp_preamble_send(tcp_connection_t *connection)
{
    unsigned char preamble[PREAMBLE] = {0};
    memcpy(preamble, magic, sizeof magic);
    if (connection->cipher)
        cipher_nonce(connection->cipher, preamble + sizeof magic);
    connection->state = TCP_PREAMBLE;
    return tcp_connection_send_raw(connection, preamble, sizeof preamble);
}

static bool hello_send(const tcp_t *t, tcp_connection_t *connection, int to)
{
    const tcp_frame_t head = {.kind = TCP_HELLO, .length = sizeof(hello_t)};
    hello_t hello = {.rank = (uint32_t)t->rank, .size = (uint32_t)t->size};
    memcpy(hello.from, t->token, TCP_TOKEN);
    memcpy(hello.to, t->peer[to].token, TCP_TOKEN);
    return tcp_connection_put(connection, &head, &hello, false) == 1;
}

/* The side that connects knows the other rank, and sends its hello first. */
static tcp_greeting_t greeting_begin(const tcp_t *t, tcp_connection_t *connection)
{
    connection->state = TCP_GREETING;
    return !connection->connects
                   || hello_send(t, connection, (int)(connection->tag - FROM_ATTEMPT))
               ? TCP_GREETING_DONE
               : TCP_GREETING_BAD;
}

/* Reads the preamble, or the header of the cipher. */
static tcp_greeting_t raw_read(const tcp_t *t, tcp_connection_t *connection)
{
    unsigned char header[CIPHER_HEADER];
    const bool is_header = connection->state == TCP_HEADER;
    int code = tcp_connection_read_raw(connection, is_header ? CIPHER_HEADER : PREAMBLE);
    if (code <= 0)
        return code < 0 ? TCP_GREETING_BAD : TCP_GREETING_WAITS;
    if (is_header)
        return cipher_accept(connection->cipher, connection->raw)
                   ? greeting_begin(t, connection)
                   : TCP_GREETING_BAD;
    if (memcmp(connection->raw, magic, sizeof magic) != 0)
        return TCP_GREETING_BAD;
    if (!connection->cipher)
        return greeting_begin(t, connection);
    connection->state = TCP_HEADER;
    return cipher_agree(connection->cipher, connection->raw + sizeof magic, header)
                   && tcp_connection_send_raw(connection, header, sizeof header)
               ? TCP_GREETING_DONE
               : TCP_GREETING_BAD;
}

/* The hello comes from another rank that knows both numbers; the rank has not been met,
 * or it connects again. */
static tcp_greeting_t hello_read(const tcp_t *t, tcp_connection_t *connection, int *rank)
{
    hello_t hello;
    int code = tcp_connection_head(connection);
    if (code > 0
        && (connection->head.kind != TCP_HELLO
            || connection->head.length != sizeof hello))
        return TCP_GREETING_BAD;
    if (code > 0)
        code = tcp_connection_body(connection, connection->raw);
    if (code <= 0)
        return code < 0 ? TCP_GREETING_BAD : TCP_GREETING_WAITS;
    memcpy(&hello, connection->raw, sizeof hello);
    if (hello.size != (uint32_t)t->size || hello.rank >= hello.size
        || hello.rank == (uint32_t)t->rank)
        return TCP_GREETING_BAD;
    const tcp_peer_t *peer = &t->peer[hello.rank];
    const bool lower = hello.rank < (uint32_t)t->rank,
               again = !peer->entered && !connection->connects && peer->connection
                       && connection->since >= peer->connection->since;
    if ((peer->connection && !again) || lower != connection->connects
        || (lower && hello.rank != connection->tag - FROM_ATTEMPT)
        || memcmp(hello.to, t->token, TCP_TOKEN) != 0
        || memcmp(hello.from, peer->token, TCP_TOKEN) != 0
        || (!connection->connects && !hello_send(t, connection, (int)hello.rank)))
        return TCP_GREETING_BAD;
    *rank = (int)hello.rank;
    return TCP_GREETING_DONE;
}

tcp_greeting_t tcp_greet(const tcp_t *t, tcp_connection_t *connection, int *rank)
{
    tcp_greeting_t is = TCP_GREETING_DONE;
    *rank = -1;
    while (is == TCP_GREETING_DONE && *rank < 0)
        is = connection->state == TCP_PREAMBLE || connection->state == TCP_HEADER
                 ? raw_read(t, connection)
                 : hello_read(t, connection, rank);
    return is;
}
