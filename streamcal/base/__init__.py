"""Ground that every room may stand on: values, times, exceptions, columns of texts."""
