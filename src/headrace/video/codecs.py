"""Which encoder and decoder a video uses: NVIDIA's (NVENC, NVDEC) where they work, otherwise FFmpeg's own.

A build of FFmpeg may have NVENC on a machine without a GPU, so an encoder counts as available if it opens for the
size of the video. The log says which one was taken instead.
"""

from __future__ import annotations

import logging
import re
from fractions import Fraction
from typing import Any

_logger = logging.getLogger("headrace.video")

ENCODERS = {"h264": ("h264_nvenc", "libx264", "mpeg4"), "hevc": ("hevc_nvenc", "libx265")}
"""The encoders of a codec, the best first: that of the hardware, then those that run everywhere."""


def choose_encoder(av: Any, codec: str, width: int, height: int, hardware: bool) -> str:
    """Return the encoder of a codec; any other name than those in `ENCODERS` is an encoder itself.

    Parameters
    ----------
    av
        PyAV.
    codec
        The codec.
    width, height
        The size of the frames.
    hardware
        Whether to take NVENC if it works.
    """
    if codec not in ENCODERS:
        return codec
    first, *software = ENCODERS[codec]
    if hardware and first in av.codecs_available:
        problem = _problem_with(av, first, width, height)
        if problem is None:
            _logger.info("%s is encoded by %s", codec, first)
            return first
        _logger.info("%s does not work here (%s); %s is encoded in software", first, problem, codec)
    elif hardware:
        _logger.info("this build of FFmpeg has no %s; %s is encoded in software", first, codec)
    return next((one for one in software if one in av.codecs_available), software[0])


def _problem_with(av: Any, encoder: str, width: int, height: int) -> Exception | None:
    try:
        context = av.CodecContext.create(encoder, "w")
        context.width, context.height, context.pix_fmt = width, height, "yuv420p"
        context.time_base, context.framerate = Fraction(1, 30), Fraction(30)
        context.open()
    except (ValueError, OSError, av.error.FFmpegError) as error:
        return error
    return None


def quality_options(encoder: str, quality: int, preset: str) -> dict[str, str]:
    """Return the options of an encoder for a constant quality."""
    if encoder.startswith(("libx264", "libx265")):
        return {"crf": str(quality), "preset": preset}
    return {"rc": "vbr", "cq": str(quality)} if encoder.endswith("_nvenc") else {}


def open_input(av: Any, source: str, hardware: bool, **arguments: Any) -> Any:
    """Open a container, decoded by NVDEC if asked for and this build of FFmpeg and the machine have it."""
    module = getattr(av.codec, "hwaccel", None)
    if hardware and module is not None and "cuda" in module.hwdevices_available():
        accelerator = module.HWAccel("cuda", allow_software_fallback=True)
        try:
            accelerator.create(av.Codec("h264", "r"))  # before the source: a live one is connected to once
        except Exception as error:
            _logger.info("NVDEC does not work here (%s); %s is decoded in software", error, source)
        else:
            container = av.open(source, hwaccel=accelerator, **arguments)
            is_used = any(stream.codec_context.is_hwaccel for stream in container.streams.video)
            _logger.info(
                "%s is decoded %s", source, "by NVDEC" if is_used else "in software: NVDEC has no such codec"
            )
            return container
    return av.open(source, **arguments)


def codec_text(av: Any, container: Any) -> str:
    """Return FFmpeg's name for the codec of a video that it cannot decode: ``"none (Zq9x / 0x7839715A)"``."""
    level = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)  # FFmpeg describes a container in its log alone
    try:
        found = re.search(r"Video: ([^,\n]+)", container.dumps_format())
    finally:
        av.logging.set_level(level)
    return found[1].strip() if found is not None else "unknown"
