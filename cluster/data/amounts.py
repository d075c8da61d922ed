"""Limits on what may be decoded: of one value, of the inputs of one request, of a data set.

A few kilobytes may decode to gigabytes. So the decoded size of a value is read from its header,
checked here, and refused if too large before anything is decoded, for data sets as for questions.
What is in the sample store was checked before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tacl.errors import TooLarge

PICTURE_BYTES = 32 << 20  # of a picture's file
PICTURE_PIXELS = 40_000_000
PICTURE_PARTS = 5_000  # that a decoder reads; a file of millions is made to keep a process busy
PICTURE_ASPECT = 50  # preprocessing would enlarge a longer strip to too much memory
JPEG_SCANS = 100  # each processes all pixels once more
TEXT_CHARACTERS = 200_000
VALUE_BYTES = 32  # overhead of any value in memory
GREY_16 = ("PNG", "PPM")  # formats whose numbers of mode I have 16 bits, others 32
LESS = "; make it smaller, or leave it out"  # ends a refusal
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # some of those that Pillow reads


@dataclass(frozen=True)
class Amount:
    """The decoded size of inputs. Of an animation only the first picture is ever decoded."""

    pixels: int = 0
    characters: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.pixels + other.pixels, self.characters + other.characters)

    def require_within(self, most: Amount, where: str) -> None:
        """Raises TooLarge if it is more than `most`."""
        if self.pixels > most.pixels:
            raise TooLarge(f"{where}: {self.pixels:,} pixels; at most {most.pixels:,}{LESS}")
        if self.characters > most.characters:
            raise TooLarge(
                f"{where}: {self.characters:,} characters; at most {most.characters:,}{LESS}"
            )


VALUE = Amount(PICTURE_PIXELS, TEXT_CHARACTERS)
REQUEST = Amount(64_000_000, 1_280_000)


def of_data_set(stored: int) -> Amount:
    """The limit for a data set of `stored` bytes as it was given: real pictures have some pixels
    for each byte."""
    return Amount(2_000_000_000 + 32 * stored, decoded_bytes(stored))


def decoded_bytes(stored: int) -> int:
    """Bytes that the rows of a file of `stored` bytes may take in memory when they are decoded."""
    return (256 << 20) + 16 * stored


@dataclass
class DecodedSoFar:
    """The total that was decoded so far, which may be `most`; each value may be `VALUE`."""

    most: Amount = VALUE
    total: Amount = field(default_factory=Amount)

    def add(self, one: Amount, where: str) -> None:
        """Add `one` before it is decoded. Raises TooLarge if it, or the total, is too large."""
        one.require_within(VALUE, where)
        self.total += one
        self.total.require_within(self.most, f"{where}, with what came before it")

    def is_over(self) -> bool:
        """Whether the total is too large: then nothing more may be decoded."""
        most = self.most
        return self.total.pixels > most.pixels or self.total.characters > most.characters
