# The types with which class_priors_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.maps cimport shift_c
from streamcal.sketch cimport buffers_c

@cython.final
cdef class ClassPriors:
    cdef double _smoothing
    cdef buffers_c.LabelBuffer _source, _target
    cdef bint _by_scores
    cdef object _tracker
    cdef long long _read

    cpdef of(self, str domain)
    @cython.locals(positives=double, n=double)
    cdef _counted(self, buffers_c.LabelBuffer labels)
    cpdef tuple weights(self)
