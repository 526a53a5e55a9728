/* port_holder.h - which process listens at a port of this machine */
#ifndef PL_RUNTIME_PORT_HOLDER_H
#define PL_RUNTIME_PORT_HOLDER_H

/* Of "tcp://HOST:PORT"; 0: nobody who can be seen, such as another user's. */
int pl_port_holder(const char *endpoint);

#endif
