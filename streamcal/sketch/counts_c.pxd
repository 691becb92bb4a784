# The types with which counts_c.py is compiled; see docs/architecture.md.
cimport cython

cdef double[::1] _REAL
cdef long long[::1] _BITS
cdef double _LEAST
cdef long long _TAIL_BITS, _TAIL_KEY, _HALF_KEY, _FIRST_KEY, _LAST_KEY

@cython.locals(key=cython.longlong)
cpdef long long key_of(double score) noexcept
@cython.locals(above=cython.longlong, distance=double)
cpdef double score_of(long long key) noexcept
@cython.locals(i=Py_ssize_t)
cpdef left_edges_of(const long long[:] cells, int level, double[::1] edges)
@cython.locals(score=double)
cpdef double middle_of(long long first, long long end) noexcept
@cython.locals(i=Py_ssize_t)
cpdef middles_of(const long long[:] cells, const long long[:] ends, int level, double[::1] middles)
@cython.locals(i=Py_ssize_t)
cpdef keys_of(const double[:] scores, long long[::1] keys)
@cython.locals(inside=bint, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_score(const double[::1] scores) noexcept
@cython.locals(bits=int, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_label(const signed char[::1] labels) noexcept




@cython.locals(
    width=Py_ssize_t, packed=Py_ssize_t, i=Py_ssize_t, _=Py_ssize_t, atom=double, offset="long long",
    bits="unsigned char[::1]", offsets="unsigned char[::1]",
)
cpdef bytes pack_atoms(const double[:] atoms, int level)
@cython.locals(
    width=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, inside=bint,
    offset="long long", key="long long", first="const long long[::1]", bits="const unsigned char[::1]", out="double[::1]",
)
cpdef unpack_atoms(bytes data, cells, int level)
cdef double _told(long long key) noexcept
cdef Py_ssize_t _width(int level) noexcept


cdef double _EMPTY, _SEVERAL
cdef int _CLASSES
cdef long long _MULTIPLIER, _WORD


cdef class Tally:
    cdef public int level
    cdef public bint appended
    cdef bint _direct
    cdef Py_ssize_t _size, _room
    cdef int _shift
    cdef int[::1] _slots
    cdef long long[::1] _cells
    cdef double[:, ::1] _counts
    cdef double[::1] _atoms

    @cython.locals(
        size=Py_ssize_t, rows=Py_ssize_t, i=Py_ssize_t, row=Py_ssize_t, place=Py_ssize_t, cells="int[::1]",
        counts="double[:, ::1]", atoms="double[::1]", places="const long long[::1]",
    )
    cpdef tuple contents(self)
    @cython.locals(
        i=Py_ssize_t, size=Py_ssize_t, place=Py_ssize_t, labelled=bint, direct=bint, score=double, atom=double,
        key="long long", level=int, slots="int[::1]", counts="double[:, ::1]", atoms="double[::1]",
        weighted=bint, label=int, weight=double,
    )
    cpdef add(self, const double[::1] scores, const signed char[::1] labels, const double[:] weights=*)
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, place=Py_ssize_t, keys="long long[::1]")
    cpdef merge(self, object cells, const double[:, :] counts, const double[::1] atoms, int level)
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t, up=int, cell="long long")
    cpdef coarsen(self, int level)
    @cython.locals(slot=Py_ssize_t, place=Py_ssize_t, row=Py_ssize_t)
    cdef inline Py_ssize_t _place(self, long long key) noexcept
    @cython.locals(size=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, own="long long[::1]")
    cdef _make_room(self, const double[::1] scores, Py_ssize_t first)
    @cython.locals(slot=Py_ssize_t, last=Py_ssize_t)
    cdef inline Py_ssize_t _slot(self, long long cell) noexcept
    @cython.locals(place=Py_ssize_t)
    cdef inline Py_ssize_t _take(self, Py_ssize_t slot, long long cell) noexcept
    @cython.locals(own=double)
    cdef inline void _join(self, Py_ssize_t place, double atom) noexcept


@cython.locals(i=Py_ssize_t)
cpdef pack_labels(const double[:] scores, const signed char[:] labels, int level, int[::1] packed)

@cython.locals(
    n=Py_ssize_t, m=Py_ssize_t, i=Py_ssize_t, last=Py_ssize_t, occupied="int[::1]", counts="double[:, ::1]",
)
cpdef tuple count_sorted(const int[::1] packed)


cdef Py_ssize_t _FEWEST, _HEAVY


cdef class Buffer:
    cdef public long long n
    cdef public Py_ssize_t _held
    cdef Py_ssize_t _limit
    cdef object _types
    cdef list _columns
    cdef double[::1] _scores
    cdef signed char[::1] _labels
    cdef double[::1] _weights
    cdef long long[::1] _index


cdef class ScoreBuffer(Buffer):
    cdef public long long remaining

    cpdef int append(self, double score) except -1


cdef class LabelBuffer(Buffer):
    cdef public long long positives, start
    cdef public double _ones, _total, _squares
    cdef public bint windowed, weighted
    cdef public bint _keeps_index

    cpdef long long append(self, double score, int label, long long prediction_index, double weight) except -1


@cython.locals(
    i=Py_ssize_t, at=Py_ssize_t, side=Py_ssize_t, differences=Py_ssize_t, squares=Py_ssize_t, before=double,
    after=double, label=double, value=double, of_zero=double, of_one=double, gain=double, extreme=double,
)
cpdef add_sums(
    double[::1] sums, const double[::1] bands, const double[::1] ranges, const double[:, ::1] forecasts,
    const double[::1] labels, Py_ssize_t begin, Py_ssize_t end,
)

@cython.locals(
    i=Py_ssize_t, row=Py_ssize_t, score=double, forecast=double, label=double, count=double, expected=double,
    error=double,
)
cpdef add_labels(
    double[:, ::1] sums, const long long[::1] at, const double[:, ::1] forecasts, const double[::1] labels
)

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef inline Py_ssize_t _place(const double[::1] edges, double value) noexcept
