"""What happens on connections: requests are read and served, replies end, connections close.

A connection has one request at a time; what a client sends ahead is kept and read when the reply is out. A client that
closes its side gives up its request, as engines treat it.

    READING ── request complete ──▶ BUSY ── reply composed ──▶ DRAINING ── all bytes taken ──▶ READING or closed
       └── refused ──▶ LINGERING ──▶ closed                SILENT: never answered, until the client goes
"""

from libc.stdint cimport uint16_t
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from libc.time cimport time

from fastllmload._ext.http.request cimport (
    HEAD_LIMIT, request_head_size, request_hopeless, request_read, same, unchunk, unchunk_begin,
)
from fastllmload._ext.sim.timer cimport timers_free, timers_push
from fastllmload._ext.simserver.connection cimport (
    CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_LINGERING, CONNECTION_READING, CONNECTION_SILENT, SENT_FAILED, SENT_QUEUED, UPGRADE_FAULT,
    Sent, carrier_of, pending,
)
from fastllmload._ext.sim.fault cimport (
    FAULT_HANDSHAKE_ALERT, FAULT_HANDSHAKE_GARBAGE, FAULT_HANDSHAKE_HANG, FAULT_IDLE_CLOSE,
)
from fastllmload._ext.simbody.form cimport ENDED_LENGTH, Form
from fastllmload._ext.system.syscall cimport MSG_DONTWAIT
from fastllmload._ext.simserver.truth cimport TRUTH_ABORTED, TRUTH_LENGTH, TRUTH_PREEMPTED, TRUTH_RESUMED, TRUTH_REUSED, TRUTH_STREAM
from fastllmload._ext.simserver.upgrade cimport (
    CLIENT_BAD, CLIENT_NEED, ClientFrame, ClientStep, accepted, client_frame, client_names, close_of, frame_of,
)
from fastllmload._ext.simserver.writer cimport CALL_OK, CUT, GARBAGE, GOING, LOST, RESET, SILENT
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.wire cimport wire_recv
from fastllmload._ext.tls.session cimport TLS_CLOSED, TLS_FAILED, TLS_HANDSHAKE, TLS_PLAIN, Tls, tls_read

from fastllmload._ext.simserver.writer import CALL_HEAD, page_head

cdef extern from "<sys/socket.h>" nogil:
    int shutdown(int fd, int how)
    Py_ssize_t recv(int fd, void* data, size_t size, int flags)
    int SHUT_WR

cdef enum:
    BUFFER = 262144
    AHEAD = 1048576             # bytes that a client may send ahead of the reply in progress
    IDLE_NS = 200_000_000       # quiet time after which the truth log is written
    LINGER_NS = 1_000_000_000
    STUCK = 0xFFFFFFFF          # take(): the request is not complete


