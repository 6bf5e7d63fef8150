"""The checksum of a run of parameters: what a plain link does not notice by itself. Pure.

A changed bit of a parameter gives another parameter, which nothing else would refuse. The checksum must cost little
beside the merge, and CRC-32 of all bytes takes six times as long as reading them. So the bytes are summed to one row of
numbers, which takes little more than reading them, and the row has a CRC-32.

A single changed bit is always found: it changes one number of the row by a power of two, so a run of its bits, and
CRC-32 finds any one such run. Anything else is missed once in 2^32, except rows that change places. Whoever changes
bytes on purpose can make a checksum that fits: against that there is TLS.
"""

import struct
import zlib

import numpy as np

# Bytes of a row: a page.
ROW = 4096


def checksum(round: int, stage: int, part: int, data: bytes | memoryview) -> bytes:
    """Of a run of parameters, and of where it belongs."""
    where = zlib.crc32(struct.pack("<IBI", round, stage, part))
    return struct.pack("<I", zlib.crc32(_row(data), where))


def _row(data: bytes | memoryview) -> bytes | memoryview:
    """The sum of all rows, as numbers of 8 bytes, little-endian, modulo 2^64. One row is its own sum."""
    if len(data) <= ROW:
        return data
    whole = len(data) // ROW
    total: np.ndarray = np.add.reduce(np.frombuffer(data, "<u8", whole * ROW // 8).reshape(whole, ROW // 8))
    if len(data) > whole * ROW:
        total += np.frombuffer(bytes(data[whole * ROW :]).ljust(ROW, b"\0"), "<u8")
    summed: memoryview = total.astype("<u8", copy=False).data
    return summed
