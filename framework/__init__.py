"""The engine. Users import from `grete`; what is here may change."""
