# The types with which served_map_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.maps cimport functions_c, functions_c, functions_c
from streamcal.mixture cimport forecasts_c
from streamcal.sketch cimport counts_c

@cython.final
cdef class ClassPriors:
    cdef counts_c.LabelBuffer _source, _target
    cdef readonly object tracker

    @cython.locals(labels=counts_c.LabelBuffer, positives=double, n=double)
    cpdef of(self, str domain)
    cpdef tuple weights(self)


@cython.final
cdef class ServedMap:
    cdef ClassPriors _priors
    cdef tuple _weights
    cdef object _mixed, _base
    cdef forecasts_c.MixedSteps _mixture
    cdef functions_c.StepFunction _steps
    cdef functions_c.LinearFunction _line
    cdef public bint shifts
    cdef public long long version

    cpdef tuple weights_now(self)
    cpdef forget_weights(self)
    @cython.locals(value=double)
    cpdef predict_one(self, score)
    @cython.locals(probability=double)
    cpdef double forecast(self, double score) except? -1.0
