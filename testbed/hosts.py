"""Several hosts on one machine: network namespaces, between which this process forwards each packet.

A host has a network, a host name and an /etc/hosts of its own; this machine reaches the hosts by their addresses. The
forwarding needs no modules of the kernel. A link may be cut, be slow or lose packets. A firewall may allow connections
to some ports only.

When this process ends, the namespaces end with their processes, and the devices with their descriptors.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from itertools import count
from pathlib import Path

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# The largest packets that the kernel sends, because each packet costs this process a read and a write.
_MTU = 16_000
_TCP, _SYN, _ACK = 6, 0x02, 0x10
# A range for tests of networks (RFC 2544). The process id selects a part of the range, for 253 hosts and this machine.
_NETWORK = "198.18"
_THIS_MACHINE = 254


@dataclass(frozen=True)
class Place:
    """The environment in which a program runs.

    Attributes:
        folder: The program's working directory.
        address: The host name or address at which other processes reach the program.
        prefix: The words before the program in its command line.
    """

    folder: Path
    address: str = "127.0.0.1"
    prefix: Sequence[str] = ()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a program in this place."""
        return [*self.prefix, *command]


def with_host_name(place: Place, name: str) -> Place:
    """Return a place on this machine with another host name, in a UTS namespace. This needs root or CAP_SYS_ADMIN."""
    return replace(place, prefix=["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name])


@dataclass(frozen=True)
class Link:
    """The quality of a host's connection, in both directions.

    Attributes:
        cut: Whether no packet passes.
        loss: The part of the packets that are lost.
        delay: Seconds that a packet takes; the delays of both hosts add up.
        open_ports: The ports that a firewall opens; connections to other ports get no answer. None: no firewall.
    """

    cut: bool = False
    loss: float = 0.0
    delay: float = 0.0
    open_ports: frozenset[int] | None = None

    def lets_in(self, packet: bytes) -> bool:
        """Return whether the firewall passes a packet to this host; it drops only the first packet of a connection."""
        header = (packet[0] & 0x0F) * 4
        if self.open_ports is None or packet[9] != _TCP or packet[header + 13] & (_SYN | _ACK) != _SYN:
            return True
        (port,) = struct.unpack_from(">H", packet, header + 2)
        return port in self.open_ports


class Hosts:
    """Hosts with given names. Use this class in a with statement, as root.

    Args:
        folder: The folder for the file of the hosts' names.
        names: The hosts' names.
        seed: The seed of the random choice of packets that a lossy link drops.
    """

    def __init__(self, folder: Path, names: Sequence[str], seed: int = 0) -> None:
        base = f"{_NETWORK}.{os.getpid() % 256}"
        self.addresses = {name: f"{base}.{number}" for number, name in enumerate(names, 1)}
        self._here = f"{base}.{_THIS_MACHINE}"
        self._folder, self._file = folder, folder / "hosts"
        self._links = dict.fromkeys(names, Link())
        self._draws = random.Random(seed)
        self._resources = ExitStack()
        self._places: dict[str, Place] = {}
        self._descriptors: dict[bytes, tuple[str, int]] = {}
        self._delayed: list[tuple[float, int, int, bytes]] = []
        self._order = count()
        #: The bytes that passed, by the names of sender and receiver; this machine's name is "".
        self.bytes: Counter[tuple[str, str]] = Counter()
        #: The connections that firewalls have dropped, including retries, by the same names.
        self.refused: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Hosts:
        with ExitStack() as undo:
            undo.callback(self._resources.close)
            self.set_names()
            for name, address in self.addresses.items():
                self._start(name, address)
            self._connect("", self._here, None)
            ended, end = os.pipe()
            forwarding = threading.Thread(target=self._forward, args=(ended,), name="hosts", daemon=True)
            forwarding.start()
            # These callbacks run in reverse order, so the end of the pipe ends the thread before the join.
            for step in (partial(os.close, ended), forwarding.join, partial(os.close, end)):
                self._resources.callback(step)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def place(self, name: str) -> Place:
        """Return the host as the place of a program."""
        return self._places[name]

    def set_names(self, more: Mapping[str, Iterable[str]] | None = None) -> None:
        """Set the names that all hosts know: the names of the hosts, and further names with their addresses."""
        every = {"localhost": ["127.0.0.1"], **{name: [at] for name, at in self.addresses.items()}, **(more or {})}
        # Write the file in place, because it is mounted.
        self._file.write_text("".join(f"{at} {name}\n" for name, addresses in every.items() for at in addresses))

    def unused_address(self) -> str:
        """Return an address that no host has: packets to it are lost."""
        return str(ip_address(self._here) - 1)

    def set_link(self, name: str, link: Link) -> None:
        """Set the link of a host, from the next packet on."""
        self._links[name] = link

    def _start(self, name: str, address: str) -> None:
        script = 'mount --bind "$1" /etc/hosts && hostname "$2" && echo && exec cat'
        command = ["unshare", "--net", "--mount", "--uts", "sh", "-c", script, "sh", str(self._file), name]
        # The shell ends when its input ends, so at the latest with this process.
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._resources.enter_context(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline(), f"no namespaces for host {name}"
        self._connect(name, address, holder.pid)
        inside = ["nsenter", "--target", str(holder.pid), "--net", "--mount", "--uts", "--wd=."]
        self._places[name] = Place(self._folder, name, inside)

    def _connect(self, name: str, address: str, pid: int | None) -> None:
        descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        self._resources.callback(os.close, descriptor)
        request = struct.pack("16sH22x", b"hosts%d", _IFF_TUN | _IFF_NO_PI)
        device = fcntl.ioctl(descriptor, _TUNSETIFF, request)[:16].rstrip(b"\0").decode()
        into: list[str] = []
        if pid is not None:
            subprocess.run(["ip", "link", "set", device, "netns", str(pid)], check=True)
            into = ["nsenter", "--target", str(pid), "--net"]
            subprocess.run([*into, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*into, "ip", "address", "add", f"{address}/24", "dev", device], check=True)
        subprocess.run([*into, "ip", "link", "set", device, "up", "mtu", str(_MTU)], check=True)
        self._descriptors[ip_address(address).packed] = name, descriptor

    def _forward(self, ended: int) -> None:
        senders = {descriptor: name for name, descriptor in self._descriptors.values()}
        poll = select.poll()
        for descriptor in (ended, *senders):
            poll.register(descriptor, select.POLLIN)
        while True:
            wait = max(0.0, self._delayed[0][0] - time.monotonic()) * 1000 if self._delayed else None
            readable = [descriptor for descriptor, _ in poll.poll(wait)]
            if ended in readable:
                return
            for descriptor in readable:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self._pass(senders[descriptor], os.read(descriptor, _MTU + 64))
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                _, _, descriptor, packet = heapq.heappop(self._delayed)
                _write(descriptor, packet)

    def _pass(self, sender: str, packet: bytes) -> None:
        receiver, descriptor = self._descriptors.get(packet[16:20], ("", -1))
        if packet[0] >> 4 != 4 or descriptor < 0:
            return
        one, two = self._links.get(sender, Link()), self._links.get(receiver, Link())
        if any(link.cut or (link.loss and self._draws.random() < link.loss) for link in (one, two)):
            return
        if not two.lets_in(packet):
            self.refused[sender, receiver] += 1
            return
        self.bytes[sender, receiver] += len(packet)
        if delay := one.delay + two.delay:
            heapq.heappush(self._delayed, (time.monotonic() + delay, next(self._order), descriptor, packet))
        else:
            _write(descriptor, packet)


def _write(descriptor: int, packet: bytes) -> None:
    # Like any device, this device loses packets when its queue is full.
    with contextlib.suppress(OSError):
        os.write(descriptor, packet)


def reason_against_hosts(folder: Path) -> str | None:
    """Return the reason why this machine cannot have hosts, for example a missing root; None: no reason."""
    try:
        with Hosts(folder, ["try"]) as hosts:
            subprocess.run(hosts.place("try").command(["true"]), check=True, capture_output=True)
    except (OSError, AssertionError, subprocess.CalledProcessError) as error:
        return f"no network namespaces can be made here: {error}"
    return None
