"""A clip in a window."""

import os
from argparse import ArgumentParser

from holoscan.core import Application
from holoscan.operators import HolovizOp, VideoStreamReplayerOp


class VideoReplayerApp(Application):
    def compose(self):
        video_dir = os.environ.get("HOLOSCAN_INPUT_PATH", "../data")
        replayer_args = self.kwargs("replayer")
        replayer_args["directory"] = os.path.join(video_dir, "racerx")
        if not os.path.exists(replayer_args["directory"]):
            raise ValueError(f"Could not find video data: {replayer_args['directory']=}")
        replayer = VideoStreamReplayerOp(self, name="replayer", **replayer_args)
        visualizer = HolovizOp(self, name="holoviz", **self.kwargs("holoviz"))
        self.add_flow(replayer, visualizer, {("output", "receivers")})


def main(config_file):
    app = VideoReplayerApp()
    # If the --config command line argument was provided, it overrides this file.
    app.config(config_file)
    app.run()


if __name__ == "__main__":
    parser = ArgumentParser(description="Video replayer.")
    parser.add_argument("--config", default="", help="the configuration file")
    parser.parse_args()
    main(config_file=os.path.join(os.path.dirname(__file__), "video_replayer.yaml"))
