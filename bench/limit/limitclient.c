/* The practical limit of a client on this machine: one thread, epoll, recv, split on blank lines, stamp, store. Nothing else.
 *
 *   limitclient streams --port P --streams N --tokens T            N keep-alive connections, one streamed chat request on each
 *   limitclient closed  --port P --concurrency C --seconds S       closed loop of plain one-token requests
 *   limitclient open    --port P --rate R --seconds S --tokens T   Poisson arrivals, streamed; --streams sets the first pool
 *
 * An event is what ends with an empty line (LF LF). All events of a read get that read's stamp: one clock_gettime per read
 * is cheaper than one per event, so this is the harder yardstick. A streamed response ends with the last chunk of chunked
 * coding, a plain one by Content-Length. CPU is getrusage around the load: connecting, memory and report are outside.
 * With --tls 1 a stream's handshake is part of the load, and an event has the kernel's stamp of its read.
 * --dump FILE writes every event as two int64: CLOCK_MONOTONIC ns, connection number.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"

enum { BATCH = 1024, READ_SIZE = 65536, RECORD = 16384, TAIL = 7, EVENTS_BEYOND_TOKENS = 8 };
enum Mode { STREAMS, CLOSED, OPEN };

static const char LAST_CHUNK[] = "\r\n0\r\n\r\n";

struct Connection {
    int fd;
    struct Tls *tls;            /* NULL: clear text, or no request was sent */
    uint8_t busy, head_seen, last_was_newline, tail_size;
    char tail[TAIL];            /* last bytes of the response so far: the last chunk may be split between reads */
    int64_t left;               /* plain responses: bytes still missing, head included; -1 before the head */
};

struct Options {
    enum Mode mode;
    const char *host, *model, *path, *dump;
    int port, streams, tokens, tls;
    double rate, seconds, timeout;
    unsigned long seed;
};

struct Load {
    struct Options *o;
    int epoll, connections, capacity, idle_count;
    struct Connection *all;
    int *idle;
    char *request;
    size_t request_size;
    int64_t *stamps;
    uint32_t *owners;
    uint64_t events, reads, room, requests, completed, failures;
    int64_t begin, *due;        /* open loop: instants after begin */
    int64_t real_offset;        /* CLOCK_REALTIME less CLOCK_MONOTONIC */
    double *lags;
    uint64_t planned;
};

static void die(const char *what) { perror(what); exit(2); }

static void *need(void *memory) { if (memory == NULL) die("memory"); return memory; }

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static double cpu_s(const struct timeval *t) { return (double)t->tv_sec + (double)t->tv_usec / 1e6; }

/* ---- connections ---- */

static int open_connection(struct Load *l) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->o->port)};
    struct epoll_event interest = {.events = EPOLLIN};
    int one = 1, number = l->connections, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (number == l->capacity) { fprintf(stderr, "more than %d connections\n", l->capacity); exit(2); }
    if (inet_pton(AF_INET, l->o->host, &address.sin_addr) != 1) die("--host is no IPv4 address");
    if (fd < 0) die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
    interest.data.u32 = (uint32_t)number;
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &interest) < 0) die("epoll_ctl");
    l->all[number] = (struct Connection){.fd = fd, .left = -1};
    l->idle[l->idle_count++] = number;
    l->connections++;
    return number;
}

static void send_request(struct Load *l, int number) {
    struct Connection *c = &l->all[number];
    c->busy = 1; c->head_seen = 0; c->last_was_newline = 0; c->tail_size = 0; c->left = -1;
    l->requests++;
    if (l->o->tls) {
        if (c->tls == NULL) c->tls = tls_connect(c->fd, l->o->host);
        if (tls_send(c->tls, l->request, l->request_size)) die("send");
    } else if (send(c->fd, l->request, l->request_size, MSG_NOSIGNAL) != (ssize_t)l->request_size) die("send");
}

static void end_request(struct Load *l, int number, int failed) {
    struct Connection *c = &l->all[number];
    if (c->busy) { c->busy = 0; if (failed) l->failures++; else l->completed++; }
    if (failed) { close(c->fd); c->fd = -1; } else l->idle[l->idle_count++] = number;
}

