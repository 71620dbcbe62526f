#!/usr/bin/env python3
"""A cable between two network namespaces, with latency: link.py NAMESPACE_A ADDRESS_A NAMESPACE_B ADDRESS_B MILLISECONDS

Each end is a TUN device; packets are handed over so many milliseconds after they came. Prints one line when both ends are up, and how many
packets went each way when it is ended by SIGTERM.
"""
import ctypes
import fcntl
import heapq
import os
import select
import signal
import struct
import subprocess
import sys
import time

CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 0x0001, 0x1000


def end(namespace, address, peer):
    """The device of one end, opened inside its namespace."""
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(there, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"namespace {namespace} cannot be entered")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"cable", IFF_TUN | IFF_NO_PI))
    for command in (f"ip address add {address}/24 dev cable", "ip link set cable mtu 9000 txqueuelen 10000 up", "ip link set lo up"):
        subprocess.run(command.split(), check=True)
    libc.setns(here, CLONE_NEWNET)
    return tun


def main():
    a, a_address, b, b_address, delay = sys.argv[1:6]
    delay = float(delay) / 1000
    ends = [end(a, a_address, b_address), end(b, b_address, a_address)]
    counts, waiting, number = [0, 0], [], 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{counts[0]} packets one way, {counts[1]} the other"))
    print("up", flush=True)
    while True:
        patience = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for ready in select.select(ends, [], [], patience)[0]:
            side = ends.index(ready)
            packet = os.read(ready, 65536)
            counts[side] += 1
            number += 1
            heapq.heappush(waiting, (time.monotonic() + delay, number, ends[1 - side], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, tun, packet = heapq.heappop(waiting)
            try:
                os.write(tun, packet)
            except BlockingIOError:
                pass  # lost, as on any cable; TCP sends it again


main()
