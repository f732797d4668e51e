/* A client's side of TLS for limitclient, through libssl.so.3: the records come from recvmsg, whose kernel stamp is kept. */
#include <stdint.h>
#include <sys/types.h>

struct Tls;

void tls_load(void);
struct Tls *tls_connect(int fd, const char *host);                  /* shakes hands and waits for it */
int tls_send(struct Tls *t, const char *data, size_t size);         /* 0, or -1 */
/* Plaintext of one recvmsg: its bytes, 0 at the end, -1 with errno (EAGAIN: no byte of the response came). *stamp:
 * CLOCK_REALTIME ns of the newest segment; 0 where the kernel gave none. *room* holds a read and a record more. */
ssize_t tls_recv(struct Tls *t, char *data, size_t room, int64_t *stamp);
