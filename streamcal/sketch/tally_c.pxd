# The types with which tally_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.sketch.keys_c cimport key_of

cdef double _EMPTY, _SEVERAL
cdef long long _MULTIPLIER, _WORD


cdef class Tally:
    cdef public int level
    cdef public bint appended
    cdef bint _direct
    cdef Py_ssize_t _size, _room
    cdef int _shift
    cdef int[::1] _slots
    cdef long long[::1] _cells
    cdef long long[:, ::1] _counts
    cdef double[::1] _atoms

    @cython.locals(
        i=Py_ssize_t, size=Py_ssize_t, place=Py_ssize_t, labelled=bint, direct=bint, score=double, atom=double,
        key="long long", level=int, slots="int[::1]", counts="long long[:, ::1]", atoms="double[::1]",
    )
    cpdef add(self, const double[::1] scores, const signed char[::1] labels)
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, place=Py_ssize_t, keys="long long[::1]")
    cpdef merge(self, object cells, const long long[:, :] counts, const double[::1] atoms, int level)
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t, up=int, cell="long long")
    cpdef coarsen(self, int level)
    @cython.locals(i=Py_ssize_t)
    cdef _index(self, Py_ssize_t size)
    @cython.locals(slot=Py_ssize_t, place=Py_ssize_t, row=Py_ssize_t)
    cdef inline Py_ssize_t _place(self, long long key) except -1
    @cython.locals(slot=Py_ssize_t, last=Py_ssize_t)
    cdef inline Py_ssize_t _slot(self, long long cell) noexcept
    @cython.locals(place=Py_ssize_t)
    cdef inline Py_ssize_t _take(self, Py_ssize_t slot, long long cell) noexcept
    @cython.locals(own=double)
    cdef inline void _join(self, Py_ssize_t place, double atom) noexcept


@cython.locals(last=Py_ssize_t, i=Py_ssize_t, cell=int, label=int)
cpdef Py_ssize_t count_sorted(const int[::1] packed, int[::1] cells, long long[:, ::1] counts)
