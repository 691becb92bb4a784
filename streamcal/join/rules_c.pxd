# The types with which rules_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.join cimport id_table_c
from streamcal.join.id_table_c cimport hashed

cdef long long _SURE, _FEWEST
cdef double _GAPS
cdef unsigned char _FREE, _WAITS, _COMES, _EXPIRED, _LABELLED, _DOMAIN, _HELD
cdef Py_ssize_t _WAITING, _ENDED, _EARLY, _REAL, _PAIR, _SIZE_BITS
cdef unsigned long long _ROW
cdef int _DONE, _MATURE, _REJECT
cdef double _NEVER, _FOREVER, _NONE


cdef class Clock:
    cdef public double tolerance, now, ahead, gap, far, near
    cdef public long long votes, seen, doubted, decided, wrong

    @cython.locals(limit=double)
    cpdef bint move(self, double time) noexcept
    @cython.locals(step=double)
    cdef void _step(self, double time, double limit) noexcept
    @cython.locals(view="double[::1]", index=Py_ssize_t, time=double)
    cpdef believed(self, times)


cdef class JoinRules(id_table_c.IdTable):
    cdef public bint keeps_answers, matures, again
    cdef public Clock clock
    cdef public long long answer_size
    cdef public object config
    cdef object _outcomes
    cdef long long _expired, _predictions, _labels, _joined
    cdef unsigned long long _hash
    cdef unsigned long long[::1] _hashes, _near
    cdef Py_ssize_t _first
    cdef double _read
    cdef double _ttl, _wait, _start, _watermark, _due, _next_look
    cdef long long _most
    cdef bint _looks, _begun

    @cython.locals(before=double)
    cpdef bint move(self, double time) except -1
    @cython.locals(row=Py_ssize_t)
    cdef int _go_back(self) except -1
    cdef void _look(self) noexcept
    @cython.locals(since=double, time=double)
    cdef double _end(self, Py_ssize_t row, double ttl) except? -1
    cpdef double end_of(self, double since, double ttl) noexcept
    @cython.locals(row=Py_ssize_t)
    cpdef int expire_rows(self) except -1
    @cython.locals(row=Py_ssize_t)
    cdef bint _is_due(self, Py_ssize_t queue, double ttl) except -1
    cdef int _expire_oldest(self) except -1
    cpdef admit(self, event, origin_of=*)
    @cython.locals(row=Py_ssize_t)
    cpdef hold(self, event, double probability, long long prediction_index, answer=*, memo=*)
    @cython.locals(row=Py_ssize_t)
    cpdef match(self, event, origin_of=*, bint is_new=*)
    @cython.locals(data=bytes)
    cpdef Py_ssize_t add(self, str id_) except -1
    cpdef int hold_row(
        self, Py_ssize_t row, double score, double probability, double time, long long prediction_index,
        bint is_target, Py_ssize_t code, answer, weight, memo
    ) except -1
    cpdef meet(self, Py_ssize_t row, int label, time, weight)
    cpdef int settle(self, Py_ssize_t row, int state) except -1
    @cython.locals(real=Py_ssize_t, predicted_at=double)
    cpdef joined(self, Py_ssize_t row, int label, time, weight, matured_at)
    cdef void _stamp(self, Py_ssize_t row) noexcept
    @cython.locals(read=double, i=Py_ssize_t, row=Py_ssize_t, text=cython.p_uchar)
    cdef int look_ahead(
        self, const unsigned char* data, const long long[::1] starts, const long long[::1] sizes, Py_ssize_t at, Py_ssize_t end
    ) except -1
    cdef Py_ssize_t row_of(self, const unsigned char* data, Py_ssize_t at, Py_ssize_t start, Py_ssize_t size) noexcept
    cdef Py_ssize_t new_row(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t size) except -1
    cdef bint waits_plainly(self, Py_ssize_t row, bint is_target) noexcept
    cdef double weight_of(self, Py_ssize_t row) except -1.0
    cpdef weigh(self, Py_ssize_t row, double weight)
    cdef memo_of(self, Py_ssize_t row)
