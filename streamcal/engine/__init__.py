"""The engine: learns labels, forms maps on schedule, serves them."""
