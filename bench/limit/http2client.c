/* The practical limit of an HTTP/2 client with libnghttp2 on this machine: one thread, epoll, recv, frames by the library, split on
 * blank lines, stamp, store. Nothing else.
 *
 *   http2client --port P --streams N --connections C --tokens T    one streamed chat request on each stream, HTTP/2 in clear text
 *
 * An event is what ends with an empty line (LF LF); all events of a read get that read's stamp. CPU is getrusage around the load.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256, READ_SIZE = 262144, WIDEST = 0x7fffffff, BEYOND_TOKENS = 8 };

struct Stream { uint8_t last_was_newline; size_t sent; };
struct Connection { int fd; nghttp2_session *session; };

static char body[256];
static size_t body_size;
static int64_t now, *stamps;
static uint32_t *owners;
static uint64_t events, room, reads;
static int completed, failures;

static void check(int held, const char *what) {
    if (!held) {
        perror(what);
        exit(1);
    }
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user) {
    struct Stream *s = nghttp2_session_get_stream_user_data(session, id);
    const uint8_t *at = data, *end = data + size, *found;
    (void)flags, (void)user;
    if (s == NULL)
        return 0;
    while ((found = memchr(at, '\n', end - at)) != NULL) {
        if ((found > data ? found[-1] == '\n' : s->last_was_newline) && events < room) {
            stamps[events] = now;
            owners[events++] = (uint32_t)id;
        }
        at = found + 1;
    }
    if (size)
        s->last_was_newline = end[-1] == '\n';
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t size, uint8_t flags, void *user) {
    (void)session, (void)frame, (void)flags, (void)user;
    if (name_size == 7 && !memcmp(name, ":status", 7) && (size != 3 || memcmp(value, "200", 3)))
        failures++;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    (void)session, (void)id, (void)user;
    completed++;
    failures += code != 0;
    return 0;
}

static ssize_t give_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t size, uint32_t *flags,
                         nghttp2_data_source *source, void *user) {
    struct Stream *s = source->ptr;
    size_t part = body_size - s->sent < size ? body_size - s->sent : size;
    (void)session, (void)id, (void)user;
    memcpy(out, body + s->sent, part);
    s->sent += part;
    if (s->sent == body_size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)part;
}

static void flush(struct Connection *c) {
    const uint8_t *data;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(c->session, &data)) > 0)
        while (size > 0) {      /* little is sent: what does not fit at once is waited for */
            ssize_t sent = send(c->fd, data, size, MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN)
                continue;
            check(sent > 0, "send");
            data += sent;
            size -= sent;
        }
}

static void request(struct Connection *c, struct Stream *s) {
#define FIELD(n, v) {(uint8_t *)(n), (uint8_t *)(v), strlen(n), strlen(v), 0}
    nghttp2_nv fields[] = {FIELD(":method", "POST"), FIELD(":scheme", "http"), FIELD(":path", "/v1/chat/completions"),
                           FIELD(":authority", "bench"), FIELD("content-type", "application/json")};
    nghttp2_data_provider provider = {{.ptr = s}, give_body};
    check(nghttp2_submit_request(c->session, NULL, fields, 5, &provider, s) > 0, "request");
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

int main(int argc, char **argv) {
    int port = 0, streams = 500, connections = 5, tokens = 200;
    for (int i = 1; i + 1 < argc; i += 2) {
        int value = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--port")) port = value;
        else if (!strcmp(argv[i], "--streams")) streams = value;
        else if (!strcmp(argv[i], "--connections")) connections = value;
        else if (!strcmp(argv[i], "--tokens")) tokens = value;
        else return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
    }
    body_size = snprintf(body, sizeof body,
                         "{\"model\":\"simulated\",\"stream\":true,\"max_tokens\":%d,\"min_tokens\":%d,\"ignore_eos\":true,"
                         "\"messages\":[{\"role\":\"user\",\"content\":\"Count.\"}]}", tokens, tokens);
    room = (uint64_t)streams * (tokens + BEYOND_TOKENS);
    stamps = malloc(room * sizeof *stamps);
    owners = malloc(room * sizeof *owners);
    struct Stream *all = calloc(streams, sizeof *all);
    struct Connection *lines = calloc(connections, sizeof *lines);
    uint8_t *buffer = malloc(READ_SIZE);
    check(stamps && owners && all && lines && buffer, "memory");
    memset(stamps, 1, room * sizeof *stamps);
    memset(owners, 1, room * sizeof *owners);

    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_settings_entry windows[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WIDEST}, {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int set = epoll_create1(0), one = 1;
    for (int i = 0; i < connections; i++) {
        struct epoll_event watched = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
        lines[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(lines[i].fd, (struct sockaddr *)&peer, sizeof peer) == 0, "connect");
        setsockopt(lines[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(lines[i].fd, F_SETFL, O_NONBLOCK);
        nghttp2_session_client_new(&lines[i].session, callbacks, NULL);
        nghttp2_submit_settings(lines[i].session, NGHTTP2_FLAG_NONE, windows, 2);
        nghttp2_session_set_local_window_size(lines[i].session, NGHTTP2_FLAG_NONE, 0, WIDEST);
        flush(&lines[i]);
        epoll_ctl(set, EPOLL_CTL_ADD, lines[i].fd, &watched);
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    int64_t begun = clock_ns();
    for (int i = 0; i < streams; i++)
        request(&lines[i % connections], &all[i]);
    for (int i = 0; i < connections; i++)
        flush(&lines[i]);
    while (completed < streams) {
        struct epoll_event ready[BATCH];
        int n = epoll_wait(set, ready, BATCH, 10000);
        check(n > 0, "nothing came within 10 s");
        for (int i = 0; i < n; i++) {
            struct Connection *c = &lines[ready[i].data.u32];
            ssize_t got = recv(c->fd, buffer, READ_SIZE, 0);
            if (got < 0 && errno == EAGAIN)
                continue;
            check(got > 0, "recv");
            now = clock_ns();
            reads++;
            check(nghttp2_session_mem_recv(c->session, buffer, got) >= 0, "frames");
            if (nghttp2_session_want_write(c->session))
                flush(c);
        }
    }
    int64_t ended = clock_ns();
    getrusage(RUSAGE_SELF, &after);
    printf("{\"requests\": %d, \"failures\": %d, \"events\": %llu, \"reads\": %llu, \"wall_s\": %.6f, \"cpu_user_s\": %.6f, "
           "\"cpu_system_s\": %.6f}\n", completed, failures, (unsigned long long)events, (unsigned long long)reads,
           (ended - begun) / 1e9, seconds(after.ru_utime) - seconds(before.ru_utime),
           seconds(after.ru_stime) - seconds(before.ru_stime));
    return 0;
}
