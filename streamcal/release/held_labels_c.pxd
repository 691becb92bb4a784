# The types with which held_labels_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.release.delay_laws_c cimport DelayLaws

cdef int _MOST_HELD, _NOWHERE, _UNITS, _NOTES, _FEW, _MANY, _ONE, _HELD, _FOUND, _CONFIRMED, _SCORE
cdef double _NO_TIME


cdef class HeldLabels(DelayLaws):
    cdef public long long held, noted
    cdef public bint _weighs
    cdef public list ready, _loose, _store
    cdef public dict memos
    cdef public long long[:, ::1] more
    cdef int _free, _room
    cdef double[::1] _scores, _at
    cdef signed char[::1] _labels
    cdef long long[::1] _index
    cdef int[::1] _units, _stands, _follow

    cpdef long long beyond(self, int label) noexcept
    @cython.locals(i=int)
    cpdef _give(self, int room)
    @cython.locals(i=int)
    cpdef _push(
        self, Py_ssize_t cohort, double score, int label, long long index, int units, double time, memo
    )
    cpdef _append(self, Py_ssize_t cohort, int label, int i)
    @cython.locals(i=int)
    cpdef _pop(self, Py_ssize_t cohort, int label)
    @cython.locals(i=int)
    cdef int _place(self, Py_ssize_t cohort, int label, double score, long long index, int units, double time) except -2
    @cython.locals(i=int)
    cdef int _put(self, double score, int label, long long index, int units, double time) except -2
    @cython.locals(before=int, i=int, after=int)
    cpdef _unnote(self, Py_ssize_t cohort, double score, long long index)
    @cython.locals(i=int)
    cpdef _forget_scores(self, Py_ssize_t cohort)
    @cython.locals(cohort=Py_ssize_t, label=int)
    cpdef _thin(self)
    @cython.locals(count=int, i=int, j=int, stands=double)
    cpdef int _thinned(self, Py_ssize_t cohort, int label) except -1
    @cython.locals(index="long long")
    cdef double _hash(self, int i) noexcept
    @cython.locals(label=int, thinned=int, most=int)
    cpdef _join(self, Py_ssize_t j, Py_ssize_t i)


cpdef double chance(long long number) noexcept
