# The types with which checked_c.py is compiled; see docs/architecture.md.
cpdef checked(event)
