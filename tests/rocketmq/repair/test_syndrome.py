"""The CRC names the wrong bits, or says nothing; it never names others."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.repair.crc_correction import CRC32C, MOST_CANDIDATES, Crc, Diagnosis
from rmqctl.repair.crc_correction import diagnose as diagnosed
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.repair.heal import BODY_CRC


def diagnose(body: bytes, stored: int) -> Diagnosis:
    return diagnosed(body, stored, BODY_CRC)


def corrected(body: bytes, found: Diagnosis) -> bytes | None:
    """The body with the correction made; None without one."""
    if found.correction is None:
        return None
    out = bytearray(body)
    for i, bits in enumerate(found.correction.pattern):
        if found.correction.at >= 0:
            out[found.correction.at + i] ^= bits
    return bytes(out)


def flipped(body: bytes, first: int, pattern: int) -> bytes:
    """The body with a pattern of bits exclusive-ored, ``first`` bits from its end."""
    return (int.from_bytes(body, "big") ^ (pattern << first)).to_bytes(len(body), "big")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31, 200])
def test_every_single_bit_of_a_body_is_found(size: int) -> None:
    body = random.Random(size).randbytes(size)
    crc = crc32(body) & MASK
    for bit in range(8 * size):
        damaged = flipped(body, bit, 1)
        assert corrected(damaged, diagnose(damaged, crc)) == body


@pytest.mark.parametrize("size", [1000, 11_000])
def test_single_bits_of_larger_bodies_are_found(size: int) -> None:
    chance = random.Random(size)
    body = chance.randbytes(size)
    crc = crc32(body) & MASK
    for _ in range(60):
        damaged = flipped(body, chance.randrange(8 * size), 1)
        assert corrected(damaged, diagnose(damaged, crc)) == body


@pytest.mark.slow
@pytest.mark.parametrize("size", [2000, 11_000])
def test_every_single_bit_of_larger_bodies_has_its_own_syndrome(size: int) -> None:
    body = bytes(size)
    crc = crc32(body) & MASK
    for bit in range(0, 8 * size, 8 * size // 4000 or 1):
        damaged = flipped(body, bit, 1)
        assert corrected(damaged, diagnose(damaged, crc)) == body


def test_every_bit_of_the_crc_field_is_found() -> None:
    body = b"a body of some length"
    crc = crc32(body) & MASK
    for bit in range(32):
        found = diagnose(body, crc ^ (1 << bit))
        assert found.correction is not None
        assert (found.correction.at, found.correction.pattern) == (-1, (1 << bit).to_bytes(4, "big"))


@given(st.integers(1, 400), st.integers(2, 16), st.randoms(use_true_random=False))
def test_a_burst_is_found_or_not_but_never_another(size: int, span: int, chance: random.Random) -> None:
    if 8 * size < span:
        return
    body = chance.randbytes(size)
    pattern = 1 << (span - 1) | 1 | chance.getrandbits(span)
    damaged = flipped(body, chance.randrange(8 * size - span + 1), pattern)
    found = diagnose(damaged, crc32(body) & MASK)
    assert corrected(damaged, found) in (None, body)
    assert found.correction is None or found.tried <= MOST_CANDIDATES


def test_short_bursts_of_short_bodies_are_found() -> None:
    chance = random.Random(7)
    healed = 0
    for _ in range(300):
        body, span = chance.randbytes(100), chance.randrange(2, 9)
        pattern = 1 << (span - 1) | 1 | chance.getrandbits(span)
        damaged = flipped(body, chance.randrange(800 - span), pattern)
        healed += corrected(damaged, diagnose(damaged, crc32(body) & MASK)) == body
    assert healed > 270  # the rest has a second burst of up to 16 bits with the same syndrome


def test_two_far_bits_are_never_healed_as_something_else() -> None:
    chance = random.Random(3)
    for _ in range(100):
        body = chance.randbytes(300)
        damaged = flipped(flipped(body, chance.randrange(1000), 1), 1200 + chance.randrange(1000), 1)
        assert corrected(damaged, diagnose(damaged, crc32(body) & MASK)) is None


def test_a_body_that_fits_has_nothing_to_correct() -> None:
    assert diagnose(b"sound", crc32(b"sound") & MASK) == Diagnosis(0, 0, None)


def test_large_bodies_are_looked_at_and_not_believed() -> None:
    body = bytes(1 << 20)
    damaged = flipped(body, 12345, 1)
    found = diagnose(damaged, crc32(body) & MASK)
    assert found.fits >= 1
    assert found.correction is None
    assert found.tried > MOST_CANDIDATES


def test_short_bursts_in_large_bodies() -> None:
    """Long bursts fit a large body by chance; they do not speak against a short one. Never healed wrongly."""
    chance = random.Random(11)
    healed = 0
    for size in (4096, 8192, 16384) * 20:
        body = chance.randbytes(size)
        stored = crc32(body) & MASK
        span = chance.randrange(2, 5)
        at = chance.randrange(8 * size - span)
        number = int.from_bytes(body, "big") ^ ((1 << (span - 1) | 1) << at)
        damaged = number.to_bytes(size, "big")
        found = diagnose(damaged, stored).correction
        if found is not None:
            fixed = bytearray(damaged)
            for i, bits in enumerate(found.pattern):
                fixed[found.at + i] ^= bits
            assert bytes(fixed) == body
            healed += 1
    assert healed >= 45  # bursts of 4 bits in 16 KiB are just more than 2^20 candidates


@pytest.mark.parametrize("burst", [1, 2, 8, 16])
def test_a_crc_with_all_its_bits_and_another_polynomial(burst: int) -> None:
    whole = Crc(CRC32C, crc32c)
    chance = random.Random(burst)
    for _ in range(20):
        body = chance.randbytes(chance.randrange(40, 600))
        pattern = 1 | 1 << burst - 1 | chance.getrandbits(burst)
        damaged = flipped(body, chance.randrange(8 * len(body) - burst), pattern)
        found = diagnosed(damaged, crc32c(body), whole)
        assert corrected(damaged, found) in (body, None), "never another body"
        assert burst > 8 or corrected(damaged, found) == body
    assert diagnosed(b"sound", crc32c(b"sound"), whole).correction is None
