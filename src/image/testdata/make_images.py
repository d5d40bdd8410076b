#!/usr/bin/env python3
"""Small images of every format that src/image decodes, and what Pillow and torchvision make of them, for image_test.cpp.

    python3 src/image/testdata/make_images.py    # needs pillow, torch and torchvision; rewrites its folder's files

`images.json` has each file's upright pixels as a SHA-like sum (see `sum_of`) for those that must agree in every pixel, and
the pixels of resized images.
"""

import io
import json
import pathlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import resize

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 23, 17


def picture(mode="RGB"):
    """Gradients and a coarse pattern: edges, and no two rows alike."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    colours = np.stack([x * 255 // (WIDTH - 1), y * 255 // (HEIGHT - 1), (x * 7 + y * 13) % 5 * 60], -1)
    return Image.fromarray(colours.astype(np.uint8)).convert(mode)


def sum_of(image):
    """FNV-1a, 64 bits, over width, height (four bytes each, lowest first) and the bytes of the pixels."""
    value = 0xCBF29CE484222325
    for byte in image.width.to_bytes(4, "little") + image.height.to_bytes(4, "little") + image.tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def rotated(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def files():
    yield "rgb.png", picture(), {}
    yield "alpha.png", picture("RGBA"), {}
    yield "grey.png", picture("L"), {}
    yield "one-bit.png", picture("1"), {}
    yield "palette.png", picture().quantize(7), {}
    yield "exif.png", picture(), {"exif": rotated(6)}
    yield "colour.jpg", picture(), {"quality": 90}
    yield "grey.jpg", picture("L"), {"quality": 90}
    yield "progressive.jpg", picture(), {"quality": 90, "progressive": True}
    for orientation in range(1, 9):
        yield f"turned-{orientation}.jpg", picture(), {"quality": 90, "exif": rotated(orientation)}
    yield "cmyk.jpg", picture("CMYK"), {"quality": 90}
    yield "lossless.webp", picture(), {"lossless": True}
    yield "lossy.webp", picture(), {"quality": 80}
    yield "exif.webp", picture(), {"lossless": True, "exif": rotated(8)}


def main():
    known = {}
    for name, image, options in files():
        image.save(HERE / name, **options)
        read = ImageOps.exif_transpose(Image.open(HERE / name)).convert("RGB")
        known[name] = {"width": read.width, "height": read.height, "sum": sum_of(read)}
    both = io.BytesIO()
    picture().save(both, "WEBP", save_all=True, append_images=[picture("L").convert("RGB")], lossless=True)
    (HERE / "animation.webp").write_bytes(both.getvalue())
    source = picture()
    pixels = torch.from_numpy(np.asarray(source).copy()).permute(2, 0, 1)
    resized = []
    for width, height in ((12, 12), (48, 36), (23, 40), (5, 17), (100, 3)):
        theirs = resize(pixels, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
        other = np.asarray(source.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
        ours = theirs.permute(1, 2, 0).numpy()
        far = int(np.abs(other - ours.astype(int)).max())
        print(f"{width} x {height}: torchvision and Pillow differ by up to {far}")
        resized.append({"width": width, "height": height, "pixels": ours.tobytes().hex()})
    (HERE / "images.json").write_text(json.dumps({"files": known, "resized": resized}, indent=1) + "\n")


if __name__ == "__main__":
    main()
