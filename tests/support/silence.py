"""A name whose first address answers nothing, as behind a firewall that drops packets."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

NAME = "brokers.example"
SILENT, LIVE = "127.0.0.2", "127.0.0.1"

# Whatever resolves names by the C library gets both addresses: Python, librdkafka and the JVM.
_RESOLVER = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

typedef int (*resolver)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {{
    resolver real = (resolver)dlsym(RTLD_NEXT, "getaddrinfo");
    struct addrinfo *last, *live;
    int code;
    if (node == NULL || strcmp(node, "{NAME}") != 0)
        return real(node, service, hints, found);
    if ((code = real("{SILENT}", service, hints, found)) != 0)
        return code;
    if ((code = real("{LIVE}", service, hints, &live)) != 0) {{
        freeaddrinfo(*found);
        return code;
    }}
    for (last = *found; last->ai_next != NULL; last = last->ai_next)
        ;
    last->ai_next = live;
    return 0;
}}
"""


def resolver(folder: Path) -> dict[str, str]:
    """Return the variables with which a process, and each that it starts, knows NAME by both addresses."""
    source, library = folder / "resolver.c", folder / "resolver.so"
    source.write_text(_RESOLVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


@contextlib.contextmanager
def silence(port: int) -> Iterator[None]:
    """A listener whose queue is full: the kernel drops what comes next, as a firewall does."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind((SILENT, port))
        listener.listen(0)
        for _ in range(8):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((SILENT, port))
        yield
