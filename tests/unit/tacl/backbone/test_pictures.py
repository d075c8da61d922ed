"""Pictures become what an encoder takes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cluster.data.amounts import PICTURE_ASPECT
from tacl.backbone.inputs import MAX_ASPECT, Images, interpolation
from tacl.errors import BadBase, BadSample, ModalityMismatch
from tacl.spec import BaseSpec
from tests.support import bases


def test_pictures_are_resized_cropped_in_the_centre_and_normalised() -> None:
    array = np.zeros((10, 30, 3), np.uint8)
    array[:, 10:20, 0] = 200  # the central square is red
    inputs = Images(10, (0.5, 0.0, 0.25), (0.5, 1.0, 2.0))
    item = inputs.prepare(bases.png(array))
    assert item.dtype == torch.uint8
    assert item[0].eq(200).all()
    assert item[1:].eq(0).all()
    batch = inputs.collate([item], torch.device("cpu"))
    expected = torch.tensor([(200 / 255 - 0.5) / 0.5, 0.0, -0.125])
    torch.testing.assert_close(batch[0, :, 4, 4], expected)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 24))
def test_every_picture_becomes_a_square(width: int, height: int, size: int) -> None:
    inputs = Images(size, (0.5,) * 3, (0.5,) * 3)
    if max(width, height) > 50 * min(width, height):
        with pytest.raises(BadSample, match="narrow"):
            inputs.prepare(bases.png(width=width, height=height))
    else:
        assert inputs.prepare(bases.png(width=width, height=height)).shape == (3, size, size)


@pytest.mark.parametrize(("width", "height"), [(53, 37), (37, 54), (16, 16), (9, 20), (200, 33)])
def test_resize_and_crop_are_the_reference(width: int, height: int) -> None:
    from torchvision.transforms import v2

    raw = bases.png(width=width, height=height)
    reference = v2.Compose(
        [
            v2.Resize(16, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(16),
            v2.PILToTensor(),
        ]
    )(Image.open(io.BytesIO(raw)).convert("RGB"))
    item = Images(16, (0.0,) * 3, (1.0,) * 3).prepare(raw)
    assert torch.equal(item, reference)


@pytest.mark.parametrize(("width", "height"), [(53, 37), (16, 16), (9, 20)])
def test_squashed_they_are_the_reference(width: int, height: int) -> None:
    """As for SigLIP; and bilinear, as for MobileCLIP."""
    from torchvision.transforms import v2

    raw = bases.png(width=width, height=height)
    resize = v2.Resize((16, 16), interpolation=v2.InterpolationMode.BILINEAR)
    reference = v2.Compose([resize, v2.PILToTensor()])(Image.open(io.BytesIO(raw)).convert("RGB"))
    inputs = Images(16, (0.0,) * 3, (1.0,) * 3, squash=True, interpolation="bilinear")
    assert torch.equal(inputs.prepare(raw), reference)


def test_pictures_are_resized_as_libraries_do_where_they_do_not_train() -> None:
    spec = BaseSpec("timm", "x")
    said = (None, "random", "bicubic", "bilinear")
    found = [interpolation(spec, {"interpolation": how}) for how in said]
    assert found == ["bicubic", "bicubic", "bicubic", "bilinear"]
    with pytest.raises(BadBase, match="resized as lanczos"):
        interpolation(spec, {"interpolation": "lanczos"})


def test_a_digest_says_how_they_are_resized_where_that_is_unusual() -> None:
    plain = Images(16, (0.0,), (1.0,)).description()
    assert plain == {"size": 16, "mean": [0.0], "std": [1.0], "resize": "bicubic"}
    squashed = Images(16, (0.0,), (1.0,), squash=True, interpolation="bilinear").description()
    assert squashed == plain | {"resize": "bilinear", "squash": True}


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_mode_of_picture_becomes_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    kind = "TIFF" if mode == "CMYK" else "PNG"
    Image.new("RGB", (8, 8), "white").convert(mode).save(buffer, kind)
    item = Images(8, (0.0,) * 3, (1.0,) * 3).prepare(buffer.getvalue())
    assert item.eq(255).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_of_grey_are_the_upper_eight(kind: str) -> None:
    """As of X-rays and microscopes."""
    buffer = io.BytesIO()
    grey = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(grey).save(buffer, kind)
    item = Images(8, (0.0,) * 3, (1.0,) * 3).prepare(buffer.getvalue())
    expected = torch.tensor((grey >> 8).astype(np.uint8))
    assert all(torch.equal(channel, expected) for channel in item)


def test_twelve_bits_of_grey_are_brought_to_sixteen() -> None:
    raw = b"P5 8 8 4095\n" + np.full(64, 2048, ">u2").tobytes()
    assert Images(8, (0.0,) * 3, (1.0,) * 3).prepare(raw).eq(128).all()


def test_no_strip_passes_that_cannot_be_cropped() -> None:
    assert PICTURE_ASPECT <= MAX_ASPECT


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_broken_pictures_are_refused(kind: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    inputs = Images(8, (0.0,) * 3, (1.0,) * 3)
    whole = buffer.getvalue()
    inputs.prepare(whole)
    for raw in (b"", b"no picture", whole[: len(whole) // 2], whole[:30]):
        with pytest.raises(BadSample, match="unreadable image"):
            inputs.prepare(raw)


def test_a_text_is_no_picture() -> None:
    with pytest.raises(ModalityMismatch, match="hello"):
        Images(8, (0.0,) * 3, (1.0,) * 3).prepare("hello")


def test_a_picture_that_is_open_already_is_refused_by_what_it_is() -> None:
    given: Any = Image.new("RGB", (8, 8))
    with pytest.raises(BadSample, match="found Image .* the bytes of a picture should be"):
        Images(8, (0.0,) * 3, (1.0,) * 3).prepare(given)
