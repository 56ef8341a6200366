"""Records as bytes: decoding, encoding, frames, contexts of traces."""
