# The types with which atoms_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.sketch.keys_c cimport key_of, score_of

cdef long long _LAST_KEY


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
