"""What every room may import: values, times, exceptions, columns of texts."""