cdef class Sessions:
    """*pages*: `(path, counters, body) -> (method, content type, body) or None`, for everything but completions. *api_key*:
    asked for when it is not None. *visits*: `(head, body) -> (note, lines)` of a request, lines None where it is refused.
    *controls*: `(method, target, server) -> (status, JSON) or None`, for routes that control the engine."""

    def __init__(self, cadence: Cadence, truth: Truth, intake: Intake, responder: Responder, connections: Streams,
                 pages: object, api_key: str | None, visits: object = None, controls: object = None):
        self.cadence = cadence
        self.truth = truth
        self.intake = intake
        self.responder = responder
        self.connections = connections
        self.pages = pages
        self.visits = visits
        self.controls = controls
        self.bearer = None if api_key is None else b"Bearer " + api_key.encode()
        self.buffer = <uint8_t*>malloc(2 * BUFFER)
        if self.buffer == NULL:
            raise MemoryError("no memory for the simulator's read buffer")
        self.records = self.buffer + BUFFER

    def __dealloc__(self):
        timers_free(&self.timers)
        free(self.buffer)

    def counters(self) -> dict[str, float]:
        raise NotImplementedError("the server counts")

    cdef int set_timer(self, Connection* c, int64_t due, uint32_t purpose) except -1:
        return timers_push(&self.timers, due, c, c.generation, purpose)

    cdef int settle(self, Connection* c, Outcome outcome) except -1:
        # What follows from the responder's last word; the connection may be gone afterwards.
        if outcome == LOST or outcome == RESET:
            return self.close(c, outcome == RESET, TRUTH_ABORTED if outcome == LOST else 0)
        if c.drip_ns and c.out_due == 0 and pending(c):
            c.out_due = mono_ns() + c.drip_ns
        if c.out_due and not c.out_timer:
            c.out_timer = True
            self.set_timer(c, c.out_due, RESUME_OUT)
        if outcome == GOING:
            return 0
        self.cadence.abort(&c.sequence)
        if outcome == SILENT:
            c.state = CONNECTION_SILENT
            return 0
        c.reply.close_after |= outcome == CUT
        c.state = CONNECTION_DRAINING
        if pending(c):
            return 0
        self.complete(c)
        return 0

    cdef int complete(self, Connection* c) except -1:
        self.end_row(c, 0)
        c.requests += 1
        c.drip_ns = 0
        if c.reply.close_after:
            c.state = CONNECTION_READING            # its row is written
            return self.close(c, False, 0)
        c.state = CONNECTION_READING
        if c.reply.fault == FAULT_IDLE_CLOSE:
            self.set_timer(c, mono_ns() + <int64_t>c.reply.fault_arg * 1_000_000, IDLE_CLOSE)
        return 0

    cdef int resume(self, Connection* c) except -1:
        # A client that sent ahead: its next request may be complete already.
        cdef size_t size = c.read_size
        if c.state != CONNECTION_READING or size == 0 or c.carrier != NULL:
            return 0
        self.arrival = mono_ns()
        return self.consume(c, c.read, size)

    cdef int end_row(self, Connection* c, uint8_t flags) except -1:
        cdef int finish
        cdef Tls* tls
        if c.reply.page:
            return 0
        finish = 2 if flags & TRUTH_ABORTED else 3 if c.truth.status != 200 or c.truth.call_status > 0 else c.reply.ending
        self.finished[finish] += 1
        if not self.truth.on:
            return 0
        c.truth.t_end = mono_ns() if flags & TRUTH_ABORTED or c.t_sent < c.truth.t_recv_last else c.t_sent
        c.truth.prompt_tokens = c.sequence.prompt_tokens
        c.truth.output_tokens = c.reply.sent
        c.truth.cached_tokens = c.sequence.cached_tokens
        c.truth.t_admitted = c.sequence.t_admitted
        c.truth.fault = c.reply.fault
        c.truth.flags = flags | (TRUTH_STREAM if c.reply.stream else 0) | (TRUTH_REUSED if c.requests else 0)
        c.truth.flags |= (TRUTH_PREEMPTED if c.sequence.preemptions else 0) | (TRUTH_LENGTH if c.reply.ending == ENDED_LENGTH else 0)
        tls = carrier_of(c).tls
        c.truth.flags |= TRUTH_RESUMED if tls != NULL and tls.resumed else 0
        self.flush_at = mono_ns() + IDLE_NS
        return self.truth.request(&c.truth)

    cdef int close(self, Connection* c, bint reset, uint8_t flags) except -1:
        self.cadence.abort(&c.sequence)
        if c.state in (CONNECTION_BUSY, CONNECTION_DRAINING, CONNECTION_SILENT):
            self.end_row(c, flags)
        self.connections.drop(c, reset)
        return 0

    cdef int ready_to_write(self, Connection* c) except -1:
        cdef Sent sent
        c.t_sent = mono_ns()
        sent = self.connections.flush(c, c.t_sent)
        if sent == SENT_FAILED:
            return self.close(c, False, TRUTH_ABORTED)
        if sent == SENT_QUEUED:
            if c.out_due and not c.out_timer:
                c.out_timer = True
                self.set_timer(c, c.out_due, RESUME_OUT)
            return 0
        if c.state == CONNECTION_BUSY:
            return self.cadence.release(&c.sequence)
        if c.state == CONNECTION_DRAINING:
            self.complete(c)
            self.resume(c)
        return 0

    cdef int ready_to_read(self, Connection* c) except -1:
        cdef uint8_t* data = self.buffer
        cdef size_t size = BUFFER
        cdef size_t spare = 0 if c.tls == NULL else TLS_PLAIN
        cdef uint8_t* received
        cdef Py_ssize_t n
        cdef int64_t kernel = 0
        if c.read_size:
            self.connections.room(c, max(c.need, c.read_size + 16384) + spare)
            data = c.read + c.read_size
            size = min(c.read_cap - c.read_size, <size_t>BUFFER)
        received = data if c.tls == NULL else self.records
        if self.truth.on:
            n = wire_recv(c.fd, received, size - spare, &kernel)
        else:
            n = recv(c.fd, received, size - spare, MSG_DONTWAIT)
            n = n if n >= 0 else -errno
        if n == -EAGAIN or n == -EINTR:
            return 0
        if n <= 0:
            return self.close(c, False, TRUTH_ABORTED)
        if c.tls != NULL and c.state != CONNECTION_LINGERING:
            n = self.unseal(c, <size_t>n, data)
            if n == 0:
                return 0
        c.recv_last = self.arrival = mono_ns()
        c.recv_last_kernel = kernel - self.real_offset if kernel else 0
        if c.read_size == 0:
            c.recv_first = c.recv_last
            c.recv_first_kernel = c.recv_last_kernel
        if c.state == CONNECTION_READING:
            return self.consume(c, data - c.read_size, c.read_size + <size_t>n)
        return self.ahead(c, data, <size_t>n)

    cdef Py_ssize_t unseal(self, Connection* c, size_t size, uint8_t* plain) except -1:
        """Bytes of plaintext in *size* bytes of records; 0: none, or the connection is closed."""
        cdef bint shaking = c.tls.state == TLS_HANDSHAKE
        cdef Py_ssize_t got
        cdef bint failed
        if shaking and c.fault >= FAULT_HANDSHAKE_HANG:
            return self.break_handshake(c)
        got = tls_read(c.tls, self.records, size, plain)
        failed = c.tls.state == TLS_FAILED
        if shaking and c.tls.state != TLS_HANDSHAKE:
            self.handshakes[2 if failed else c.tls.resumed] += 1
            c.t_tls = mono_ns()
        if self.connections.send_records(c) == SENT_FAILED or failed or c.tls.state == TLS_CLOSED:
            self.close(c, False, TRUTH_ABORTED)
            return 0
        return got

    cdef int break_handshake(self, Connection* c) except -1:
        cdef uint8_t[7] alert = [21, 3, 3, 0, 2, 2, <uint8_t>c.fault_arg]       # fatal
        self.handshakes[2] += 1
        if c.fault == FAULT_HANDSHAKE_HANG:
            c.state = CONNECTION_LINGERING
            return 0
        if c.fault == FAULT_HANDSHAKE_ALERT:
            self.connections.send_raw(c, alert, 7)
        elif c.fault == FAULT_HANDSHAKE_GARBAGE:
            self.connections.send_raw(c, GARBAGE, len(GARBAGE))
        return self.close(c, False, 0)

    cdef int ahead(self, Connection* c, uint8_t* data, size_t size) except -1:
        if c.state == CONNECTION_LINGERING:
            return 0
        if c.read_size + size > AHEAD:
            return self.close(c, False, TRUTH_ABORTED)
        if c.read_size:
            c.read_size += size                     # it was read in place
            return 0
        return self.connections.keep(c, data, size)

    cdef int consume(self, Connection* c, uint8_t* data, size_t size) except -1:
        # *data* is the shared buffer or c.read; requests are served out of it until one is incomplete or a reply is due.
        cdef uint32_t generation = c.generation
        cdef size_t used
        c.read_size = 0
        while size and c.state == CONNECTION_READING:
            if c.need > size:
                break
            used = self.take(c, data, size)
            if c.generation != generation:
                return 0
            if used == STUCK:
                break
            c.seen = c.need = 0
            c.chunked_body = c.continued = False
            data += used
            size -= used
        return self.connections.keep(c, data, size)

    cdef size_t take(self, Connection* c, uint8_t* data, size_t size) except? 0:
        """Serves one request; bytes that it used, or STUCK when it is not complete."""
        cdef Request r
        if c.messages:
            return self.take_frame(c, data, size)
        cdef size_t head = c.seen if c.need or c.chunked_body else 0
        cdef int step
        if head == 0 and (data[0] == c'\r' or data[0] == c'\n'):
            return 1                                        # empty lines before a request line (RFC 9112 2.2)
        if head == 0:
            head = request_head_size(data, size, c.seen)
        if head == 0 or head > HEAD_LIMIT:
            return self.headless(c, data, size)
        request_read(&r, data, head)
        if r.refusal:
            self.refuse(c, r.refusal, "BadRequestError", "the request cannot be served as it is framed", True)
            return size
        if r.chunked:
            if not c.chunked_body:
                unchunk_begin(&c.unchunk, head)
                c.chunked_body = True
            step = unchunk(&c.unchunk, data, size, head)
            if step > 1:
                self.refuse(c, step, "BadRequestError", "the chunked body cannot be read", True)
                return size
            if step == 0:
                return self.incomplete(c, &r, head, 0)
            self.serve(c, &r, data + head, c.unchunk.write_at - head)
            return c.unchunk.read_at
        if size < head + r.length:
            return self.incomplete(c, &r, head, head + <size_t>r.length)
        self.serve(c, &r, data + head, <size_t>r.length)
        return head + <size_t>r.length

    # -- WebSocket ----------------------------------------------------------------------------------------------------

    cdef int upgrade(self, Connection* c, Request* r, int number) except -1:
        c.messages = <uint16_t>(1 + number)
        c.upgrade_fault_size = <uint8_t>min(r.fault.size, <size_t>UPGRADE_FAULT)
        memcpy(c.upgrade_fault, r.fault.at, c.upgrade_fault_size)
        return self.say(c, accepted(r), False)

    cdef int say(self, Connection* c, bytes frame, bint close) except -1:
        if self.connections.send(c, <const uint8_t*><const char*>frame, <size_t>len(frame)) == SENT_FAILED or close:
            return self.close(c, False, 0)
        return 0

    cdef size_t take_frame(self, Connection* c, uint8_t* data, size_t size) except? 0:
        cdef ClientFrame f
        cdef Request r
        cdef ClientStep step = client_frame(&f, data, size)
        if step == CLIENT_NEED:
            c.need = f.whole
            return STUCK
        if step == CLIENT_BAD:
            self.say(c, close_of(1002), True)
            return size
        if f.opcode == 8:
            self.say(c, frame_of(8, (<char*>f.at)[: f.size]), True)
        elif f.opcode == 9:
            self.say(c, frame_of(10, (<char*>f.at)[: f.size]), False)
        elif f.opcode == 1:
            client_names(&r, f.at, f.size)
            r.fault.at, r.fault.size = <const uint8_t*>c.upgrade_fault, c.upgrade_fault_size
            self.open_row(c, &r)
            c.reply.form = <uint16_t>(c.messages - 1)
            self.generate(c, &r, c.messages - 1, f.at, f.size)
        return f.whole

    cdef size_t headless(self, Connection* c, uint8_t* data, size_t size) except? 0:
        if size > HEAD_LIMIT:
            self.refuse(c, 431, "BadRequestError", f"the request head is above {HEAD_LIMIT} bytes", True)
            return size
        if request_hopeless(data, size):
            self.refuse(c, 400, "BadRequestError", "this is not an HTTP request", True)
            return size
        c.seen = size
        return STUCK

    cdef size_t incomplete(self, Connection* c, Request* r, size_t head, size_t need) except? 0:
        c.seen = head
        c.need = need
        if r.expects and not c.continued:
            c.continued = True
            self.connections.send(c, b"HTTP/1.1 100 Continue\r\n\r\n", 25)
        return STUCK

    cdef int serve(self, Connection* c, Request* r, const uint8_t* body, size_t size) except -1:
        cdef int number = self.intake.route(r.target)
        cdef bint post = r.method.size == 4 and same(r.method, b"post", 4)
        if number >= 0 and r.websocket_key.size and not post and self.intake.socket(number) >= 0 and (
                self.bearer is None or self.admitted(r)):
            return self.upgrade(c, r, self.intake.socket(number))
        self.open_row(c, r)
        c.reply.form = <uint16_t>(number if number >= 0 else self.intake.relative(r))
        if self.bearer is not None and not self.admitted(r):
            return self.refuse(c, 401, "AuthenticationError", "the API key is missing or wrong", False)
        if number < 0:
            return self.answer_page(c, r, (<char*>r.target.at)[: r.target.size].decode("latin-1"), (<char*>body)[:size])
        if self.intake.routes[number].calls and c.carrier == NULL:
            c.reply.form = 0
            return self.refuse(c, 505, "BadRequestError", "gRPC needs HTTP/2", False)
        if not post:
            return self.refuse(c, 405, "MethodNotAllowed", "completions are asked for with POST", False)
        return self.generate(c, r, number, body, size)

    cdef int open_row(self, Connection* c, Request* r) except -1:
        self.requests += 1
        memset(&c.reply, 0, sizeof(c.reply))
        c.reply.close_after = not r.keep_alive
        c.sequence.serial = self.serial
        c.sequence.prompt_tokens = c.sequence.output_tokens = c.sequence.produced = 0
        c.sequence.preemptions = c.sequence.cached_tokens = c.sequence.computed = c.sequence.scheduled = 0
        c.sequence.made = 0
        c.sequence.t_admitted = c.sequence.t_first = c.sequence.due = 0
        c.sequence.t_arrival = self.arrival
        c.sequence.delivered = c.sequence.whole = False
        c.sequence.hash_count = 0
        self.serial += 1
        memset(&c.truth, 0, sizeof(c.truth))
        c.truth.serial = c.sequence.serial
        c.truth.call_status = -1
        c.truth.key, c.truth.phase, c.truth.connection = r.key, r.phase, c.number
        c.truth.t_accept, c.truth.t_tls = c.t_accept, c.t_tls
        c.truth.t_recv_first, c.truth.t_recv_first_kernel = c.recv_first, c.recv_first_kernel
        c.truth.t_recv_last, c.truth.t_recv_last_kernel = c.recv_last, c.recv_last_kernel
        return 0

    cdef bint admitted(self, Request* r) except? False:
        if same(r.target, b"/health", 7) or same(r.target, b"/metrics", 8):
            return True
        key = (<char*>r.api_key.at)[: r.api_key.size]
        return (<char*>r.authorization.at)[: r.authorization.size] == self.bearer or b"Bearer " + key == self.bearer

    cdef int generate(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except -1:
        cdef Outcome outcome
        cdef bytes said = b""
        cdef bint read
        if self.asleep:
            return self.refuse(c, 503, "EngineAsleep", "the engine is asleep", False)
        if self.visits is not None:
            note, said = self.visits((<char*>r.method.at)[: r.head_size] if r.head_size else b"", (<char*>body)[:size])
            self.truth.note(c.sequence.serial, note)
            if said is None:
                return self.refuse(c, 409, "ConflictError", "the token is not the latest of its session", False)
        read = self.intake.read(c, r, number, body, size)
        c.reply.said_size = <uint8_t>len(said)
        memcpy(c.reply.said, <const char*>said, c.reply.said_size)
        if not read:
            status, why, message = self.intake.refusal
            if status == 200:                       # a model is loaded: nothing is generated
                return self.give_page(c, status, why, message.encode())
            return self.refuse(c, status, why, message, False)
        c.reply.stamp.created = time(NULL)
        c.state = CONNECTION_BUSY
        outcome = self.responder.begin(c, self.arrival)
        if outcome != GOING:
            return self.settle(c, outcome)
        if c.out_due:
            self.settle(c, GOING)
        c.reply.load_ns = mono_ns() - c.sequence.t_arrival
        return self.cadence.submit(&c.sequence, self.arrival)

    cdef int answer_page(self, Connection* c, Request* r, str path, bytes body) except -1:
        called = (<char*>r.method.at)[: r.method.size].decode("latin-1")
        answer = None if self.controls is None else self.controls(called, path, self)
        if answer is not None:
            self.truth.call(mono_ns(), answer[0], f"{called} {path}".encode("latin-1"))
            return self.give_page(c, answer[0], "application/json", answer[1])
        page = self.pages(path, self.counters, body)
        if page is None:
            called = (<Form>self.intake.forms[c.reply.form]).calls and c.carrier != NULL
            return self.refuse(c, 501 if called else 404, "NotFoundError", f"there is no {path} here", False)
        method, content_type, text = page
        if not (same(r.method, b"post", 4) if method == "POST" else same(r.method, b"get", 3)):
            return self.refuse(c, 405, "MethodNotAllowed", f"{path} is asked for with {method}", False)
        return self.give_page(c, 200, content_type, text)

    cdef int give_page(self, Connection* c, int status, str content_type, bytes body) except -1:
        c.truth.status = status
        c.state = CONNECTION_BUSY
        c.reply.page = True
        if content_type == "application/grpc" and c.carrier != NULL:
            self.responder.set_trailers(c, CALL_OK, 0)
            return self.settle(c, self.responder.page(c, CALL_HEAD, body))
        return self.settle(c, self.responder.page(c, page_head(status, content_type, len(body)), body))

    cdef int refuse(self, Connection* c, int status, str kind, str message, bint close) except -1:
        self.refused += 1
        if (<Form>self.intake.forms[c.reply.form]).calls and c.carrier != NULL:
            c.state = CONNECTION_BUSY
            return self.settle(c, self.responder.refuse_call(c, status, message))
        body = (<Form>self.intake.forms[c.reply.form]).error(status, kind, message)
        if c.state == CONNECTION_READING and close:
            memset(&c.reply, 0, sizeof(c.reply))
        head = page_head(status, "application/json", len(body), "connection: close\r\n" if close else "")
        c.truth.status = status
        if not close:
            c.state = CONNECTION_BUSY
            return self.settle(c, self.responder.page(c, head, body))
        if self.responder.page(c, head, body) == LOST:
            return self.close(c, False, 0)
        # The client may still be sending: closing now would reset the connection before it reads why.
        self.connections.say_end(c)
        shutdown(c.fd, SHUT_WR)
        c.state = CONNECTION_LINGERING
        return self.set_timer(c, mono_ns() + LINGER_NS, LINGER_END)
