# The types with which steps_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.sketch cimport keys_c

@cython.final
cdef class StepFunction:
    cdef double[::1] _edges
    cdef double[::1] _values
    cdef int[::1] _guide
    cdef Py_ssize_t _last
    cdef int _shift
    cdef long long _first, _without

    @cython.locals(left="long long")
    cdef int _count(self, Py_ssize_t scores) except -1
    @cython.locals(last=Py_ssize_t, slot=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t bin_of(self, double score) noexcept
    cpdef double one(self, double score)
    @cython.locals(i=Py_ssize_t, values=cython.double[::1])
    cpdef apply(self, const double[::1] scores, tuple weights, double[::1] out)
