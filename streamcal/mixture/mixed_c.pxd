# The types with which mixed_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.mixture.forecasts_c cimport Snapshot

cdef int _SINGLE


cdef class MixedSteps:
    cdef Snapshot _snapshot
    cdef object _table
    cdef const double[::1] _edges, _middles, _logits
    cdef double[::1] _values, _row
    cdef int _left

    @cython.locals(
        low=Py_ssize_t, size=Py_ssize_t, half=Py_ssize_t, k=Py_ssize_t, value=double, weight=double
    )
    cpdef double one(self, double score) except? -1.0
