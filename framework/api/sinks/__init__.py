"""The targets of an output outside of the log, as a task declares them."""
