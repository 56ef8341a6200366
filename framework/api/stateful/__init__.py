"""Windows, joins and versioned stores: declarations that keep stores of their own."""
