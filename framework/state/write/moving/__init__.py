"""The partition that an entry of state goes to, and its bytes there."""
