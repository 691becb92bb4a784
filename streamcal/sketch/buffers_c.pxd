# The types with which buffers_c.py is compiled; see docs/architecture.md.
cimport cython

cdef Py_ssize_t _FEWEST, _HEAVY
cdef int _ONE


cdef class Buffer:
    cdef public long long n
    cdef public Py_ssize_t _held
    cdef Py_ssize_t _limit
    cdef object _types
    cdef list _columns
    cdef double[::1] _scores
    cdef signed char[::1] _labels
    cdef int[::1] _units
    cdef long long[::1] _index


cdef class ScoreBuffer(Buffer):
    cdef public long long remaining

    cpdef int append(self, double score) except -1


cdef class LabelBuffer(Buffer):
    cdef public long long positives, start
    cdef public bint windowed, weighted
    cdef public bint _keeps_index

    cpdef long long append(self, double score, int label, long long prediction_index, int units) except -1
