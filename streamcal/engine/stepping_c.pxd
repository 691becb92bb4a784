# The types with which stepping_c.py is compiled; see docs/architecture.md.
from streamcal.join cimport join_c, rules_c

cimport cython

@cython.locals(rows=rules_c.JoinRules, expired=tuple, outcomes=tuple)
cpdef tuple step(event, join_c.Join join, engine_of, origin_of=*)
cpdef tuple emitted(tuple outcomes)
@cython.locals(begun=tuple)
cdef tuple _prediction(event, join_c.Join join, engine, origin_of)
cdef tuple _met(met, engine)
cdef tuple _label(event, join_c.Join join, engine_of, origin_of)
cdef tuple _labelled(event, join_c.Join join, engine_of, origin_of)
