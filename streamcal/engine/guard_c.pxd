# The types with which guard_c.py is compiled; see docs/architecture.md.
cimport cython

cdef double _ALPHA, _LEAST_BET, _STARTS
cdef int _BETS, _MOST_CHANGES


@cython.final
cdef class Guard:
    cdef public bint raw
    cdef list _changes
    cdef long long _labels
    cdef double[::1] _wealth

    @cython.locals(at=Py_ssize_t)
    cpdef bint was_raw(self, long long prediction_index)
    @cython.locals(most=double, difference=double, share=double, total=double, bet=double, each=int, wealth=double,
                   count=Py_ssize_t)
    cpdef take(self, double score, double forecast, int label, double weight, long long observed)
