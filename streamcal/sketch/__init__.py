"""The score sketch: cells of a dyadic grid with exact counts, and what is built of them."""
