# The types with which buffers_c.py is compiled; see docs/architecture.md.
cimport cython

cdef Py_ssize_t _FEWEST, _HEAVY


cdef class ScoreBuffer:
    cdef public long long n, room
    cdef public Py_ssize_t _held
    cdef Py_ssize_t _limit
    cdef object _score_column
    cdef double[::1] _scores

    cpdef int append(self, double score) except -1


cdef class LabelBuffer:
    cdef public long long n, positives, start
    cdef public bint closed, windowed, weighted
    cdef public object _again
    cdef public Py_ssize_t _held
    cdef object _numbers
    cdef public bint _keeps_seen
    cdef Py_ssize_t _limit
    cdef double[::1] _scores
    cdef signed char[::1] _labels
    cdef long long[::1] _seen
    cdef object _score_column, _label_column, _seen_column

    cpdef long long append(self, double score, int label, long long seen) except -1
