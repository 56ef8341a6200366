"""The drivers of the supervision core: processes of this machine, and the progress of a job."""
