# The types with which json_lines_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

cdef Py_ssize_t _SCORE, _LABEL, _TIME, _DOMAIN, _ID, _OTHERS, _DIGITS, _PLACES, _LONG, _NAME, _TEXT, _ROOM
cdef unsigned char _QUOTE, _ESCAPE, _COLON, _COMMA, _OPEN, _CLOSE, _BREAK, _RETURN, _SPACE, _DELETE, _WIDE, _TAB
cdef unsigned char _POINT, _MINUS, _PLUS, _ZERO, _NINE, _N, _T, _F, _E, _CAPITAL
cdef bytes _NULL, _TRUE, _FALSE, _SOURCE, _TARGET
cdef unsigned long long _EXACT, _HIDDEN, _HALF
cdef const unsigned long long[::1] _FIVES, _TENS
cdef double _LATEST, _NONE, _SMALL, _TEN, _LARGE, _LARGEST


@cython.final
cdef class LineReader:
    cdef readonly bint usable, has_wide, has_odd, has_escapes
    cdef readonly int domain
    cdef readonly object scores, times, labels, spans
    cdef bint _is_target
    cdef bytes _names, _block
    cdef Py_ssize_t _fields
    cdef long long[::1] _name_starts, _name_sizes, _order, _seen
    cdef long long[:, :, ::1] _span
    cdef double[::1] _score, _time, _powers
    cdef signed char[::1] _label
    cdef double _value

    @cython.locals(at=Py_ssize_t, line=Py_ssize_t, start=Py_ssize_t, has_wide=bint, odd=list)
    cpdef list read(self, bytes block, Py_ssize_t lines, Py_ssize_t most)
    @cython.locals(
        place=Py_ssize_t, is_target=bint, has_score=bint, has_label=bint, mark=cython.uchar, field=Py_ssize_t,
        start=Py_ssize_t, first=cython.uchar,
    )
    cdef Py_ssize_t _line(self, const unsigned char* text, Py_ssize_t at, Py_ssize_t line) except -2
    @cython.locals(field=Py_ssize_t)
    cdef Py_ssize_t _field(self, const unsigned char* text, Py_ssize_t at, Py_ssize_t place) noexcept
    @cython.locals(most=Py_ssize_t, byte=cython.uchar)
    cdef Py_ssize_t _text(self, const unsigned char* text, Py_ssize_t at, bint is_name) noexcept
    @cython.locals(
        start=Py_ssize_t, digits=Py_ssize_t, after=Py_ssize_t, first=Py_ssize_t, value=cython.ulonglong, is_quick=bint,
    )
    cdef Py_ssize_t _number(self, const unsigned char* text, Py_ssize_t at) except -2


@cython.locals(
    at=Py_ssize_t, depth=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t,
    mark=cython.uchar, is_odd=bint, data="const unsigned char*", begins="Py_ssize_t[64]", ends="Py_ssize_t[64]", firsts="Py_ssize_t[8]",
)
cpdef bint are_distinct(bytes text)
cdef Py_ssize_t _behind_spaces(const unsigned char* text, Py_ssize_t at, Py_ssize_t size) noexcept
@cython.locals(same=Py_ssize_t)
cdef bint _is_same(const unsigned char* text, Py_ssize_t one, Py_ssize_t other, Py_ssize_t size) noexcept
cdef Py_ssize_t _skip(const unsigned char* text, Py_ssize_t at) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _is_at(const unsigned char* text, Py_ssize_t at, const unsigned char* names, Py_ssize_t start, Py_ssize_t size) noexcept
cdef Py_ssize_t _behind(const unsigned char* text, Py_ssize_t at, const unsigned char* word, Py_ssize_t size) noexcept

@cython.locals(i=Py_ssize_t, at=Py_ssize_t, to=Py_ssize_t, start=Py_ssize_t)
cdef int _gather(
    const unsigned char* data, const long long[::1] starts, const long long[::1] sizes, unsigned char* out
) except -1
@cython.locals(
    at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, before=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, run=Py_ssize_t,
    names="const unsigned char[::1]", starts="const long long[:]", sizes="const long long[:]",
    key_names="const unsigned char[::1]", key_starts="const long long[:]", key_sizes="const long long[:]",
    made=bytearray, out=cython.p_uchar, texts=bytes, begins="const long long[:]", lengths="const long long[:]", count=Py_ssize_t,
    place=Py_ssize_t, width=Py_ssize_t,
)
cpdef answer_lines(
    ids, const double[:] scores, const double[:] probabilities, const double[:] times, const Py_ssize_t[:] which,
    const long long[:] versions, const double[:, :] weights, keys, added
)
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put_part(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t start, Py_ssize_t size
) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put_text(
    unsigned char* out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size
) noexcept
@cython.locals(end=Py_ssize_t, places=Py_ssize_t, unit=cython.ulonglong, digits=cython.ulonglong, text=bytes)
cdef Py_ssize_t _put_number(unsigned char* out, Py_ssize_t at, double number) except -1
@cython.locals(
    places=Py_ssize_t, limit=double, shift=int, scaled=double, m=cython.ulonglong, five=cython.ulonglong,
    first=cython.ulonglong, middle=cython.ulonglong, top=cython.ulonglong, bottom=cython.ulonglong,
    whole=cython.ulonglong, rest=cython.ulonglong, unit=cython.ulonglong, zeros=Py_ssize_t, over=cython.ulonglong,
    span=cython.ulonglong, is_up=bint,
)
cdef Py_ssize_t _put_shortest(unsigned char* out, Py_ssize_t at, double number) noexcept
@cython.locals(whole=cython.ulonglong, unit=cython.ulonglong)
cdef Py_ssize_t _put_decimal(unsigned char* out, Py_ssize_t at, unsigned long long digits, Py_ssize_t places) noexcept
@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _width(unsigned long long number) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put_digits(unsigned char* out, Py_ssize_t at, unsigned long long number, Py_ssize_t size) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put(unsigned char* out, Py_ssize_t at, const unsigned char* text, Py_ssize_t size) noexcept
