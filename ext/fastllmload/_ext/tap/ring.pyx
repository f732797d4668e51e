"""A packet ring (AF_PACKET, TPACKET_V3) that keeps the headers of a run's TCP segments, and its reader.

The kernel stamps every frame when it takes it in and copies its headers into a ring of blocks that is mapped into the
reader, which is woken when a block is full or *RETIRE_MS* old. So the time of a segment depends on no process of ours: not
on the worker, which may read it late, nor on the reader, which may be late by as much as the ring holds. The ring's pages
are the kernel's own and are never swapped.

Stamps are CLOCK_REALTIME. Its distance from CLOCK_MONOTONIC changes only when the wall clock is set (both are slewed
alike), so it is sampled once per block; frames around a change are marked, and have no time.

Over the loopback interface every frame goes out and comes in. A ring on that interface alone (*looped*) takes it as it comes
in, in both directions, and the kernel makes no copy of what goes out, nor inspects other interfaces' traffic for it.

A ring that is full loses frames. The kernel counts them; each count is written with the time since the one before it, so
the code that joins segments to events knows where some may be missing.
"""

import errno
import os
import socket

from libc.errno cimport EINTR, errno as c_errno
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastllmload._ext.bytes.cursor cimport Cursor, over
from fastllmload._ext.system.clock cimport mono_ns, real_minus_mono
from fastllmload._ext.tap.segment cimport (
    FRAME_BAD, FRAME_CUT, FRAME_OTHER, FRAME_SEGMENT, SEG_LOST, SEG_SENT, SEG_UNSURE, FrameKind, Packet, frame_read,
)

cdef extern from *:
    """
    #include <linux/if_packet.h>
    #include <linux/filter.h>
    #include <linux/if_ether.h>
    #include <arpa/inet.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/mman.h>
    #include <poll.h>
    #include <unistd.h>

    static int fll_ring(int fd, unsigned block_size, unsigned blocks, unsigned frame, unsigned retire_ms) {
        struct tpacket_req3 ask;
        memset(&ask, 0, sizeof(ask));
        ask.tp_block_size = block_size;
        ask.tp_block_nr = blocks;
        ask.tp_frame_size = frame;
        ask.tp_frame_nr = block_size / frame * blocks;
        ask.tp_retire_blk_tov = retire_ms;
        return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ask, sizeof(ask));
    }

    static int fll_filter(int fd, const void *program, unsigned short size) {
        struct sock_fprog p;
        p.len = size;
        p.filter = (struct sock_filter *)program;
        return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p));
    }

    /* From now on, from every interface or the one with a number: this is what starts the ring. */
    static int fll_bind(int fd, int interface) {
        struct sockaddr_ll all;
        memset(&all, 0, sizeof(all));
        all.sll_family = AF_PACKET;
        all.sll_protocol = htons(ETH_P_ALL);
        all.sll_ifindex = interface;
        return bind(fd, (struct sockaddr *)&all, sizeof(all));
    }

    #ifndef PACKET_IGNORE_OUTGOING
    #define PACKET_IGNORE_OUTGOING 23
    #endif
    static int fll_only_incoming(int fd) {
        int yes = 1;
        return setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes));
    }

    /* Both counts begin again at 0 when they are read. */
    static int fll_lost(int fd, unsigned *drops, unsigned *freezes) {
        struct tpacket_stats_v3 counts;
        socklen_t size = sizeof(counts);
        if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &counts, &size)) return -1;
        *drops = counts.tp_drops;
        *freezes = counts.tp_freeze_q_cnt;
        return 0;
    }

    static int fll_filled(void *block) {
        struct tpacket_block_desc *b = block;
        return (__atomic_load_n(&b->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) != 0;
    }

    static void fll_empty(void *block) {
        struct tpacket_block_desc *b = block;
        __atomic_store_n(&b->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    }

    static unsigned fll_frames(void *block, unsigned *first) {
        struct tpacket_block_desc *b = block;
        *first = b->hdr.bh1.offset_to_first_pkt;
        return b->hdr.bh1.num_pkts;
    }

    struct fll_frame { int64_t real_ns; unsigned next, kept, size, at; unsigned char type; };

    static void fll_frame(void *frame, struct fll_frame *f) {
        struct tpacket3_hdr *h = frame;
        struct sockaddr_ll *from = (struct sockaddr_ll *)((char *)frame + TPACKET_ALIGN(sizeof(*h)));
        f->real_ns = (int64_t)h->tp_sec * 1000000000 + h->tp_nsec;
        f->next = h->tp_next_offset;
        f->kept = h->tp_snaplen;
        f->size = h->tp_len;
        f->at = h->tp_net;
        f->type = from->sll_pkttype;
    }

    static int fll_wait(int fd, int other, int ms) {
        struct pollfd both[2] = { { fd, POLLIN | POLLERR, 0 }, { other, POLLIN | POLLHUP, 0 } };
        int n = poll(both, 2, ms);
        return n <= 0 ? 0 : (both[1].revents ? 2 : 1);
    }
    """
    ctypedef struct fll_frame_t "struct fll_frame":
        int64_t real_ns
        unsigned int next, kept, size, at
        unsigned char type
    int fll_ring(int fd, unsigned int block_size, unsigned int blocks, unsigned int frame, unsigned int retire_ms) nogil
    int fll_filter(int fd, const void* program, unsigned short size) nogil
    int fll_lost(int fd, unsigned int* drops, unsigned int* freezes) nogil
    int fll_bind(int fd, int interface) nogil
    int fll_only_incoming(int fd) nogil
    bint fll_filled(void* block) nogil
    void fll_empty(void* block) nogil
    unsigned int fll_frames(void* block, unsigned int* first) nogil
    void fll_frame(void* frame, fll_frame_t* f) nogil
    int fll_wait(int fd, int other, int ms) nogil
    int PROT_READ, PROT_WRITE, MAP_SHARED, PACKET_OUTGOING
    void* MAP_FAILED
    void* mmap(void* at, size_t size, int protection, int flags, int fd, long long offset) nogil
    int munmap(void* at, size_t size) nogil
    Py_ssize_t write_ "write"(int fd, const void* data, size_t size) nogil