/* ---- reading ---- */

static int status_is_200(struct Connection *c, const char *data, ssize_t size) {
    if (c->head_seen) return 1;
    c->head_seen = 1;
    return size >= 12 && memcmp(data, "HTTP/1.1 200", 12) == 0;
}

static void split_events(struct Load *l, int number, const char *data, size_t size, int64_t t) {
    struct Connection *c = &l->all[number];
    const char *at = data, *end = data + size, *newline;
    int before = c->last_was_newline;
    while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if (newline > at) before = 0;
        if (before) {
            if (l->events == l->room) { fprintf(stderr, "more than %lu events\n", l->room); exit(2); }
            l->stamps[l->events] = t;
            l->owners[l->events++] = (uint32_t)number;
            before = 0;
        } else before = 1;
        at = newline + 1;
    }
    c->last_was_newline = (uint8_t)(at == end ? before : 0);
}

static int last_chunk_seen(struct Connection *c, const char *data, size_t size) {
    if (size >= TAIL) {
        memcpy(c->tail, data + size - TAIL, TAIL);
        c->tail_size = TAIL;
    } else {
        size_t keep = c->tail_size + size > TAIL ? TAIL - size : c->tail_size;
        memmove(c->tail, c->tail + c->tail_size - keep, keep);
        memcpy(c->tail + keep, data, size);
        c->tail_size = (uint8_t)(keep + size);
    }
    return c->tail_size == TAIL && memcmp(c->tail, LAST_CHUNK, TAIL) == 0;
}

static int plain_complete(struct Connection *c, char *data, size_t size) {
    if (c->left < 0) {                                  /* the head comes in one read: it is a few hundred bytes on loopback */
        char *body = memmem(data, size, "\r\n\r\n", 4), *length;
        if (body == NULL) return -1;
        *body = 0;
        length = strcasestr(data, "content-length:");
        if (length == NULL) return -1;
        c->left = (body + 4 - data) + atoll(length + 15);
    }
    c->left -= (int64_t)size;
    return c->left == 0 ? 1 : c->left < 0 ? -1 : 0;
}

static void readable(struct Load *l, int number, char *buffer) {
    struct Connection *c = &l->all[number];
    if (c->fd < 0) return;
    int64_t stamp = 0;
    ssize_t size = c->tls == NULL ? recv(c->fd, buffer, READ_SIZE, 0) : tls_recv(c->tls, buffer, READ_SIZE + RECORD, &stamp);
    int64_t t = stamp ? stamp - l->real_offset : now_ns();
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    l->reads++;
    if (size <= 0 || !c->busy || !status_is_200(c, buffer, size)) { end_request(l, number, 1); return; }
    if (l->o->mode == CLOSED) {
        int done = plain_complete(c, buffer, (size_t)size);
        if (done < 0) { end_request(l, number, 1); return; }
        if (!done) return;
        l->events++;
        end_request(l, number, 0);
        if (t < l->begin + (int64_t)(l->o->seconds * 1e9)) send_request(l, l->idle[--l->idle_count]);
        return;
    }
    split_events(l, number, buffer, (size_t)size, t);
    if (last_chunk_seen(c, buffer, (size_t)size)) end_request(l, number, 0);
}

/* ---- the load ---- */

static void draw_schedule(struct Load *l) {
    double at = 0;
    uint64_t room = (uint64_t)(l->o->rate * l->o->seconds * 1.2 + 1000);
    l->due = need(malloc(room * sizeof *l->due));
    l->lags = need(calloc(room, sizeof *l->lags));
    srand48((long)l->o->seed);
    while (l->planned < room && (at += -log(1 - drand48()) / l->o->rate) < l->o->seconds) l->due[l->planned++] = (int64_t)(at * 1e9);
}

static void send_due(struct Load *l) {
    int64_t now = now_ns() - l->begin;
    while (l->requests < l->planned && l->due[l->requests] <= now) {
        l->lags[l->requests] = (double)(now - l->due[l->requests]) / 1e3;
        if (l->idle_count == 0) open_connection(l);
        send_request(l, l->idle[--l->idle_count]);
        now = now_ns() - l->begin;
    }
}

