# The types with which clock_c.py is compiled; see docs/architecture.md.
cimport cython

cdef long long _SURE, _FEWEST
cdef double _NEVER, _FOREVER


cdef class Clock:
    cdef public double tolerance, now, ahead
    cdef public long long votes

    cpdef bint move(self, double time) noexcept
    @cython.locals(view="double[::1]", index=Py_ssize_t, time=double)
    cpdef believed(self, times)
