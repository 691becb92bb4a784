# The types with which class_priors_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.maps cimport shift_c
from streamcal.sketch cimport buffers_c

@cython.final
cdef class ClassPriors:
    cdef buffers_c.LabelBuffer _source, _target
    cdef object _tracker

    @cython.locals(labels=buffers_c.LabelBuffer, positives=double, n=double)
    cpdef of(self, str domain)
    cpdef tuple weights(self)
