"""How much may be decoded: of one value, of the inputs of one request, of a data set.

A few kilobytes decode to gigabytes. So what a value will become is read from its header, weighed
here and refused before it is decoded; where data come in, and where questions do. What is in the
store was weighed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tacl.errors import TooLarge

PICTURE_BYTES = 32 << 20  # of a picture's file
PICTURE_PIXELS = 40_000_000
PICTURE_PARTS = 5_000  # that a decoder reads; one of millions is made to keep a process busy
PICTURE_ASPECT = 50  # a longer strip would be enlarged to more memory than it is worth
JPEG_SCANS = 100  # each goes over all of the pixels once more
TEXT_CHARACTERS = 200_000
VALUE_BYTES = 32  # of any value in memory, beside what it holds
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # of the many that Pillow reads


@dataclass(frozen=True)
class Amount:
    """What inputs are when they are decoded. Of an animation only the first picture ever is."""

    pixels: int = 0
    characters: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.pixels + other.pixels, self.characters + other.characters)

    def require_within(self, most: Amount, where: str) -> None:
        """Raises TooLarge."""
        if self.pixels > most.pixels:
            raise TooLarge(f"{where}: {self.pixels:,} pixels; at most {most.pixels:,}")
        if self.characters > most.characters:
            raise TooLarge(f"{where}: {self.characters:,} characters; at most {most.characters:,}")


VALUE = Amount(PICTURE_PIXELS, TEXT_CHARACTERS)
REQUEST = Amount(64_000_000, 1_280_000)


def of_data_set(stored: int) -> Amount:
    """Of a data set that takes so many bytes as it was given: real pictures have some pixels for
    each of their bytes."""
    return Amount(2_000_000_000 + 32 * stored, decoded_bytes(stored))


def decoded_bytes(stored: int) -> int:
    """What a file of so many bytes may take in memory once its rows are decoded."""
    return (256 << 20) + 16 * stored


@dataclass
class DecodedSoFar:
    """What was decoded so far of what may be: `most`, and of each value `VALUE`."""

    most: Amount = VALUE
    total: Amount = field(default_factory=Amount)

    def add(self, one: Amount, where: str) -> None:
        """Raises TooLarge, before anything of `one` is decoded."""
        one.require_within(VALUE, where)
        self.total += one
        self.total.require_within(self.most, f"{where}, with what came before it")
