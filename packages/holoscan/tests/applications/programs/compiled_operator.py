"""An operator of HoloHub that wraps compiled code: it can be imported, and says why it cannot be made."""

from holoscan.conditions import CountCondition
from holoscan.core import Application
from holoscan.operators import GXFCodeletOp, PingTxOp
from holoscan.resources import GXFComponentResource


class DecoderApp(Application):
    def compose(self):
        source = PingTxOp(self, CountCondition(self, 1), name="source")
        decoder = GXFCodeletOp(
            self,
            "nvidia::gxf::VideoDecoderRequest",
            name="decoder",
            clock=GXFComponentResource(self, "nvidia::gxf::RealtimeClock", name="clock"),
        )
        self.add_flow(source, decoder)


if __name__ == "__main__":
    DecoderApp().run()
