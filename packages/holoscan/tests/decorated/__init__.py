"""Programs with create_op, which run on the SDK and here: `programs`, and what the SDK printed: `printed.json`."""
