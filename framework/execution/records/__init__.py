"""Records as bytes: decoding, encoding, frames, contexts of traces; what was read and what is to be sent."""
