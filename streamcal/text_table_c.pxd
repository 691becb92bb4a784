# The types with which text_table_c.py is compiled; see docs/architecture.md.
cimport cython

cdef unsigned long long _WORD, _NUMBER, _SEED, _ODD
cdef Py_ssize_t _FEWEST


@cython.final
cdef class TextTable:
    cdef Py_ssize_t _count
    cdef unsigned long long[::1] _slots
    cdef unsigned long long _mask
    cdef long long[::1] _ends
    cdef bytearray _text

    @cython.locals(
        tag=cython.ulonglong, at=cython.ulonglong, slot=cython.ulonglong, number=Py_ssize_t, other=Py_ssize_t,
        i=Py_ssize_t, text=cython.p_uchar,
    )
    cpdef Py_ssize_t find(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t size) noexcept
    @cython.locals(tag=cython.ulonglong, at=cython.ulonglong, end=Py_ssize_t, i=Py_ssize_t, text=cython.p_uchar)
    cpdef Py_ssize_t add(self, const unsigned char* data, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(numbers="long long[::1]", i=Py_ssize_t, text=bytes, size=Py_ssize_t)
    cpdef put(self, list texts)
    @cython.locals(text=cython.p_uchar)
    cpdef bytes text(self, Py_ssize_t number)

@cython.locals(mask=cython.ulonglong, at=cython.ulonglong, slot=cython.ulonglong, i=Py_ssize_t, slots="unsigned long long[::1]")
cpdef unsigned long long[::1] widened(const unsigned long long[::1] before)

@cython.locals(
    found=cython.ulonglong, word=cython.ulonglong, at=Py_ssize_t, end=Py_ssize_t, b0=cython.ulonglong,
    b1=cython.ulonglong, b2=cython.ulonglong, b3=cython.ulonglong, b4=cython.ulonglong, b5=cython.ulonglong,
    b6=cython.ulonglong, b7=cython.ulonglong,
)
cpdef unsigned long long hashed(const unsigned char* data, Py_ssize_t start, Py_ssize_t size) noexcept