static int wait_for_events(struct Load *l, struct epoll_event *events) {
    struct timespec pause = {.tv_nsec = 100000000};
    if (l->requests < l->planned) {
        int64_t left = l->begin + l->due[l->requests] - now_ns();
        if (left < 0) left = 0;
        if (left < pause.tv_nsec) pause.tv_nsec = left;
    }
    int ready = epoll_pwait2(l->epoll, events, BATCH, &pause, NULL);
    if (ready < 0 && errno != EINTR) die("epoll_pwait2");
    return ready;
}

static void drive(struct Load *l) {
    static struct epoll_event events[BATCH];
    static char buffer[READ_SIZE + RECORD + 1];
    int64_t until = l->begin + (int64_t)((l->o->seconds + l->o->timeout) * 1e9);
    if (l->o->mode != OPEN) while (l->idle_count > 0) send_request(l, l->idle[--l->idle_count]);
    while ((l->requests < l->planned || l->completed + l->failures < l->requests) && now_ns() < until) {
        int ready = wait_for_events(l, events);
        for (int i = 0; i < ready; i++) readable(l, (int)events[i].data.u32, buffer);
        if (l->o->mode == OPEN) send_due(l);
    }
    l->failures += l->requests - l->completed - l->failures;
}

/* ---- set-up and report ---- */

static void encode_request(struct Load *l) {
    char *body;
    int size = asprintf(&body,
        "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Count up from one until you are told to stop.\"}],"
        "\"max_tokens\":%d,\"min_tokens\":%d,\"ignore_eos\":true,\"temperature\":0.0,\"stream\":%s}",
        l->o->model, l->o->tokens, l->o->tokens, l->o->mode == CLOSED ? "false" : "true");
    if (size < 0) die("asprintf");
    size = asprintf(&l->request,
        "POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s",
        l->o->path, l->o->host, l->o->port, l->o->mode == CLOSED ? "application/json" : "text/event-stream", size, body);
    if (size < 0) die("asprintf");
    l->request_size = (size_t)size;
    free(body);
}

static void prepare(struct Load *l) {
    struct Options *o = l->o;
    encode_request(l);
    if (o->tls) tls_load();
    if (o->mode == OPEN) draw_schedule(l);
    uint64_t requests = o->mode == OPEN ? l->planned : (uint64_t)o->streams;
    l->room = o->mode == CLOSED ? 1 : requests * (uint64_t)(o->tokens + EVENTS_BEYOND_TOKENS);
    l->stamps = need(malloc(l->room * sizeof *l->stamps));
    l->owners = need(malloc(l->room * sizeof *l->owners));
    memset(l->stamps, 1, l->room * sizeof *l->stamps);          /* touch the pages now, not during the load */
    memset(l->owners, 1, l->room * sizeof *l->owners);
    l->capacity = o->mode == OPEN ? 60000 : o->streams;
    l->all = need(calloc((size_t)l->capacity, sizeof *l->all));
    l->idle = need(calloc((size_t)l->capacity, sizeof *l->idle));
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0) die("epoll_create1");
    for (int i = 0; i < o->streams; i++) open_connection(l);
}

