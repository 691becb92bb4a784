# The types with which json_lines_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

cdef Py_ssize_t _SCORE, _LABEL, _TIME, _DOMAIN, _ID, _OTHERS, _DIGITS, _PLACES, _LONG, _NAME, _TEXT, _FEW, _MANY, _SLOT
cdef unsigned char _QUOTE, _ESCAPE, _COLON, _COMMA, _OPEN, _CLOSE, _END, _BREAK, _RETURN, _SPACE, _DELETE, _WIDE
cdef unsigned char _POINT, _MINUS, _PLUS, _ZERO, _NINE, _N, _T, _F, _E, _CAPITAL
cdef bytes _NULL, _TRUE, _FALSE, _SOURCE, _TARGET
cdef unsigned long long _EXACT
cdef double _LATEST, _NONE, _SMALL, _LARGE, _LARGEST


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

    @cython.locals(at=Py_ssize_t, line=Py_ssize_t)
    cpdef bint read(self, bytes block, Py_ssize_t lines) except -1
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


cdef Py_ssize_t _skip(const unsigned char* text, Py_ssize_t at) noexcept
@cython.locals(i=Py_ssize_t)
cdef bint _is_at(const unsigned char* text, Py_ssize_t at, const unsigned char* names, Py_ssize_t start, Py_ssize_t size) noexcept
cdef Py_ssize_t _behind(const unsigned char* text, Py_ssize_t at, const unsigned char* word, Py_ssize_t size) noexcept

@cython.locals(i=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, at=Py_ssize_t)
cdef int _put_texts(
    const unsigned char[::1] data, const long long[:] starts, const long long[:] counts, unsigned char* out,
    long long[::1] sizes
) except -1
@cython.locals(
    i=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, number=double, unit=cython.ulonglong, whole=cython.ulonglong,
)
cdef bint _put_numbers(const double[:] numbers, unsigned char* out, long long[::1] sizes) except -1
@cython.locals(i=Py_ssize_t, most=cython.ulonglong)
cdef Py_ssize_t _put_digits(unsigned char* out, Py_ssize_t at, unsigned long long number, Py_ssize_t size) noexcept
@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _put(unsigned char* out, Py_ssize_t at, const unsigned char* text, Py_ssize_t size) noexcept
@cython.locals(i=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t, from_=Py_ssize_t, size=Py_ssize_t, more=Py_ssize_t)
cdef int _put_column(
    bytes before, const unsigned char[::1] data, const long long[:] starts, const long long[:] sizes, bytes behind,
    unsigned char* out, long long[::1] place
) except -1
