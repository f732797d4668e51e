/* The practical limit of an HTTP/2 client with libnghttp2 on this machine: one thread, epoll, recv, frames by the library, split on
 * blank lines, stamp, store. Nothing else.
 *
 *   http2client --port P --streams N --connections C --tokens T    one streamed chat request on each stream, HTTP/2 in clear text
 *                --grpc 1                                          a call of vLLM's gRPC instead
 *
 * An event is what ends with an empty line (LF LF), or a message with token ids; all events of a read get that read's stamp. CPU is getrusage around the load.
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

struct Stream { uint8_t last_was_newline; size_t sent, held; uint64_t tokens; uint8_t finished, message[4096]; };
struct Connection { int fd; nghttp2_session *session; };

static char body[512];
static size_t body_size;
static int64_t now, *stamps;
static uint32_t *owners;
static uint64_t events, room, reads;
static int completed, failures, grpc;

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

static int varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < end && shift < 70; shift += 7) {
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return 1;
    }
    return 0;
}

/* Fields of a message until the one that is looked for; it is then between at and end. */
static int find(const uint8_t **at, const uint8_t **end, uint64_t number) {
    uint64_t tag, value;
    while (*at < *end && varint(at, *end, &tag)) {
        if ((tag & 7) > 2 || (tag & 7) == 1 || !varint(at, *end, &value))
            return 0;
        if ((tag & 7) == 2) {
            if (value > (uint64_t)(*end - *at))
                return 0;
            if (tag >> 3 == number) {
                *end = *at + value;
                return 1;
            }
            *at += value;
        }
    }
    return 0;
}

static void message(struct Stream *s, int32_t id, const uint8_t *at, size_t size) {
    const uint8_t *end = at + size, *chunk = at, *past = end;
    if (find(&chunk, &past, 1) && find(&chunk, &past, 1)) {     /* chunk.token_ids */
        for (; chunk < past; chunk++)
            s->tokens += *chunk < 0x80;
        if (events < room) {
            stamps[events] = now;
            owners[events++] = (uint32_t)id;
        }
    } else if (find(&at, &end, 2) && find(&at, &end, 2))            /* complete.finish_reason */
        s->finished = at < end;
}

static void on_messages(struct Stream *s, int32_t id, const uint8_t *data, size_t size) {
    while (size) {
        if (s->held == 0 && size >= 5) {
            size_t whole = 5 + ((size_t)data[1] << 24 | data[2] << 16 | data[3] << 8 | data[4]);
            if (whole <= size) {
                message(s, id, data + 5, whole - 5);
                data += whole;
                size -= whole;
                continue;
            }
        }
        check(s->held < sizeof s->message, "a message of a usual size");
        s->message[s->held++] = *data++;
        size--;
        if (s->held >= 5 && s->held == 5 + (((size_t)s->message[1] << 24) | s->message[2] << 16 | s->message[3] << 8 | s->message[4])) {
            message(s, id, s->message + 5, s->held - 5);
            s->held = 0;
        }
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user) {
    struct Stream *s = nghttp2_session_get_stream_user_data(session, id);
    const uint8_t *at = data, *end = data + size, *found;
    (void)flags, (void)user;
    if (s == NULL)
        return 0;
    if (grpc) {
        on_messages(s, id, data, size);
        return 0;
    }
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
    if (name_size == 11 && !memcmp(name, "grpc-status", 11) && (size != 1 || value[0] != '0'))
        failures++;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    struct Stream *s = nghttp2_session_get_stream_user_data(session, id);
    (void)user;
    completed++;
    failures += code != 0 || (grpc && !s->finished);
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
    nghttp2_nv call[] = {FIELD(":method", "POST"), FIELD(":scheme", "http"), FIELD(":path", "/vllm.grpc.engine.VllmEngine/Generate"),
                         FIELD(":authority", "bench"), FIELD("content-type", "application/grpc"), FIELD("te", "trailers")};
    check(nghttp2_submit_request(c->session, NULL, grpc ? call : fields, grpc ? 6 : 5, &provider, s) > 0, "request");
}

static size_t put_varint(uint8_t *at, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

/* Prefix and message: request_id, tokenized.input_ids, sampling_params.{max_tokens, min_tokens, ignore_eos}, stream. */
static size_t call_body(uint8_t *out, int tokens) {
    uint8_t sampling[32], *at = out + 5;
    size_t n = 0;
    sampling[n++] = 8 << 3;
    n += put_varint(sampling + n, tokens);
    sampling[n++] = 9 << 3;
    n += put_varint(sampling + n, tokens);
    sampling[n++] = 14 << 3;
    sampling[n++] = 1;
    memcpy(at, "\x0a\x05" "bench" "\x12\x06\x12\x04\x01\x02\x03\x04" "\x22", 16);
    at += 16;
    *at++ = (uint8_t)n;
    memcpy(at, sampling, n);
    at += n;
    *at++ = 5 << 3;
    *at++ = 1;
    out[0] = out[1] = out[2] = out[3] = 0;
    out[4] = (uint8_t)(at - out - 5);
    return at - out;
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
        else if (!strcmp(argv[i], "--grpc")) grpc = value;
        else return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
    }
    body_size = snprintf(body, sizeof body,
                         "{\"model\":\"simulated\",\"stream\":true,\"max_tokens\":%d,\"min_tokens\":%d,\"ignore_eos\":true,"
                         "\"messages\":[{\"role\":\"user\",\"content\":\"Count.\"}]}", tokens, tokens);
    if (grpc)
        body_size = call_body((uint8_t *)body, tokens);
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
