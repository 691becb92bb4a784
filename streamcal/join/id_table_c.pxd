# The types with which id_table_c.py is compiled; see docs/architecture.md.
cimport cython

cdef unsigned char _FREE, _WAITS, _COMES, _EXPIRED, _LABELLED, _DOMAIN, _HELD
cdef Py_ssize_t _WAITING, _ENDED, _EARLY, _REAL, _PAIR, _QUEUES, _SIZE_BITS, _SIZES
cdef Py_ssize_t _FEWEST, _MORE, _NAMES, _PACK, _INDEX_BITS
cdef unsigned long long _ROW, _WORD, _SEED, _ODD
cdef double _NONE


cdef class IdTable:
    cdef public int classes
    cdef public long long renumbered
    cdef public list names, objects
    cdef dict _codes, _columns, _changed, _present
    cdef set _noted
    cdef long long _last_pack
    cdef long long[::1] _counts, _whole, _pack
    cdef double[::1] _real
    cdef unsigned int[::1] _links
    cdef int[::1] _key
    cdef unsigned short[::1] _state
    cdef unsigned char[::1] _flags
    cdef unsigned long long[::1] _slots
    cdef bytearray _text
    cdef Py_ssize_t _most_names, _text_end, _text_live, _rows, _free, _live, _limit
    cdef unsigned long long _mask

    @cython.locals(data=bytes)
    cpdef Py_ssize_t known(self, str id_) except -1
    @cython.locals(row=Py_ssize_t)
    cpdef bint is_prediction(self, str id_) except -1
    cpdef bint is_waiting(self, Py_ssize_t row) noexcept
    cpdef bint is_early(self, Py_ssize_t row) noexcept
    @cython.locals(since=double)
    cpdef since(self, Py_ssize_t row)
    cpdef label_of(self, Py_ssize_t row)
    cpdef Py_ssize_t oldest(self, Py_ssize_t queue) except -1
    @cython.locals(
        text=bytes, size=Py_ssize_t, index=Py_ssize_t, start=Py_ssize_t, found=cython.ulonglong, row=Py_ssize_t,
    )
    cpdef load(self, packs)
    @cython.locals(
        queue=Py_ssize_t, row=Py_ssize_t, pack=cython.longlong, index=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t,
        count=Py_ssize_t, rows="unsigned int[::1]",
    )
    cpdef changes(self)
    @cython.locals(queue=Py_ssize_t, row=Py_ssize_t, begin=Py_ssize_t)
    cdef list _divided(self, begins, unsigned int[::1] rows, Py_ssize_t count)
    @cython.locals(
        text=cython.p_uchar, to=cython.p_uchar, end=Py_ssize_t, index=Py_ssize_t, place=cython.longlong,
        start=Py_ssize_t, size=Py_ssize_t, i=Py_ssize_t,
    )
    cdef bytes _text_of(self, const unsigned int[::1] rows, Py_ssize_t length)
    cpdef int remove(self, Py_ssize_t row) except -1
    @cython.locals(place=cython.longlong, start=Py_ssize_t, size=Py_ssize_t, text=cython.p_uchar)
    cpdef str id_of(self, Py_ssize_t row)
    @cython.locals(row=Py_ssize_t)
    cdef _renumber(self)
    @cython.locals(objects=list)
    cpdef hold_object(self, Py_ssize_t row, held)
    cpdef object_of(self, Py_ssize_t row)
    @cython.locals(objects=list)
    cpdef take_object(self, Py_ssize_t row)
    @cython.locals(real=Py_ssize_t, since=double, time=double)
    cdef _pending(self, Py_ssize_t row)
    @cython.locals(real=Py_ssize_t)
    cdef void _write(
        self, Py_ssize_t row, double score, double probability, double time, long long prediction_index, bint is_target, Py_ssize_t code
    ) noexcept
    @cython.locals(queue=Py_ssize_t, before=Py_ssize_t)
    cdef void _enqueue(self, Py_ssize_t row, int state) noexcept
    @cython.locals(
        before=Py_ssize_t, after=Py_ssize_t, left=Py_ssize_t, pack=cython.longlong, index=Py_ssize_t,
        present=bytearray,
    )
    cdef int _leave(self, Py_ssize_t row) except -1
    @cython.locals(
        tag=cython.ulonglong, at=cython.ulonglong, slot=cython.ulonglong, row=Py_ssize_t, place=cython.longlong,
        other=Py_ssize_t, i=Py_ssize_t, text=cython.p_uchar,
    )
    cdef Py_ssize_t _find(self, unsigned long long found, const unsigned char* data, Py_ssize_t start, Py_ssize_t size) noexcept
    @cython.locals(
        tag=cython.ulonglong, at=cython.ulonglong, row=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, text=cython.p_uchar,
    )
    cdef Py_ssize_t _add(self, unsigned long long found, const unsigned char* data, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(
        mask=cython.ulonglong, at=cython.ulonglong, next_=cython.ulonglong, slot=cython.ulonglong,
        place=cython.longlong, text=cython.p_uchar,
    )
    cdef void _unslot(self, Py_ssize_t row) noexcept
    cdef _lengthen(self)
    cdef _see_columns(self)
    @cython.locals(
        row=Py_ssize_t, place=cython.longlong, start=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, end=Py_ssize_t,
        text=cython.p_uchar, to=cython.p_uchar,
    )
    cdef _make_room(self, Py_ssize_t size)

cdef Py_ssize_t _queue_of(int state) noexcept

@cython.locals(
    mask=cython.ulonglong, at=cython.ulonglong, slot=cython.ulonglong, i=Py_ssize_t,
    slots="unsigned long long[::1]",
)
cpdef unsigned long long[::1] widened(const unsigned long long[::1] before)

@cython.locals(
    found=cython.ulonglong, word=cython.ulonglong, at=Py_ssize_t, end=Py_ssize_t, b0=cython.ulonglong,
    b1=cython.ulonglong, b2=cython.ulonglong, b3=cython.ulonglong, b4=cython.ulonglong, b5=cython.ulonglong,
    b6=cython.ulonglong, b7=cython.ulonglong,
)
cpdef unsigned long long hashed(const unsigned char* data, Py_ssize_t start, Py_ssize_t size) noexcept
