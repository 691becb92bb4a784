# The types with which delay_laws_c.py is compiled; see docs/architecture.md.
cimport cython
from libc cimport math

cdef const double[::1] _EDGES
cdef double[:, ::1] _NO_SUMS, _NO_LAWS
cdef double[::1] _NO_HISTOGRAM
cdef double _MEMORY, _SHARES, _LEAST, _TAIL, _ON, _OFF, _WIDE, _VARIANCE, _THREE_QUARTERS, _NO_TIME, _NEVER, _MOST
cdef int _COHORT, _BINS, _BANDS, _ZERO, _EVERY, _N, _R, _U, _V, _M, _A, _S, _ROWS
cdef int _ROUNDS, _LOCAL, _BEFORE, _NEAR
cdef double _PSEUDO, _SMOOTH, _ENOUGH, _REACH, _MATURE, _RECENT, _FACTOR, _ERRORS, _PENDING, _COMPLETE, _TELLING, _HARDLY, _DIFFERENT, _SURE


cdef class DelayLaws:
    cdef public long long n, k
    cdef public double now, origin, spacing, z, power, never, p, full, most
    cdef public bint by_time, on, known, drawn
    cdef public int late
    cdef public int _first, _low, _high
    cdef public double _earlier, _before, _latest
    cdef double[:, ::1] _sums, _laws
    cdef double[::1] _histogram
    cdef public object cohorts
    cdef long long[:] _start, _size
    cdef double[:] _time
    cdef long long[:, :] told, released
    cdef int[:] _next, mark
    cdef double[:, :] expected
    cdef int[:, :, :] _risk, _open

    @cython.locals(i=Py_ssize_t)
    cpdef begin(self)
    cpdef long long remaining(self) noexcept
    cpdef ask(self)
    cpdef long long asked(self) except -1
    @cython.locals(before="long long", span="long long")
    cpdef long long rank(self, long long index, Py_ssize_t i) except -1
    @cython.locals(ends=bint)
    cpdef bint predict_many(self, long long count) except -1
    cpdef bint predict(self, double time) except -1
    @cython.locals(i=Py_ssize_t, j=Py_ssize_t, before=double, time=double, closed_any=bint)
    cpdef close(self)
    @cython.locals(last=int)
    cpdef int bin_of(self, double delay) noexcept
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t place(self, long long index) noexcept
    @cython.locals(low=Py_ssize_t)
    cpdef Py_ssize_t find(self, long long index) noexcept
    @cython.locals(octave=int, band=int, delay=double)
    cpdef label(self, Py_ssize_t i, double score, int label, double time)
    cdef void _age(self, Py_ssize_t i, double age) noexcept
    @cython.locals(
        j=int, band=int, a0=int, a1=int, b0=int, b1=int, n0=double, n1=double, r0=double, r1=double, u=double, v=double,
        come=double, all_=double, share=double, size=double, sums="double[:, ::1]", kept0=double, kept1=double,
        kept=double,
    )
    cdef void _cross(self, Py_ssize_t i) noexcept
    @cython.locals(i=Py_ssize_t, j=Py_ssize_t, before=double, width=double, age=double, alike=bint, old=double)
    cpdef _merge(self)
    @cython.locals(j=int)
    cdef double _old(self) noexcept
    cpdef _move(self, Py_ssize_t j, Py_ssize_t i)
    cpdef _join(self, Py_ssize_t j, Py_ssize_t i)
    @cython.locals(sums="double[:, ::1]", laws="double[:, ::1]", u=double, v=double, last=int, j=int, z=double, y=int, share=double)
    cpdef fit(self)
    @cython.locals(
        sums="double[:, ::1]", laws="double[:, ::1]", pending=double, rest0=double, rest1=double, rest=double,
        part=double, told0=double, told1=double, full0=double, full1=double, j=int,
    )
    cdef void _extend(self, int last) noexcept
    @cython.locals(sums="double[:, ::1]", first=double, second=double, before=double, latest=double, falls=double, more=double, told=double)
    cdef double _rest(self, int y, int last) noexcept
    @cython.locals(j=int, part=double)
    cdef double _law(self, int y, double place) noexcept
    cpdef double law(self, int y, double age) noexcept
    cpdef double usual(self, double share, int first=*, int last=*) except -1.0


@cython.locals(least=double, time=double)
cdef double _median(double first, double second, double third) noexcept


@cython.locals(
    k=Py_ssize_t, now=double, p=double, never=double, ages="double[::1]", law0="double[::1]", law1="double[::1]",
    pending="double[::1]", all0="double[::1]", all1="double[::1]", lows="double[:, ::1]", highs="double[:, ::1]", due0=double, due1=double, least=double, complete=double, i=Py_ssize_t,
    age=double, missing=double, unlabelled=double, mature0=double, mature1=double, recent=double, told0=double,
    told1=double, wait=double, j=Py_ssize_t, rate=double, share=double, step=int, late0=double, late1=double, y=int,
    part=double, first=Py_ssize_t, last=Py_ssize_t, told=double, total=double, size=double, expected=double,
    down=bint, up=bint, low=double, high=double, most=double, below=double,
)
cpdef double completeness(DelayLaws laws, Py_ssize_t start, double[:, ::1] out) except -1.0
@cython.locals(told=double, ratio=double)
cdef bint _mixed(double told0, double told1, double law0, double law1, double low, double high) noexcept
@cython.locals(
    told0=double, told1=double, wait=double, j=Py_ssize_t, never=double, late0=double, late1=double, all_=double,
    label=int, other=double, allowed=double, total=double, expected=double, off=double,
)
cdef double _rest(
    DelayLaws laws, Py_ssize_t k, Py_ssize_t i, double law0, double law1, double reach, double prior
) noexcept
