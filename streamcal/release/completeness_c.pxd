# The types with which completeness_c.py is compiled; see docs/architecture.md.
cimport cython
from libc cimport math
from streamcal.release.delay_laws_c cimport DelayLaws

cdef int _ROUNDS, _LOCAL, _BEFORE, _NEAR
cdef double _PSEUDO, _SMOOTH, _ENOUGH, _REACH, _MATURE, _RECENT, _FACTOR, _ERRORS, _PENDING, _COMPLETE, _NEVER, _TELLING, _HARDLY, _OFF, _SURE


@cython.locals(
    k=Py_ssize_t, now=double, p=double, never=double, ages="double[::1]", law0="double[::1]", law1="double[::1]",
    pending="double[::1]", all0="double[::1]", all1="double[::1]", lows="double[:, ::1]", highs="double[:, ::1]", due0=double, due1=double, least=double, complete=double, i=Py_ssize_t,
    age=double, missing=double, unlabelled=double, mature0=double, mature1=double, recent=double, told0=double,
    told1=double, wait=double, j=Py_ssize_t, rate=double, share=double, step=int, late0=double, late1=double, y=int,
    part=double, first=Py_ssize_t, last=Py_ssize_t, told=double, total=double, size=double, expected=double,
    down=bint, up=bint, low=double, high=double, most=double, below=double,
)
cpdef double completeness(DelayLaws laws, Py_ssize_t start, double[:, ::1] out) except -1.0
@cython.locals(told=double, ratio=double)
cdef bint _mixed(double told0, double told1, double law0, double law1, double low, double high) noexcept
@cython.locals(
    told0=double, told1=double, wait=double, j=Py_ssize_t, never=double, late0=double, late1=double, all_=double,
    label=int, other=double, allowed=double, total=double, expected=double, off=double,
)
cdef double _rest(
    DelayLaws laws, Py_ssize_t k, Py_ssize_t i, double law0, double law1, double reach, double prior
) noexcept
