"""A lock between processes and threads, held for microseconds, that dies with its owner.

flock(2) is called without releasing the GIL: released, the GIL may go to a thread that keeps it for
5 ms, and all processes would wait meanwhile for a lock whose owner waits for its interpreter.
"""

import ctypes
import errno
import fcntl
import os
import threading
import time

RETRY_S = 20e-6
_libc = ctypes.PyDLL(None, use_errno=True)


class FileLock:
    """A context manager over an open file; every process must have opened it for itself."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            while not self._taken():
                time.sleep(RETRY_S)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(self, *fault: object) -> None:
        _libc.flock(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def _taken(self) -> bool:
        if _libc.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB) == 0:
            return True
        code = ctypes.get_errno()
        if code not in (errno.EWOULDBLOCK, errno.EINTR):
            raise OSError(code, os.strerror(code))
        return False
