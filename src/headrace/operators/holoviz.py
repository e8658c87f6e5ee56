"""HolovizOp: shows what a pipeline makes, in a browser, in files, or as arrays."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from headrace import gpu, notebook
from headrace.conditions import BooleanCondition
from headrace.core.construction import named_values, needs_fragment
from headrace.core.errors import ParameterError
from headrace.core.parameters import declared, parameter
from headrace.core.ports import ConditionType, IOSpec
from headrace.core.run_files import path_of_start
from headrace.core.spec import OperatorSpec
from headrace.operators.arrays import Workplace
from headrace.operators.tensor_operator import TensorOperator, place_of, tensors_of
from headrace.tensor import Tensor, TensorMap, as_tensor
from headrace.tensor.copies import HostMemory, copy_from_pinned
from headrace.viewer import input_spec
from headrace.viewer.display import Display, Outlet, OutletError, Scene
from headrace.viewer.events import Event, Events
from headrace.viewer.input_spec import InputSpec, input_specs
from headrace.viewer.layers import LayerError, guess, match, refuse_3d
from headrace.viewer.outlets import PngOutlet, RerunOutlet, VideoOutlet, chosen_outlets
from headrace.viewer.renderer import Renderer, color_table

if TYPE_CHECKING:
    from dataclasses import InitVar

    from headrace.core.parameters import argument
    from headrace.resources import Allocator

_log = logging.getLogger("headrace.viewer")

# The ports that exist only if a parameter enables them.
_BUFFER_INPUT, _BUFFER_OUTPUT = "render_buffer_input", "render_buffer_output"
_LARGEST = 16384  # pixels
_CONTROLS = 80  # pixels, of the page beside the picture
# The number of frames whose copy to the host has not finished; a further one is dropped.
_MOST_COPIES = 2


@declared
class HolovizOp(TensorOperator):
    """Shows images, shapes and text: each tensor is a layer of the picture. Rerun shows layers in 3D, too.

    The picture is drawn on the host, on a thread of the viewer's own. `compute` hands over the newest tensors and
    returns; frames that come faster than they can be shown are dropped and counted. Tensors on a device are copied
    to the host on the operator's stream, without waiting, and only as often as a picture is wanted.

    It is shown by a page in the browser, whose address is printed, where there is a display. ``HEADRACE_VIEW``,
    which ``headrace run --view`` sets, and the parameter `outlets` name this and other outlets, such as ``out.mp4``
    (see the page about the viewer in the documentation).

    Inputs: `receivers` takes any number of connections; a message is an array, or a dict of arrays by name.
    `input_specs` takes a list of :class:`InputSpec`, which stay in effect until the next.

    Memory: for `render_buffer_output`, one block of ``width * height * 4`` bytes for each frame, from `allocator`:
    on the device if a drawn tensor is, else on the host. None if the buffer comes in. Beside that, pinned host
    memory of the size of the tensors on the device, reused.

    Parameters
    ----------
    fragment
        The fragment (or application) that the operator belongs to.
    *args
        Conditions and resources.
    allocator
        Allocates the emitted pictures.
    tensors
        How tensors are drawn: dicts or :class:`InputSpec`. Each must be in some message of every compute; others
        are ignored. Without any, the first messages make the list: images are drawn as such, and ``(N, 2)`` floats
        as crosses.
    color_lut
        The colours of ``color_lut`` layers: rows of 4 floats from 0 to 1.
    window_title
        The title of the page.
    width, height
        The size of the picture in pixels.
    framerate
        The most pictures a second that are drawn for the page.
    fullscreen
        Whether the picture fills the page, with the controls over it.
    headless
        Whether nothing is shown, unless `outlets` or ``HEADRACE_VIEW`` says so.
    outlets
        The outlets of the pictures, as ``HEADRACE_VIEW`` names them: ``"page"``, ``"out.png,out.mp4"``, ``"none"``.
        ``HEADRACE_VIEW`` comes first.
    framebuffer_srgb
        Whether the picture is stored with the sRGB curve.
    enable_render_buffer_input, enable_render_buffer_output
        Whether there are the ports for a picture as an array, ``(height, width, 4)`` of uint8.
    on_event
        Called for what somebody does in the page, on a thread of the viewer's own; an exception is raised in the
        next compute. It is given a dict with a ``type`` and what belongs to it:

        - ``"key"``: ``code``, the browser's name of the key, such as ``"KeyA"``; ``action``, which is ``"press"``,
          ``"release"`` or ``"repeat"``; ``modifiers``, a tuple of some of ``"shift"``, ``"control"``, ``"alt"``,
          ``"caps_lock"`` and ``"num_lock"``.
        - ``"char"``: ``text``.
        - ``"button"``: ``button``, which is ``"left"``, ``"middle"`` or ``"right"``; ``action``, ``modifiers``.
        - ``"cursor"``: ``x`` and ``y``, in pixels of the picture. ``"scroll"``: ``x`` and ``y``.
        - ``"resize"``: ``width``, ``height``, ``framebuffer_width``, ``framebuffer_height``.
        - ``"close"``: the page's Close button.
    interrupt_app_on_window_close
        Whether closing ends the run; otherwise it only ends this operator.
    font_path
        A TrueType or OpenType font for text.
    cuda_stream_pool
        The pool of the operator's stream.
    window_close_condition
        The condition that closing turns off; one that several viewers share closes all of them.
    name
        The name of the operator.
    """

    parallel = True  # it may draw the picture, and wait for the device for that

    InputSpec: ClassVar[TypeAlias] = InputSpec
    """The class that makes specifications of dicts."""
    InputType: ClassVar[TypeAlias] = input_spec.InputType
    DepthMapRenderMode: ClassVar[TypeAlias] = input_spec.DepthMapRenderMode

    if TYPE_CHECKING:  # no parameter
        window_close_condition: InitVar[BooleanCondition | None] = argument(default=None)
    on_event: Callable[[Event], object] | None = parameter(default=None, check=callable)
    allocator: Allocator = parameter(default=None)
    tensors: Sequence[Any] = parameter(default=(), check=lambda given: input_specs(given, "tensors"))
    color_lut: Sequence[Any] = parameter(default=(), check=color_table)
    window_title: str = "Holoviz"
    width: int = parameter(default=1920, minimum=1, maximum=_LARGEST)
    height: int = parameter(default=1080, minimum=1, maximum=_LARGEST)
    framerate: float = parameter(default=60.0, minimum=1e-6, maximum=1000)
    fullscreen: bool = False
    headless: bool = False
    outlets: str = ""
    framebuffer_srgb: bool = False
    enable_render_buffer_input: bool = False
    enable_render_buffer_output: bool = False
    interrupt_app_on_window_close: bool = False
    font_path: str = parameter(default="", check=lambda given: _check_font(given))

    @needs_fragment
    def _create(
        self,
        fragment: Any,
        *args: Any,
        name: str = "",
        window_close_condition: BooleanCondition | None = None,
        **kwargs: Any,
    ) -> None:
        # `setup` declares the ports, before the parameters are set: which of them exist is looked up here.
        given = {named.name: named.value for named in named_values(args)} | kwargs
        self._enabled = {
            port
            for port in (_BUFFER_INPUT, _BUFFER_OUTPUT)
            if isinstance(given.get(f"enable_{port}"), (bool, np.bool_, int)) and given[f"enable_{port}"]
        }
        condition = window_close_condition or BooleanCondition(fragment, name="window_close_condition")
        if not isinstance(condition, BooleanCondition):
            raise TypeError(f"window_close_condition must be a BooleanCondition, not {condition!r}")
        self._close_condition = condition
        name = name or fragment._headrace.unused_name("holoviz_op")
        super().__init__(fragment, *args, condition, name=name, **kwargs)
        self.url = ""
        """The address of the page, with its token, while the viewer runs; empty if there is none."""
        self.error: Exception | None = None
        """The error of a picture that was drawn in the order of a stream; the next compute raises it."""
        self._display: Display | None = None
        self._events: Events | None = None

    if not TYPE_CHECKING:  # a type checker has the parameters as arguments (`declared`)
        __init__ = _create

    def _repr_html_(self) -> str:
        if not self.url:
            return notebook.paragraph(
                f"{self!r} shows no page now; it does while it runs, with outlets='page'"
            )
        return notebook.page(self.url, self.width, self.height + _CONTROLS)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.input("receivers", size=IOSpec.ANY_SIZE)
        spec.input("input_specs").condition(ConditionType.NONE)
        if _BUFFER_INPUT in self._enabled:
            spec.input(_BUFFER_INPUT)
        if _BUFFER_OUTPUT in self._enabled:
            spec.output(_BUFFER_OUTPUT)

    @property
    def frames_received(self) -> int:
        """The number of frames that the viewer was given in this run."""
        return 0 if self._display is None else self._display.received

    @property
    def frames_shown(self) -> int:
        """The number of frames that were drawn to be shown."""
        return 0 if self._display is None else self._display.shown

    @property
    def frames_dropped(self) -> int:
        """The number of frames that were not shown, because a newer one came or nobody looked."""
        return 0 if self._display is None else self._display.dropped

    # The run.

    def start(self) -> None:
        """Check the parameters, and open what shows the pictures."""
        where = f"operator {self.name!r}"
        if self.fullscreen and self.headless:
            raise ParameterError(f"{where}: fullscreen and headless exclude each other; set one of them")
        self._renderer = Renderer(
            self.width,
            self.height,
            input_specs(self.tensors, "tensors", self.InputSpec),
            color_lut=self.color_lut,
            font_path=self.font_path,
            framebuffer_srgb=self.framebuffer_srgb,
        )
        self._specs = list(self._renderer.specs)
        self._changed_specs: list[InputSpec] = []
        self._matched: tuple[dict[str, Any], list[InputSpec]] = {}, []
        # Scenes whose copy to the host may not have finished, with the event that it has.
        self._in_flight: dict[int, tuple[Scene, Any]] = {}
        self._memory = HostMemory()
        self.error = self._display = None
        self._open_outlets()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Check what was received and hand it over; draw it here only for an output."""
        self._raise_failure()
        tensors = self._receive_tensors(op_input)
        try:
            specs = self._match(op_input.receive("input_specs"), tensors)
            if not self._shows_3d:
                refuse_3d(specs)
        except LayerError as error:
            raise LayerError(f"operator {self.name!r}, input 'receivers': {error}") from None
        tensors = {spec.tensor_name: tensors[spec.tensor_name] for spec in specs}
        is_on_device = any(tensor.device.is_cuda for tensor in tensors.values())
        stream = op_input.receive_cuda_stream("receivers") if is_on_device else None
        scene = Scene(specs, tensors, time=context.timestamp / 1e9)
        if self._enabled:
            self._draw_buffer(op_input, op_output, scene, stream)
        elif self._display is not None:
            self._hand_over(self._display, scene, stream)

    def stop(self) -> None:
        """Close what shows the pictures, and end the viewer's threads."""
        display, events = self._display, self._events
        try:
            if display is not None:
                # The device is done; the calls that would have said so may not have come yet.
                for key in list(self._in_flight):  # in the order of the frames
                    left = self._in_flight.pop(key, None)
                    if left is not None and left[1].is_done:
                        display.hand_over(left[0])
                display.close()
        finally:
            self.url = ""
            if events is not None:
                events.close()
                self._events = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what went wrong on another thread, once."""
        for owner in (self, self._events, self._display):
            if owner is not None and owner.error is not None:
                error, owner.error = owner.error, None
                raise error

    # Outlets.

    def _open_outlets(self) -> None:
        names, are_named = chosen_outlets(self.outlets, os.environ, self.headless, f"operator {self.name!r}")
        # Without any outlet nothing is shown, and so nothing is missing of what is.
        self._shows_3d = any(map(_is_rerun, names)) or not (names or self._enabled)
        outlets: list[Outlet] = []
        try:
            for name in names:
                try:
                    outlet = self._open_outlet(name, are_named)
                except OSError as error:
                    where = f"operator {self.name!r}: the outlet {name!r}"
                    raise OutletError(f"{where} cannot be opened: {error}") from error
                if outlet is not None:
                    outlets.append(outlet)
        except BaseException:
            for outlet in outlets:
                outlet.close()
            raise
        if outlets:
            self._display = Display(self._renderer, outlets, self.framerate, self.name)

    def _open_outlet(self, name: str, is_named: bool) -> Outlet | None:
        if name == "page":
            try:
                return self._open_page()
            except ImportError as error:
                if is_named:
                    raise
                _log.warning("viewer %r shows nothing: %s", self.name, error)
                return None
        if _is_rerun(name):
            target = {"rerun": "window", "rerun-web": "web"}.get(name) or str(path_of_start(name, self))
            return RerunOutlet(self.window_title, target)
        if name.lower().endswith(".png"):
            return PngOutlet(name)
        return VideoOutlet(str(path_of_start(name, self)), self.framerate)

    def _open_page(self) -> Outlet:
        from headrace.viewer.page_server import PageServer

        self._events = Events(self.on_event, self._on_close, self.name)
        port = os.environ.get("HEADRACE_VIEW_PORT") or "0"
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"HEADRACE_VIEW_PORT={port!r} must be a number from 0 to 65535")
        page = PageServer(
            self.window_title,
            (self.width, self.height),
            host=os.environ.get("HEADRACE_VIEW_HOST") or "127.0.0.1",
            port=int(port),
            token=os.environ.get("HEADRACE_VIEW_TOKEN", ""),
            is_fullscreen=self.fullscreen,
            on_event=self._events.add,
            on_watch=lambda: None if self._display is None else self._display.wake(),
            statistics=lambda: {
                "received": self.frames_received,
                "shown": self.frames_shown,
                "dropped": self.frames_dropped,
            },
            draw=lambda scene, specs: self._renderer.draw(specs, scene.arrays),
            on_switch=lambda: None if self._display is None else self._display.show_again(),
        )
        self.url = page.url
        print(f"{self.window_title}: {page.url}", flush=True)
        return page

    # Events of the page; called on its threads.

    def _on_close(self, call: Callable[[], None]) -> None:
        self._close_condition.disable_tick()
        call()
        if self.interrupt_app_on_window_close:
            self.fragment.stop_execution()

    # Messages.

    def _receive_tensors(self, op_input: Any) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for message in op_input.receive("receivers") or ():
            for name, tensor in tensors_of(message, self, "receivers").items():
                tensors.setdefault(name, tensor)  # the first of a name counts; later ones are drawn above it
        return tensors

    def _match(self, message: Any, tensors: dict[str, Tensor]) -> list[InputSpec]:
        """Return the specifications of this compute, resolved."""
        shapes = {name: (tensor.shape, tensor.dl_dtype) for name, tensor in tensors.items()}
        if message is None and shapes == self._matched[0]:
            return self._matched[1]  # as most of the time: the same tensors as before
        if message is not None:
            try:
                self._changed_specs = input_specs(message, "the message", self.InputSpec)
            except ValueError as error:
                raise ValueError(f"operator {self.name!r}, input 'input_specs': {error}") from None
        if not self._specs and not self._changed_specs:
            self._specs = guess(tensors, self._renderer.has_lut)
        changed = {spec.tensor_name: spec for spec in self._changed_specs}
        specs = [changed.pop(spec.tensor_name, spec) for spec in self._specs]
        # A layer that an earlier message added is left out while its tensor does not come.
        specs += [spec for spec in changed.values() if message is not None or spec.tensor_name in tensors]
        self._matched = shapes, match(specs, tensors, self._renderer.has_lut)
        return self._matched[1]

    # Pictures.

    def _hand_over(self, display: Display, scene: Scene, stream: gpu.StreamHandle | None) -> None:
        """Hand over a scene, after copies to the host when they are complete."""
        if stream is None:
            scene.arrays = self._on_host(scene.arrays, stream)
            display.hand_over(scene)
            return
        if len(self._in_flight) >= _MOST_COPIES or not display.wants_frame():
            display.skip()
            return
        scene.arrays = self._on_host(scene.arrays, stream)
        event = stream.stream.record()
        self._in_flight[id(scene)] = scene, event

        def done(error: Exception | None) -> None:
            # Taken out first: `stop` may hand it over meanwhile.
            if self._in_flight.pop(id(scene), None) is not None and error is None:
                display.hand_over(scene)

        gpu.when_done(stream, done, event=event)

    def _on_host(self, tensors: Any, stream: gpu.StreamHandle | None) -> dict[str, np.ndarray]:
        """Return arrays that hold the tensors when the stream has passed this point."""
        return {
            name: self._memory.copy(as_tensor(tensor, stream=stream), stream)
            if stream is not None and tensor.device.is_cuda
            else np.asarray(tensor)
            for name, tensor in tensors.items()
        }

    def _draw_buffer(
        self, op_input: Any, op_output: Any, scene: Scene, stream: gpu.StreamHandle | None
    ) -> None:
        """Draw the picture in the order of the pipeline, and emit it."""
        shape, dtype = (self.height, self.width, 4), np.dtype("u1")
        if _BUFFER_INPUT in self._enabled:
            buffer = self._received_buffer(op_input.receive(_BUFFER_INPUT), shape, dtype)
            if buffer.device.is_cuda:
                stream = op_input.receive_cuda_stream(_BUFFER_INPUT)
        else:
            buffer = Workplace(self.name, self.allocator, stream).empty(shape, dtype)
        scene.pixels = pixels = np.empty(shape, dtype)
        scene.arrays = self._on_host(scene.arrays, stream)
        result = np.asarray(buffer) if stream is None else self._memory.array(shape, dtype)

        def draw() -> None:
            result[...] = self._renderer.draw(scene.specs, scene.arrays, pixels)
            if self._display is not None:
                self._display.hand_over(scene)

        def draw_on_stream() -> None:
            try:
                draw()
            except Exception as error:
                self.error = error

        if stream is None:
            draw()
        else:  # between two pieces of the stream's work: after the copies to the host, before that back
            gpu.launch_host(stream, draw_on_stream)
            copy_from_pinned(buffer, result, stream)
        if _BUFFER_OUTPUT in self._enabled:
            op_output.emit(TensorMap({_BUFFER_OUTPUT: buffer}), _BUFFER_OUTPUT)

    def _received_buffer(self, message: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        port = _BUFFER_INPUT
        where = place_of(self, port)
        found = list(tensors_of(message, self, port).values())
        if len(found) != 1:
            raise ValueError(f"{where}: a message must be one tensor to draw to, and this has {len(found)}")
        tensor = found[0]
        if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_contiguous():
            raise ValueError(
                f"{where}: the buffer must be {shape} of {dtype}, contiguous; it has the shape {tensor.shape} "
                f"and the dtype {tensor.dtype}"
            )
        if tensor.is_readonly:
            raise ValueError(f"{where}: the buffer is read-only; send one that can be drawn to")
        return tensor


def _is_rerun(outlet: str) -> bool:
    return outlet in ("rerun", "rerun-web") or outlet.lower().endswith(".rrd")


def _check_font(path: str) -> None:
    if path and not os.path.isfile(path):
        raise ValueError("there is no such file")
