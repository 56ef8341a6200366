"""``grete audit --follow``: each step of a live job from one checkpoint to the next is made again and compared."""
