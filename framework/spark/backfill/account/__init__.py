"""The account of a history: what was taken of its files, where they meet the log, and a second count of them."""
