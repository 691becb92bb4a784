# The types with which clock_c.py is compiled; see docs/architecture.md.
cimport cython

cdef long long _SURE, _FEWEST
cdef double _NEVER, _FOREVER, _GAPS


cdef class Clock:
    cdef public double tolerance, now, ahead, gap, far, near
    cdef public long long votes, seen, doubted, decided, wrong

    @cython.locals(limit=double)
    cpdef bint move(self, double time) noexcept
    @cython.locals(step=double)
    cdef void _step(self, double time, double limit) noexcept
    @cython.locals(view="double[::1]", index=Py_ssize_t, time=double)
    cpdef believed(self, times)
