"""Questions of programs about a job's state, answered over HTTP."""
