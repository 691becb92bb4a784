# The types with which rules_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.join cimport id_table_c

cdef unsigned char _FREE, _WAITS, _COMES, _EXPIRED, _LABELLED, _DOMAIN, _LINKED, _HELD
cdef Py_ssize_t _WAITING, _ENDED, _EARLY, _REAL, _PAIR, _COUNT, _LATER
cdef int _DONE, _FLUSH, _MATURE, _REJECT, _END, _EVENT, _DUE, _EXPIRES, _ASKS
cdef double _NEVER, _FOREVER, _NONE


cdef class JoinRules(id_table_c.IdTable):
    cdef public bint keeps, keeps_answers, matures
    cdef public long long expired, unflushed, portion
    cdef public Py_ssize_t predictions, joins, at, asked
    cdef double _ttl, _wait, _now, _start, _watermark, _due, _next_look
    cdef long long _most
    cdef bint _looks, _begun

    cpdef bint move(self, double time) noexcept
    cpdef double end_of(self, double since, double ttl) noexcept
    @cython.locals(row=Py_ssize_t)
    cpdef int expire(self) except -1
    @cython.locals(row=Py_ssize_t, end=double)
    cdef bint _is_due(self, Py_ssize_t queue, double ttl) except -1
    cdef int _expire_oldest(self) except -1
    @cython.locals(data=bytes, found=cython.ulonglong, row=Py_ssize_t, real=Py_ssize_t)
    cpdef hold(
        self, str id_, double score, double probability, time, long long seen, str domain, key, held
    )
    cpdef meet(self, Py_ssize_t row, int label, time, weight)
    @cython.locals(data=bytes, row=Py_ssize_t)
    cpdef wait_early(self, event)
    cpdef int settle(self, Py_ssize_t row, int state) except -1
    @cython.locals(real=Py_ssize_t, predicted_at=double)
    cpdef joined(self, Py_ssize_t row, int label, time, weight, matured_at)
    cdef int _begin_wait(self, Py_ssize_t row) except -1
    @cython.locals(
        ids=cython.p_uchar, found=cython.ulonglong, predictions=Py_ssize_t, joins=Py_ssize_t, why=int, time=double, score=double, label=int,
        size=Py_ssize_t, row=Py_ssize_t, code=Py_ssize_t, first=Py_ssize_t,
    )
    cpdef int take(
        self, Py_ssize_t at, Py_ssize_t end, bytes data, const long long[::1] starts, const long long[::1] sizes, const double[::1] scores,
        const signed char[::1] labels, const double[::1] times, const unsigned char[::1] odd, const int[::1] codes,
        int domain, long long[::1] limits, long long[:, ::1] whole, double[:, ::1] real
    ) except -1
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t)
    cpdef answer(self, const long long[::1] rows, const double[::1] probabilities, const long long[::1] seen)
