"""Samples of stacks, as py-spy writes them, by kind of work and by function of the project."""

import pytest

from tests.bench.profile.samples import PYTHON, counted
from tests.support.gateway_process import REPOSITORY

LOOP = "uv__io_poll (/project/build/libuv-x86_64/src/unix/linux.c:1546)"
TAKE = f"Connection._take ({REPOSITORY}/gateway/pulsar/connection.py:381)"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


@pytest.mark.parametrize(
    ("innermost", "kind"),
    [
        (TAKE, PYTHON),
        (f"loads ({REPOSITORY}/.venv/lib/python3.11/site-packages/structlog/dev.py:3)", "other libraries"),
        ("_PyObject_Malloc (/opt/python/lib/libpython3.11.so.1.0)", "interpreter"),
        ("sleep (/opt/python/lib/python3.11/asyncio/tasks.py:649)", "interpreter"),
        ("__pyx_f_6uvloop (/project/uvloop/loop.c:14713)", "event loop"),
        ("upb_Decode (/site-packages/google/_upb/_message.abi3.so)", "protobuf"),
        ("crc32c_crc32c (/project/src/crc32c/ext/_crc32c.c:70)", "checksums, compression"),
        (f"0x7f1155645f16 ({LIBC})", "C library"),
    ],
)
def test_kind_of_work_is_that_of_the_innermost_function(innermost: str, kind: str) -> None:
    samples = counted(f"{LOOP};{TAKE};{innermost} 3\n")
    assert samples.kinds == {kind: 3}
    assert samples.rooms == {"gateway/pulsar": 3}
    assert samples.functions == {"gateway/pulsar/connection: Connection._take": 3}


@pytest.mark.parametrize("waiting", ["pthread_cond_wait", "PyThread_acquire_lock_timed"])
def test_the_kernel_and_waiting_threads_are_left_out(waiting: str) -> None:
    waits = f"{waiting} (/opt/python/lib/libpython3.11.so.1.0);0x7f1155645f16 ({LIBC})"
    samples = counted(f"{TAKE};{LOOP};writev ({LIBC}) 5\n{TAKE};{waits} 7\n{TAKE} 1\n")
    assert samples.kinds == {PYTHON: 1}
    assert samples.share(samples.functions, "gateway/pulsar/connection: Connection._take") == 1.0