cdef enum:
    FRAME = 2048                # the kernel's unit; frames of a block lie close, whatever it is
    FRAME_HEAD = 68             # what the kernel puts before it
    LEAST_BLOCKS = 32
    RETIRE_MS = 25
    STEP_NS = 50_000            # an offset that differs by more is read again: a step, or a disturbed reading

RETIRE_S = RETIRE_MS / 1000
BLOCKS = 256                    # of a ring of any size: a reader may be late by that many RETIRE_MS at a low rate


cdef class Ring:
    """*fd*: of the packet socket, which the ring owns from now on. *watched*: (address, port) of remote sides, in the
    order of their numbers. *looped*: as it was opened.
    """

    def __cinit__(self):
        self.fd = -1

    def __init__(self, int fd, int block_size, int blocks, watched, *, bint looped=False):
        self.fd = fd
        self.looped = looped
        self.block_size = block_size
        self.blocks = blocks
        self.peers = Peers()
        self.locals = Peers()
        for address, port in watched:
            self.peers.watch(address, port)
        self.offset = real_minus_mono()
        self.now = self.counted = mono_ns()

    def __dealloc__(self):
        self.close()

    @classmethod
    def open(cls, bytes program not None, int size, watched, *, int loopback=0):
        """A ring of about *size* bytes that keeps what the classic BPF *program* lets through: of all interfaces, or of what
        comes in at the *loopback* interface with this number.

        PermissionError without CAP_NET_RAW; any other OSError where this kernel has no such ring (ENOPROTOOPT: none without
        what goes out). With less memory than asked for it is smaller.
        """
        cdef const unsigned char[::1] code = program
        cdef int block = max(16 * FRAME, size // BLOCKS // 4096 * 4096)
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)      # protocol 0: nothing comes before bind()
        try:
            opened.setsockopt(263, 10, 2)                                   # SOL_PACKET, PACKET_VERSION, TPACKET_V3
            if fll_filter(opened.fileno(), &code[0], <unsigned short>(len(program) // 8)):
                raise OSError(c_errno, f"the kernel refuses the packet filter: {os.strerror(c_errno)}")
            blocks = BLOCKS
            while fll_ring(opened.fileno(), block, blocks, FRAME, RETIRE_MS):
                if c_errno != errno.ENOMEM or blocks <= LEAST_BLOCKS:
                    raise OSError(c_errno, f"no packet ring of {blocks * block} bytes: {os.strerror(c_errno)}")
                blocks //= 2
            if loopback and fll_only_incoming(opened.fileno()):
                raise OSError(c_errno, f"the packet socket takes what goes out too: {os.strerror(c_errno)}")
            if fll_bind(opened.fileno(), loopback):
                raise OSError(c_errno, f"the packet socket cannot be bound: {os.strerror(c_errno)}")
        except BaseException:
            opened.close()
            raise
        return cls(opened.detach(), block, blocks, watched, looped=loopback != 0)

    @property
    def size(self) -> int:
        """Bytes of the ring."""
        return self.block_size * self.blocks

    @property
    def block_bytes(self) -> int:
        return self.block_size

    @property
    def block_count(self) -> int:
        return self.blocks

    def fileno(self) -> int:
        return self.fd

    def frames(self) -> dict[str, int]:
        """Frames that were not segments, by what they were."""
        return {"other": self.kinds[<int>FRAME_OTHER], "cut": self.kinds[<int>FRAME_CUT], "bad": self.kinds[<int>FRAME_BAD]}

    def attach(self, int out) -> None:
        """Map the ring, to read it into the file *out*."""
        cdef void* at
        self.held = <Segment*>malloc(HELD * sizeof(Segment))
        if self.held == NULL:
            raise MemoryError()
        at = mmap(NULL, <size_t>self.block_size * self.blocks, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if at == MAP_FAILED:
            raise OSError(c_errno, f"cannot map the packet ring: {os.strerror(c_errno)}")
        self.base = <uint8_t*>at
        self.mapped = <size_t>self.block_size * self.blocks
        self.out = out

    def read(self, int ms, int until) -> bool:
        """Wait up to *ms* (-1: for ever) for blocks or for the descriptor *until* to be ready; read every block that is
        there, count what was lost, write. True when *until* is ready.
        """
        cdef uint8_t* at
        cdef int ready
        if self.base == NULL:
            raise ValueError("attach() comes first")
        with nogil:
            ready = fll_wait(self.fd, until, ms)
        while True:
            at = self.base + <size_t>self.next * self.block_size
            if not fll_filled(at):
                break
            self.block(at)
            fll_empty(at)
            self.next = (self.next + 1) % self.blocks
        self.count_lost()
        self.flush()
        return ready == 2

    def count_lost(self) -> None:
        """Ask the kernel what the ring lost; a mark with the time in question goes to the file."""
        cdef unsigned int drops = 0, freezes = 0
        cdef int64_t now = mono_ns()
        cdef Segment mark
        if fll_lost(self.fd, &drops, &freezes):
            raise OSError(c_errno, f"the packet ring does not say what it lost: {os.strerror(c_errno)}")
        if drops:
            memset(&mark, 0, sizeof(mark))
            mark.t_ns = now
            mark.seq = drops
            mark.length = <uint32_t>min((now - self.counted) // 1000 + 1, <int64_t>0xFFFFFFFF)
            mark.flags = SEG_LOST
            self.put(&mark)
        self.drops += drops
        self.freezes += freezes
        self.counted = now

    cdef int clock(self) noexcept:
        cdef int64_t step = real_minus_mono() - self.offset
        self.now = mono_ns()
        if -STEP_NS < step < STEP_NS:
            return 0
        step = real_minus_mono() - self.offset      # the first reading may have been interrupted between its clocks
        if -STEP_NS < step < STEP_NS:
            return 0
        self.steps += 1
        self.offset += step
        # A frame from before is now mapped to a time that is wrong by the step: before this instant, or (set back by more
        # than a second) in the future.
        self.sure_from = self.now + min(abs(step), <int64_t>1_000_000_000)
        return 0

    cdef int block(self, uint8_t* at) except -1:
        """Every frame of a filled block, whose fields are the kernel's: they are not believed beyond the block."""
        cdef unsigned int place = 0, number, frames = fll_frames(at, &place)
        cdef fll_frame_t f
        self.clock()
        for number in range(frames):
            if place + FRAME_HEAD > self.block_size:
                break
            fll_frame(at + place, &f)
            if place + f.at + f.kept > self.block_size:
                break
            self.frame(at + place)
            if f.next == 0:
                break
            place += f.next
        return 0

    cdef int frame(self, uint8_t* at) except -1:
        cdef fll_frame_t f
        cdef Cursor c
        cdef Packet p
        cdef Segment s
        cdef FrameKind kind
        cdef int remote, own
        fll_frame(at, &f)
        over(&c, at + f.at, f.kept)
        kind = frame_read(&c, f.size, &p)
        self.kinds[<int>kind] += 1
        if kind != FRAME_SEGMENT:
            return 0
        memset(&s, 0, sizeof(s))
        remote = -1 if f.type == PACKET_OUTGOING else self.peers.number(p.family, p.source, p.source_port)
        if remote >= 0:
            own = self.locals.add(p.family, p.target, 0)
            s.port = p.target_port
        else:
            if f.type == PACKET_OUTGOING or self.looped:
                remote = self.peers.number(p.family, p.target, p.target_port)
            own = self.locals.add(p.family, p.source, 0) if remote >= 0 else 0
            s.port = p.source_port
            s.flags = SEG_SENT
        if remote < 0 or own < 0:
            self.foreign += 1
            return 0
        s.t_ns = f.real_ns - self.offset
        s.seq = p.seq
        s.length = p.length
        s.remote = <uint16_t>remote
        s.local = <uint16_t>own
        s.flags |= p.flags
        if self.sure_from and (s.t_ns < self.sure_from or s.t_ns > self.now):
            s.flags |= SEG_UNSURE
        self.segments += 1
        self.payload += p.length
        return self.put(&s)

    cdef int put(self, Segment* segment) except -1:
        if self.holding == HELD:
            self.flush()
        self.held[self.holding] = segment[0]
        self.holding += 1
        return 0

    def flush(self) -> None:
        """Write what is held. A disk that is full ends the file; what follows is counted."""
        cdef const char* at = <const char*>self.held
        cdef size_t rest = self.holding * sizeof(Segment)
        cdef Py_ssize_t written
        while rest and not self.error_number:
            written = write_(self.out, at, rest)
            if written < 0 and c_errno == EINTR:
                continue
            if written <= 0:
                self.error_number = c_errno or errno.EIO
                break
            at += written
            rest -= <size_t>written
        self.unwritten += (rest + sizeof(Segment) - 1) // sizeof(Segment)
        self.holding = 0

    def close(self) -> None:
        """Give the ring back. What is in it is lost: read() comes first."""
        if self.base != NULL:
            munmap(self.base, self.mapped)
            self.base = NULL
        free(self.held)
        self.held = NULL
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
