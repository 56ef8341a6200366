"""Keys and values as bytes: the serdes, and how two of them differ."""
