"""Start a program of ours from a shell by the fork server: ``python -I -S forked_client.py SERVER PROGRAM ARGUMENTS…``.

It stands for the program: it hands over its files and its environment, passes signals on, and ends as the program ends.
If it is killed, the server kills the program. It imports little, since a start by it is to take little.
"""

import json
import os
import signal
import socket
import sys

BYTES_MAX = 1 << 17
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(server: str, program: str, *arguments: str) -> None:
    """Start it, and be it until its end."""
    directory = os.getcwd()  # noqa: PTH109 - pathlib takes longer than all the rest
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    request = program, arguments, dict(os.environ), directory, [0, 1, 2], os.getpgid(0), ignored, False, True
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    pid = int(connection.recv(BYTES_MAX))
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(connection.recv(BYTES_MAX)))
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(*sys.argv[1:])
