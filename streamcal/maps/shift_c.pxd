# The types with which shift_c.py is compiled; see docs/architecture.md.
cimport cython


cpdef class_prior(double positives, double n)
@cython.locals(p=double, q=double)
cpdef tuple shift_weights(source, target)
@cython.locals(w0=double, w1=double, positive=double, total=double)
cpdef double shift_correction_one(double probability, tuple weights) except? -1.0