static int ascending(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static void report(struct Load *l, struct rusage *a, struct rusage *b, int64_t end) {
    static const char *names[] = {"streams", "closed", "open"};
    double user = cpu_s(&b->ru_utime) - cpu_s(&a->ru_utime), system = cpu_s(&b->ru_stime) - cpu_s(&a->ru_stime);
    printf("{\"mode\":\"%s\",\"events\":%lu,\"requests\":%lu,\"failures\":%lu,\"reads\":%lu,\"connections\":%d,"
           "\"cpu_user_s\":%.6f,\"cpu_system_s\":%.6f,\"wall_s\":%.6f,\"us_per_event\":%.4f,\"rss_kib\":%ld",
           names[l->o->mode], l->events, l->requests, l->failures, l->reads, l->connections, user, system,
           (double)(end - l->begin) / 1e9, l->events ? (user + system) * 1e6 / (double)l->events : 0.0, b->ru_maxrss);
    if (l->o->mode == OPEN && l->requests > 0) {
        qsort(l->lags, l->requests, sizeof *l->lags, ascending);
        printf(",\"planned\":%lu,\"lag_p50_us\":%.1f,\"lag_p99_us\":%.1f,\"lag_max_us\":%.1f", l->planned,
               l->lags[l->requests / 2], l->lags[l->requests * 99 / 100], l->lags[l->requests - 1]);
    }
    printf("}\n");
}

static void dump(struct Load *l) {
    FILE *file = fopen(l->o->dump, "wb");
    if (file == NULL) die(l->o->dump);
    for (uint64_t i = 0; i < l->events; i++) {
        int64_t pair[2] = {l->stamps[i], l->owners[i]};
        if (fwrite(pair, sizeof pair, 1, file) != 1) die(l->o->dump);
    }
    if (fclose(file) != 0) die(l->o->dump);
}

static void usage(const char *why) {
    fprintf(stderr, "limitclient: %s\nlimitclient streams|closed|open --port P [--host A] [--streams N] [--concurrency C] [--tokens T]"
            " [--rate R] [--seconds S] [--timeout S] [--seed N] [--model M] [--path P] [--tls 1] [--dump FILE]\n", why);
    exit(2);
}

static void parse(struct Options *o, int count, char **words) {
    if (count < 2) usage("no mode");
    if (strcmp(words[1], "streams") == 0) o->mode = STREAMS;
    else if (strcmp(words[1], "closed") == 0) o->mode = CLOSED;
    else if (strcmp(words[1], "open") == 0) o->mode = OPEN;
    else usage("the mode is streams, closed or open");
    for (int i = 2; i < count; i += 2) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (value == NULL) usage("an option without its value");
        if (strcmp(name, "--port") == 0) o->port = atoi(value);
        else if (strcmp(name, "--host") == 0) o->host = value;
        else if (strcmp(name, "--streams") == 0 || strcmp(name, "--concurrency") == 0) o->streams = atoi(value);
        else if (strcmp(name, "--tls") == 0) o->tls = atoi(value);
        else if (strcmp(name, "--tokens") == 0) o->tokens = atoi(value);
        else if (strcmp(name, "--rate") == 0) o->rate = atof(value);
        else if (strcmp(name, "--seconds") == 0) o->seconds = atof(value);
        else if (strcmp(name, "--timeout") == 0) o->timeout = atof(value);
        else if (strcmp(name, "--seed") == 0) o->seed = strtoul(value, NULL, 10);
        else if (strcmp(name, "--model") == 0) o->model = value;
        else if (strcmp(name, "--path") == 0) o->path = value;
        else if (strcmp(name, "--dump") == 0) o->dump = value;
        else usage(name);
    }
    if (o->port <= 0 || o->streams <= 0 || o->tokens <= 0) usage("--port, --streams and --tokens must be above 0");
    if (o->mode != STREAMS && o->seconds <= 0) usage("--seconds must be above 0");
    if (o->mode == OPEN && o->rate <= 0) usage("--rate must be above 0");
    if (o->mode != STREAMS && o->tls) usage("--tls is for streams");
    if (o->mode == CLOSED && o->dump != NULL) usage("--dump needs streamed events");
}

int main(int count, char **words) {
    struct Options o = {.host = "127.0.0.1", .model = "simulated", .path = "/v1/chat/completions", .streams = 1, .tokens = 1,
                        .timeout = 60, .seed = 42};
    struct Load l = {.o = &o};
    struct rusage before, after;
    struct rlimit files;
    parse(&o, count, words);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { files.rlim_cur = files.rlim_max; setrlimit(RLIMIT_NOFILE, &files); }
    prepare(&l);
    getrusage(RUSAGE_SELF, &before);
    l.begin = now_ns();
    l.real_offset = clock_ns(CLOCK_REALTIME) - l.begin;
    drive(&l);
    int64_t end = now_ns();
    getrusage(RUSAGE_SELF, &after);
    report(&l, &before, &after, end);
    if (o.dump != NULL) dump(&l);
    return l.failures == 0 ? 0 : 1;
}
