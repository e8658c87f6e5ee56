"""Pages in the browser: the server that the viewer and the dashboard share; private."""
