"""The events of a run: computes, messages and work on the device, recorded in computes and shown to watchers."""
