"""Topics, and the input and output by which a task reads and writes them."""
